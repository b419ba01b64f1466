"""The line: limits of one flow, sharing, pool and slow start."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.planner.analytic.fleets import LINE

from pdd.planner.fleet import LineSpec
from pdd.planner.line_sizing import predict_transfers
from pdd.planner.wan import (
    compute_line_load,
    compute_mathis_bps,
    compute_transfer_s,
    flow_rate_bps,
    transfer_rows_s,
)


def test_mathis_halves_with_twice_the_rtt_and_with_four_times_the_loss() -> None:
    base = compute_mathis_bps(0.02, 1e-5)
    assert compute_mathis_bps(0.04, 1e-5) == pytest.approx(base / 2)
    assert compute_mathis_bps(0.02, 4e-5) == pytest.approx(base / 2)
    assert math.isinf(compute_mathis_bps(0.02, 0.0))


def test_streams_add_up_to_the_line() -> None:
    assert flow_rate_bps(replace(LINE, streams=1)) == 200e6
    assert flow_rate_bps(replace(LINE, streams=4)) == 800e6
    assert flow_rate_bps(replace(LINE, streams=1000)) == LINE.capacity_bps * LINE.efficiency
    assert flow_rate_bps(replace(LINE, flow_bps=0.0)) == LINE.capacity_bps * LINE.efficiency
    assert flow_rate_bps(replace(LINE, streams=1, loss=1e-4)) == pytest.approx(compute_mathis_bps(0.02, 1e-4))


def test_scalar_and_array_forms_agree() -> None:
    sizes = np.array([0.0, 1e3, 1e5, 1e7, 1e9])
    for slow_start in (False, True):
        line = replace(LINE, slow_start=slow_start)
        rate = flow_rate_bps(line)
        scalars = [compute_transfer_s(float(s), rate, line.rtt_s, line.streams, slow_start) for s in sizes]
        assert transfer_rows_s(line, sizes, rate) == pytest.approx(scalars)


def test_slow_start_costs_a_few_round_trips_at_most() -> None:
    warm = compute_transfer_s(1e8, 8e8, 0.02, 4, False)
    cold = compute_transfer_s(1e8, 8e8, 0.02, 4, True)
    assert 0.02 < cold - warm < 0.2


def test_plain_sharing_is_m_m_1_ps() -> None:
    load = compute_line_load(LineSpec(8e9, 0.0, efficiency=1.0), np.array([1e8, 2e8]), 4.0)
    assert load.utilisation == pytest.approx(0.6)
    assert load.slowdown == pytest.approx(1 / 0.4)


def test_a_line_with_too_much_to_carry_says_so() -> None:
    load = compute_line_load(LINE, np.full(8, 1e9), 10.0)
    assert load.utilisation > 1
    assert not load.stable
    assert math.isinf(predict_transfers(LINE, np.full(8, 1e9), 10.0)[1].p50_s)


def test_a_small_pool_limits_and_makes_transfers_wait() -> None:
    sizes = np.full(64, 25e6)  # 0.25 s at 800 Mbit/s
    wide = compute_line_load(LINE, sizes, 30.0)
    pool = compute_line_load(replace(LINE, connections=10), sizes, 30.0)
    assert wide.pool.overall_s == 0.0
    assert pool.servers == 10
    assert pool.utilisation == pytest.approx(30 * 0.25 / 10)
    assert pool.pool.overall_s > 0


@pytest.mark.parametrize("flow_bps", [0.0, 2e9])
def test_transfer_times_meet_a_played_line(flow_bps: float) -> None:
    """Processor sharing with a limit for each flow, played event by event in virtual time."""
    rng = np.random.default_rng(4)
    n, rate, capacity = 30_000, 7.0, 8e9
    sizes = np.minimum(rng.exponential(1e8, n), 1e9)
    arrivals = np.cumsum(rng.exponential(1 / rate, n))
    cap = flow_bps or capacity
    active: list[tuple[float, int]] = []
    clock = now = 0.0
    took = np.empty(n)

    def run_to(until: float) -> None:
        nonlocal clock, now
        while active:
            speed = min(cap, capacity / len(active))
            at = now + (active[0][0] - clock) / speed
            if at > until:
                break
            now, clock = at, active[0][0]
            took[heapq.heappop(active)[1]] = now
        if active:
            clock += (until - now) * min(cap, capacity / len(active))
        now = until

    for i in range(n):
        run_to(float(arrivals[i]))
        heapq.heappush(active, (clock + sizes[i] * 8, i))
    run_to(float(arrivals[-1]) + 1e6)
    took -= arrivals
    line = LineSpec(capacity, 0.0, efficiency=1.0, flow_bps=flow_bps)
    rows = np.quantile(sizes, (np.arange(1024) + 0.5) / 1024)
    _, said = predict_transfers(line, rows, rate)
    assert said.mean_s == pytest.approx(took.mean(), rel=0.10)
    assert said.p50_s == pytest.approx(float(np.quantile(took, 0.5)), rel=0.20)
    assert said.p99_s == pytest.approx(float(np.quantile(took, 0.99)), rel=0.25)
