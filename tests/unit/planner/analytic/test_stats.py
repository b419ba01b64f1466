"""The statistics of a load keep what matters: the heavy tail, bursts, and how long prefixes wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.planner.analytic.fleets import make_load

from pdd.common.errors import InvalidInput
from pdd.planner.stats import compute_arrival_scv, summarize
from pdd.planner.workload import Workload, generate


def test_the_sample_keeps_the_mean_and_the_tail_of_uncached_tokens() -> None:
    load = generate(Workload(rate_per_s=10.0), 30_000, 2)
    full = load.input_tokens - load.hit_tokens
    stats = summarize(load, 512)
    assert stats.rows == 512
    assert stats.uncached.mean() == pytest.approx(full.mean(), rel=0.02)
    assert np.quantile(stats.uncached, 0.99) == pytest.approx(np.quantile(full, 0.99), rel=0.05)
    assert stats.output.mean() == pytest.approx(load.output_tokens.mean(), rel=0.05)
    assert stats.uncached_summary.scv > 3


def test_a_full_hit_still_computes_one_token() -> None:
    stats = summarize(make_load([0.0, 1.0], [100, 50], [1, 1], [100, 0]))
    assert sorted(zip(stats.uncached.tolist(), stats.cached.tolist(), strict=True)) == [(1, 99), (50, 0)]


def test_poisson_is_one_and_bursts_are_more() -> None:
    rng = np.random.default_rng(3)
    assert compute_arrival_scv(np.cumsum(rng.exponential(1.0, 20_000))) == 1.0
    bursts = np.sort(np.repeat(np.cumsum(rng.exponential(10.0, 2_000)), 10))
    assert compute_arrival_scv(bursts) > 3
    assert compute_arrival_scv(np.arange(20_000.0)) < 0.2
    assert compute_arrival_scv(np.zeros(50)) == 1.0


def test_prefixes_wait_for_their_next_turn() -> None:
    load = make_load([0.0, 10.0, 30.0], [100, 200, 300], [10, 10, 10], [0, 110, 210])
    turns = replace(load, session=np.zeros(3, np.int64), previous=np.array([-1, 0, 1]))
    assert summarize(turns).waiting_prefix_token_s == pytest.approx((10 * 110 + 20 * 210) / 3)
    assert summarize(load).waiting_prefix_token_s == 0.0


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidInput, match="load"):
        summarize(make_load([], [], [], []))
    with pytest.raises(InvalidInput, match="rows"):
        summarize(make_load([0.0], [1], [1], [0]), 0)
