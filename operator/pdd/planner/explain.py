"""The answer for a person: the verdict first, then the table, then why; at most 100 columns wide."""

from __future__ import annotations

import math
import textwrap

from pdd.planner.answer import Answer
from pdd.planner.fleet import Sla
from pdd.planner.homogeneous import describe
from pdd.planner.judge import Span, Stage, meets
from pdd.planner.pareto import Candidate
from pdd.planner.units import format_bits_per_s, format_seconds

WIDTH = 98
MOST_ROWS = 6


def summarise(answer: Answer) -> list[str]:
    """The verdict, the comparison, what binds, and the table of plans."""
    best = answer.search.best
    lines = [verdict(answer)]
    if answer.comparison:
        said = "; ".join(describe(answer.comparison, answer.search.sla))
        lines += _wrap(said[:1].upper() + said[1:] + ".")
    lines += _wrap(f"binding: {answer.binding_why}.")
    lines += ["", *table_rows(answer, best)]
    return lines


def verdict(answer: Answer) -> str:
    """One line; its first word is `feasible:` or `infeasible:`."""
    found = answer.search
    best = found.best
    figures = best.figures
    if answer.feasible:
        promised = _promises(best, found.sla)
        tail = f"; {promised}" if promised else ""
        return (
            f"feasible: {best.label}{tail}; {best.cost_per_h:.4g} {found.question.spec.prices.currency}/h, "
            f"line {figures.utilisation.get(Stage.LINE, 0.0):.0%} used"
        )
    if answer.nearest_sla is None or not figures.keeps_up:
        return f"infeasible: no fleet within the limits keeps up: {answer.binding_why}"
    return f"infeasible: nearest feasible SLA is {describe_sla(answer.nearest_sla)} with {best.label}"


