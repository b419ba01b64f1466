"""Closed forms against textbook cases that are exact, and against a queue that is played through."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from pdd.planner.queueing import Service, compute_wait, erlang_b, erlang_c, summarize_service, wait_md1_s
from pdd.planner.tails import Tail


def test_erlang_b_meets_the_recursion() -> None:
    for servers, offered in ((1, 0.5), (10, 8.0), (200, 180.0), (40, 90.0)):
        blocked = 1.0
        for n in range(1, servers + 1):
            blocked = offered * blocked / (n + offered * blocked)
        assert erlang_b(servers, offered) == pytest.approx(blocked, rel=1e-9)


def test_erlang_b_at_the_ends() -> None:
    assert erlang_b(10, 0.0) == 0.0
    assert erlang_b(0, 1.0) == 1.0
    assert erlang_b(100_000, 1.0) < 1e-9
    with pytest.raises(ValueError, match="at most"):
        erlang_b(1_000_000, 1.0)


def test_mm1_and_mmc_are_exact() -> None:
    exponential = Service(1.0, 1.0, 6.0)
    wait = compute_wait(0.8, exponential, 1)
    assert (wait.probability, wait.mean_s, wait.scv) == pytest.approx((0.8, 5.0, 1.0))
    wait = compute_wait(8.0, exponential, 10)
    assert wait.probability == pytest.approx(erlang_c(10, 8.0))
    assert (wait.mean_s, wait.scv) == pytest.approx((0.5, 1.0))


def test_md1_is_distserves_formula() -> None:
    service = summarize_service(np.full(50, 0.3))
    for load in (0.1, 0.5, 0.95):
        assert compute_wait(load / 0.3, service, 1).overall_s == pytest.approx(wait_md1_s(load / 0.3, 0.3))
    assert math.isinf(wait_md1_s(4.0, 0.3))


def test_both_moments_of_mg1_are_pollaczek_khinchines() -> None:
    times = np.array([0.1] * 90 + [3.0] * 10)
    service, rate = summarize_service(times), 1.5
    load, second, third = rate * times.mean(), (times**2).mean(), (times**3).mean()
    mean = rate * second / (2 * (1 - load))
    square = 2 * mean**2 + rate * third / (3 * (1 - load))
    wait = compute_wait(rate, service, 1)
    assert wait.overall_s == pytest.approx(mean)
    assert wait.probability * (1 + wait.scv) * wait.mean_s**2 == pytest.approx(square)


def test_a_queue_without_a_steady_state_waits_for_ever() -> None:
    service = Service(1.0, 1.0, 6.0)
    for rate, servers in ((1.0, 1), (3.0, 2), (0.1, 0)):
        wait = compute_wait(rate, service, servers)
        assert wait.probability == 1.0
        assert math.isinf(wait.overall_s)
    assert compute_wait(0.0, service, 1).overall_s == 0.0


def test_bursts_wait_longer() -> None:
    service = Service(1.0, 1.0, 6.0)
    assert compute_wait(0.8, service, 1, 4.0).mean_s == pytest.approx(2.5 * compute_wait(0.8, service, 1).mean_s)


@pytest.mark.parametrize(
    ("servers", "load", "heavy"), [(1, 0.7, False), (1, 0.7, True), (4, 0.8, False), (8, 0.85, True)]
)
def test_percentiles_meet_a_played_queue(servers: int, load: float, heavy: bool) -> None:
    rng = np.random.default_rng(5)
    n = 60_000
    kinds = rng.random(n)
    times = np.where(kinds < 0.9, 0.2, 2.0) if heavy else rng.uniform(0.5, 1.5, n)
    rate = load * servers / times.mean()
    arrivals = np.cumsum(rng.exponential(1 / rate, n))
    free = [0.0] * servers
    total = np.empty(n)
    for i in range(n):
        start = max(arrivals[i], heapq.heappop(free))
        heapq.heappush(free, start + times[i])
        total[i] = start + times[i] - arrivals[i]
    said = Tail(compute_wait(rate, summarize_service(times[:4000]), servers), times[:4000]).quantiles()
    mean, p90, p99 = total.mean(), *np.quantile(total, (0.9, 0.99))
    assert said.mean_s == pytest.approx(mean, rel=0.15)
    assert said.p90_s == pytest.approx(p90, rel=0.15)
    assert said.p99_s == pytest.approx(p99, rel=0.15)
