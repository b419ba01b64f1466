"""`pdd plan --report`: one self-contained page with pictures made here, and the pictures as SVG and PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdd.planner.answer import Answer
from pdd.planner.catalogue import Chip
from pdd.planner.model_judge import ModelJudge
from pdd.planner.report.charts import draw_bathtub, draw_cdfs, draw_pareto, draw_radar, draw_timeline
from pdd.planner.report.files import make_png, make_svg
from pdd.planner.report.page import Figure, build_page
from pdd.planner.roles import DIMENSIONS, REFERENCE, build_radar


def build_figures(answer: Answer, judge: ModelJudge, chips: Mapping[str, Chip]) -> list[Figure]:
    """The pictures of an answer. Runs the three ways once more for the requests themselves (about a second)."""
    from pdd.planner.sim import trace_request

    found = answer.search
    rate = found.question.spec.load.rate_per_s
    figures = [
        Figure(
            "pareto",
            "Every simulated plan: right is more for the money, down is faster. Big and green: chosen; hollow and "
            "orange: breaks the promise. Bars: 95 % intervals over seeds.",
            draw_pareto(answer),
            "What the money buys",
        )
    ]
    fleets = {"PDD": found.best.fleet}
    if answer.comparison:
        fleets |= {"naive": answer.comparison.naive.fleet, "same site": answer.comparison.same_site.fleet}
    runs = {name: judge.run(fleet, found.sla, rate) for name, fleet in fleets.items()}
    ttft = {name: np.sort(run.columns.ttft_s) for name, run in runs.items()}
    figures.append(
        Figure(
            "ttft",
            "Share of requests whose tokens flow within a time, at equal cost and the load asked for; simulated.",
            draw_cdfs(ttft, found.sla.ttft_p99_s),
            "Time to first token",
        )
    )
    columns = runs["PDD"].columns
    relayed = np.flatnonzero((columns.route == 1) & np.isfinite(columns.landed_s))
    picked = relayed if len(relayed) else np.flatnonzero(columns.output_tokens > 2)
    if len(picked):
        waits = (columns.landed_s - columns.first_s)[picked] if len(relayed) else columns.done_s[picked]
        middle = int(picked[np.argsort(waits)[len(picked) // 2]])
        caption = "The request in the middle of those that were relayed" if len(relayed) else "A request"
        other = runs["naive"].columns if "naive" in runs else None
        # The same request has the same place: all ways meet the same load.
        same = other is not None and np.array_equal(other.input_tokens, columns.input_tokens)
        without = trace_request(other, middle) if other is not None and same else None
        caption += ", and the same request where nothing hides the transfer; simulated." if without else "; simulated."
        drawn = draw_timeline(trace_request(columns, middle), without)
        figures.append(Figure("timeline", caption, drawn, "One request through the pipelines"))
    mean = float(np.mean(columns.input_tokens)) if len(columns.input_tokens) else 1.0
    figures.append(
        Figure(
            "bathtub",
            "What a prefill engine earns against the hit rate, tail chunks included, for a prompt of mean length.",
            draw_bathtub(found.best.fleet, mean),
            "Hit rate, work and revenue",
        )
    )
    known = [chips[name] for name in found.question.engines if name in chips]
    if known and REFERENCE in chips:
        shown = [*known, *([chips[REFERENCE]] if chips[REFERENCE] not in known else [])]
        caption = f"Each ring outward is twice as much; the bold one is {REFERENCE}. For people: plans use times."
        drawn = draw_radar(build_radar(shown, chips[REFERENCE]), DIMENSIONS)
        figures.append(Figure("radar", caption, drawn, "The chips"))
    return figures


@dataclass(frozen=True, slots=True)
class Report:
    """page: HTML. pictures: file name -> content, each picture as SVG and as PNG."""

    page: str
    pictures: Mapping[str, bytes]


def build_report(
    answer: Answer, judge: ModelJudge, chips: Mapping[str, Chip], command: str = "", *, pictures: bool = True
) -> Report:
    """The page and its pictures as files. Without `pictures` only the page."""
    figures = build_figures(answer, judge, chips)
    used = {name: chips[name] for name in answer.search.question.engines if name in chips}
    files: dict[str, bytes] = {}
    for figure in figures if pictures else ():
        svg = make_svg(figure.svg)
        files |= {f"{figure.name}.svg": svg.encode(), f"{figure.name}.png": make_png(svg)}
    return Report(build_page(answer, figures, command, used), files)