def table_rows(answer: Answer, best: Candidate) -> list[str]:
    """The Pareto set as aligned columns, the best first, marked with *."""
    found = answer.search
    shown = list({id(c): c for c in (best, *found.front)}.values())[:MOST_ROWS]
    head = ["", "P", "RLD", "MD", "line", "relay>", "TTFT p50", "TTFT p99", "TPOT p99", "cost/h", "BCR"]
    rows = [head]
    for candidate in shown:
        fleet, figures = candidate.fleet, candidate.figures
        mark = "*" if candidate is best else ("" if meets(figures, found.sla) else "x")
        rows.append(
            [
                mark,
                f"{fleet.prefill.engines} {fleet.prefill.chip}",
                f"{fleet.relay.engines} {fleet.relay.chip}",
                f"{fleet.main.engines} {fleet.main.chip}",
                format_bits_per_s(fleet.line.capacity_bps).replace("bit/s", ""),
                format_seconds(fleet.rules.relay_threshold_s),
                format_seconds(figures.ttft_p50_s.value),
                _with_half_width(figures.ttft_p99_s),
                format_seconds(figures.tpot_p99_s.value) if figures.tpot_p99_s else "-",
                f"{candidate.cost_per_h:.4g}",
                f"{candidate.bcr:.4g}" if math.isfinite(candidate.bcr) else "-",
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    currency = found.question.spec.prices.currency
    return [*lines, f"BCR: requests within the promise per {currency}. x: breaks the promise."]


def explain(answer: Answer) -> list[str]:
    """All of it in words: what was asked, what was searched, what was found, why the others lost, what to watch."""
    found = answer.search
    spec, best = found.question.spec, found.best
    load = spec.load
    engines = " and ".join(
        f"{name} {pool.accelerators:g} x {pool.chip}" for name, pool in found.question.engines.items() if name
    )
    asked = (
        f"Asked: {load.rate_per_s:.4g} requests a second from {load.trace.name}"
        if load.trace
        else f"Asked: {load.rate_per_s:.4g} requests a second, {load.input_tokens:,.0f} tokens in and "
        f"{load.output_tokens:,.0f} out on the mean, {load.hit_rate:.0%} of the input found in caches"
    )
    lines = [*_wrap(f"{asked}. Promise: {describe_sla(spec.sla)}. One engine is {engines}.")]
    for assumption in spec.assumptions:
        lines += _wrap(f"Assumed: {assumption}.")
    lines += _wrap(
        f"Searched: {found.screened} fleets with the analytic model"
        + (f" (evenly spread, {found.dropped} between them left out)" if found.dropped else "")
        + f", the best {len(found.simulated)} simulated with {best.figures.requests:,} equal requests each "
        f"over {best.figures.seeds} seeds; {answer.seconds:.1f} s in all."
    )
    lines += [
        "",
        *_wrap(("Chosen: " if answer.feasible else "Nearest: ") + best.label + "."),
        *_describe_best(answer),
    ]
    if found.runners_up:
        lines += ["", "Why the others lost:"]
        for runner in found.runners_up:
            lines += _wrap(f"{runner.candidate.label}: {runner.why}.", "  - ")
    if answer.sensitivity:
        lines += ["", "If the world is different (analytic model):"]
        for scenario in answer.sensitivity:
            state = "keeps the promise" if scenario.keeps else "breaks the promise"
            other = scenario.replanned
            if other is None:
                then = "no plan searched keeps it"
            elif _same(other, best):
                then = "it stays the plan to choose"
            else:
                then = f"then choose {other.label} at {other.cost_per_h:.4g}/h"
            lines += _wrap(f"{scenario.what} {scenario.change}: the plan {state} ({scenario.why}); {then}.", "  - ")
    return lines


def describe_sla(sla: Sla) -> str:
    """`TTFT P99 15 s, TPOT P99 60 ms`."""
    parts = [
        f"{name} {format_seconds(limit)}"
        for name, limit in (
            ("TTFT P90", sla.ttft_p90_s),
            ("TTFT P99", sla.ttft_p99_s),
            ("TPOT P99", sla.tpot_p99_s),
        )
        if limit is not None
    ]
    return ", ".join(parts) or "none"


def _describe_best(answer: Answer) -> list[str]:
    best = answer.search.best
    figures = best.figures
    used = ", ".join(f"{stage.value} {share:.0%}" for stage, share in figures.utilisation.items())
    lines = _wrap(
        f"First token: P50 {format_seconds(figures.ttft_p50_s.value)}, P90 {format_seconds(figures.ttft_p90_s.value)}, "
        f"P99 {_with_half_width(figures.ttft_p99_s)}; later tokens: P99 "
        f"{format_seconds(figures.tpot_p99_s.value) if figures.tpot_p99_s else 'not known'} each. "
        f"{figures.relay_share:.0%} of requests are relayed. Used: {used}."
    )
    lines += _wrap(f"What binds: {answer.binding_why}.")
    if answer.comparison:
        lines += _wrap("Beside it: " + "; ".join(describe(answer.comparison, answer.search.sla)) + ".")
        lines.append("At the highest rate within the promise:")
        ways = answer.comparison
        for rival in (ways.plan, ways.same_site, *ways.other_sites, ways.naive):
            fleet = rival.fleet
            engines = f"{fleet.prefill.engines} P + " + (f"{fleet.relay.engines} RLD + " if fleet.relay.engines else "")
            lines += _wrap(
                f"{rival.name} ({engines}{fleet.main.engines} MD): {rival.goodput_per_s:.4g} requests/s for "
                f"{rival.cost_per_h:.4g}/h, BCR {rival.bcr:.4g}",
                "  - ",
            )
    return lines


def _promises(best: Candidate, sla: Sla) -> str:
    figures = best.figures
    parts = [
        f"{name} {format_seconds(span.value)} (limit {format_seconds(limit)})"
        for name, span, limit in (
            ("TTFT p90", figures.ttft_p90_s, sla.ttft_p90_s),
            ("TTFT p99", figures.ttft_p99_s, sla.ttft_p99_s),
            ("TPOT p99", figures.tpot_p99_s, sla.tpot_p99_s),
        )
        if span is not None and limit is not None
    ]
    return ", ".join(parts)


def _with_half_width(span: Span | None) -> str:
    if span is None:
        return "-"
    half = (span.high - span.low) / 2
    return format_seconds(span.value) + (f" ±{half:.2g}" if half > 0 and math.isfinite(half) else "")


def _same(one: Candidate, other: Candidate) -> bool:
    return one.label == other.label


def _wrap(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)
