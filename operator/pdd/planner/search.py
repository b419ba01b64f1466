"""The search: enumerate, prune by bounds, screen with the analytic model, simulate the survivors, choose.

The analytic model looks at every candidate that the bounds leave (milliseconds each); those that could be the answer
are simulated, all with the same requests (common random numbers), in batches until one keeps the promise or the time
is spent. Only what was simulated is chosen or stands in the Pareto set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median

from pdd.planner.candidates import Bound, Question, build_fleet, compute_bounds, enumerate_counts, line_carries, thin
from pdd.planner.fleet import Fleet, Sla
from pdd.planner.judge import Figures, Judge, Stage, compute_misses, meets, surely_meets
from pdd.planner.pareto import Candidate, RunnerUp, choose, compute_front, explain_loss
from pdd.planner.units import format_seconds

MAX_SCREENED = 2000
"""Candidates that the analytic model looks at; of more, evenly spread ones in order of cost. The rest is counted."""
SCREEN_S = 7.0
"""As many candidates as the analytic model can look at in this time, if those are fewer."""
TIMED = 20
"""Predictions that say how fast this machine is."""
BATCH = 12
MAX_SIMULATED = 48
ROUND_S = 8.0
"""No new batch is simulated after so many seconds of simulation."""
SLACK = 1.5
"""The analytic model's error on a P99 that the screen allows for: up to so many times the promise is simulated."""
MAX_RUNNERS = 6
FULL = 0.9
"""From here on a stage's queue is what makes a TTFT long."""
MOSTLY = 0.6

Clock = Callable[[], float]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Search:
    """What the search found. chosen None: nothing keeps the promise; `nearest` is then the closest.

    front: Pareto set of what was simulated and keeps up, best BCR first. simulated: all of them. screened: how many
    the analytic model looked at. dropped: candidates left out only because there were too many.
    """

    question: Question
    sla: Sla
    chosen: Candidate | None
    nearest: Candidate
    front: tuple[Candidate, ...]
    simulated: tuple[Candidate, ...]
    runners_up: tuple[RunnerUp, ...]
    screened: int
    dropped: int
    seconds: float

    @property
    def best(self) -> Candidate:
        """The chosen plan, or the nearest where none keeps the promise."""
        return self.chosen or self.nearest


def search(question: Question, judge: Judge, *, clock: Clock = time.monotonic, say: Say = lambda _: None) -> Search:
    """The whole search for one question. Deterministic but for how many batches the time allows."""
    begun = clock()
    sla, rate = question.spec.sla, question.spec.load.rate_per_s
    bounds = compute_bounds(question, judge, sla, rate)
    carrying = [bound for bound in bounds if line_carries(bound)] or bounds
    simulated: list[Candidate] = []
    screened = dropped = 0
    for wide in (False, True):
        found, left = screen(question, judge, carrying, wide=wide, clock=clock)
        screened, dropped = screened + len(found), dropped + left
        say(f"{screened} candidates screened in {clock() - begun:.1f} s; simulating the best")
        simulated += _simulate_rounds(found, simulated, judge, question, clock, say)
        if choose(simulated, sla):
            break
        if not wide:
            say("nothing within 30 % of the bounds keeps the promise: looking at larger fleets")
    chosen = choose(simulated, sla)
    nearest = min(simulated, key=lambda c: (_violation(c.figures, sla), c.cost_per_h))
    front = compute_front(c for c in simulated if c.figures.keeps_up)
    best = chosen or nearest
    runners = [RunnerUp(c, explain_loss(c, best, sla)) for c in _pick_runners(simulated, front, best, sla)]
    return Search(
        question=question,
        sla=sla,
        chosen=chosen,
        nearest=nearest,
        front=tuple(front),
        simulated=tuple(simulated),
        runners_up=tuple(runners),
        screened=screened,
        dropped=dropped,
        seconds=clock() - begun,
    )


