"""The fitted laws have the moments that they were fitted to, and sums have the quantiles of sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdd.planner.queueing import NO_WAIT, Wait
from pdd.planner.tails import Tail, fit_phases, spread_over_rows, wait_states


@pytest.mark.parametrize("scv", [0.5, 0.7, 1.0, 2.0, 10.0])
def test_the_fit_keeps_both_moments(scv: float) -> None:
    phases = fit_phases(3.0, scv)
    t = np.concatenate([np.linspace(0, 60, 60_001), np.geomspace(60.001, 3000, 20_000)])
    survival = phases.survival(t)
    assert np.all(np.diff(survival) <= 1e-9)
    assert np.trapezoid(survival, t) == pytest.approx(3.0, rel=2e-3)
    assert np.trapezoid(2 * t * survival, t) == pytest.approx(9 * (1 + scv), rel=0.01)


def test_exponential_wait_and_constant_rest_are_exact() -> None:
    tail = Tail(Wait(0.4, 2.0, 1.0), np.full(100, 1.0))
    got = tail.quantiles()
    assert got.p50_s == pytest.approx(1.0, rel=2e-3)
    assert got.p90_s == pytest.approx(1 + 2 * math.log(0.4 / 0.1), rel=2e-3)
    assert got.p99_s == pytest.approx(1 + 2 * math.log(0.4 / 0.01), rel=2e-3)
    assert got.mean_s == pytest.approx(1.8)


def test_quantiles_are_those_of_a_drawn_sum() -> None:
    rng = np.random.default_rng(1)
    rows = rng.lognormal(0.0, 1.5, 1024)
    wait = Wait(0.6, 1.5, 3.0)
    phases = fit_phases(wait.mean_s, wait.scv)
    n = 400_000
    waits = np.where(
        rng.random(n) < phases.first, rng.exponential(phases.first_s, n), rng.exponential(phases.second_s, n)
    )
    drawn = rng.choice(rows, n) + waits * (rng.random(n) < wait.probability)
    got = Tail(wait, rows).quantiles()
    for value, share in ((got.p50_s, 0.5), (got.p90_s, 0.9), (got.p99_s, 0.99)):
        assert value == pytest.approx(float(np.quantile(drawn, share)), rel=0.03)


def test_survival_agrees_with_quantiles_and_is_a_law() -> None:
    tail = Tail(Wait(0.5, 1.0, 2.0), np.linspace(0.1, 2.0, 500))
    got = tail.quantiles()
    assert tail.survival(np.array([got.p50_s, got.p90_s, got.p99_s])) == pytest.approx([0.5, 0.1, 0.01], rel=0.02)
    t = np.linspace(-1, 20, 200)
    assert np.all(np.diff(tail.survival(t)) <= 1e-12)
    assert tail.survival(np.array([-0.5]))[0] == pytest.approx(1.0)


def test_no_wait_leaves_the_sample_and_no_steady_state_gives_infinity() -> None:
    rows = np.arange(1.0, 101.0)
    assert Tail(NO_WAIT, rows).quantiles().p90_s == pytest.approx(float(np.quantile(rows, 0.9)))
    endless = Tail(Wait(1.0, math.inf, 1.0), rows)
    assert math.isinf(endless.quantiles().p50_s)
    assert endless.survival(np.array([1e9]))[0] == 1.0


def test_states_of_a_wait_have_its_mean() -> None:
    wait = Wait(0.3, 2.0, 1.5)
    assert float(wait_states(wait, 512).mean()) == pytest.approx(wait.overall_s, rel=0.05)
    assert not wait_states(NO_WAIT, 8).any()


def test_dealt_values_are_independent_of_the_rows_order() -> None:
    dealt = spread_over_rows(np.arange(64.0), 1024)
    assert abs(float(np.corrcoef(dealt, np.arange(1024))[0, 1])) < 0.02
    assert dealt.mean() == pytest.approx(31.5, rel=0.02)
