"""The search finds what can be worked out by hand, bounds its work, and answers when nothing keeps the promise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.planner.plan.toy import TEXT, ToyJudge, question_of, spec_of

from pdd.planner.answer import make_answer, to_json
from pdd.planner.candidates import compute_bounds, enumerate_counts, thin
from pdd.planner.explain import explain, summarise, verdict
from pdd.planner.fleet import Sla
from pdd.planner.judge import Stage, meets
from pdd.planner.pareto import compute_front, compute_paired, compute_span
from pdd.planner.search import MAX_SCREENED, MAX_SIMULATED, describe_binding, search


def test_the_cheapest_that_keeps_the_promise_is_chosen() -> None:
    # prefill: 10/s x 0.5 s = 5 engines' work; main: 2. TTFT P99 = 1.2 (0.5 + 0.1 / (1 - u)) <= 2 means u <= 0.914:
    # 6 P (0.83), 3 MD (0.67), 1 RLD; 10/s x 10 MB = 0.8 Gbit/s fits the 1 Gbit/s line (0.80).
    found = search(question_of(spec_of()), ToyJudge())
    assert found.chosen is not None
    fleet = found.chosen.fleet
    assert (fleet.prefill.engines, fleet.relay.engines, fleet.main.engines) == (6, 1, 3)
    assert fleet.line.capacity_bps == 1e9
    assert found.chosen.cost_per_h == pytest.approx(6 * 2 + 2 + 3 + 0.1)


def test_the_front_has_no_plan_that_another_beats_and_losers_are_told_why() -> None:
    found = search(question_of(spec_of()), ToyJudge())
    assert found.front == tuple(compute_front(found.front))
    pairs = list(zip(found.front, found.front[1:], strict=False))
    assert all(a.bcr >= b.bcr and a.p99_s > b.p99_s for a, b in pairs)
    assert found.runners_up
    assert all(runner.why for runner in found.runners_up)
    for runner in found.runners_up:
        if meets(runner.candidate.figures, found.sla):
            assert "costs" in runner.why


def test_the_work_is_bounded() -> None:
    judge = ToyJudge()
    text = TEXT.replace("rate: 10/s", "rate: 900/s").replace("[1 Gbit/s, 10 Gbit/s]", "[100 Gbit/s, 400 Gbit/s]")
    found = search(question_of(spec_of(text)), judge)
    assert judge.predictions <= MAX_SCREENED + 100
    assert judge.simulations <= MAX_SIMULATED
    assert found.chosen is not None


def test_an_impossible_promise_is_answered_with_the_nearest() -> None:
    judge = ToyJudge(least_ttft_s=3.0)
    answer = make_answer(question_of(spec_of()), judge)
    assert not answer.feasible
    assert answer.nearest_sla is not None
    assert answer.nearest_sla.ttft_p99_s is not None
    assert answer.nearest_sla.ttft_p99_s > 2.0
    assert answer.nearest_sla.tpot_p99_s == 0.1
    assert verdict(answer).startswith("infeasible: nearest feasible SLA is TTFT P99 ")
    spec = replace(spec_of(), sla=answer.nearest_sla)
    assert make_answer(question_of(spec), judge).feasible, "the nearest promise must be one that a plan keeps"


def test_too_few_engines_allowed_names_the_stage_that_is_short() -> None:
    text = TEXT.replace("a: {chips: [A]}", "a: {chips: [A], maxEngines: 4}")
    answer = make_answer(question_of(spec_of(text)), ToyJudge())
    assert not answer.feasible
    assert answer.binding is Stage.PREFILL
    assert verdict(answer).startswith("infeasible: no fleet within the limits keeps up: prefill is offered")


def test_a_line_too_small_for_the_load_is_the_binding_stage() -> None:
    text = TEXT.replace("[1 Gbit/s, 10 Gbit/s]", "[100 Mbit/s]")
    answer = make_answer(question_of(spec_of(text)), ToyJudge())
    assert not answer.feasible
    assert answer.binding is Stage.LINE


def test_without_a_promise_the_cheapest_that_keeps_up_is_chosen() -> None:
    spec = replace(spec_of(), sla=Sla())
    found = search(question_of(spec), ToyJudge())
    assert found.chosen is not None
    assert found.chosen.figures.keeps_up


def test_the_answer_is_one_json_document_with_all_its_parts() -> None:
    answer = make_answer(question_of(spec_of()), ToyJudge())
    document = json.loads(json.dumps(to_json(answer), allow_nan=False))
    assert {"chosen", "pareto", "bindingConstraint", "seconds", "comparison", "sensitivity"} <= set(document)
    assert document["chosen"]["prefill"]["engines"] == 6
    assert {entry["what"] for entry in document["sensitivity"]} == {"hit rate", "line price", "lengths"}
    # one site, all on A: 5 + 2 engines' work at 2/h each for any split; the plan's MD costs half of that.
    assert document["comparison"]["bcrGain"] > 0
    assert document["comparison"]["sameSite"]["cost_per_h"] <= document["chosen"]["cost_per_h"]


def test_sensitivity_replans_for_a_lower_hit_rate() -> None:
    answer = make_answer(question_of(spec_of()), ToyJudge())
    worse = next(s for s in answer.sensitivity if s.change == "-10 points")
    assert not worse.keeps, "twice the uncached tokens are 10 engines' work for 6"
    assert "prefill" in worse.why or "line" in worse.why
    assert worse.replanned is not None
    assert worse.replanned.fleet.prefill.engines > 10


def test_words_fit_the_screen_and_begin_with_the_verdict() -> None:
    answer = make_answer(question_of(spec_of()), ToyJudge())
    lines = summarise(answer)
    assert lines[0].startswith("feasible: 6 P (A) + 1 RLD (A) + 3 MD (B), 1 Gbit/s")
    assert all(len(line) <= 100 for line in [*lines[1:], *explain(answer)])
    assert any(line.startswith("Why the others lost") for line in explain(answer))


def test_counts_lie_near_the_bounds_and_keep_up() -> None:
    question, judge = question_of(spec_of()), ToyJudge()
    for bound in compute_bounds(question, judge, question.spec.sla, 10.0):
        for prefill, relay, main in enumerate_counts(bound):
            assert 6 <= prefill <= 10
            assert 3 <= main <= 4
            assert relay >= 1


def test_thinning_keeps_both_ends() -> None:
    assert thin(3, 5, 5) == [3, 4, 5]
    assert thin(1, 100, 5) == [1, 26, 50, 75, 100]
    assert thin(4, 3, 5) == []


def test_paired_differences_and_intervals_are_students() -> None:
    assert compute_paired((1.0, 2.0, 3.0), (0.5, 1.5, 2.5)) == pytest.approx((0.5, 0.0))
    assert compute_paired((1.0,), (0.5,)) is None
    mean, low, high = compute_span((1.0, 2.0, 3.0))
    assert (mean, high - mean) == pytest.approx((2.0, 4.30 / 3**0.5), rel=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_a_long_prefill_of_an_idle_stage_asks_for_faster_chips_not_more() -> None:
    judge = ToyJudge(least_ttft_s=3.0)
    found = search(question_of(spec_of()), judge)
    figures = replace(found.best.figures, utilisation={Stage.PREFILL: 0.3, Stage.LINE: 0.1}, first_p99_s=3.0)
    stage, why = describe_binding(replace(found.best, simulated=figures), found.sla)
    assert stage is Stage.PREFILL
    assert "faster chips" in why
    stage, why = describe_binding(replace(found.best, simulated=replace(figures, first_p99_s=0.2)), found.sla)
    assert stage is Stage.LINE
    assert "more streams" in why
