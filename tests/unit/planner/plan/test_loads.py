"""Changed loads keep what they should keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdd.planner.load import Blocks, Load
from pdd.planner.loads import with_hit_points, with_lengths, with_rate


def make(n: int = 1000) -> Load:
    draw = np.random.default_rng(7)
    inputs = draw.integers(100, 10_000, n)
    hits = (inputs * draw.uniform(0.5, 1.0, n)).astype(np.int64)
    none = np.full(n, -1, dtype=np.int64)
    arrivals = np.cumsum(draw.exponential(0.1, n))
    blocks = Blocks(np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), 64)
    return Load(arrivals, inputs, draw.integers(1, 500, n), hits, none, none, np.zeros(n), blocks)


def test_another_rate_keeps_the_pattern_of_arrivals() -> None:
    load = make()
    faster = with_rate(load, 20.0)
    assert faster.rate_per_s == pytest.approx(20.0)
    ratio = np.diff(faster.arrival_s) / np.diff(load.arrival_s)
    assert ratio == pytest.approx(ratio[0])
    assert with_rate(load, 0.0) is load


def test_requests_that_all_come_at_once_come_evenly_at_a_rate() -> None:
    """Their trace has no pattern that could be stretched; the remedy that is named, to give a rate, must help."""
    load = replace(make(50), arrival_s=np.full(50, 3.0))
    assert load.rate_per_s == 0
    spread = with_rate(load, 5.0)
    assert np.diff(spread.arrival_s) == pytest.approx(0.2)
    assert (spread.input_tokens == load.input_tokens).all()


@pytest.mark.parametrize("points", [-0.3, -0.05, 0.05, 0.2, 0.9])
def test_the_mean_hit_rate_moves_by_the_points(points: float) -> None:
    load = make()
    moved = with_hit_points(load, points)
    before, after = np.mean(load.hit_tokens / load.input_tokens), np.mean(moved.hit_tokens / moved.input_tokens)
    assert after == pytest.approx(min(1.0, before + points), abs=0.002)
    assert (moved.hit_tokens >= 0).all()
    assert (moved.hit_tokens <= moved.input_tokens).all()
    assert moved.blocks is None


def test_longer_prompts_keep_their_hit_rate() -> None:
    load = make()
    longer = with_lengths(load, input_factor=2.0)
    assert longer.input_tokens.sum() == 2 * load.input_tokens.sum()
    assert longer.hit_tokens / longer.input_tokens == pytest.approx(load.hit_tokens / load.input_tokens)
    assert with_lengths(load, output_factor=2.0).blocks is load.blocks
    assert with_lengths(load, 0.0001, 0.0001).input_tokens.min() == 1
