"""Why more cache hits may earn less: throughput and revenue of a prefill engine against the hit rate.

A prompt of L tokens at hit rate x has u = (1 - x) L tokens to compute, in chunks of C: the tail of u mod C tokens costs
a whole forward's fixed part (and wakes few of the machine's units), so uncached tokens a second *dip* where the tail is
small. Cached tokens are sold at a share rho of the price, uncached ones at the full price; an engine earns

    R(x) = miss(x) x (1 + rho x / (1 - x)),      miss(x) = u / T(u, L - u)

Where miss falls like T0 (1 - b x) and rho < b < 1, R has its *valley* at (1 - x)^2 = rho / b x (1 - b) / (1 - rho):
left of it each more hit earns less. For rho >= b revenue only rises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from pdd.common.errors import InvalidInput
from pdd.planner.timing import PrefillTime

Reals = npt.NDArray[np.float64]
GRID = tuple(i / 100 for i in range(0, 100))
COARSE = 10
"""Dips are sought on a grid of 10 %, as they were reported."""
LEAST_DEPTH = 1e-6
"""Below it a difference is the arithmetic's."""
FIT_TO = 0.9
CHUNKS = (1024, 2048, 4096, 8192, 16_384, 32_768)
MORE_CACHE = 0.2
"""How much of what is missed the advice 'more cache' takes to be found."""


class Tails(StrEnum):
    """What becomes of the last u mod C tokens. ALONE: a forward of their own. FUSED: they share it with other prompts.
    BALANCED: the prompt is cut into ceil(u / C) equal pieces."""

    ALONE = "alone"
    FUSED = "fused"
    BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class BathtubSpec:
    """One engine and one price list. input_tokens: lengths of prompts, equally likely. cached_price: rho, the price of
    a cached token as a share of an uncached one's (0.10 to 0.25 are usual). price: money for 10^6 uncached tokens."""

    prefill: PrefillTime
    input_tokens: tuple[int, ...]
    cached_price: float = 0.10
    price: float = 1.0

    def __post_init__(self) -> None:
        if not self.input_tokens or min(self.input_tokens) < 2:
            raise InvalidInput("input_tokens", self.input_tokens, "give lengths of at least 2 tokens")
        if not 0 <= self.cached_price <= 1:
            raise InvalidInput("cached_price", self.cached_price, "must be a share, from 0 to 1")
        if not (math.isfinite(self.price) and self.price > 0):
            raise InvalidInput("price", self.price, "must be more than 0")


@dataclass(frozen=True, slots=True)
class Point:
    """At one hit rate: tokens a second, money an hour, of one engine that always has work."""

    hit_rate: float
    miss_tokens_per_s: float
    hit_tokens_per_s: float
    revenue_per_h: float


@dataclass(frozen=True, slots=True)
class Dip:
    """A local minimum of miss tokens a second on the 10 % grid. depth: below the mean of its neighbours, as a share."""

    hit_rate: float
    depth: float


@dataclass(frozen=True, slots=True)
class Valley:
    """slope: b of the fitted line T0 (1 - b x). hit_rate: where the fitted line's revenue is least, None if it only
    rises (b <= rho) or falls (b >= 1). least: where the computed revenue is least, on the fine grid."""

    slope: float
    hit_rate: float | None
    least: float


@dataclass(frozen=True, slots=True)
class Bathtub:
    """points: on the 1 % grid, with tails alone; fused: the same with fused tails."""

    spec: BathtubSpec
    points: tuple[Point, ...]
    fused: tuple[Point, ...]
    dips: tuple[Dip, ...]
    valley: Valley


@dataclass(frozen=True, slots=True)
class Advice:
    """One change and its effect for the load it was computed for, as shares: 0.05 is 5 % more. Of one engine that has
    always work: revenue, uncached tokens a second, requests a second."""

    what: str
    revenue_gain: float
    throughput_gain: float
    requests_gain: float
    note: str = ""


def compute_bathtub(spec: BathtubSpec) -> Bathtub:
    """Curves, dips and valley."""
    points = tuple(_point(spec, x, Tails.ALONE) for x in GRID)
    fused = tuple(_point(spec, x, Tails.FUSED) for x in GRID)
    return Bathtub(spec, points, fused, tuple(find_dips(spec)), find_valley(spec, points))


def compute_times_s(prefill: PrefillTime, uncached: Reals, cached: Reals, tails: Tails = Tails.ALONE) -> Reals:
    """Seconds of an engine for prompts of so many tokens (arrays), by what becomes of their tails.

    Equal pieces cost what C, ..., C, tail cost: in this law a forward of m tokens takes a fixed part and a part in
    proportion to m, whatever m is. They are there to show just that.
    """
    new = np.maximum(uncached, 1.0)
    forwards = new / prefill.chunk_tokens
    if tails is not Tails.FUSED:
        forwards = np.ceil(forwards)
    linear = prefill.per_token_s * (new + prefill.half_tokens * forwards) + prefill.fixed_s * forwards
    times: Reals = linear + prefill.attention_s * new * (cached + new / 2)
    return times


