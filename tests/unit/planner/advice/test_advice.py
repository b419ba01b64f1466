"""Advice on a running fleet: who is short and by how much, what would do, and that what is advised does."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.errors import InvalidInput
from pdd.planner.advice import MIN_REQUESTS, Observed, Report, advise, merge_seen
from pdd.planner.analytic import StageName, predict
from pdd.planner.fleet import Fleet, Sla
from pdd.planner.running import build_running
from pdd.planner.stats import summarize
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

TIMES = EngineTimes(
    PrefillTime(per_token_s=1e-4, chunk_tokens=2048), DecodeTime(fixed_s=0.02, per_sequence_s=1e-4),
    ExtendTime(fixed_s=0.02, per_token_s=1e-4), max_sequences=32,
)  # fmt: skip
CALIBRATION = json.dumps({"kind": "EngineCalibration", "kv_bytes_per_token": 20_000, "times": asdict(TIMES)})
H200 = {"type": "H200", "count": 1}
LINK = PDDLink.from_cluster(
    {
        "metadata": {"name": "site-b", "namespace": "models", "uid": "u1", "generation": 1},
        "spec": {
            "member": {"kubeconfigSecretRef": {"name": "site-b"}, "namespace": "pdd"},
            "line": {"capacityMbps": 10_000, "rttMs": 20},
        },
    }
)


def deployment(*, accelerator: dict[str, Any] | None = None, model: str = "tiny", **spec: Any) -> PDDDeployment:
    role = {"accelerator": accelerator} if accelerator else {}
    return PDDDeployment.from_cluster(
        {
            "metadata": {"name": "tiny", "namespace": "models", "uid": "u2", "generation": 1},
            "spec": {
                "linkRef": {"name": "site-b"},
                "model": {"name": model, **spec.pop("model_fields", {})},
                "roles": {name: role for name in ("prefill", "relayDecode", "mainDecode")},
                **spec,
            },
        }
    )


def seen(rate_per_s: float, n: int = 400, seed: int = 1) -> Report:
    """A router's report: Poisson arrivals, 2,000-token prompts of which 0 to 95 % are cached, 100 tokens out."""
    rng = np.random.default_rng(seed)
    age = np.cumsum(rng.exponential(1 / rate_per_s, n))
    prompt = rng.integers(1000, 3000, n)
    cached = (prompt * rng.uniform(0, 0.95, n)).astype(int)
    rows = [[float(a), float(p), float(c), 100.0] for a, p, c in zip(age, prompt, cached, strict=True)]
    return Report(float(age[-1]), rows)


def fleet(**pools: int) -> Fleet:
    made = build_running(deployment(), LINK, 1, CALIBRATION).fleet
    return replace(made, **{name: replace(getattr(made, name), engines=count) for name, count in pools.items()})


def observe(rate_per_s: float) -> Observed:
    return merge_seen([seen(rate_per_s)])


def test_easy_load_is_feasible_and_names_the_use_of_each_stage() -> None:
    advice = advise(fleet(), observe(2.0), Sla())
    assert advice.feasible and advice.short is None and not advice.missed and advice.meets
    for stage in advice.prediction.stages:
        assert stage.name.value in advice.message and stage.utilisation < 0.8


@pytest.mark.parametrize(("rate", "stage"), [(16.0, StageName.PREFILL), (80.0, StageName.PREFILL)])
def test_short_stage_is_named_with_what_it_bears(rate: float, stage: StageName) -> None:
    advice = advise(fleet(main=8), observe(rate), Sla())
    assert not advice.feasible and advice.short is not None and advice.short.name is stage
    assert f"it bears {advice.short.capacity_per_s:.3g}" in advice.message
    assert advice.fleet.prefill.engines > 1


def test_line_and_decode_are_found_short_too() -> None:
    thin = fleet(prefill=8, main=8)
    # Short answers would stay at RLD on such a line; here they must cross.
    rules = replace(thin.rules, abnormal_enabled=False)
    thin = replace(thin, line=replace(thin.line, capacity_bps=5e7), rules=rules)
    by_line = advise(thin, observe(20.0), Sla())
    assert by_line.short is not None and by_line.short.name is StageName.LINE
    assert by_line.fleet.line.capacity_bps > 5e7 and "Mbit/s" in by_line.message
    slow = fleet(prefill=16)
    by_main = advise(slow, observe(25.0), Sla())
    assert by_main.short is not None and by_main.short.name is StageName.MAIN
    assert by_main.fleet.main.engines > 1


@pytest.mark.parametrize("rate", [0.5, 5.0, 30.0, 120.0])
def test_advised_fleet_bears_the_load(rate: float) -> None:
    observed = observe(rate)
    advice = advise(fleet(), observed, Sla())
    again = predict(advice.fleet, summarize(observed.load), observed.rate_per_s)
    assert advice.meets and again.stable
    assert max(s.utilisation for s in again.stages if s.name is not StageName.RELAY) <= 0.95
    judged = advise(advice.fleet, observed, Sla())
    assert judged.feasible


