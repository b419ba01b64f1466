"""Percentiles of a sum: a wait with a fitted tail, plus what was drawn from the load's own sample.

The wait is 0 with probability 1 - p, else a two-phase law with the wait's mean and squared coefficient of variation:
a hyper-exponential with balanced means for scv > 1, a sum of two exponentials for 1/2 <= scv < 1 (below 1/2, its limit:
1/2), an exponential at 1. The rest (prefill, transfer, first step) keeps its empirical distribution, row by row, so its
tail is the load's. P(W + X > t) is then a mean of closed forms over the rows: no sampling, no grid of the density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pdd.planner.queueing import Wait

Reals = npt.NDArray[np.float64]
POINTS = 192
"""The rows are merged into so many points, finer in the tail."""
MAX_STEPS = 40
PRECISION = 1e-3
"""Of a quantile or of its probability, relative."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds. Infinite where the queue is not stable."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Phases:
    """P(W > t | W > 0) = first x exp(-t / first_s) + (1 - first) x exp(-t / second_s)."""

    first: float
    first_s: float
    second_s: float

    def survival(self, t: Reals) -> Reals:
        """For t >= 0; 1 below."""
        late = np.maximum(t, 0.0)
        return self.first * np.exp(-late / self.first_s) + (1.0 - self.first) * np.exp(-late / self.second_s)


def fit_phases(mean_s: float, scv: float) -> Phases:
    """The two-phase law with this mean (> 0) and squared coefficient of variation."""
    if scv > 1.0 + 1e-9:
        share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        return Phases(share, mean_s / (2.0 * share), mean_s / (2.0 * (1.0 - share)))
    if scv < 1.0 - 1e-9:
        # Two exponentials in a row, means a > b: a + b = mean, a^2 + b^2 = scv mean^2. Equal means have no closed form
        # of this kind, so the limit is taken a little before.
        spread = math.sqrt(max(2.0 * max(scv, 0.5) - 1.0, 1e-4))
        a, b = mean_s * (1.0 + spread) / 2.0, mean_s * (1.0 - spread) / 2.0
        return Phases(a / (a - b), a, b)
    return Phases(1.0, mean_s, mean_s)


