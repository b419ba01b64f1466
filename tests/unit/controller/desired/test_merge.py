"""Strategic merge of pod overrides."""

from __future__ import annotations

from pdd.controller.desired.merge import merge


def test_named_containers_merge_and_new_ones_are_appended() -> None:
    base = {"containers": [{"name": "engine", "image": "a", "env": [{"name": "X", "value": "1"}]}]}
    over = {"containers": [{"name": "engine", "env": [{"name": "Y", "value": "2"}]}, {"name": "extra", "image": "b"}]}
    assert merge(base, over) == {
        "containers": [
            {"name": "engine", "image": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "extra", "image": "b"},
        ]
    }


def test_null_removes_and_scalars_replace() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "d": 4}) == {"a": {"c": 2}, "d": 4}


def test_unnamed_lists_replace() -> None:
    assert merge({"args": ["a"], "tolerations": [{"key": "x"}]}, {"args": ["b"], "tolerations": [{"key": "y"}]}) == {
        "args": ["b"],
        "tolerations": [{"key": "y"}],
    }


def test_inputs_are_not_changed() -> None:
    base = {"containers": [{"name": "a"}], "x": {"y": 1}}
    merge(base, {"containers": [{"name": "a", "image": "i"}], "x": {"y": 2}})
    assert base == {"containers": [{"name": "a"}], "x": {"y": 1}}
