"""Line sizing, costs, and PrfaaS's model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.planner.analytic.fleets import LINE, make_fleet, make_stats

from pdd.common.errors import InvalidInput
from pdd.planner.cost import compare_costs, compute_bcr, compute_cost_per_million, list_costs
from pdd.planner.fleet import Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.line_sizing import (
    compute_compute_bound_crossover_bps,
    compute_crossovers,
    compute_drc_saving,
    compute_needed_streams,
    size_line,
)
from pdd.planner.prfaas import TruncatedLognormal
from pdd.planner.timing import PrefillTime

KV = KVLaw(4480)
STATS = make_stats()


def test_the_smallest_port_that_keeps_the_p99_is_found() -> None:
    ports = size_line(LINE, KV, STATS, 40.0, 5.0, price_per_h=lambda bps: 0.05 * bps / 1e9)
    assert [p.capacity_bps for p in ports] == sorted(p.capacity_bps for p in ports)
    assert not ports[0].enough
    assert math.isinf(ports[0].transfer.p99_s)
    first = next(p for p in ports if p.enough)
    assert first.transfer.p99_s <= 5.0
    assert first.price_per_h == pytest.approx(0.05 * first.capacity_bps / 1e9)
    assert first.price_per_million_tokens == pytest.approx(
        first.price_per_h / 3600 / (40.0 * STATS.output_summary.mean) * 1e6
    )
    tails = [p.transfer.p99_s for p in ports if math.isfinite(p.transfer.p99_s)]
    assert tails == sorted(tails, reverse=True)


def test_where_the_flow_limits_no_port_helps_but_streams_do() -> None:
    slow = replace(LINE, streams=1)
    assert not any(p.enough for p in size_line(slow, KV, STATS, 40.0, 4.0))
    streams = compute_needed_streams(LINE, 290e6, 4.0)
    assert streams == math.ceil(290e6 * 8 / 3.98 / 200e6)
    with pytest.raises(InvalidInput, match="within_s"):
        compute_needed_streams(LINE, 290e9, 4.0)
    with pytest.raises(InvalidInput, match="transfer_p99_s"):
        size_line(LINE, KV, STATS, 40.0, 0.0)


def test_at_the_crossover_both_take_equally_long() -> None:
    prefill = PrefillTime(5e-5, 8192, attention_s=1e-10)
    for cross in compute_crossovers(KV, prefill, [100, 10_000, 100_000]):
        assert cross.payload_bytes * 8 / cross.rate_bps == pytest.approx(cross.recompute_s)
    # Without attention and chunks: Lightstorm's closed form, at 1e15 FLOP/s reached and 10e9 parameters.
    flops, parameters = 1e15, 10e9
    plain = PrefillTime(2 * parameters / flops, 1 << 20)
    (cross,) = compute_crossovers(KV, plain, [1000])
    assert cross.rate_bps == pytest.approx(compute_compute_bound_crossover_bps(4480, flops, parameters))


def test_the_radix_cache_saves_what_is_hit() -> None:
    nine = replace(STATS, uncached=np.full(10, 100), cached=np.full(10, 900))
    assert compute_drc_saving(KV, nine, 1) == pytest.approx(10.0)
    assert compute_drc_saving(KVLaw(4480, 0, 0, 1e6), nine, 1) < 10.0


def test_a_bill_adds_up() -> None:
    for way in Way:
        fleet = make_fleet(way)
        bill = list_costs(fleet)
        assert sum(row.total_per_h for row in bill) == pytest.approx(fleet.cost_per_h)
        assert sum(row.share for row in bill) == pytest.approx(1.0)
        assert ("line" in {row.what for row in bill}) == (way is not Way.SAME_SITE)


def test_a_ratio_is_not_a_price() -> None:
    gain = compare_costs(11.5, 0.929, 9.0, 1.0)
    assert gain.bcr == pytest.approx(0.3755, abs=1e-3)
    assert gain.cost_per_good == pytest.approx(-0.273, abs=1e-3)
    assert compute_bcr(1.0, 0.0) == math.inf
    assert math.isinf(compute_cost_per_million(1.0, 0.0))
    with pytest.raises(InvalidInput, match="negative"):
        compute_bcr(1.0, -1.0)


def test_the_truncated_law_meets_a_drawn_one() -> None:
    law = TruncatedLognormal(9.9, 1.0, 128, 131_072)
    drawn = np.exp(np.random.default_rng(1).normal(9.9, 1.0, 400_000))
    drawn = drawn[(drawn > 128) & (drawn < 131_072)]
    assert law.share_above(19_400) == pytest.approx((drawn > 19_400).mean(), abs=3e-3)
    assert law.mean_between(128, 131_072) == pytest.approx(drawn.mean(), rel=5e-3)
    assert law.mean_between(19_400, 131_072) == pytest.approx(drawn[drawn > 19_400].mean(), rel=5e-3)
