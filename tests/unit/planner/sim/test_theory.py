"""The simulator against queues whose answers are known in closed form. Tolerances: about four standard errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.planner.sim.fleets import fleet, load, times

from pdd.api.config import HandoffMode
from pdd.planner.fleet import LineSpec, RuleSpec, Way
from pdd.planner.queueing import erlang_c
from pdd.planner.sim import SimOptions, simulate
from pdd.planner.sim.result import LEAST_FOR_GROWTH, find_growth

PLAIN = SimOptions(caches=False, fuse_tails=False, main_cache=False, warmup_share=0.05)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_one_prefill_engine_with_equal_prompts_is_m_d_1(busy: float) -> None:
    service_s = 0.1
    run = simulate(fleet(prefill=times(fixed_s=service_s)), load(150_000, rate=busy / service_s, seed=2), PLAIN)
    wait_s = busy * service_s / (2 * (1 - busy))
    assert run.columns.ttft_s.mean() == pytest.approx(service_s + wait_s, rel=0.06)
    assert run.utilisation["prefill"] == pytest.approx(busy, rel=0.02)


@pytest.mark.parametrize(("engines", "busy"), [(1, 0.7), (4, 0.8), (10, 0.85)])
def test_prefill_engines_with_exponential_prompts_are_m_m_c(engines: int, busy: float) -> None:
    n, service_s = 200_000, 0.1
    tokens = np.random.default_rng(7).exponential(100_000, n).astype(np.int64) + 1
    run = simulate(
        fleet(prefills=engines, prefill=times(token_s=service_s / 100_000)),
        load(n, rate=busy * engines / service_s, inputs=tokens), PLAIN,
    )  # fmt: skip
    wait_s = erlang_c(engines, busy * engines) * service_s / (engines * (1 - busy))
    own_s = tokens * service_s / 100_000
    waited = run.columns.ttft_s - own_s[-len(run.columns.ttft_s) :]
    assert waited.mean() == pytest.approx(wait_s, rel=0.06)
    assert waited.min() >= -1e-9
    # P(wait > t) = C(c, a) exp(-c mu (1 - rho) t)
    t = service_s / engines
    beyond = erlang_c(engines, busy * engines) * math.exp(-(1 - busy))
    assert (waited > t).mean() == pytest.approx(beyond, rel=0.05)


@pytest.mark.parametrize("heavy", [False, True])
def test_line_shared_by_all_transfers_is_processor_sharing_whatever_the_sizes(heavy: bool) -> None:
    n, busy, capacity_bps = 200_000, 0.7, 1e9
    rng = np.random.default_rng(3)
    tokens = (rng.lognormal(6.0, 1.2, n) if heavy else np.full(n, 800.0)).astype(np.int64) + 1
    mean_bits = float(tokens.mean()) * 8000
    run = simulate(
        fleet(line=LineSpec(capacity_bps, rtt_s=0.0, efficiency=1.0)),
        load(n, rate=busy * capacity_bps / mean_bits, inputs=tokens, outputs=2), PLAIN,
    )  # fmt: skip
    took = run.columns.landed_s - run.columns.first_s
    assert took.mean() == pytest.approx(mean_bits / (capacity_bps * (1 - busy)), rel=0.05)
    assert run.utilisation["line"] == pytest.approx(busy, rel=0.03)
    # The mean stretch is the same for small and large payloads: that is what fairness means.
    size = run.columns.payload_bytes * 8
    large = size >= np.median(size)
    assert took[large].sum() / size[large].sum() == pytest.approx(1 / (capacity_bps * (1 - busy)), rel=0.06)


def test_transfers_limited_by_their_own_flow_are_m_g_m() -> None:
    """The line carries 20 at full speed: E[T] = S / r x (1 + C(m, a) / (m (1 - rho)))."""
    n, busy, capacity_bps, m = 200_000, 0.8, 20e9, 20
    tokens = np.random.default_rng(5).exponential(2000, n).astype(np.int64) + 1
    mean_bits = float(tokens.mean()) * 8000
    run = simulate(
        fleet(line=LineSpec(capacity_bps, rtt_s=0.0, efficiency=1.0, flow_bps=capacity_bps / m)),
        load(n, rate=busy * capacity_bps / mean_bits, inputs=tokens, outputs=2), PLAIN,
    )  # fmt: skip
    own_s = mean_bits / (capacity_bps / m)
    expected = own_s * (1 + erlang_c(m, busy * m) / (m * (1 - busy)))
    assert (run.columns.landed_s - run.columns.first_s).mean() == pytest.approx(expected, rel=0.03)


def test_a_pool_of_connections_makes_the_line_first_come_first_served() -> None:
    """One connection and equal payloads: M/D/1 on the line."""
    n, busy, capacity_bps = 100_000, 0.6, 1e9
    own_s = 1000 * 8000 / capacity_bps
    run = simulate(
        fleet(line=LineSpec(capacity_bps, rtt_s=0.0, efficiency=1.0, connections=1)),
        load(n, rate=busy / own_s, outputs=2), PLAIN,
    )  # fmt: skip
    took = run.columns.landed_s - run.columns.first_s
    assert took.mean() == pytest.approx(own_s * (1 + busy / (2 * (1 - busy))), rel=0.03)
    assert np.all(np.diff(run.columns.landed_s) >= 0)


@pytest.mark.parametrize(
    ("streams", "loss", "rtt_s", "expected_bps"),
    [
        (1, 0.0, 0.02, 2e8),
        (4, 0.0, 0.02, 8e8),
        (1, 1e-4, 0.02, 1.22 * 1460 * 8 / (0.02 * math.sqrt(1e-4))),
        (3, 1e-4, 0.02, 3 * 1.22 * 1460 * 8 / (0.02 * math.sqrt(1e-4))),
        (200, 0.0, 0.02, 1e10),
    ],
)
def test_one_transfer_alone_gets_its_streams_limits(
    streams: int, loss: float, rtt_s: float, expected_bps: float
) -> None:
    line = LineSpec(1e10, rtt_s=rtt_s, efficiency=1.0, flow_bps=2e8, streams=streams, loss=loss)
    run = simulate(fleet(line=line), load(1, rate=1, inputs=100_000, outputs=2), PLAIN)
    took = float(run.columns.landed_s[0] - run.columns.first_s[0])
    assert took == pytest.approx(100_000 * 8000 / expected_bps + rtt_s, rel=1e-6)


def test_decode_with_a_full_batch_waits_like_m_m_c() -> None:
    """Steps of one length whatever the batch: `most` places are servers; answers geometric, nearly exponential."""
    n, most, busy, step_s = 150_000, 8, 0.8, 0.01
    tokens = np.random.default_rng(11).geometric(1 / 400, n) + 1
    mean_s = float((tokens - 1).mean()) * step_s
    run = simulate(
        fleet(Way.SAME_SITE, main=times(step_s=step_s, most=most)),
        load(n, rate=busy * most / mean_s, outputs=tokens), PLAIN,
    )  # fmt: skip
    wait_s = erlang_c(most, busy * most) * mean_s / (most * (1 - busy))
    waited = run.columns.done_s - run.columns.landed_s - (run.columns.output_tokens - 1) * step_s
    assert waited.min() >= -1e-6
    assert waited.mean() == pytest.approx(wait_s, rel=0.08)


def test_decode_whose_step_grows_with_the_batch_is_processor_sharing() -> None:
    """step = c x B: each gets 1 / B of the engine, so E[T] = S / (1 - rho) for any law of lengths."""
    n, busy, sequence_s = 150_000, 0.7, 0.001
    tokens = np.random.default_rng(13).lognormal(5.0, 1.0, n).astype(np.int64) + 2
    alone_s = float((tokens - 1).mean()) * sequence_s
    run = simulate(
        fleet(Way.SAME_SITE, main=times(step_s=0.0, sequence_s=sequence_s)),
        load(n, rate=busy / alone_s, outputs=tokens), PLAIN,
    )  # fmt: skip
    took = run.columns.done_s - run.columns.landed_s
    assert took.mean() == pytest.approx(alone_s / (1 - busy), rel=0.06)


def test_littles_law_joins_what_the_engines_saw_and_what_the_requests_saw() -> None:
    """Mean number in decode (the engines' integral) = rate x mean time in decode (the requests' stamps)."""
    tokens = np.random.default_rng(17).lognormal(5.0, 0.8, 20_000).astype(np.int64) + 2
    run = simulate(
        fleet(Way.SAME_SITE, mains=4, main=times(step_s=0.01, sequence_s=0.0005, context_s=1e-8)),
        load(20_000, rate=20, outputs=tokens),
        SimOptions(caches=False, warmup_share=0.0),
    )
    mean_number = run.mean_sequences["main"]
    whole_s = float(run.columns.done_s.max() - run.columns.arrival_s.min())
    sojourn_s = float((run.columns.done_s - run.columns.landed_s).sum())
    assert mean_number == pytest.approx(sojourn_s / whole_s, rel=1e-6)


def test_relayed_tokens_follow_littles_law() -> None:
    """Tokens at relay decode = wait on the line / step: the figure behind 6.2 % against 93.8 %."""
    step_s, flow_bps = 0.023, 2e8
    line = LineSpec(20e9, rtt_s=0.02, efficiency=1.0, flow_bps=flow_bps)
    run = simulate(
        fleet(Way.PDD, line=line, relay=times(step_s=step_s), main=times(step_s=step_s), mains=4, relays=4,
              bytes_per_token=4400, rules=RuleSpec(handoff_mode=HandoffMode.ONE_SHOT)),
        load(2000, rate=1, inputs=32_000, outputs=1024), PLAIN,
    )  # fmt: skip
    assert run.pipelines == {"P-RLD-MD": 1.0}
    wait_s = 32_000 * 4400 * 8 / flow_bps + line.rtt_s
    assert run.relay_token_share * 1024 == pytest.approx(wait_s / step_s, rel=0.02)


@pytest.mark.parametrize(("busy", "grows"), [(0.5, False), (0.9, False), (1.1, True), (1.5, True)])
@pytest.mark.parametrize("stage", ["prefill", "main"])
def test_a_queue_that_grows_without_end_is_told_and_a_stable_one_is_not(busy: float, grows: bool, stage: str) -> None:
    """Poisson arrivals, 20,000 of them: above a load of 1 the wait grows by (load - 1) of the time that goes by."""
    if stage == "prefill":
        made = fleet(Way.SAME_SITE, prefill=times(fixed_s=0.1))
        requests = load(20_000, rate=busy / 0.1, seed=3)
    else:
        made = fleet(Way.SAME_SITE, main=times(step_s=0.01, most=8))
        requests = load(20_000, rate=busy * 8 / 1.0, seed=4, outputs=101)
    growth = simulate(made, requests, PLAIN).growth
    assert (growth is not None) is grows, growth
    if growth is not None:
        assert growth[1] > growth[0] * 1.5


def test_few_requests_say_nothing_of_growth() -> None:
    assert find_growth(np.arange(LEAST_FOR_GROWTH - 1, dtype=float) * 10) is None
    assert find_growth(np.arange(LEAST_FOR_GROWTH, dtype=float) * 10) is not None
