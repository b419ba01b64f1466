"""The report as one HTML page: verdict, pictures, tables. It needs no network and reads on a phone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pdd import __version__
from pdd.planner.answer import Answer
from pdd.planner.catalogue import Chip
from pdd.planner.explain import describe_sla, explain, verdict
from pdd.planner.judge import Span, meets
from pdd.planner.pareto import Candidate
from pdd.planner.report.svg import DARK, STYLE
from pdd.planner.units import format_bits_per_s, format_seconds

PAGE_STYLE = (
    """
:root{--text:#1b1b1b;--dim:#595959;--grid:#e0e0e0;--back:#fff;--card:#f6f7f8;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--text:#e8e8e8;--dim:#ababab;--grid:#3a3a3a;--back:#141414;--card:#1e1e1e;"""
    + DARK
    + """}}
*{box-sizing:border-box}body{margin:0 auto;padding:.75rem;max-width:1160px;background:var(--back);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.3rem;line-height:1.35;margin:.2rem 0}h2{font-size:1.05rem;margin:1.4rem 0 .4rem}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:.75rem;align-items:start}
figure{margin:0;padding:.6rem;background:var(--card);border-radius:8px}
figure h2{margin:0 0 .3rem}figcaption{margin-top:.4rem;font-size:.85rem;color:var(--dim)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap;vertical-align:top}
th:first-child,td:first-child{text-align:left}.words{white-space:normal;text-align:left;min-width:12rem}
.yes{border-left:5px solid #1b9e77;padding-left:.6rem}.no{border-left:5px solid #c00;padding-left:.6rem}
pre{white-space:pre-wrap;font-size:.85rem;background:var(--card);padding:.6rem;border-radius:8px}
summary{cursor:pointer;padding:.4rem 0}
@media print{body{max-width:none}figure{break-inside:avoid}}
"""
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture: its name (also of its file), what it shows, the SVG, and what stands above it."""

    name: str
    caption: str
    svg: str
    title: str = ""


def build_page(
    answer: Answer, figures: Sequence[Figure], command: str = "", chips: Mapping[str, Chip] | None = None
) -> str:
    """The page. It loads nothing. chips: those whose figures and sources are listed."""
    found = answer.search
    currency = found.question.spec.prices.currency
    pictures = "".join(map(_figure, figures))
    parts = [
        f'<div class="{"yes" if answer.feasible else "no"}"><h1>{escape(verdict(answer))}</h1></div>',
        f"<p>{escape(answer.binding_why[:1].upper() + answer.binding_why[1:])} is what binds. "
        f"Promise: {escape(describe_sla(found.sla))}.</p>",
        f'<div class="pictures">{pictures}</div>',
        "<h2>Plans</h2>",
        _plans(answer, currency),
        "<h2>Costs</h2>",
        _costs(found.best, currency),
    ]
    if answer.comparison:
        parts += ["<h2>The same money otherwise</h2>", _rivals(answer, currency)]
    if found.runners_up:
        rows = [[runner.candidate.label, runner.why] for runner in found.runners_up]
        parts += ["<h2>Why the others lost</h2>", _table(["plan", "why"], rows, words=(0, 1))]
    if answer.sensitivity:
        parts += ["<h2>If the world is different</h2>", _sensitivity(answer)]
    text = escape("\n".join(explain(answer)))
    parts += ["<h2>In words</h2>", f"<pre>{text}</pre>"]
    parts += ["<h2>Assumptions and sources</h2>", _assumptions(answer), _sources(chips or {})]
    parts.append(f"<p><small>pdd {escape(__version__)}{' · ' + escape(command) if command else ''}</small></p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>PDD plan for {escape(found.question.spec.model)}</title>"
        f"<style>{PAGE_STYLE}{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _figure(figure: Figure) -> str:
    title = f"<h2>{escape(figure.title)}</h2>" if figure.title else ""
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f'<figure id="{figure.name}">{title}{figure.svg}{caption}</figure>'


def _plans(answer: Answer, currency: str) -> str:
    found = answer.search
    head = ["plan", "TTFT P50", "TTFT P99", "TPOT P99", f"{currency}/h", "BCR", "promise"]
    rows = []
    for candidate in {id(c): c for c in (found.best, *found.front)}.values():
        figures = candidate.figures
        rows.append(
            [
                candidate.label,
                format_seconds(figures.ttft_p50_s.value),
                _interval(figures.ttft_p99_s),
                _interval(figures.tpot_p99_s),
                f"{candidate.cost_per_h:.2f}",
                f"{candidate.bcr:.1f}" if math.isfinite(candidate.bcr) else "-",
                "kept" if meets(figures, found.sla) else "broken",
            ]
        )
    return _table(head, rows, words=(0,))


def _costs(best: Candidate, currency: str) -> str:
    fleet = best.fleet
    rows = []
    for name, pool in (("P", fleet.prefill), ("RLD", fleet.relay), ("MD", fleet.main)):
        each = f"{pool.accelerators:g} x {pool.chip}"
        cost = pool.engines * pool.price_per_h
        rows.append([name, str(pool.engines), each, f"{pool.price_per_h:.2f}", f"{cost:.2f}", _share(cost, best)])
    size, price = format_bits_per_s(fleet.line.capacity_bps), fleet.line.price_per_h
    rows.append(["line", "1", size, f"{price:.2f}", f"{price:.2f}", _share(price, best)])
    rows.append(["all", "", "", "", f"{best.cost_per_h:.2f}", "100 %"])
    return _table(["what", "number", "each", f"{currency}/h each", f"{currency}/h", "share"], rows)


def _share(cost: float, best: Candidate) -> str:
    return f"{100 * cost / best.cost_per_h:.1f} %" if best.cost_per_h > 0 else "-"


def _rivals(answer: Answer, currency: str) -> str:
    ways = answer.comparison
    assert ways is not None
    rows = []
    for rival in (ways.plan, ways.same_site, *ways.other_sites, ways.naive):
        fleet = rival.fleet
        engines = [f"{fleet.prefill.engines} P", f"{fleet.relay.engines} RLD", f"{fleet.main.engines} MD"]
        rows.append(
            [
                f"{rival.name}: {' + '.join(part for part in engines if not part.startswith('0 '))}",
                f"{rival.cost_per_h:.2f}",
                f"{rival.goodput_per_s:.2f}",
                f"{rival.bcr:.1f}",
                _interval(rival.at_load.ttft_p99_s),
            ]
        )
    head = ["way", f"{currency}/h", "most requests/s within the promise", "BCR", "TTFT P99 at the load asked for"]
    return _table(head, rows, words=(0,))


def _sensitivity(answer: Answer) -> str:
    rows = [
        [
            f"{scenario.what} {scenario.change}",
            "kept" if scenario.keeps else "broken",
            scenario.why,
            scenario.replanned.label if scenario.replanned else "none keeps the promise",
        ]
        for scenario in answer.sensitivity
    ]
    return _table(["change", "this plan", "why", "plan to choose then"], rows, words=(2, 3))


def _assumptions(answer: Answer) -> str:
    found = answer.search
    figures = found.best.figures
    said = list(found.question.spec.assumptions) or ["the file left nothing open"]
    if figures.requests:
        said.append(f"percentiles: {figures.requests:,} simulated requests over {figures.seeds} seeds")
    said.append(
        f"{found.screened:,} candidates by the analytic model, {len(found.simulated)} of them simulated"
        + (f", {found.dropped:,} not looked at" if found.dropped else "")
    )
    measured = sorted(found.question.spec.calibrations)
    guessed = sorted(set(found.question.engines) - set(measured))
    if measured:
        said.append(f"times of engines on {', '.join(measured)}: as calibrated")
    if guessed:
        said.append(f"times of engines on {', '.join(guessed)}: roofline of the figures below, not measured")
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in said)}</ul>"


def _sources(chips: Mapping[str, Chip]) -> str:
    """Each figure of each chip with where it is from, and what other sources give."""
    rows = []
    for chip in chips.values():
        values = {
            "bf16_tflops": chip.bf16_flops / 1e12,
            "fp8_tflops": chip.low_flops / 1e12,
            "int8_tops": chip.low_flops / 1e12,
            "fp4_tflops": chip.fp4_flops / 1e12,
            "memory_gb": chip.memory_bytes / 1e9,
            "memory_tb_s": chip.memory_bytes_per_s / 1e12,
            "interconnect_gb_s": chip.interconnect_bytes_per_s / 1e9,
            "network_gb_s": chip.network_bytes_per_s / 1e9,
            "mfu": chip.mfu,
            "price_per_h": chip.price_per_h,
        }
        for field, source in chip.sources.items():
            value = values.get(field)
            shown = f"{value:.6g}" if value is not None else ""
            rows.append([chip.name, field.replace("_", " "), shown, source, chip.disputed.get(field, "")])
    if not rows:
        return ""
    head = ["chip", "figure", "value", "source", "others say"]
    words = "<summary>Figures of the chips (prices of the catalogue; the file's own go before them)</summary>"
    return f"<details>{words}{_table(head, rows, words=(3, 4))}</details>"


def _interval(span: Span | None) -> str:
    if span is None or not math.isfinite(span.value):
        return "-"
    half = (span.high - span.low) / 2
    return format_seconds(span.value) + (f" ± {format_seconds(half)}" if half > 0 and math.isfinite(half) else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = ()) -> str:
    def row(cells: Sequence[str]) -> str:
        marked = (f"<td{' class=words' if i in words else ''}>{escape(cell)}</td>" for i, cell in enumerate(cells))
        return f"<tr>{''.join(marked)}</tr>"

    marks = [" class=words" if i in words and i else "" for i in range(len(head))]
    first = "".join(f"<th scope=col{mark}>{escape(cell)}</th>" for cell, mark in zip(head, marks, strict=True))
    body = f"<thead><tr>{first}</tr></thead><tbody>{''.join(map(row, rows))}</tbody>"
    label = escape(", ".join(head))
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{body}</table></div>'
