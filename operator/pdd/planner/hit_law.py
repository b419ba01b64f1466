"""How hit rates spread over requests: a mixture of buckets, as production shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.laws import Reals

HIT_EDGES = (0.9, 0.95, 0.97, 0.98, 0.99)
"""Between the hit-rate buckets 0-90, 90-95, 95-97, 97-98, 98-99 and 99-100 %; an edge belongs to the upper one."""
MAX_FACTOR = 1e9


@dataclass(frozen=True, slots=True)
class HitBucket:
    """Requests whose hit rate is between low and high. mean: of their hit rates; None: the middle (uniform)."""

    low: float
    high: float
    share: float
    mean: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise InvalidInput("low", self.low, f"must be from 0 to high ({self.high:g}), and that at most 1")
        if not (math.isfinite(self.share) and self.share >= 0):
            raise InvalidInput("share", self.share, "must be at least 0")
        if self.mean is not None and self.low < self.high and not self.low < self.mean < self.high:
            raise InvalidInput("mean", self.mean, f"must be between {self.low:g} and {self.high:g}")

    @property
    def middle(self) -> float:
        """Mean hit rate within the bucket."""
        return (self.low + self.high) / 2 if self.mean is None or self.low == self.high else self.mean

    def invert(self, shares: Reals) -> Reals:
        """low + (high - low) * U^k, k so that the mean is right."""
        width = self.high - self.low
        if width == 0:
            return np.full(len(shares), self.low)
        return self.low + width * (shares if self.mean is None else shares**self._power)

    def split(self, rate: float) -> tuple[float, float]:
        """The share of the bucket's requests below `rate`, and the mean rate of the others (high if there are none)."""
        width = self.high - self.low
        if rate <= self.low:
            return 0.0, self.middle
        if rate >= self.high:
            return 1.0, self.high
        below = ((rate - self.low) / width) ** (1 / self._power)
        beyond = (1 - below ** (self._power + 1)) / ((self._power + 1) * (1 - below))
        return below, self.low + width * beyond

    @property
    def _power(self) -> float:
        return (self.high - self.low) / (self.middle - self.low) - 1


PRODUCTION_BUCKETS = (
    HitBucket(0.0, 0.0, 0.03),
    HitBucket(0.0, 0.9, 0.12, mean=0.625),
    HitBucket(0.9, 0.95, 0.10),
    HitBucket(0.95, 0.97, 0.15),
    HitBucket(0.97, 0.98, 0.12),
    HitBucket(0.98, 0.99, 0.18),
    HitBucket(0.99, 1.0, 0.30),
)
"""Mean 90 %, 75 % of the requests at 95 % or more. The lowest 15 %, mean 50 %, are split: never seen, and the rest."""


@dataclass(frozen=True, slots=True)
class HitMixture:
    """Hit rates drawn for each request alone: a bucket by its share, then a rate within."""

    buckets: tuple[HitBucket, ...] = PRODUCTION_BUCKETS

    def __post_init__(self) -> None:
        if not self.buckets or abs(sum(bucket.share for bucket in self.buckets) - 1) > 0.005:
            total = sum(bucket.share for bucket in self.buckets)
            raise InvalidInput("buckets", round(total, 4), "the shares of the buckets must add up to 1")

    @classmethod
    def narrow(cls, low: float, high: float) -> HitMixture:
        """All requests between low and high, evenly."""
        return cls((HitBucket(low, high, 1.0),))

    @property
    def mean(self) -> float:
        """Mean hit rate by request."""
        return sum(b.share * b.middle for b in self.buckets) / sum(b.share for b in self.buckets)

    def with_mean(self, mean: float) -> HitMixture:
        """The same shape at another mean: what is missed (1 - rate) is scaled; no rate falls below 0.

        The means of the buckets are exact; within a bucket that is cut at 0, the shape is not.
        """
        if not 0 <= mean <= 1:
            raise InvalidInput("mean", mean, "must be from 0 to 1")
        if mean == 0:
            return HitMixture((HitBucket(0.0, 0.0, 1.0),))
        low, high = 0.0, 1.0
        while high < MAX_FACTOR and self._miss(high).mean > mean:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._miss(middle).mean > mean else (low, middle)
        return self._miss(high)

    def _miss(self, factor: float) -> HitMixture:
        """Rates x become max(0, 1 - factor * (1 - x))."""
        zero_at = 1 - 1 / factor if factor > 1 else 0.0
        moved: list[HitBucket] = []
        for bucket in self.buckets:
            lost, above = bucket.split(zero_at)
            low, high, mean = (1 - factor * (1 - rate) for rate in (max(bucket.low, zero_at), bucket.high, above))
            low, high = max(0.0, low), min(1.0, max(0.0, high))
            if lost > 0 or high == 0:
                moved.append(HitBucket(0.0, 0.0, bucket.share * (lost if high > 0 else 1.0)))
            if lost < 1 and high > 0:
                moved.append(HitBucket(low, high, bucket.share * (1 - lost), mean if low < mean < high else None))
        return HitMixture(tuple(moved))

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The rates below which so many requests stay; buckets stand in the order of their rates."""
        ordered = sorted((b for b in self.buckets if b.share > 0), key=lambda b: (b.low, b.high))
        edges = np.cumsum([0.0, *(b.share for b in ordered)])
        edges /= edges[-1]
        found = []
        for share in shares:
            i = min(int(np.searchsorted(edges, share, side="right")) - 1, len(ordered) - 1)
            within = min(1.0, max(0.0, (share - float(edges[i])) / float(edges[i + 1] - edges[i])))
            found.append(float(ordered[i].invert(np.array([within]))[0]))
        return found

    def draw(self, n: int, rng: np.random.Generator) -> Reals:
        """n hit rates in [0, 1]."""
        which, within = rng.random(n), rng.random(n)
        edges = np.cumsum([b.share for b in self.buckets])
        chosen = np.minimum(np.searchsorted(edges / edges[-1], which, side="right"), len(self.buckets) - 1)
        rates = np.empty(n)
        for i, bucket in enumerate(self.buckets):
            mine = chosen == i
            rates[mine] = bucket.invert(within[mine])
        return rates
