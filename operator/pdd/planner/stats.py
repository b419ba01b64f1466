"""A load in small: what the analytic model needs to know of it, a joint sample of requests among it.

Means, quantiles and the sample keep how lengths and hits go together: the few requests with low hit rates carry most of
the uncached tokens, so a model that multiplies means is wrong by an order of magnitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.load import Load, Tokens

MAX_ROWS = 4096
ROWS = 1024
"""A thousand rows hold 10 beyond the P99 at equal spacing, and keep a prediction at a few milliseconds."""
WINDOW_ARRIVALS = 20
"""Arrivals of one window in which counts are compared; bursts shorter than that show, slow drifts of the day do not."""
MIN_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class Summary:
    """Tokens (or whatever was summed up): mean, quantiles, scv = variance / mean squared."""

    mean: float
    p50: float
    p90: float
    p99: float
    scv: float


@dataclass(frozen=True, slots=True)
class WorkloadStats:
    """requests: counted. rate_per_s: mean arrivals a second of the load (0: all at once).

    arrival_scv: C_a^2 of arrivals, 1 for Poisson; more with bursts. uncached, cached, output: the joint sample, a row a
    request, equal weights; uncached >= 1. hit_rate: mean over requests; hit_rate_tokens: over tokens.
    waiting_prefix_token_s: mean over requests of tokens x seconds until its conversation comes back (0 if it does not).
    Times the arrival rate it is the size of a cache that would hit them all (Little), in tokens.
    """

    requests: int
    rate_per_s: float
    arrival_scv: float
    uncached: Tokens
    cached: Tokens
    output: Tokens
    input_summary: Summary
    uncached_summary: Summary
    output_summary: Summary
    hit_rate: float
    hit_rate_tokens: float
    waiting_prefix_token_s: float = 0.0

    @property
    def rows(self) -> int:
        return len(self.uncached)


def summarize(load: Load, rows: int = ROWS) -> WorkloadStats:
    """The statistics of a load. rows: size of the joint sample, at most MAX_ROWS (more cost time, not accuracy).

    The sample is systematic: requests ordered by uncached tokens, every n/rows-th taken, so that the heavy tail has its
    exact weight. Raises InvalidInput for an empty load or a bad `rows`.
    """
    n = len(load)
    if n == 0:
        raise InvalidInput("load", "0 requests", "give a load or trace with at least one request")
    if not 1 <= rows <= MAX_ROWS:
        raise InvalidInput("rows", rows, f"must be from 1 to {MAX_ROWS}")
    uncached = np.maximum(load.input_tokens - load.hit_tokens, 1)
    cached = np.maximum(load.input_tokens - uncached, 0)
    output = np.maximum(load.output_tokens, 1)
    order = np.lexsort((output, cached, uncached))
    if n > rows:
        order = order[((np.arange(rows) + 0.5) * (n / rows)).astype(np.int64)]
    inputs = load.input_tokens.astype(np.float64)
    return WorkloadStats(
        requests=n,
        rate_per_s=load.rate_per_s,
        arrival_scv=compute_arrival_scv(load.arrival_s),
        uncached=uncached[order],
        cached=cached[order],
        output=output[order],
        input_summary=summarize_values(inputs),
        uncached_summary=summarize_values(uncached.astype(np.float64)),
        output_summary=summarize_values(output.astype(np.float64)),
        hit_rate=float(np.mean(cached / np.maximum(inputs, 1.0))),
        hit_rate_tokens=float(cached.sum() / max(inputs.sum(), 1.0)),
        waiting_prefix_token_s=_compute_waiting(load),
    )


def summarize_values(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Summary:
    """Summary of at least one value."""
    mean = float(values.mean())
    p50, p90, p99 = (float(q) for q in np.percentile(values, (50, 90, 99)))
    return Summary(mean, p50, p90, p99, float(values.var() / mean**2) if mean > 0 else 0.0)


def compute_arrival_scv(arrival_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """C_a^2 as queues feel it: the index of dispersion of counts, variance / mean of the arrivals in equal windows.

    It is the squared coefficient of variation of gaps for independent gaps and, unlike it, sees bursts
    (correlated gaps) and is not fooled by clocks of coarse resolution. A value that counting noise explains (two
    standard errors) is 1: Poisson. 1 too for loads too short to say.
    """
    n = len(arrival_s)
    span = float(arrival_s[-1] - arrival_s[0]) if n else 0.0
    windows = n // WINDOW_ARRIVALS
    if span <= 0 or windows < MIN_WINDOWS:
        return 1.0
    counts, _ = np.histogram(arrival_s, bins=windows, range=(float(arrival_s[0]), float(arrival_s[-1])))
    scv = float(counts.var(ddof=1) / counts.mean())
    return 1.0 if abs(scv - 1.0) <= 2.0 * math.sqrt(2.0 / (windows - 1)) else scv


def _compute_waiting(load: Load) -> float:
    later = np.flatnonzero(load.previous >= 0)
    if not len(later):
        return 0.0
    before = load.previous[later]
    gap_s = np.maximum(load.arrival_s[later] - load.arrival_s[before], 0.0)
    tokens = load.input_tokens[before] + load.output_tokens[before]
    return float((gap_s * tokens).sum() / len(load))