def find_dips(spec: BathtubSpec, tails: Tails = Tails.ALONE) -> list[Dip]:
    """Local minima of miss tokens a second at 10, 20, ..., 80 %."""
    rates = [_point(spec, i / COARSE, tails).miss_tokens_per_s for i in range(COARSE)]
    dips = []
    for i in range(1, COARSE - 1):
        if rates[i] < (1 - LEAST_DEPTH) * min(rates[i - 1], rates[i + 1]):
            around = (rates[i - 1] + rates[i + 1]) / 2
            dips.append(Dip(i / COARSE, 1 - rates[i] / around))
    return dips


def find_valley(spec: BathtubSpec, points: Sequence[Point]) -> Valley:
    """The line is fitted from 0 to 90 % by least squares."""
    x = np.array([point.hit_rate for point in points if point.hit_rate <= FIT_TO])
    miss = np.array([point.miss_tokens_per_s for point in points if point.hit_rate <= FIT_TO])
    slope, top = np.polyfit(x, miss, 1)
    b = float(-slope / top)
    least = min(points, key=lambda point: point.revenue_per_h).hit_rate
    return Valley(b, compute_valley(spec.cached_price, b), least)


def compute_valley(cached_price: float, slope: float) -> float | None:
    """Hit rate of the least revenue for miss = T0 (1 - b x); None where it only rises or falls within 0 to 1."""
    if not 0 < cached_price < slope < 1:
        return None
    return 1 - math.sqrt(cached_price / slope * (1 - slope) / (1 - cached_price))


def advise(spec: BathtubSpec, hit_rates: Sequence[float]) -> list[Advice]:
    """What each change would do for requests with these hit rates (each with each length), best for revenue first.

    Revenue and throughput of the mean request: money and uncached tokens over seconds.
    """
    lengths = np.repeat(np.array(spec.input_tokens, np.float64), len(hit_rates))
    rates = np.tile(np.array(hit_rates, np.float64), len(spec.input_tokens))
    if not len(rates) or float(rates.min()) < 0 or float(rates.max()) > 1:
        raise InvalidInput("hit_rates", list(hit_rates)[:8], "give rates from 0 to 1")
    base = _earn(spec, spec.prefill, lengths, rates, Tails.ALONE)

    def effect(what: str, value: tuple[float, float, float], note: str = "") -> Advice:
        revenue, throughput, requests = (new / old - 1 for new, old in zip(value, base, strict=True))
        return Advice(what, revenue, throughput, requests, note)

    found = [
        effect(
            "fuse tails of several prompts into one chunk",
            _earn(spec, spec.prefill, lengths, rates, Tails.FUSED),
            "at most: other prompts must be waiting",
        ),
        effect(
            "cut prompts into equal pieces",
            _earn(spec, spec.prefill, lengths, rates, Tails.BALANCED),
            "nothing by itself: as many forwards as before; it only evens out their lengths",
        ),
        effect(
            f"more cache: {MORE_CACHE:.0%} of what is missed is found",
            _earn(spec, spec.prefill, lengths, 1 - (1 - rates) * (1 - MORE_CACHE), Tails.ALONE),
            "a higher hit rate is worth it where fewer engines then serve the same requests",
        ),
    ]
    sizes = [size for size in CHUNKS if size != spec.prefill.chunk_tokens]
    values = {size: _earn(spec, _with_chunk(spec.prefill, size), lengths, rates, Tails.ALONE) for size in sizes}
    best = max(values, key=lambda size: (values[size][0], -size))
    found.append(effect(f"chunks of {best:,} tokens", values[best], "longer chunks make others wait longer"))
    return sorted(found, key=lambda advice: -advice.revenue_gain)


def _point(spec: BathtubSpec, hit_rate: float, tails: Tails) -> Point:
    """Over all lengths: tokens over seconds."""
    lengths = np.array(spec.input_tokens, np.float64)
    uncached = np.maximum(1.0, lengths - np.floor(lengths * hit_rate + 1e-9))
    seconds = float(compute_times_s(spec.prefill, uncached, lengths - uncached, tails).sum())
    miss, hit = float(uncached.sum()) / seconds, float((lengths - uncached).sum()) / seconds
    return Point(hit_rate, miss, hit, (miss + spec.cached_price * hit) * spec.price * 3600 / 1e6)


def _earn(
    spec: BathtubSpec, prefill: PrefillTime, lengths: Reals, rates: Reals, tails: Tails
) -> tuple[float, float, float]:
    """Money, uncached tokens and requests a second of engine time."""
    uncached = np.maximum(1.0, np.rint(lengths * (1 - rates)))
    cached = lengths - uncached
    seconds = float(compute_times_s(prefill, uncached, cached, tails).sum())
    money = float((uncached + spec.cached_price * cached).sum()) * spec.price / 1e6
    return money / seconds, float(uncached.sum()) / seconds, len(lengths) / seconds


def _with_chunk(prefill: PrefillTime, chunk_tokens: int) -> PrefillTime:
    return PrefillTime(prefill.per_token_s, chunk_tokens, prefill.half_tokens, prefill.attention_s, prefill.fixed_s)
