"""The whole prediction: laws that must hold whatever the numbers, and cases that can be worked out by hand."""

from __future__ import annotations

import math
import random
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.planner.analytic.fleets import LINE, MD_TIMES, P_TIMES, make_fleet, make_load, make_stats

from pdd.planner.analytic import StageName, predict
from pdd.planner.decode_pool import compute_decode_load
from pdd.planner.fleet import Pool, RuleSpec, Sla, Way
from pdd.planner.kvlaw import KVLaw, payload_bytes
from pdd.planner.prefill_pool import prefill_rows_s
from pdd.planner.relay_pool import payload_rows_bytes
from pdd.planner.stats import summarize
from pdd.planner.timing import DecodeTime, PrefillTime, decode_step_s, prefill_s

STATS = make_stats()
SLA = Sla(10.0, 15.0, 0.1)


def test_array_laws_are_the_scalar_laws() -> None:
    times = PrefillTime(6e-5, 8192, 700, 1e-10, 0.03)
    uncached, cached = np.array([1.0, 100, 8192, 8193, 70_000]), np.array([64_000.0, 0, 10, 5_000, 0])
    scalars = [prefill_s(times, int(u), int(c)) for u, c in zip(uncached, cached, strict=True)]
    assert prefill_rows_s(times, uncached, cached) == pytest.approx(scalars)
    law = KVLaw(4480, 35600, 128, 1e6)
    assert payload_rows_bytes(law, uncached, 1) == pytest.approx([payload_bytes(law, u) for u in uncached])
    assert payload_rows_bytes(law, np.array([0.0, 1.0]), 64).tolist() == [0.0, payload_bytes(law, 64)]


def test_a_lone_request_takes_what_its_parts_take() -> None:
    stats = summarize(make_load([0.0, 1.0], [1000, 1000], [100, 100], [0, 0]))
    fleet = replace(make_fleet(Way.NAIVE), block_tokens=1)
    got = predict(fleet, stats, 1e-6)
    alone = prefill_s(P_TIMES.prefill, 1000)
    transfer = payload_bytes(fleet.kv, 1000) * 8 / 800e6 + LINE.rtt_s
    step = decode_step_s(MD_TIMES.decode, 1, 1050)
    assert got.first_token.p50_s == pytest.approx(alone)
    assert got.transfer.p50_s == pytest.approx(transfer)
    assert got.ttft.p50_s == pytest.approx(alone + transfer + 1.5 * step, rel=1e-3)
    assert got.tpot.p50_s == pytest.approx(step, rel=0.02)


def test_relay_decode_hides_the_transfer() -> None:
    same, naive, pdd = (predict(make_fleet(way), STATS, 40.0, SLA) for way in (Way.SAME_SITE, Way.NAIVE, Way.PDD))
    assert same.ttft.p99_s <= pdd.ttft.p99_s < naive.ttft.p99_s
    assert pdd.ttft.p99_s == pytest.approx(same.ttft.p99_s, rel=0.1)
    assert 0 < pdd.relay_share < 0.2
    assert same.line_bytes_per_s == 0
    assert naive.line_bytes_per_s == pytest.approx(40.0 * naive.payload_mean_bytes)


def test_more_streams_shorten_the_naive_way() -> None:
    one, four = (
        predict(replace(make_fleet(Way.NAIVE), line=replace(LINE, streams=n)), STATS, 20.0).transfer.p50_s
        for n in (1, 4)
    )
    assert one > 2.5 * four


@pytest.mark.parametrize(
    ("change", "stage"),
    [
        ({"prefill": Pool(10, P_TIMES)}, StageName.PREFILL),
        ({"main": Pool(4, MD_TIMES)}, StageName.MAIN),
        ({"line": replace(LINE, capacity_bps=8e9)}, StageName.LINE),
    ],
)
def test_what_is_too_small_binds(change: dict[str, object], stage: StageName) -> None:
    got = predict(replace(make_fleet(), **change), STATS, 40.0, SLA)  # type: ignore[arg-type]
    assert got.binding is stage
    assert not got.stable
    assert got.goodput_per_s == 0
    assert math.isinf(got.ttft.p99_s)
    capacity = next(s.capacity_per_s for s in got.stages if s.name is stage)
    assert capacity < 40.0
    assert predict(replace(make_fleet(), **change), STATS, 0.9 * capacity, SLA).stable  # type: ignore[arg-type]


