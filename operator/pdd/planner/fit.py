"""The workload that a load looks like: lengths by moments of their logarithm, hits by bucket, gaps by their variation.

What is lost: how lengths, hits and times hang together, and what is in the blocks. To keep these, replay the trace.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pdd.common.errors import InvalidInput
from pdd.planner.hit_law import HIT_EDGES, HitBucket, HitMixture
from pdd.planner.laws import ArrivalLaw, Arrivals, LengthLaw, SessionLaw
from pdd.planner.load import Load
from pdd.planner.traces.cache import knows_hits
from pdd.planner.workload import Workload

POISSON_BAND = 0.1
"""Gaps whose coefficient of variation is so near to 1 are called Poisson."""
MIN_REQUESTS = 20
MAX_SIGMA = 5.0


def fit_workload(load: Load) -> Workload:
    """Without hits known: none are drawn. Sessions are taken to begin as a Poisson process (traces do not tell), and to
    be whole: those that the load's ends cut make `turns` too small, so it should be much longer than its sessions.

    Raises InvalidInput below 20 requests, or if all come at once.
    """
    if len(load) < MIN_REQUESTS:
        raise InvalidInput("load", f"{len(load)} requests", f"needs at least {MIN_REQUESTS} to be fitted")
    if load.rate_per_s <= 0:
        raise InvalidInput("load", "all requests at one time", "has no rate to fit")
    later = load.previous >= 0
    sessions = _fit_sessions(load) if np.any(later) else None
    alone = ~later if sessions is not None else np.ones(len(load), bool)
    rates = load.hit_tokens[alone] / load.input_tokens[alone]
    return Workload(
        rate_per_s=load.rate_per_s,
        input_tokens=fit_length(load.input_tokens[alone]),
        output_tokens=fit_length(load.output_tokens),
        hits=fit_hits(rates) if knows_hits(load) else HitMixture((HitBucket(0.0, 0.0, 1.0),)),
        arrivals=_fit_arrivals(load.arrival_s) if sessions is None else ArrivalLaw(),
        sessions=sessions,
        block_tokens=load.blocks.block_tokens if load.blocks is not None else 1,
    )


def fit_length(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> LengthLaw:
    """Lognormal between the least and the greatest value, with the values' mean; sigma from their logarithms."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return LengthLaw(low, 0.0, min(low, 1.0), max(high, 1.0))
    logs = np.log(np.maximum(values, 1e-3))
    sigma = min(MAX_SIGMA, float(logs.std()))
    try:
        return LengthLaw.from_mean(float(values.mean()), sigma, low, high)
    except InvalidInput:  # the cut leaves that mean no room: the median then says more
        return LengthLaw(min(high, max(low, math.exp(float(logs.mean())))), sigma, low, high)


def fit_median(values: npt.NDArray[np.float64]) -> LengthLaw:
    """Lognormal with the values' median: for times whose mean a few nights and weekends make."""
    law = fit_length(values)
    return LengthLaw(float(np.median(values)), law.sigma, law.low, law.high)


def fit_hits(rates: npt.NDArray[np.float64]) -> HitMixture:
    """Seven buckets: none, and the six; each with its share and mean."""
    edges = (0.0, *HIT_EDGES, 1.0)
    which = np.where(rates == 0, 0, np.searchsorted(HIT_EDGES, rates, side="right") + 1)
    buckets = []
    for index, (low, high) in enumerate([(0.0, 0.0), *pairwise(edges)]):
        mine = rates[which == index]
        if len(mine):
            mean = float(mine.mean())
            buckets.append(HitBucket(low, high, len(mine) / len(rates), mean if low < mean < high else None))
    return HitMixture(tuple(buckets))


def _fit_arrivals(arrival_s: npt.NDArray[np.float64]) -> ArrivalLaw:
    gaps = np.diff(arrival_s)
    cv = float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else 1.0
    if abs(cv - 1) <= POISSON_BAND:
        return ArrivalLaw(Arrivals.POISSON)
    return ArrivalLaw(Arrivals.GAMMA, cv=min(20.0, max(0.05, cv)))


def _fit_sessions(load: Load) -> SessionLaw:
    later = np.flatnonzero(load.previous >= 0)
    before = load.previous[later]
    added = load.input_tokens[later] - load.input_tokens[before] - load.output_tokens[before]
    grown = added[added > 0]  # the others were shortened by the agent; sessions that are drawn end instead
    conversations = len(np.unique(load.session[load.session >= 0]))
    think = load.think_s[later]
    return SessionLaw(
        turns=max(1.0, float(np.count_nonzero(load.session >= 0)) / max(1, conversations)),
        growth=fit_length(grown) if len(grown) else SessionLaw().growth,
        think_s=fit_median(np.maximum(think, 1e-3)),
        answers_cached=bool(np.mean(load.hit_tokens[later] > load.input_tokens[before]) > 0.5),
        context_tokens=int(load.input_tokens.max()),
    )