class Tail:
    """W + X: `survival(t)`, quantiles. rows: the empirical part in s, equal weights, in any order."""

    def __init__(self, wait: Wait, rows: Reals) -> None:
        self.wait = wait
        self._phases = fit_phases(wait.mean_s, wait.scv) if wait.overall_s > 0 and math.isfinite(wait.mean_s) else None
        ordered = np.sort(rows)
        self._x, self._weights = _merge(ordered)
        self._below = np.cumsum(self._weights)
        self._ordered = ordered
        self.mean_s = float(rows.mean()) + wait.overall_s

    @property
    def stable(self) -> bool:
        return math.isfinite(self.mean_s)

    def survival(self, t: Reals) -> Reals:
        """P(W + X > t) for each entry of t; 1 everywhere if the queue is not stable."""
        if not self.stable:
            return np.ones_like(t)
        if self._phases is None:
            return 1.0 - np.searchsorted(self._ordered, t, side="right") / len(self._ordered)
        gaps = t[:, None] - self._x[None, :]
        late = self.wait.probability * self._phases.survival(gaps)
        return np.where(gaps < 0.0, 1.0, late) @ self._weights

    def quantiles(self) -> Quantiles:
        """Mean, P50, P90, P99."""
        if not self.stable:
            return Quantiles(math.inf, math.inf, math.inf, math.inf)
        if self._phases is None:
            p50, p90, p99 = (float(q) for q in np.quantile(self._ordered, (0.5, 0.9, 0.99)))
        else:
            p50, p90, p99 = (self._invert(share) for share in (0.5, 0.1, 0.01))
        return Quantiles(self.mean_s, p50, p90, p99)

    def _invert(self, share: float) -> float:
        """t with P(W + X > t) = share, by bisection that leans on the exponential tail (regula falsi on logarithms)."""
        # P(W + X > t) >= P(X > t), and <= P(X > x) + P(W > t - x) for any x: halves of the share bound it from above.
        wanted = math.log(share)
        low = self._empirical(share)
        high = self._empirical(share / 2.0) + self._reach(share / 2.0) + 1e-9
        at_low, at_high = math.log(self._at(low)) - wanted, math.log(max(self._at(high), 1e-300)) - wanted
        if at_low <= 0.0:
            return low
        for step in range(MAX_STEPS):
            if high - low <= PRECISION * high:
                break
            lean = at_low / (at_low - at_high) if step % 3 < 2 and at_high < 0.0 else 0.5
            t = low + (high - low) * lean
            at = math.log(max(self._at(t), 1e-300)) - wanted
            if abs(at) < PRECISION:
                return t
            if at > 0.0:
                low, at_low = t, at
            else:
                high, at_high = t, at
        return (low + high) / 2.0

    def _empirical(self, share: float) -> float:
        """x of the merged rows with P(X > x) about `share`, never above it."""
        return float(self._x[min(int(np.searchsorted(self._below, 1.0 - share)), len(self._x) - 1)])

    def _reach(self, share: float) -> float:
        """A time that the wait exceeds with at most `share`."""
        if self._phases is None or self.wait.probability <= share:
            return 0.0
        return max(self._phases.first_s, self._phases.second_s) * math.log(self.wait.probability / share)

    def _at(self, t: float) -> float:
        """`survival` at one t."""
        phases = self._phases
        if phases is None:
            return 0.0
        reached = int(np.searchsorted(self._x, t, side="right"))
        gaps = t - self._x[:reached]
        late = phases.first * np.exp(gaps * (-1.0 / phases.first_s))
        if phases.first != 1.0:
            late += (1.0 - phases.first) * np.exp(gaps * (-1.0 / phases.second_s))
        return self.wait.probability * float(late @ self._weights[:reached]) + float(self._weights[reached:].sum())


def _reach(phases: Phases, share: float) -> float:
    """A time that the wait exceeds with less than `share`."""
    return max(phases.first_s, phases.second_s) * math.log(4.0 / share)


def _merge(ordered: Reals) -> tuple[Reals, Reals]:
    """At most POINTS points with weights: equal shares below the P90, half the points above it."""
    n = len(ordered)
    if n <= POINTS:
        return ordered, np.full(n, 1.0 / n)
    bulk = np.linspace(0, int(n * 0.9), POINTS // 2, endpoint=False)
    edges = np.unique(np.concatenate([bulk, np.linspace(int(n * 0.9), n, POINTS // 2 + 1)]).astype(np.int64))
    sizes = np.diff(edges)
    return np.add.reduceat(ordered, edges[:-1]) / sizes, sizes / n


def spread_over_rows(values: Reals, rows: int) -> Reals:
    """Sorted `values` (quantiles of an independent variable, equal weights) dealt to `rows` rows without correlation.

    Weyl's sequence of the golden ratio: deterministic, and close to uniform on every stretch of rows, so the sum with a
    sorted sample is close to the sum of independent variables.
    """
    place = (np.arange(rows) * 0.6180339887498949) % 1.0
    return values[np.minimum((place * len(values)).astype(np.int64), len(values) - 1)]


def wait_states(wait: Wait, states: int) -> Reals:
    """`states` equally likely values of a wait, in order; all 0 for no wait, all infinite for an unstable queue."""
    if wait.overall_s <= 0:
        return np.zeros(states)
    if not math.isfinite(wait.mean_s):
        return np.full(states, math.inf)
    phases = fit_phases(wait.mean_s, wait.scv)
    grid = np.linspace(0.0, 1.0, 4 * states) ** 2 * _reach(phases, 1.0 / (2 * states))
    below = 1.0 - wait.probability * phases.survival(grid)
    return np.interp((np.arange(states) + 0.5) / states, below, grid, left=0.0)
