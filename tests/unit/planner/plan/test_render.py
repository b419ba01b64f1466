"""The chosen plan as resources: `pdd validate` accepts them, and what was the user's stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.unit.planner.plan.toy import TEXT, ToyJudge, question_of, spec_of

from pdd.api.validate import validate_texts
from pdd.common.errors import InvalidInput
from pdd.planner.candidates import build_fleet
from pdd.planner.catalogue import load_chips
from pdd.planner.fleet import Fleet
from pdd.planner.judge import Figures, exact
from pdd.planner.pareto import Candidate
from pdd.planner.render import render_yaml
from pdd.planner.resolve import resolve
from pdd.planner.search import search
from pdd.planner.spec_file import read_plan_text
from pdd.planner.spec_objects import Given, holds_resources, read_plan_objects

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
VLLM = (Path(__file__).parents[4] / "crds" / "samples" / "vllm.yaml").read_text()
PRICED = VLLM.replace("    rttMs: 18\n", "    rttMs: 18\n    price: {centsPerHour: 250}\n")


def price_of(name: str) -> float | None:
    return {"H20": 1.5}.get(name)


def test_a_plan_files_answer_is_valid() -> None:
    question = question_of(
        spec_of(
            TEXT.replace("model: toy", "model: Org/Toy-1.5B")
            .replace("A", "H100")
            .replace("B:", "H200:")
            .replace("[B]", "[H200]")
        )
    )
    found = search(question, ToyJudge())
    text = render_yaml(question, found.best, "feasible: so it is")
    report = validate_texts([("plan.yaml", text)])
    assert report.valid, report.problems
    assert [(d.kind, d.name) for d in report.documents] == [("PDDLink", "site-b"), ("PDDDeployment", "toy-1-5b")]
    link, deployment = yaml.safe_load_all(text)
    assert link["spec"]["line"]["capacityMbps"] == found.best.fleet.line.capacity_bps / 1e6
    assert deployment["spec"]["roles"]["prefill"]["replicas"] == found.best.fleet.prefill.engines
    assert deployment["spec"]["sla"] == {"ttftP99Ms": 2000, "tpotP99Ms": 100}


@pytest.mark.parametrize("name", ["plan-standard", "plan-small"])
@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp4"])
def test_what_is_read_back_is_what_was_chosen(name: str, precision: str) -> None:
    """`pdd simulate` of the written plan, and the operator's advice, judge the engines that the plan was made of."""
    path = EXAMPLES / f"{name}.yaml"
    asked = read_plan_text(str(path), path.read_text(), folder=EXAMPLES)
    chips = load_chips(None)
    # As the plan file would say it, and small prompts, so that every precision fits somewhere.
    asked = replace(asked, precision=precision, load=replace(asked.load, input_tokens=8000.0))
    question = resolve(asked, chips, 32_000)
    # Relay decode on other chips than prefill, where the file has others.
    shape = question.shapes[1] if name == "plan-small" else question.shapes[0]
    fleet = build_fleet(question, shape, 25e9, 0.2, [3, 2, 5])
    text = render_yaml(question, candidate_of(fleet))
    spec = read_plan_objects("plan.yaml", text, Given(line_price_per_h=0.0), lambda _: 1.0)
    again = resolve(spec, chips, 32_000)
    (shape,) = again.shapes[:1]
    for role in ("prefill", "relay", "main"):
        before, after = getattr(fleet, role), getattr(shape, role)
        assert (after.chip, after.accelerators) == (before.chip, before.accelerators)
        assert after.times.decode == before.times.decode, role
        assert after.times.prefill == before.times.prefill, role
        assert after.times.max_sequences == before.times.max_sequences
    assert again.kv.bytes_per_token == pytest.approx(question.kv.bytes_per_token, rel=1e-3)
    assert (again.weight_bytes, again.precision) == (question.weight_bytes, precision)
    assert spec.block_tokens == fleet.block_tokens
    assert spec.sla == asked.sla
    assert (spec.line.rtt_s, spec.line.streams) == (pytest.approx(asked.line.rtt_s), asked.line.streams)


def candidate_of(fleet: Fleet) -> Candidate:
    nothing = exact(1.0)
    return Candidate(fleet, Figures(nothing, nothing, nothing, nothing, nothing, {}))


def test_a_deployments_own_fields_stay() -> None:
    spec = read_plan_objects("vllm.yaml", PRICED, Given(), price_of)
    assert (spec.model, spec.site_a.chips, spec.site_b.chips) == ("Qwen/Qwen3-32B", ("H20",), ("H20",))
    assert (spec.site_a.chunk_tokens, spec.site_b.max_sequences, spec.block_tokens) == (8192, 256, 16)
    assert (spec.sla.ttft_p99_s, spec.sla.tpot_p99_s) == (3.0, 0.06)
    assert spec.prices.line_per_h(20e9) == pytest.approx(2.0)
    assert spec.kv is not None
    assert spec.kv.bytes_per_token == 262144
    question = question_of(spec_of())
    found = search(question, ToyJudge())
    with_objects = type(question)(spec, question.shapes, question.kv, question.engines, 1e9, 32768)
    text = render_yaml(with_objects, found.best)
    report = validate_texts([("plan.yaml", text)])
    assert not [p for p in report.problems if p.severity.value == "Error"], report.problems
    _, deployment = yaml.safe_load_all(text)
    before = list(yaml.safe_load_all(VLLM))[1]
    assert deployment["spec"]["model"]["source"] == before["spec"]["model"]["source"]
    assert deployment["spec"]["engine"]["env"] == before["spec"]["engine"]["env"]
    assert deployment["spec"]["roles"]["mainDecode"]["replicas"] == found.best.fleet.main.engines


def test_what_the_objects_do_not_say_is_assumed_aloud() -> None:
    spec = read_plan_objects("vllm.yaml", PRICED, Given(), price_of)
    said = " ".join(spec.assumptions)
    assert "10 requests/s of 16384 tokens in" in said
    assert "price of H20 from the catalogue: 1.5 USD/h" in said


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (VLLM, "vllm.yaml:12: spec.line.price", "add spec.line.price"),
        (PRICED.replace("{type: H20, count: 1}", "{count: 0}"), "vllm.yaml:", "a plan needs chips"),
        (PRICED.replace("type: H20", "type: Hx"), "vllm.yaml:", "has no price in the catalogue"),
        (PRICED.partition("---")[2], "vllm.yaml:", "its PDDLink stands not in this file"),
        (PRICED.partition("---")[0], "vllm.yaml:1: kind", "give a PDDDeployment"),
        (PRICED.replace("centsPerHour: 250", "centsPerHour: -1"), "vllm.yaml:15: spec.line.price.", "at least 0"),
        (PRICED.replace("rttMs: 18", "rttMS: 18"), "vllm.yaml:14: spec.line.rttMS", "did you mean rttMs"),
    ],
)
def test_objects_that_cannot_be_planned_name_the_field(text: str, where: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_plan_objects("vllm.yaml", text, Given(), price_of)
    assert caught.value.field.startswith(where), caught.value.field
    assert said in caught.value.remedy


def test_plan_files_and_resources_are_told_apart() -> None:
    assert holds_resources(VLLM)
    assert not holds_resources(TEXT)