def test_a_full_relay_sends_requests_the_direct_way() -> None:
    rules = RuleSpec(relay_sessions_per_engine=1, relay_threshold_s=0.05)
    got = predict(replace(make_fleet(rld=1), rules=rules), STATS, 40.0)
    assert got.overflow > 0.5
    assert got.stable
    roomy = predict(replace(make_fleet(rld=8), rules=replace(rules, relay_sessions_per_engine=64)), STATS, 40.0)
    assert roomy.overflow < 1e-3
    assert roomy.ttft.p90_s < got.ttft.p90_s


def test_decode_meets_littles_law_and_its_own_step() -> None:
    prompt, tokens = np.full(10, 1000.0), np.full(10, 200.0)
    pool = Pool(2, replace(MD_TIMES, decode=DecodeTime(0.01, 1e-4, 1e-8)))
    load = compute_decode_load(pool, 20.0, prompt, tokens)
    assert load.step_s == pytest.approx(decode_step_s(pool.times.decode, load.batch, load.batch * 1100))
    assert load.batch == pytest.approx(10.0 * 200 * load.step_s)
    at_limit = compute_decode_load(pool, load.capacity_per_s * 0.9999, prompt, tokens)
    assert at_limit.batch == pytest.approx(256, rel=0.01)


def test_memory_bounds_the_batch_and_what_the_cache_keeps() -> None:
    small = replace(MD_TIMES, kv_capacity_tokens=600_000)
    got = predict(replace(make_fleet(), main=Pool(20, small)), STATS, 5.0)
    assert got.main.limit == pytest.approx(600_000 / got.main.context, rel=0.01)
    waiting = replace(STATS, waiting_prefix_token_s=60.0 * 60_000)
    crowded = predict(replace(make_fleet(), main=Pool(20, small)), waiting, 5.0)
    assert crowded.kept_share < 1.0
    assert crowded.line_bytes_per_s > 1.2 * got.line_bytes_per_s


def test_goodput_counts_what_keeps_the_promise() -> None:
    all_good = predict(make_fleet(), STATS, 40.0)
    assert all_good.goodput_per_s == 40.0
    assert all_good.bcr == pytest.approx(40.0 * 3600 / make_fleet().cost_per_h)
    strict = predict(make_fleet(), STATS, 40.0, Sla(ttft_p99_s=all_good.ttft.p90_s))
    assert strict.goodput_per_s == pytest.approx(36.0, rel=0.02)
    assert predict(make_fleet(), STATS, 40.0, Sla(tpot_p99_s=1e-4)).goodput_per_s == 0


def test_any_fleet_gets_an_answer_without_nan() -> None:
    rng = random.Random(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            way = rng.choice(list(Way))
            fleet = make_fleet(way, rng.choice([1, 5, 50]), rng.choice([0, 1, 4]), rng.choice([0, 1, 5, 50]))
            line = replace(
                LINE,
                capacity_bps=rng.choice([1e8, 1e10, 1e11]),
                streams=rng.choice([1, 4]),
                connections=rng.choice([0, 3, 256]),
                flow_bps=rng.choice([0.0, 2e8]),
                loss=rng.choice([0.0, 1e-5]),
                slow_start=rng.random() < 0.5,
            )
            got = predict(replace(fleet, line=line), STATS, rng.choice([1e-3, 1.0, 40.0, 1000.0]), SLA)
            figures = [got.ttft.p50_s, got.ttft.p99_s, got.tpot.p99_s, got.goodput_per_s, got.relay_share, got.bcr]
            assert not any(math.isnan(x) for x in [*figures, *(s.utilisation for s in got.stages)])
            assert got.ttft.p50_s <= got.ttft.p90_s <= got.ttft.p99_s
            assert got.stable == math.isfinite(got.ttft.p99_s)


def test_a_prediction_takes_milliseconds() -> None:
    predict(make_fleet(), STATS, 40.0, SLA)
    best = math.inf
    for _ in range(20):
        begun = time.process_time()
        predict(make_fleet(), STATS, 40.0, SLA)
        best = min(best, time.process_time() - begun)
    assert best < 0.02, "the search makes thousands of them"
