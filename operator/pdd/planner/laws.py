"""The laws that a workload is made of: lengths, arrivals, sessions, odd traffic; and how each is drawn.

Everything is vectorised over numpy arrays and takes its randomness as a Generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pdd.common.errors import InvalidInput

Reals = npt.NDArray[np.float64]
_GRID = 8193
_REACH = 8.5
"""Standard deviations: beyond them a normal law has less than 1e-16."""


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """A lognormal law cut to [low, high] (drawn anew outside, so nothing piles up at the ends). In tokens, or seconds.

    median: of the uncut law. sigma: of the logarithm; 0: always the median.
    """

    median: float
    sigma: float = 0.0
    low: float = 1.0
    high: float = 1e9

    def __post_init__(self) -> None:
        for name in ("median", "sigma", "low", "high"):
            if not math.isfinite(getattr(self, name)):
                raise InvalidInput(name, getattr(self, name), "must be finite")
        if self.median <= 0:
            raise InvalidInput("median", self.median, "must be more than 0")
        if not 0 <= self.sigma <= 5:
            raise InvalidInput("sigma", self.sigma, "must be from 0 to 5")
        if not 0 <= self.low <= self.high:
            raise InvalidInput("low", self.low, f"must be at least 0 and at most high ({self.high:g})")
        if not self.low <= self.median <= self.high:
            raise InvalidInput("median", self.median, f"must be between low ({self.low:g}) and high ({self.high:g})")

    @classmethod
    def from_mean(cls, mean: float, sigma: float, low: float = 1.0, high: float = 1e9) -> LengthLaw:
        """The law of that mean (after the cut), within 0.1 %. Raises InvalidInput if none in [low, high] has it."""
        if not (math.isfinite(mean) and mean > 0):
            raise InvalidInput("mean", mean, "must be more than 0")
        if sigma == 0:
            return cls(mean, 0.0, min(low, mean), high)
        bottom, top = max(low, high * 1e-12), high
        for _ in range(60):
            middle = math.sqrt(bottom * top)
            if cls(middle, sigma, low, high).mean < mean:
                bottom = middle
            else:
                top = middle
        law = cls(top, sigma, low, high)
        if abs(law.mean / mean - 1) > 1e-3:
            raise InvalidInput("mean", mean, f"cannot be reached with sigma {sigma:g} between {low:g} and {high:g}")
        return law

    @property
    def mean(self) -> float:
        """Of the cut law."""
        if self.sigma == 0:
            return self.median
        mu, sigma = math.log(self.median), self.sigma
        a = -math.inf if self.low <= 0 else (math.log(self.low) - mu) / sigma
        b = (math.log(self.high) - mu) / sigma
        share = _normal_cdf(b) - _normal_cdf(a)
        return math.exp(mu + sigma * sigma / 2) * (_normal_cdf(b - sigma) - _normal_cdf(a - sigma)) / share

    def quantile(self, share: float) -> float:
        """The length that `share` of the draws stay below."""
        return float(self.invert(np.array([share]))[0])

    def invert(self, shares: Reals) -> Reals:
        """Quantiles for an array of shares in [0, 1]; a table with 8,193 steps, linear in between."""
        if self.sigma == 0:
            return np.full(len(shares), self.median)
        cdf, logs = _table(self)
        values: Reals = np.exp(np.interp(shares, cdf, logs))
        return np.clip(values, self.low, self.high)

    def draw(self, n: int, rng: np.random.Generator) -> Reals:
        """n lengths."""
        return self.invert(rng.random(n))


class Arrivals(StrEnum):
    """CONSTANT: equal gaps. POISSON. GAMMA: gaps with coefficient of variation `cv`. MMPP: calm and bursts by turns."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    MMPP = "mmpp"


