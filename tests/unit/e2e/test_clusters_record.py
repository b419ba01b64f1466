"""The record of what was made, written by the threads that make the two clusters at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e import clusters, engine, kind, paths
from e2e.kind import PLAN_A
from e2e.shell import CommandFailed


def test_threads_that_write_at_once_each_succeed_and_leave_a_whole_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "state", lambda: tmp_path)
    state: dict[str, Any] = {"clusters": [f"pdd-{n}" for n in range(400)]}

    def write_often(_: int) -> None:
        for _round in range(50):
            clusters._write(state)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write_often, n) for n in range(8)]:
            done.result(timeout=60)

    assert json.loads((tmp_path / "clusters.json").read_text()) == state
    assert sorted(file.name for file in tmp_path.iterdir()) == ["clusters.json"]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}\n}', "[1, 2", "\x00\x00"])
def test_a_record_that_is_no_json_is_set_aside_and_stops_nobody(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "state", lambda: tmp_path)
    (tmp_path / "clusters.json").write_text(text)
    assert clusters._read() == {}
    assert (tmp_path / "clusters.broken").read_text() == text
    clusters._write({"clusters": ["pdd-a"]})
    assert clusters._read() == {"clusters": ["pdd-a"]}


@pytest.mark.parametrize(("own", "recorded"), [(True, False), (False, True), (False, False)])
def test_a_left_over_cluster_is_replaced_only_if_this_project_made_it(
    own: bool, recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake kind: a cluster that exists and does not answer, as a run that was cut short leaves it."""
    monkeypatch.setattr(paths, "state", lambda: tmp_path)
    done: list[str] = []
    monkeypatch.setattr(engine, "is_own", lambda: own)
    monkeypatch.setattr(kind, "find", lambda plan: None)
    monkeypatch.setattr(kind, "exists", lambda name: True)
    monkeypatch.setattr(kind, "delete", lambda plan: done.append("delete"))
    monkeypatch.setattr(kind, "create", lambda plan, image: done.append("create"))
    state: dict[str, Any] = {"clusters": [PLAN_A.name]} if recorded else {}

    if own or recorded:
        clusters._cluster(PLAN_A, "image", state)
        assert done == ["delete", "create"]
        assert state["clusters"] == [PLAN_A.name]
    else:
        with pytest.raises(CommandFailed, match="pdd-a"):
            clusters._cluster(PLAN_A, "image", state)
        assert done == []
