"""The record of what was made, written by the threads that make the two clusters at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e import clusters, paths


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