@dataclass(frozen=True, slots=True)
class ArrivalLaw:
    """When requests (or sessions) come, at a mean rate that the workload gives.

    cv: of the gaps, for GAMMA (1: Poisson, more: bursts). For MMPP, burst: rate in a burst over that in the calm;
    burst_s, calm_s: their mean lengths (exponential).
    """

    kind: Arrivals = Arrivals.POISSON
    cv: float = 1.0
    burst: float = 4.0
    burst_s: float = 10.0
    calm_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.cv <= 20:
            raise InvalidInput("cv", self.cv, "must be from 0.05 to 20")
        if not 1 <= self.burst <= 1e4:
            raise InvalidInput("burst", self.burst, "must be from 1 to 10,000")
        for name in ("burst_s", "calm_s"):
            if not 0 < getattr(self, name) <= 1e7:
                raise InvalidInput(name, getattr(self, name), "must be more than 0 s and at most 10,000,000 s")

    def draw(self, n: int, rate_per_s: float, rng: np.random.Generator) -> Reals:
        """n times in s from 0 on, not falling, at that mean rate."""
        if self.kind is Arrivals.CONSTANT:
            return np.arange(1, n + 1) / rate_per_s
        if self.kind is Arrivals.GAMMA:
            shape = 1 / (self.cv * self.cv)
            return np.cumsum(rng.gamma(shape, 1 / (shape * rate_per_s), n))
        points: Reals = np.cumsum(rng.standard_exponential(n))
        if self.kind is Arrivals.POISSON:
            return points / rate_per_s
        return self._warp(points, rate_per_s, rng)

    def _warp(self, points: Reals, rate_per_s: float, rng: np.random.Generator) -> Reals:
        """A unit Poisson process through the inverse of the cumulative rate, which is linear in each state."""
        cycle_s = self.burst_s + self.calm_s
        calm_rate = rate_per_s * cycle_s / (self.calm_s + self.burst * self.burst_s)
        cycles, starts, sums = 0, [np.zeros(1)], [np.zeros(1)]
        while sums[-1][-1] < (points[-1] if len(points) else 0.0):
            more = max(64, int(1.2 * len(points) / (rate_per_s * cycle_s)) - cycles)
            lengths = rng.standard_exponential(2 * more) * np.tile([self.calm_s, self.burst_s], more)
            masses = lengths * np.tile([calm_rate, calm_rate * self.burst], more)
            starts.append(starts[-1][-1] + np.cumsum(lengths))
            sums.append(sums[-1][-1] + np.cumsum(masses))
            cycles += more
        return np.interp(points, np.concatenate(sums), np.concatenate(starts))


@dataclass(frozen=True, slots=True)
class SessionLaw:
    """Conversations: the first prompt is as long as the workload says, each later one longer by `growth`.

    turns: mean number of requests (geometric), before the cut at context_tokens: a session ends before a longer prompt.
    growth: tokens that a turn adds beyond the answer before it. think_s: between an answer's end and the next request.
    answers_cached: the answer before counts as a hit (its KV was kept), as with a decode-side cache. Open arrivals take
    first_token_s + output * token_s for an answer; closed loops do not.
    """

    turns: float = 10.0
    growth: LengthLaw = field(default_factory=lambda: LengthLaw(700.0, 1.2, 1.0, 65_536.0))
    think_s: LengthLaw = field(default_factory=lambda: LengthLaw(10.0, 1.8, 0.0, 3600.0))
    answers_cached: bool = True
    context_tokens: int = 262_144
    first_token_s: float = 2.0
    token_s: float = 0.03

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= 1e4:
            raise InvalidInput("turns", self.turns, "must be from 1 to 10,000")
        if self.context_tokens < 1:
            raise InvalidInput("context_tokens", self.context_tokens, "must be at least 1")
        for name in ("first_token_s", "token_s"):
            if not 0 <= getattr(self, name) <= 3600:
                raise InvalidInput(name, getattr(self, name), "must be from 0 to 3,600 s")


@dataclass(frozen=True, slots=True)
class OddLaw:
    """Odd traffic: long prompts without a hit and very short answers. share: of the requests."""

    share: float = 0.005
    input_tokens: LengthLaw = field(default_factory=lambda: LengthLaw(32_768.0, 0.5, 16_384.0, 131_072.0))
    output_tokens: LengthLaw = field(default_factory=lambda: LengthLaw(16.0, 1.0, 1.0, 128.0))

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 0.5:
            raise InvalidInput("share", self.share, "must be from 0 to 0.5")


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


@lru_cache(maxsize=64)
def _table(law: LengthLaw) -> tuple[Reals, Reals]:
    mu = math.log(law.median)
    a = -_REACH if law.low <= 0 else max(-_REACH, (math.log(law.low) - mu) / law.sigma)
    b = min(_REACH, (math.log(law.high) - mu) / law.sigma)
    z = np.linspace(a, b, _GRID)
    cdf = np.array([_normal_cdf(float(x)) for x in z])
    return (cdf - cdf[0]) / (cdf[-1] - cdf[0]), mu + law.sigma * z
