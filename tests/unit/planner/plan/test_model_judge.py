"""The judge of plans: loads from the file's laws, predictions that move the right way, figures of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.planner.plan.toy import TEXT, question_of, spec_of

from pdd.common.errors import InvalidInput
from pdd.planner.candidates import build_fleet
from pdd.planner.fleet import Sla
from pdd.planner.judge import Stage
from pdd.planner.model_judge import LEAST_REQUESTS, ModelJudge, build_judge, build_loads, measure
from pdd.planner.sim import Columns
from pdd.planner.spec import HitLaw
from pdd.planner.spec_file import read_plan_text

SLA = Sla(ttft_p99_s=2.0, tpot_p99_s=0.05)


@pytest.fixture(scope="module")
def judge() -> ModelJudge:
    return build_judge(spec_of(), 1)[0]


@pytest.mark.parametrize("hits", list(HitLaw))
@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9, 1.0])
def test_loads_have_the_means_of_the_file(hits: HitLaw, rate: float) -> None:
    spec = spec_of()
    spec = replace(spec, load=replace(spec.load, hits=hits, hit_rate=rate))
    load = build_loads(spec, 3, seeds=1, requests=20_000)[0]
    assert np.mean(load.input_tokens) == pytest.approx(10_000, rel=0.03)
    assert np.mean(load.output_tokens) == pytest.approx(100, rel=0.03)
    assert np.mean(load.hit_tokens / load.input_tokens) == pytest.approx(rate, abs=0.03)
    assert load.rate_per_s == pytest.approx(10.0, rel=0.03)


def test_seeds_differ_and_equal_seeds_give_equal_loads() -> None:
    one, two = build_loads(spec_of(), 1, seeds=2, requests=500)
    again = build_loads(spec_of(), 1, seeds=1, requests=500)[0]
    assert (one.input_tokens == again.input_tokens).all()
    assert (one.input_tokens != two.input_tokens).any()


def test_predictions_move_the_right_way(judge: ModelJudge) -> None:
    question = question_of(spec_of())

    def figures(prefill: int, main: int, size: float = 10e9, rate: float = 10.0):  # type: ignore[no-untyped-def]
        fleet = build_fleet(question, question.shapes[0], size, 0.2, (prefill, 2, main))
        return judge.predict(fleet, SLA, rate)

    few, many = figures(10, 6), figures(20, 6)
    assert many.utilisation[Stage.PREFILL] == pytest.approx(few.utilisation[Stage.PREFILL] / 2, rel=0.01)
    assert many.ttft_p99_s.value <= few.ttft_p99_s.value
    assert figures(10, 6, size=100e9).utilisation[Stage.LINE] < few.utilisation[Stage.LINE]
    assert figures(10, 6, rate=1e4).keeps_up is False


def test_a_higher_hit_rate_needs_less_prefill(judge: ModelJudge) -> None:
    question = question_of(spec_of())
    fleet = build_fleet(question, question.shapes[0], 10e9, 0.2, (10, 2, 6))
    used = [
        judge.vary(hit_points=points).predict(fleet, SLA, 10.0).utilisation[Stage.PREFILL] for points in (-0.2, 0, 0.05)
    ]
    assert used == sorted(used, reverse=True)


def test_a_run_is_measured_until_tokens_flow() -> None:
    n = 4
    nan = np.full(n, np.nan)
    whole = np.zeros(n, np.int64)
    columns = Columns(
        arrival_s=np.arange(n) / 1.0,
        first_s=np.arange(n) + 0.5,
        second_s=np.array([0.9, 1.9, 5.9, np.nan]),  # the third waits for the line, the last has one token
        done_s=np.array([1.9, 2.9, 6.9, 3.5]),
        landed_s=np.array([0.8, 1.8, 5.8, np.nan]),
        stall_s=nan,
        input_tokens=np.full(n, 100),
        output_tokens=np.array([22, 102, 22, 1]),
        p_hit=whole,
        m_hit=whole,
        relayed=whole,
        route=np.zeros(n, np.int8),
        payload_bytes=np.full(n, 1000.0),
    )

    class Run:
        pass

    run = Run()
    run.columns = columns  # type: ignore[attr-defined]
    measured = measure(run, SLA, 2.0)  # type: ignore[arg-type]
    assert measured.ttft[0] == pytest.approx(0.9)
    assert measured.tail is False
    # good: the second (0.9 s, 10 ms a token), and the last; the first and third have 50 ms a token, the third 3.9 s.
    assert measured.goodput_per_s == pytest.approx(2.0 * 3 / 4)
    assert measured.line_bytes_per_s == pytest.approx(3000 / 2.0)


def test_a_trace_too_short_for_a_p99_is_refused(tmp_path: Path) -> None:
    lines = [
        json.dumps({"timestamp": i * 100, "input_length": 600, "output_length": 20, "hash_ids": [0, i + 1]})
        for i in range(50)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    text = TEXT.replace("{rate: 10/s, input: 10K, output: 100, hitRate: 90 %}", "{trace: t.jsonl}")
    spec = read_plan_text("plan.yaml", text, folder=tmp_path)
    with pytest.raises(InvalidInput, match=rf"plan\.yaml:2: workload\.trace.*needs {LEAST_REQUESTS:,} requests"):
        build_judge(spec, 1)
    judge, resolved = build_judge(replace(spec, sla=Sla()), 1)
    assert resolved.load.rate_per_s == pytest.approx(10.0)
    assert judge.longest_tokens == 620


def test_answers_of_one_token_are_a_load() -> None:
    """A classifier's: no spread makes them longer or shorter."""
    spec = spec_of()
    spec = replace(spec, load=replace(spec.load, output_tokens=1.0))
    (load,) = build_loads(spec, 1, seeds=1, requests=200)
    assert set(load.output_tokens.tolist()) == {1}


def test_a_mean_that_no_law_has_names_field_and_remedy() -> None:
    spec = spec_of()
    spec = replace(spec, load=replace(spec.load, output_tokens=1.2))
    with pytest.raises(InvalidInput, match=r"workload: output: '?1.2 tokens'?: not possible .* or outputSpread: 0"):
        build_loads(spec, 1)
