"""What a load looks like: lengths, hit rates, buckets, arrivals, sessions; as values and as one JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pdd.common.errors import InvalidInput
from pdd.planner.hit_law import HIT_EDGES
from pdd.planner.load import Load, Tokens
from pdd.planner.traces.cache import find_cache, knows_hits, knows_reuse, measure_reuse

OUTPUT_VERSION = "pdd.dev/trace/v1"
DEFAULT_CACHES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
"""Tokens. A prefill engine's own memory holds a few million, host memory tens of millions."""
ODD_UNCACHED_TOKENS = 16_384
ODD_OUTPUT_TOKENS = 128
HIGH_HIT = 0.95
TAIL_SAMPLES = 5
"""A percentile is given only if at least so many requests lie beyond it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """mean, percentiles (None: too few samples beyond it) and max of a quantity."""

    mean: float
    p10: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float


@dataclass(frozen=True, slots=True)
class HitStats:
    """Hit rates under one cache. cache_tokens: None: unlimited. by_request: mean of the requests' rates; by_token: hit
    tokens over prompt tokens. buckets: shares of requests in 0-90, 90-95, 95-97, 97-98, 98-99, 99-100 %. none: share
    without any hit (they are in the lowest bucket, too). high: share at 95 % or more."""

    cache_tokens: int | None
    by_request: float
    by_token: float
    buckets: tuple[float, ...]
    none: float
    high: float


@dataclass(frozen=True, slots=True)
class SessionStats:
    """conversations: with at least one request. turns: by conversation. think_s: before later turns."""

    conversations: int
    turns: Spread
    think_s: Spread | None


@dataclass(frozen=True, slots=True)
class TraceStats:
    """hits: unlimited cache; None if the load knows nothing of hits. caches: finite ones, None if reuse is unknown.

    cold_uncached_share: of all uncached tokens, those of requests below 90 %. odd_share: requests with at least 16,384
    uncached tokens and at most 128 of output. working_set: cache in tokens that gives 50, 90, 99 % of all hit tokens.
    gap_cv: coefficient of variation of the gaps between arrivals (1: Poisson); None below three requests.
    """

    requests: int
    duration_s: float
    rate_per_s: float
    gap_cv: float | None
    input_tokens: Spread
    output_tokens: Spread
    uncached_tokens: Spread | None
    hits: HitStats | None
    caches: tuple[HitStats, ...] | None
    cold_uncached_share: float | None
    odd_share: float | None
    working_set: dict[str, int | None] | None
    sessions: SessionStats | None


def trace_stats(load: Load, cache_tokens: Sequence[float] = DEFAULT_CACHES) -> TraceStats:
    """Statistics of a load; cache sizes in tokens. Raises InvalidInput for a size that is negative or not finite."""
    if not len(load):
        raise InvalidInput("load", 0, "has no requests")
    for size in cache_tokens:
        if not (math.isfinite(size) and size >= 0):
            raise InvalidInput("cache_tokens", size, "must be at least 0, in tokens")
    known, reuse = knows_hits(load), measure_reuse(load) if knows_reuse(load) else None
    gaps = np.diff(load.arrival_s)
    uncached = load.input_tokens - load.hit_tokens
    cold = load.hit_tokens < HIT_EDGES[0] * load.input_tokens
    odd = (uncached >= ODD_UNCACHED_TOKENS) & (load.output_tokens <= ODD_OUTPUT_TOKENS)
    return TraceStats(
        requests=len(load),
        duration_s=float(load.arrival_s[-1] - load.arrival_s[0]),
        rate_per_s=load.rate_per_s,
        gap_cv=float(gaps.std() / gaps.mean()) if len(gaps) >= 2 and gaps.mean() > 0 else None,
        input_tokens=measure_spread(load.input_tokens),
        output_tokens=measure_spread(load.output_tokens),
        uncached_tokens=measure_spread(uncached) if known else None,
        hits=measure_hits(load.input_tokens, load.hit_tokens, None) if known else None,
        caches=None
        if reuse is None
        else tuple(measure_hits(load.input_tokens, reuse.hit_tokens(size), int(size)) for size in cache_tokens),
        cold_uncached_share=float(uncached[cold].sum() / max(1, uncached.sum())) if known else None,
        odd_share=float(odd.mean()) if known else None,
        working_set=None
        if reuse is None
        else {f"share{percent}": find_cache(reuse, percent / 100) for percent in (50, 90, 99)},
        sessions=_measure_sessions(load),
    )


def measure_spread(values: npt.NDArray[Any]) -> Spread:
    """Mean, percentiles and max of at least one value."""
    n = len(values)

    def at(share: float) -> float | None:
        if n * min(share, 1 - share) < TAIL_SAMPLES - 1e-9:
            return None
        return float(np.quantile(values, share))

    return Spread(
        float(np.mean(values)), at(0.1), at(0.5), at(0.9), at(0.95), at(0.99), float(np.max(values))
    )  # fmt: skip


def bucket_shares(rates: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Shares of the six buckets; a rate on an edge belongs to the upper one."""
    counts = np.bincount(np.searchsorted(HIT_EDGES, rates, side="right"), minlength=len(HIT_EDGES) + 1)
    return tuple(float(count) / len(rates) for count in counts)


