"""Diff: only our fields count, reasons are readable, nothing is deleted unless told."""

from __future__ import annotations

from typing import Any

import pytest

from pdd.controller.diff import Action, diff, drift, with_hash


def cm(name: str, data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n", **meta},
        "data": data or {},
    }


def test_missing_object_is_created() -> None:
    (change,) = diff([cm("a")], [], prune=True)
    assert change.action is Action.CREATE and str(change) == "Create ConfigMap/n/a: it does not exist"


def test_equal_object_needs_nothing_whatever_defaults_and_status_it_has() -> None:
    live = cm("a", {"k": "v"}, uid="1", resourceVersion="5", creationTimestamp="x") | {"status": {"x": 1}}
    assert diff([cm("a", {"k": "v"})], [live], prune=True) == ()


def test_reason_names_field_old_and_new() -> None:
    (change,) = diff([cm("a", {"k": "v"})], [cm("a", {"k": "w"})], prune=True)
    assert change.reasons == ("data.k is 'w', wanted 'v'",)


def test_unwanted_object_is_deleted_only_with_prune() -> None:
    assert diff([], [cm("old")], prune=False) == ()
    (change,) = diff([], [cm("old")], prune=True)
    assert change.action is Action.DELETE


def test_object_that_is_going_is_not_deleted_again() -> None:
    assert diff([], [cm("old", deletionTimestamp="t")], prune=True) == ()


def test_empty_live_list_never_deletes() -> None:
    assert all(c.action is Action.CREATE for c in diff([cm("a"), cm("b")], [], prune=True))


@pytest.mark.parametrize(
    ("want", "have"),
    [("1000m", "1"), ("0.5", "500m"), ("1Gi", "1024Mi"), (1, "1"), ("2", 2)],
)
def test_equal_quantities_are_no_drift(want: Any, have: Any) -> None:
    assert drift({"resources": {"cpu": want}}, {"resources": {"cpu": have}}) == ()


@pytest.mark.parametrize(("want", "have"), [("1", "2"), ("1Gi", "1G"), (True, 1), (1, True), ("x", "y"), (3, 4)])
def test_unequal_scalars_are_drift(want: Any, have: Any) -> None:
    assert drift({"a": want}, {"a": have})


def test_lists_of_named_things_compare_by_name_and_tolerate_others() -> None:
    want = {"containers": [{"name": "b", "image": "1"}]}
    have = {"containers": [{"name": "injected"}, {"name": "b", "image": "1", "terminationMessagePath": "/x"}]}
    assert drift(want, have) == ()
    assert drift({"containers": [{"name": "c"}]}, have) == ("containers[c] is missing",)


def test_atomic_lists_compare_by_position_and_length() -> None:
    assert drift({"args": ["a", "b"]}, {"args": ["a", "b"]}) == ()
    assert drift({"args": ["a"]}, {"args": ["a", "b"]}) == ("args has 2 entries, wanted 1",)
    assert drift({"args": ["a", "c"]}, {"args": ["a", "b"]}) == ("args[1] is 'b', wanted 'c'",)


def test_empty_values_that_the_server_drops_are_no_drift() -> None:
    assert drift({"emptyDir": {}, "annotations": {}, "x": None}, {}) == ()


def test_a_field_that_we_stop_setting_shows_in_the_hash() -> None:
    before, after = with_hash(cm("a", {"k": "v", "gone": "x"})), with_hash(cm("a", {"k": "v"}))
    assert drift(after, before) != ()
    assert drift(after, after) == ()


def test_hash_does_not_depend_on_key_order() -> None:
    one = with_hash({"metadata": {"name": "a"}, "x": {"p": 1, "q": 2}})
    two = with_hash({"x": {"q": 2, "p": 1}, "metadata": {"name": "a"}})
    assert one["metadata"]["annotations"] == two["metadata"]["annotations"]


def test_reasons_are_bounded() -> None:
    reasons = drift({"d": {str(i): 1 for i in range(50)}}, {"d": {str(i): 2 for i in range(50)}})
    assert len(reasons) == 9 and reasons[-1] == "and 42 more"
