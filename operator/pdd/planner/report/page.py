"""The report as one HTML page: verdict, pictures, tables. It needs no network and reads on a phone."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from pdd import __version__
from pdd.planner.answer import Answer
from pdd.planner.explain import describe_sla, explain, verdict
from pdd.planner.judge import Span, meets
from pdd.planner.pareto import Candidate
from pdd.planner.report.svg import STYLE
from pdd.planner.units import format_bits_per_s, format_seconds

PAGE_STYLE = """
:root{--text:#1b1b1b;--dim:#888;--grid:#e4e4e4;--back:#fff;--card:#f6f7f8;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--text:#e8e8e8;--dim:#999;--grid:#333;--back:#141414;--card:#1e1e1e}}
*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:1100px;background:var(--back);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.2rem 0 .4rem}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:1rem}
figure{margin:0;padding:.6rem;background:var(--card);border-radius:8px}figcaption{font-size:.85rem;color:var(--dim)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child{text-align:left}td.words{white-space:normal;text-align:left;min-width:14rem}
.yes{border-left:5px solid #1b9e77;padding-left:.6rem}.no{border-left:5px solid #c00;padding-left:.6rem}
pre{white-space:pre-wrap;font-size:.85rem;background:var(--card);padding:.6rem;border-radius:8px}
@media print{body{max-width:none}figure{break-inside:avoid}}
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture: its name (also of its file), what it shows, the SVG."""

    name: str
    caption: str
    svg: str


def build_page(answer: Answer, figures: Sequence[Figure], command: str = "") -> str:
    """The page. No address of any kind stands in it."""
    found = answer.search
    currency = found.question.spec.prices.currency
    pictures = "".join(
        f'<figure id="{figure.name}">{figure.svg}<figcaption>{escape(figure.caption)}</figcaption></figure>'
        for figure in figures
    )
    parts = [
        f'<div class="{"yes" if answer.feasible else "no"}"><h1>{escape(verdict(answer))}</h1></div>',
        f"<p>{escape(answer.binding_why[:1].upper() + answer.binding_why[1:])} is what binds. "
        f"Promise: {escape(describe_sla(found.sla))}.</p>",
        f'<div class="grid2">{pictures}</div>',
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
    parts.append(f"<p><small>pdd {escape(__version__)}{' · ' + escape(command) if command else ''}</small></p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>PDD plan for {escape(found.question.spec.model)}</title>"
        f"<style>{PAGE_STYLE}{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


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


def _interval(span: Span | None) -> str:
    if span is None or not math.isfinite(span.value):
        return "-"
    half = (span.high - span.low) / 2
    return format_seconds(span.value) + (f" ± {format_seconds(half)}" if half > 0 and math.isfinite(half) else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = ()) -> str:
    def row(cells: Sequence[str]) -> str:
        marked = (f"<td{' class=words' if i in words else ''}>{escape(cell)}</td>" for i, cell in enumerate(cells))
        return f"<tr>{''.join(marked)}</tr>"

    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f'<div class="scroll"><table><tr>{first}</tr>{"".join(map(row, rows))}</table></div>'
