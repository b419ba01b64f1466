"""Engines, fleets and loads that the tests of the analytic model share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdd.planner.fleet import Fleet, LineSpec, Pool, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.load import Load
from pdd.planner.stats import WorkloadStats, summarize
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime
from pdd.planner.workload import Workload, generate

P_TIMES = EngineTimes(
    PrefillTime(60e-6, 8192, 700, 1e-10, 0.03), DecodeTime(0.012, 1e-4, 1e-9), ExtendTime(0.015, 3e-5), 128
)
MD_TIMES = replace(P_TIMES, max_sequences=256)
LINE = LineSpec(20e9, 0.02, flow_bps=200e6, streams=4, price_per_h=1.0)


def make_fleet(way: Way = Way.PDD, p: int = 50, rld: int = 4, md: int = 20) -> Fleet:
    """A fleet that carries 40 requests a second of `make_stats` with room to spare."""
    relay = Pool(rld if way is Way.PDD else 0, P_TIMES, price_per_h=24.0)
    return Fleet(
        way,
        Pool(p, P_TIMES, price_per_h=24.0),
        relay,
        Pool(md, MD_TIMES, price_per_h=30.0),
        LINE,
        KVLaw(4480, 35600, 128),
    )


def make_stats(rows: int = 1024) -> WorkloadStats:
    """Agents: 56K in, 90 % hits, a heavy tail of misses."""
    return summarize(generate(Workload(rate_per_s=40.0), 8_000, 3), rows)


def make_load(arrival_s: list[float], inputs: list[int], outputs: list[int], hits: list[int]) -> Load:
    """A load in so many words."""
    n = len(arrival_s)
    columns = [np.array(c, dtype=np.int64) for c in (inputs, outputs, hits)]
    return Load(np.array(arrival_s, float), *columns, np.full(n, -1), np.full(n, -1), np.zeros(n))
