"""Broken plan files of any kind give a question or InvalidInput that names the file, never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.planner.fuzz import mutate

from pdd.common.errors import InvalidInput
from pdd.planner.spec import PlanSpec
from pdd.planner.spec_file import read_plan_text
from pdd.planner.spec_objects import Given, holds_resources, read_plan_objects

ROOT = Path(__file__).parents[4]
PLANS = sorted((ROOT / "docs" / "examples").glob("plan-*.yaml"))
RESOURCES = (ROOT / "crds" / "samples" / "vllm.yaml").read_text()
PRICED = RESOURCES.replace("    rttMs: 18\n", "    rttMs: 18\n    price: {centsPerHour: 250}\n")
GIVEN = Given()


def check(file: str, refusal: InvalidInput) -> None:
    assert refusal.field.startswith(f"{file}:") or refusal.field.startswith(f"{file} "), refusal
    assert refusal.remedy


def test_prices_without_chips_are_named() -> None:
    text = (ROOT / "docs" / "examples" / "plan-standard.yaml").read_text()
    start, stop = text.index("  chips:\n    H100"), text.index("  line:\n    perGbit")
    with pytest.raises(InvalidInput, match=r"prices\.chips"):
        read_plan_text("plan.yaml", text[:start] + text[stop:])


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(6))
def test_plan_files(path: Path, seed: int) -> None:
    read = 0
    for text in mutate(path.read_text(), seed, 40):
        try:
            assert isinstance(read_plan_text("plan.yaml", text), PlanSpec)
            read += 1
        except InvalidInput as refusal:
            check("plan.yaml", refusal)
    assert read < 40  # some of them must be refused


@pytest.mark.parametrize("seed", range(6))
def test_resources(seed: int) -> None:
    read = 0
    for text in mutate(PRICED, seed, 12):
        holds_resources(text)
        try:
            assert isinstance(read_plan_objects("pdd.yaml", text, GIVEN, lambda _: 1.5), PlanSpec)
            read += 1
        except InvalidInput as refusal:
            check("pdd.yaml", refusal)
    assert read < 12
