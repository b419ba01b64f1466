"""What happens to the plan when the world is not as stated: hit rate, price of the line, mix of lengths.

By the analytic model, corrected by the ratio that it and the simulator have at the chosen plan. For each change: does
the chosen plan still keep the promise, and which plan would be chosen instead. Where the chosen one fails and another
would not, the change is what to watch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdd.planner.candidates import Question, build_fleet, compute_bounds, enumerate_counts, line_carries, thin
from pdd.planner.fleet import Sla
from pdd.planner.judge import Figures, Judge, Stage, compute_misses, meets
from pdd.planner.pareto import Candidate

HIT_POINTS = (-0.10, -0.05, 0.05)
LINE_PRICES = (0.5, 2.0, 10.0)
LENGTHS = ((0.5, 1.0), (2.0, 1.0), (1.0, 2.0))
MOST_REPLANNED = 25


@dataclass(frozen=True, slots=True)
class Scenario:
    """One change. what: hit rate, line price or lengths. change: in words.

    figures: the chosen plan's, analytic. keeps: whether it keeps the (corrected) promise. replanned: the plan that
    would be chosen, None if none keeps the promise. bcr: the chosen plan's.
    """

    what: str
    change: str
    figures: Figures
    keeps: bool
    why: str
    bcr: float
    replanned: Candidate | None


def run_scenarios(question: Question, judge: Judge, chosen: Candidate, sla: Sla) -> list[Scenario]:
    """Every scenario, in a fixed order."""
    fair = correct_sla(sla, chosen)
    found = []
    for points in HIT_POINTS:
        changed = judge.vary(hit_points=points)
        found.append(_run(question, changed, chosen, sla, fair, "hit rate", f"{points * 100:+.0f} points"))
    for factor in LINE_PRICES:
        priced = scale_line_price(question, factor)
        size = chosen.fleet.line.capacity_bps
        line = replace(
            chosen.fleet.line,
            price_per_h=priced.spec.prices.line_per_h(size, chosen.figures.line_bytes_per_s),
        )
        moved = replace(chosen, fleet=replace(chosen.fleet, line=line))
        found.append(_run(priced, judge, moved, sla, fair, "line price", f"x {factor:g}"))
    for inputs, outputs in LENGTHS:
        changed = judge.vary(input_factor=inputs, output_factor=outputs)
        change = f"input x {inputs:g}" if inputs != 1 else f"output x {outputs:g}"
        found.append(_run(question, changed, chosen, sla, fair, "lengths", change))
    return found


def correct_sla(sla: Sla, chosen: Candidate) -> Sla:
    """The promise in the analytic model's own seconds: each limit times predicted / simulated at the chosen plan."""
    if chosen.simulated is None:
        return sla
    predicted, simulated = chosen.predicted, chosen.simulated

    def scaled(limit: float | None, ours: float | None, theirs: float | None) -> float | None:
        if limit is None or not ours or not theirs:
            return limit
        return limit * ours / theirs

    def value(figures: Figures, name: str) -> float | None:
        span = getattr(figures, name)
        return span.value if span else None

    names = ("ttft_p90_s", "ttft_p99_s", "tpot_p99_s")
    limits = [scaled(getattr(sla, name), value(predicted, name), value(simulated, name)) for name in names]
    return Sla(*limits)


def scale_line_price(question: Question, factor: float) -> Question:
    """The same question with every price of the line times factor."""
    prices = question.spec.prices
    scaled = replace(
        prices,
        line_fixed_per_h=prices.line_fixed_per_h * factor,
        line_per_gbit_h=prices.line_per_gbit_h * factor,
        line_per_gb=prices.line_per_gb * factor,
        ports={size: price * factor for size, price in prices.ports.items()},
    )
    return replace(question, spec=replace(question.spec, prices=scaled))


def _run(question: Question, judge: Judge, chosen: Candidate, sla: Sla, fair: Sla, what: str, change: str) -> Scenario:
    rate = question.spec.load.rate_per_s
    figures = judge.predict(chosen.fleet, fair, rate)
    keeps = meets(figures, fair)
    moved = replace(chosen, predicted=figures, simulated=None)
    return Scenario(what, change, figures, keeps, _why(figures, fair), moved.bcr, replan(question, judge, chosen, fair))


def replan(question: Question, judge: Judge, chosen: Candidate, sla: Sla) -> Candidate | None:
    """The plan that the analytic model would choose: the cheapest that keeps the promise, at the chosen threshold.

    Fleets in order of cost are looked at in even steps; between the first that keeps the promise and the one before it
    every one is (up to as many again).
    """
    rate = question.spec.load.rate_per_s
    fixed = replace(question, spec=replace(question.spec, thresholds_s=(chosen.fleet.rules.relay_threshold_s,)))
    bounds = [bound for bound in compute_bounds(fixed, judge, sla, rate) if line_carries(bound)]
    fleets = [
        build_fleet(question, bound.shape, bound.size_bps, bound.threshold_s, counts)
        for bound in bounds
        for counts in enumerate_counts(bound)
    ]
    fleets.sort(key=lambda fleet: fleet.cost_per_h)

    def look(place: int) -> Candidate | None:
        figures = judge.predict(fleets[place], sla, rate)
        return Candidate(fleets[place], figures) if meets(figures, sla) else None

    before = -1
    for place in thin(0, len(fleets) - 1, MOST_REPLANNED):
        found = look(place)
        if found is not None:
            return next((c for c in map(look, thin(before + 1, place - 1, MOST_REPLANNED)) if c), found)
        before = place
    return None


def _why(figures: Figures, sla: Sla) -> str:
    if not figures.keeps_up:
        stage = figures.binding
        return f"{stage.value} is offered {figures.utilisation[stage]:.0%} of what it can do"
    misses = compute_misses(figures, sla)
    if misses:
        return f"{misses[0].promise} is {misses[0].ratio:.2g} times the promise"
    stage = max(figures.utilisation, key=lambda s: figures.utilisation[s])
    return f"{stage.value} {figures.utilisation[stage]:.0%} used" if stage is not Stage.LINE else "the line is fullest"
