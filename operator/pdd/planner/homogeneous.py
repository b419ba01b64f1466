"""The chosen plan beside what the same money buys otherwise: one site with one kind of chip, and naive cross-site.

Each way gets its best division of engines within the budget; then the highest rate at which it keeps the promise is
sought, by the analytic model and after that by simulation, so that all are judged alike. BCR is goodput per money.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdd.planner.candidates import LIMIT, PROBE_ENGINES, Question, thin
from pdd.planner.fleet import Fleet, Pool, Sla, Way
from pdd.planner.judge import Figures, Judge, Stage, compute_misses, meets
from pdd.planner.pareto import Candidate

BISECTIONS = 8
SIMULATED_BISECTIONS = 4
MOST_SPLITS = 5
SEEDS = 2
REQUESTS = 4_000


@dataclass(frozen=True, slots=True)
class Rival:
    """One way to spend the money.

    rate_per_s: the highest arrival rate at which it keeps the promise, simulated. at_best: figures there. at_load:
    figures under the load that was asked for, to be shown beside the plan's. Money per hour.
    """

    way: Way
    name: str
    fleet: Fleet
    rate_per_s: float
    at_best: Figures
    at_load: Figures

    @property
    def cost_per_h(self) -> float:
        return self.fleet.cost_per_h

    @property
    def goodput_per_s(self) -> float:
        """Requests within the promise a second, at the highest rate that keeps it."""
        return self.at_best.goodput_per_s.value if self.rate_per_s > 0 else 0.0

    @property
    def bcr(self) -> float:
        """Goodput per hour / cost per hour."""
        return self.goodput_per_s * 3600 / self.cost_per_h if self.cost_per_h > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """plan: the chosen fleet at its own highest rate. same_site: the best of one chip for at most the plan's cost;
    other_sites: of the other chips. naive: the plan's chips and line, without relay decode."""

    plan: Rival
    same_site: Rival
    naive: Rival
    other_sites: tuple[Rival, ...] = ()

    @property
    def bcr_gain(self) -> float:
        """0.3: the plan gives 30 % more goodput for the same money than the best same-site fleet."""
        return self.plan.bcr / self.same_site.bcr - 1 if self.same_site.bcr > 0 else math.inf


def compare(question: Question, judge: Judge, chosen: Candidate, sla: Sla) -> Comparison:
    """The three ways at equal cost. Deterministic."""
    rate = question.spec.load.rate_per_s
    budget = chosen.cost_per_h
    own = judge_rival(judge, Way.PDD, "PDD", chosen.fleet, sla, rate)
    fleets = []
    for chip, pool in question.engines.items():
        best = best_same_site(question, judge, chip, budget, sla, rate)
        # Where the money buys not even one engine of each role, that is still the least that can be had.
        fleets.append(best or build_same_site(question, pool, 1, 1))
    sites = [
        judge_rival(judge, Way.SAME_SITE, f"same site, all {fleet.main.chip}", fleet, sla, rate) for fleet in fleets
    ]
    sites.sort(key=lambda rival: -rival.bcr)
    crossed = judge_rival(judge, Way.NAIVE, "cross-site, no relay", build_naive(chosen.fleet), sla, rate)
    return Comparison(own, sites[0], crossed, tuple(sites[1:]))


def build_same_site(question: Question, pool: Pool, prefill: int, main: int) -> Fleet:
    """P and decode engines of one chip in one data centre."""
    return Fleet(
        way=Way.SAME_SITE,
        prefill=replace(pool, engines=prefill),
        relay=replace(pool, engines=0),
        main=replace(pool, engines=main),
        line=question.spec.line_spec(question.spec.line.sizes_bps[0]),
        kv=question.kv,
        rules=question.spec.rules,
        block_tokens=question.spec.block_tokens,
    )


def build_naive(fleet: Fleet) -> Fleet:
    """The same engines and line without relay decode; its engines do prefill where the chip is the same, so that the
    cost is equal."""
    same = fleet.relay.chip == fleet.prefill.chip
    prefill = fleet.prefill.engines + (fleet.relay.engines if same else 0)
    return replace(
        fleet,
        way=Way.NAIVE,
        prefill=replace(fleet.prefill, engines=prefill),
        relay=replace(fleet.relay, engines=0),
    )


