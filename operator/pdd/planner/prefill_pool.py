"""Prefill as M/G/c, with tail chunks that share forwards where engines are busy."""

from __future__ import annotations

import math

import numpy as np

from pdd.planner.fleet import Fleet
from pdd.planner.queueing import Wait, compute_wait, summarize_service
from pdd.planner.tails import Reals
from pdd.planner.timing import PrefillTime

FUSE_STEPS = 6


def compute_prefill(
    fleet: Fleet, rate: float, arrival_scv: float, uncached: Reals, cached: Reals
) -> tuple[Reals, Wait, float]:
    """(time of each row, wait, mean time of a full engine). A request that finds the engine busy shares the forward of
    its tail chunk with the next, so the service is a mixture whose share is P(wait): a fixed point, by bisection."""
    times = fleet.prefill.times.prefill
    alone = prefill_rows_s(times, uncached, cached)
    fused = prefill_rows_s(times, uncached, cached, fused=True)
    low, high = 0.0, 1.0
    rows, wait = fused, compute_wait(rate, summarize_service(fused), fleet.prefill.engines, arrival_scv)
    for _ in range(FUSE_STEPS if wait.overall_s < math.inf else 0):
        share = (low + high) / 2.0
        rows = alone + share * (fused - alone)
        wait = compute_wait(rate, summarize_service(rows), fleet.prefill.engines, arrival_scv)
        low, high = (share, high) if wait.probability > share else (low, share)
        rows = alone + low * (fused - alone)
    wait = compute_wait(rate, summarize_service(rows), fleet.prefill.engines, arrival_scv)
    if not math.isfinite(wait.overall_s):  # the lower side of the fixed point may not keep up
        rows, wait = fused, compute_wait(rate, summarize_service(fused), fleet.prefill.engines, arrival_scv)
    return rows, wait, float(fused.mean())


def prefill_rows_s(times: PrefillTime, uncached: Reals, cached: Reals, fused: bool = False) -> Reals:
    """`timing.compute_prefill_s` for arrays. fused: the tail chunk pays only its share of a forward."""
    new = np.maximum(uncached, 1.0)
    chunks = new / times.chunk_tokens if fused else np.ceil(new / times.chunk_tokens)
    linear = times.per_token_s * (new + times.half_tokens * chunks) + times.fixed_s * chunks
    return linear + times.attention_s * new * (cached + new / 2.0)