def test_missed_promise_is_said_and_more_engines_are_advised() -> None:
    observed = observe(7.0)
    loose = advise(fleet(), observed, Sla(ttft_p99_s=60.0))
    tight = advise(fleet(), observed, Sla(ttft_p99_s=0.5))
    assert loose.feasible
    assert not tight.feasible and tight.short is None and "TTFT P99" in tight.missed[0] and "0.5 s" in tight.message
    assert tight.meets and tight.fleet.prefill.engines > loose.fleet.prefill.engines
    met = predict(tight.fleet, summarize(observed.load), observed.rate_per_s, Sla(ttft_p99_s=0.5))
    assert met.ttft.p99_s <= 0.5 * 1.1


def test_promise_that_no_fleet_keeps_is_not_answered_by_more_engines() -> None:
    advice = advise(fleet(), observe(2.0), Sla(tpot_p99_s=0.001))
    assert not advice.feasible and not advice.meets and "no larger fleet" in advice.message


def test_verdict_holds_between_the_two_limits() -> None:
    observed = observe(5.0)
    use = max(
        s.utilisation for s in advise(fleet(), observed, Sla()).prediction.stages if s.name is not StageName.RELAY
    )
    near = Observed(observed.load, observed.rate_per_s * 0.97 / use)
    assert advise(fleet(), near, Sla()).feasible
    assert not advise(fleet(), near, Sla(), was_short=True).feasible


def test_routers_add_up() -> None:
    one, two = seen(3.0, seed=1), seen(3.0, seed=2)
    both = merge_seen([one, two])
    assert both.rate_per_s == pytest.approx(400 / one.reach_s + 400 / two.reach_s)
    assert (np.diff(both.load.arrival_s) >= 0).all() and both.load.arrival_s[0] == 0
    assert sum(both.hit_buckets()) == pytest.approx(1.0) and both.hit_buckets()[0] > 0.8


def test_a_young_router_beside_an_old_one() -> None:
    old, young = seen(3.0), Report(1.0, [[0.5, 100.0, 0.0, 10.0]], unserved=2)
    merged = merge_seen([old, young])
    assert len(merged.load) == 401 and merged.rate_per_s == pytest.approx(400 / old.reach_s + 3.0)


@pytest.mark.parametrize("reports", [[], [Report(0.0, [])], [Report(600.0, seen(1.0, MIN_REQUESTS - 1).rows)]])
def test_too_few_requests_are_no_load(reports: Any) -> None:
    with pytest.raises(InvalidInput, match="advice needs"):
        merge_seen(reports)


def test_data_sheets_where_accelerator_and_model_are_known() -> None:
    spec = deployment(accelerator={"type": "NVIDIA-H200", "count": 2}, model="Qwen/Qwen3-32B")
    running = build_running(spec, LINK, 3, "")
    assert not running.calibrated and running.fleet.relay.engines == 3
    assert running.fleet.kv.bytes_per_token == 262144 and running.fleet.line.rtt_s == 0.02
    assert running.fleet.prefill.times.kv_capacity_tokens > 100_000
    assert build_running(spec, LINK, 1, "", rtt_s=0.05).fleet.line.rtt_s == 0.05


@pytest.mark.parametrize("type_", ["H20", "h20-141g", "A100-80G", "910B", "Ascend-910C", "RTX4090", "NVIDIA-L20"])
def test_names_of_accelerators_as_specs_write_them(type_: str) -> None:
    spec = deployment(accelerator={"type": type_, "count": 8}, model="Qwen3-8B")
    assert build_running(spec, LINK, 1, "").fleet.prefill.times.kv_capacity_tokens > 0


@pytest.mark.parametrize(
    ("spec", "calibration", "words"),
    [
        (deployment(), "", "pdd.dev/calibration"),
        (deployment(accelerator={"type": "H20O", "count": 8}, model="Qwen3-8B"), "", "did you mean H20"),
        (deployment(accelerator=H200, model="Qwen3-8C"), "", "Qwen3-8B"),
        (deployment(accelerator=H200, model="DeepSeek-V4-Pro"), "", "needs at least"),
        (deployment(accelerator=H200, model="Qwen3-8B", model_fields={"bitsPerWeight": 5}), "", "16"),
        (deployment(), "{", "no JSON"),
        (deployment(), "[]", "pdd calibrate"),
        (deployment(), '{"prefil": {}}', "relayDecode"),
        (deployment(), '{"kind": "EngineCalibration"}', "times"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(spec: PDDDeployment, calibration: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        build_running(spec, LINK, 1, calibration)


def test_calibration_of_each_role() -> None:
    slow = replace(TIMES, prefill=replace(TIMES.prefill, per_token_s=1.0))
    document = json.loads(CALIBRATION)
    roles = {"prefill": {**document, "times": asdict(slow)}, "relayDecode": document, "mainDecode": document}
    running = build_running(deployment(), LINK, 1, json.dumps(roles))
    assert running.calibrated and running.fleet.prefill.times.prefill.per_token_s == 1.0
    assert running.fleet.main.times.prefill.per_token_s == 1e-4 and running.fleet.kv.bytes_per_token == 20_000
    # Two roles calibrated, the third unknown: that role is named.
    del roles["mainDecode"]
    with pytest.raises(InvalidInput, match="mainDecode"):
        build_running(deployment(), LINK, 1, json.dumps(roles))