def measure_hits(inputs: Tokens, hits: Tokens, cache_tokens: int | None) -> HitStats:
    """Of hit tokens by request."""
    rates = hits / inputs
    return HitStats(
        cache_tokens=cache_tokens,
        by_request=float(rates.mean()),
        by_token=float(hits.sum() / inputs.sum()),
        buckets=bucket_shares(rates),
        none=float(np.mean(hits == 0)),
        high=float(np.mean(rates >= HIGH_HIT)),
    )


def to_document(stats: TraceStats, name: str, trace_format: str) -> dict[str, Any]:
    """The one document of `pdd trace stats --json`. Units stand in the names, rates and shares are of 1."""
    edges = (0.0, *HIT_EDGES, 1.0)

    def hit(value: HitStats) -> dict[str, Any]:
        buckets = [
            {"from": low, "to": high, "share": round(share, 6)}
            for (low, high), share in zip(pairwise(edges), value.buckets, strict=True)
        ]
        return {
            "cache_tokens": value.cache_tokens,
            "byRequest": round(value.by_request, 6),
            "byToken": round(value.by_token, 6),
            "buckets": buckets,
            "noHitShare": round(value.none, 6),
            "highHitShare": round(value.high, 6),
        }

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.6g}")

    return {
        "apiVersion": OUTPUT_VERSION,
        "kind": "TraceStats",
        "trace": name,
        "format": trace_format,
        "requests": stats.requests,
        "duration_s": round(stats.duration_s, 3),
        "rate_per_s": rounded(stats.rate_per_s),
        "gapCv": rounded(stats.gap_cv),
        "input_tokens": _spread(stats.input_tokens),
        "output_tokens": _spread(stats.output_tokens),
        "uncached_tokens": _spread(stats.uncached_tokens),
        "hitRate": hit(stats.hits) if stats.hits else None,
        "finiteCaches": [hit(cache) for cache in stats.caches] if stats.caches is not None else None,
        "workingSet_tokens": stats.working_set,
        "uncachedShareBelow90": rounded(stats.cold_uncached_share),
        "oddShare": rounded(stats.odd_share),
        "sessions": None
        if stats.sessions is None
        else {
            "conversations": stats.sessions.conversations,
            "turns": _spread(stats.sessions.turns),
            "think_s": _spread(stats.sessions.think_s),
        },
    }


def _spread(spread: Spread | None) -> dict[str, float | None] | None:
    if spread is None:
        return None
    return {key: None if value is None else round(value, 3) for key, value in asdict(spread).items()}


def _measure_sessions(load: Load) -> SessionStats | None:
    mine = load.session[load.session >= 0]
    if not len(mine):
        return None
    _, turns = np.unique(mine, return_counts=True)
    later = load.think_s[load.previous >= 0]
    return SessionStats(len(turns), measure_spread(turns), measure_spread(later) if len(later) else None)