def best_same_site(
    question: Question, judge: Judge, chip: str, budget_per_h: float, sla: Sla, rate_per_s: float
) -> Fleet | None:
    """The division between P and decode that keeps the promise at the highest rate within the budget, by the analytic
    model; None if not even one engine of each role can be paid."""
    pool = question.engines[chip]
    total = math.floor(budget_per_h / pool.price_per_h + 1e-9) if pool.price_per_h > 0 else 2 * PROBE_ENGINES
    if total < 2:
        return None
    probe = build_same_site(question, pool, PROBE_ENGINES, PROBE_ENGINES)
    used = judge.predict(probe, sla, rate_per_s).utilisation
    share = used[Stage.PREFILL] / max(1e-12, used[Stage.PREFILL] + used[Stage.MAIN])
    middle = min(total - 1, max(1, round(total * share)))
    reach = max(2, math.ceil(total * 0.15))
    splits = thin(max(1, middle - reach), min(total - 1, middle + reach), MOST_SPLITS)
    fleets = [build_same_site(question, pool, p, total - p) for p in splits]
    return max(fleets, key=lambda fleet: predict_best_rate(judge, fleet, sla, rate_per_s))


def predict_best_rate(judge: Judge, fleet: Fleet, sla: Sla, rate_per_s: float) -> float:
    """Highest rate at which the analytic model sees the promise kept; 0 if there is none."""
    full = max(judge.predict(fleet, sla, rate_per_s).utilisation.values())
    high = rate_per_s * LIMIT / full if full > 0 else rate_per_s
    low = 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2 if low else high * 0.7 if _ == 0 else high / 2
        if meets(judge.predict(fleet, sla, middle), sla):
            low = middle
        else:
            high = middle
    return low


def judge_rival(judge: Judge, way: Way, name: str, fleet: Fleet, sla: Sla, rate_per_s: float) -> Rival:
    """A fleet at the highest rate that keeps the promise in simulation, bracketed by the analytic model's."""
    at_load = judge.simulate(fleet, sla, rate_per_s)
    full = max(at_load.utilisation.values())
    ceiling = rate_per_s * 1.0 / full if full > 0 else rate_per_s
    guess = predict_best_rate(judge, fleet, sla, rate_per_s) or ceiling / 4
    low, best = 0.0, None
    high = ceiling
    attempt = min(guess, ceiling * LIMIT)
    for _ in range(SIMULATED_BISECTIONS):
        figures = judge.simulate(fleet, sla, attempt, seeds=SEEDS, requests=REQUESTS)
        if meets(figures, sla):
            low, best = attempt, figures
        else:
            high = attempt
        attempt = (low + high) / 2 if low else high / 2
    return Rival(way, name, fleet, low, best or at_load, at_load)


def describe(comparison: Comparison, sla: Sla) -> Sequence[str]:
    """Two or three sentences for a person."""
    plan, site, naive = comparison.plan, comparison.same_site, comparison.naive
    said = []
    if site.rate_per_s <= 0:
        said.append(f"the best same-site fleet for that money ({site.name}) keeps the promise at no rate")
    else:
        word = "more" if comparison.bcr_gain >= 0 else "less"
        said.append(
            f"{abs(comparison.bcr_gain):.1%} {word} goodput per cost than the best fleet of one chip at one site "
            f"({site.name}, {site.fleet.prefill.engines} P + {site.fleet.main.engines} decode)"
        )
    misses = compute_misses(naive.at_load, sla)
    if not naive.at_load.keeps_up:
        said.append("the naive cross-site way does not keep up with this load")
    elif misses:
        said.append(f"the naive cross-site way breaks {misses[0].promise} at this load ({misses[0].value_s:.3g} s)")
    elif naive.bcr > 0:
        said.append(f"against naive cross-site: {plan.bcr / naive.bcr - 1:+.1%}")
    return said