def screen(
    question: Question, judge: Judge, bounds: Iterable[Bound], *, wide: bool, clock: Clock = time.monotonic
) -> tuple[list[Candidate], int]:
    """(every candidate with its prediction, number left out)."""
    fleets = [
        build_fleet(question, bound.shape, bound.size_bps, bound.threshold_s, counts)
        for bound in bounds
        for counts in enumerate_counts(bound, wide=wide)
    ]
    if not fleets:  # max_engines stands below every bound: what there may be at most is still an answer
        site_a, site_b = question.spec.site_a, question.spec.site_b
        relay = max(1, site_a.max_engines // 4)
        most = (max(1, site_a.max_engines - relay), relay, site_b.max_engines)
        fleets = [build_fleet(question, bound.shape, bound.size_bps, bound.threshold_s, most) for bound in bounds]
    fleets.sort(key=lambda fleet: fleet.cost_per_h)
    sla, rate = question.spec.sla, question.spec.load.rate_per_s

    def look(fleet: Fleet) -> Candidate:
        figures = judge.predict(fleet, sla, rate)
        return Candidate(price_transfer(question, fleet, figures), figures)

    places = thin(0, len(fleets) - 1, MAX_SCREENED)
    begun = clock()
    first = {place: look(fleets[place]) for place in thin(0, len(fleets) - 1, TIMED)}
    each_s = (clock() - begun) / len(first)
    if each_s > 0 and len(places) > SCREEN_S / each_s:
        places = thin(0, len(fleets) - 1, max(TIMED, int(SCREEN_S / each_s)))
    found = [first.get(place) or look(fleets[place]) for place in places]
    return found, len(fleets) - len(found)


def price_transfer(question: Question, fleet: Fleet, figures: Figures) -> Fleet:
    """The fleet with the price of the bytes that it sends, where bytes have a price."""
    if not question.spec.prices.line_per_gb:
        return fleet
    price = question.spec.prices.line_per_h(fleet.line.capacity_bps, figures.line_bytes_per_s)
    return replace(fleet, line=replace(fleet.line, price_per_h=price))


def select_survivors(screened: list[Candidate], sla: Sla, bias: float = 1.0) -> list[Candidate]:
    """In the order in which to simulate: the cheapest that may keep the promise, mixed with the Pareto set.

    bias: simulated over predicted TTFT P99 as far as known; the screen allows for SLACK beyond it.
    """
    possible = [c for c in screened if _may_meet(c.predicted, sla, bias)]
    if not possible:
        stable = [c for c in screened if c.predicted.keeps_up] or screened
        return sorted(stable, key=lambda c: (_violation(c.predicted, sla), c.cost_per_h))
    cheap = sorted(possible, key=lambda c: (c.cost_per_h / _confidence(c, sla, bias), c.p99_s))
    front = compute_front(possible)
    step = max(1, len(front) // (BATCH // 2))
    mixed = [*cheap[: BATCH // 2], *front[::step], *cheap[BATCH // 2 :]]
    return list({id(candidate): candidate for candidate in mixed}.values())


def compute_bias(simulated: Iterable[Candidate]) -> float:
    """Median of simulated over predicted TTFT P99; 1 where nothing is known."""
    ratios = []
    for candidate in simulated:
        real, said = candidate.figures.ttft_p99_s, candidate.predicted.ttft_p99_s
        if candidate.simulated and real and said and math.isfinite(real.value) and 0 < said.value < math.inf:
            ratios.append(real.value / said.value)
    return median(ratios) if ratios else 1.0


def _simulate_rounds(
    screened: list[Candidate], before: list[Candidate], judge: Judge, question: Question, clock: Clock, say: Say
) -> list[Candidate]:
    """Simulates in batches until one keeps the promise, the time is spent or MAX_SIMULATED are done; each batch is
    picked with what the ones before it showed of the analytic model's error."""
    sla, rate = question.spec.sla, question.spec.load.rate_per_s
    waiting, done = list(screened), list[Candidate]()
    begun = clock()
    while waiting and len(done) < MAX_SIMULATED // 2:
        bias = compute_bias([*before, *done])
        batch = select_survivors(waiting, sla, bias)[: min(BATCH, MAX_SIMULATED // 2 - len(done))]
        for candidate in batch:
            figures = judge.simulate(candidate.fleet, sla, rate)
            fleet = price_transfer(question, candidate.fleet, figures)
            done.append(replace(candidate, fleet=fleet, simulated=figures))
        taken = {id(candidate) for candidate in batch}
        waiting = [candidate for candidate in waiting if id(candidate) not in taken]
        found = choose(done, sla)
        say(f"{len(done)} simulated; {'a plan keeps the promise' if found else 'none keeps the promise yet'}")
        if (found and surely_meets(found.figures, sla)) or clock() - begun > ROUND_S:
            break
    return done


def _may_meet(figures: Figures, sla: Sla, bias: float) -> bool:
    """Whether the analytic model's error leaves the promise possible."""
    return figures.keeps_up and all(miss.ratio <= SLACK for miss in compute_misses(figures, sla, bias))


def _confidence(candidate: Candidate, sla: Sla, bias: float) -> float:
    """1 for what is predicted to keep the promise, less for what needs the model's error: cheap but doubtful later."""
    misses = compute_misses(candidate.predicted, sla, bias)
    return 1.0 if not misses else 1.0 / misses[0].ratio ** 2


def _violation(figures: Figures, sla: Sla) -> float:
    """How far from the promise: the worst ratio; a fleet that does not keep up is further than any that does."""
    misses = compute_misses(figures, sla)
    worst = misses[0].ratio if misses else 0.0
    return worst if figures.keeps_up else 1e6 * max(figures.utilisation.values()) + min(worst, 1e5)


def _pick_runners(simulated: list[Candidate], front: list[Candidate], best: Candidate, sla: Sla) -> list[Candidate]:
    """The Pareto set first, then the best that keep the promise, then the cheapest that break it."""
    good = sorted((c for c in simulated if meets(c.figures, sla)), key=lambda c: -c.bcr)
    broken = sorted((c for c in simulated if not meets(c.figures, sla)), key=lambda c: c.cost_per_h)
    ordered = {id(c): c for c in (*front, *good[:MAX_RUNNERS], *broken[:2], *good) if c is not best}
    return list(ordered.values())[:MAX_RUNNERS]


def describe_binding(candidate: Candidate, sla: Sla) -> tuple[Stage, str]:
    """(the stage that binds, why in a sentence): the fullest stage, or what makes TTFT long where none is full."""
    figures = candidate.figures
    stage = figures.binding
    used = figures.utilisation[stage]
    misses = compute_misses(figures, sla)
    if used >= 1.0 and stage is not Stage.RELAY:
        return stage, f"{stage.value} is offered {used:.0%} of what it can do"
    if misses and misses[0].promise == "tpotP99":
        used = figures.utilisation.get(Stage.MAIN, 0.0)
        return Stage.MAIN, f"one step of main decode is too long for tpotP99, with {used:.0%} of it used"
    limit, span = sla.ttft_p99_s, figures.ttft_p99_s
    near = misses or (limit is not None and span is not None and span.value / limit > used)
    if near and used < FULL and figures.first_p99_s > 0:
        return _explain_long_ttft(figures)
    others = ", ".join(f"{s.value} {u:.0%}" for s, u in figures.utilisation.items() if s is not stage)
    return stage, f"{stage.value} is {used:.0%} used ({others})" if math.isfinite(used) else stage.value


def _explain_long_ttft(figures: Figures) -> tuple[Stage, str]:
    """No stage is full and TTFT is long all the same: the work of one long request is."""
    span = figures.ttft_p99_s
    whole = span.value if span else math.inf
    first = figures.first_p99_s
    if first >= MOSTLY * whole:
        used = figures.utilisation.get(Stage.PREFILL, 0.0)
        return Stage.PREFILL, (
            f"prefill of the longest misses takes {format_seconds(first)} of the {format_seconds(whole)} though it is "
            f"{used:.0%} used: faster chips or more of them an engine help, more engines do not"
        )
    used = figures.utilisation.get(Stage.LINE, 0.0)
    return Stage.LINE, (
        f"the way from P's token to decode takes {format_seconds(whole - first)} of the {format_seconds(whole)} though "
        f"the line is {used:.0%} used: more streams, a wider line or a lower relay threshold help"
    )
