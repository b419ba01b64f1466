"""The plans that nobody beats in both: goodput per unit of cost (BCR), and TTFT P99. And why the others lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from pdd.planner.fleet import Fleet, Sla
from pdd.planner.judge import Figures, compute_misses, meets, surely_meets
from pdd.planner.units import format_bits_per_s, format_seconds

_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for 95 %, two-sided, by degrees of freedom from 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fleet with what the analytic model says, and what the simulator says if it was simulated."""

    fleet: Fleet
    predicted: Figures
    simulated: Figures | None = None

    @property
    def figures(self) -> Figures:
        """The best knowledge of it."""
        return self.simulated or self.predicted

    @property
    def cost_per_h(self) -> float:
        """Money an hour; the price of transferred bytes included."""
        return self.fleet.cost_per_h

    @property
    def bcr(self) -> float:
        """Requests within the promise per unit of money: goodput / cost, with goodput per hour."""
        cost = self.cost_per_h
        return self.figures.goodput_per_s.value * 3600 / cost if cost > 0 else math.inf

    @property
    def p99_s(self) -> float:
        """TTFT P99; endless if unknown."""
        span = self.figures.ttft_p99_s
        return span.value if span else math.inf

    @property
    def label(self) -> str:
        """`4 P (H100) + 1 RLD (H100) + 6 MD (H200), 20 Gbit/s, relay above 200 ms`."""
        fleet = self.fleet
        parts = [
            f"{pool.engines} {name} ({pool.chip or 'calibrated'})"
            for name, pool in (("P", fleet.prefill), ("RLD", fleet.relay), ("MD", fleet.main))
            if pool.engines
        ]
        line = format_bits_per_s(fleet.line.capacity_bps)
        return f"{' + '.join(parts)}, {line}, relay above {format_seconds(fleet.rules.relay_threshold_s)}"


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """A candidate that was not chosen, and why, in one sentence."""

    candidate: Candidate
    why: str
    notes: tuple[str, ...] = field(default=())


def compute_front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that no other beats in BCR and TTFT P99 both, best BCR first. Equal ones: the first given."""
    front: list[Candidate] = []
    best = math.inf
    for candidate in sorted(candidates, key=lambda c: (-c.bcr, c.p99_s)):
        if candidate.p99_s < best:
            front.append(candidate)
            best = candidate.p99_s
    return front


def choose(candidates: Sequence[Candidate], sla: Sla) -> Candidate | None:
    """The plan of best BCR among those that keep the promise; of equal BCR (0.1 %) the one of least TTFT P99.

    Those that keep it with the whole 95 % interval come first: who buys engines does not want to be lucky.
    """
    good = [candidate for candidate in candidates if surely_meets(candidate.figures, sla)]
    good = good or [candidate for candidate in candidates if meets(candidate.figures, sla)]
    if not good:
        return None
    top = max(candidate.bcr for candidate in good)
    return min((c for c in good if c.bcr >= top * 0.999), key=lambda c: c.p99_s)


def explain_loss(loser: Candidate, chosen: Candidate, sla: Sla) -> str:
    """Why the loser is not the chosen plan: what it breaks and which stage is short, or what it costs more."""
    figures = loser.figures
    binding = figures.binding
    short = f"{binding.value} is {figures.utilisation[binding]:.0%} used"
    if not figures.keeps_up:
        return f"does not keep up: {short}"
    misses = compute_misses(figures, sla)
    if misses:
        miss = misses[0]
        cheaper = loser.cost_per_h < chosen.cost_per_h
        price = f"costs {1 - loser.cost_per_h / chosen.cost_per_h:.1%} less but " if cheaper else ""
        shown = format_seconds(miss.value_s) if math.isfinite(miss.value_s) else "not known"
        return f"{price}breaks {miss.promise}: {shown}, promised {format_seconds(miss.limit_s)}; {short}"
    more = loser.cost_per_h / chosen.cost_per_h - 1 if chosen.cost_per_h > 0 else 0.0
    span = figures.ttft_p99_s
    if more < 0 and span is not None and not surely_meets(figures, sla):
        price = f"costs {-more:.1%} less, but keeps the promise only by chance"
        return f"{price}: TTFT P99 {format_seconds(span.value)}, up to {format_seconds(span.high)} in 95 of 100 samples"
    gain = chosen.p99_s - loser.p99_s
    price = f"costs {more:.1%} more" if more > 0.0005 else "costs the same"
    paired = compute_paired(loser.figures.by_seed, chosen.figures.by_seed)
    sure = f" (± {format_seconds(paired[1])})" if paired else ""
    if gain > 0:
        return f"{price} for a TTFT P99 that is {format_seconds(gain)}{sure} shorter than needed"
    return f"{price} and its TTFT P99 is {format_seconds(-gain)}{sure} longer" if gain else price


def compute_paired(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """Mean of first - second and the half width of its 95 % interval, over seeds that both met; None under two."""
    pairs = [a - b for a, b in zip(first, second, strict=False) if math.isfinite(a) and math.isfinite(b)]
    if len(pairs) < 2:
        return None
    t = _T95[min(len(pairs) - 1, len(_T95)) - 1]
    return fmean(pairs), t * stdev(pairs) / math.sqrt(len(pairs))


def compute_span(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the values of independent seeds with its 95 % interval (Student's t). One value: no width known."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    half = _T95[min(len(values) - 1, len(_T95)) - 1] * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half
