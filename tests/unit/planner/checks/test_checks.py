"""The checks hold, cover what they must, and can fail."""

from __future__ import annotations

import json
import re

import pytest

from pdd.planner.bathtub import compute_valley
from pdd.planner.checks import Check, run_checks, to_object
from pdd.planner.checks.check import compare, equal, within
from pdd.planner.checks.overload import compute_relay_load
from pdd.planner.checks.published import list_dips, search_valley


@pytest.fixture(scope="module")
def checks() -> list[Check]:
    return run_checks()


def test_every_check_holds(checks: list[Check]) -> None:
    assert [(c.name, c.result, c.target) for c in checks if not c.holds] == []


def test_each_says_where_its_target_is_from_and_what_went_in(checks: list[Check]) -> None:
    names = [c.name for c in checks]
    assert len(set(names)) == len(names)
    for check in checks:
        assert check.source
        assert check.inputs
    document = json.loads(json.dumps([to_object(c) for c in checks], allow_nan=False))
    assert set(document[0]) == {"name", "source", "inputs", "result", "target", "tolerance", "holds", "note"}


@pytest.mark.parametrize("item", [str(n) for n in (1, 2, 3, 4, 5, 6, 9, 10)])
def test_each_item_of_the_list_is_there(checks: list[Check], item: str) -> None:
    assert any(re.search(rf"models.md 8\.2 {item}(\D|$)", c.source) for c in checks)


def test_published_tables_are_there(checks: list[Check]) -> None:
    for part in (
        "PrfaaS: egress",
        "BCR +37.5%",
        "BCR +32.4%",
        "valley at",
        "dips at 20, 40 and 70 %",
        "relay share at 64K",
    ):
        assert any(part in c.name for c in checks), part


def test_a_wrong_result_does_not_hold() -> None:
    assert not compare("x", "s", {"a": 1}, 1.2, 1.0, 0.1).holds
    assert compare("x", "s", {"a": 1}, -1.05, -1.0, 0.1).holds
    assert not compare("x", "s", {"a": 1}, float("nan"), 1.0, 0.1).holds
    assert not within("x", "s", {"a": 1}, 2.0, 0.0, 1.0).holds
    assert not equal("x", "s", {"a": 1}, [1.0], [1.0, 2.0]).holds


def test_dips_depend_on_the_ratio_and_not_on_the_chunk() -> None:
    assert list_dips(3.9, 4096) == list_dips(3.9, 16_384) == [20, 40, 70]
    assert list_dips(3.5, 4096) != [20, 40, 70]


def test_the_valley_formula_is_the_searched_minimum() -> None:
    for rho, slope in ((0.05, 0.4), (0.15, 0.6), (0.2, 0.9)):
        assert compute_valley(rho, slope) == pytest.approx(search_valley(rho, slope), abs=1e-3)


def test_ending_at_rld_feeds_itself() -> None:
    loads = [float(compute_relay_load(share)[-5:].mean()) for share in (0.0, 0.3, 0.6, 1.0)]
    assert loads == sorted(loads)
