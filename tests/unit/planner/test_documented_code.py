"""Every piece of Python in docs/planner.md runs, with the values that the text around it names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.planner.fleet import Sla, Way
from pdd.planner.load import Load

REPOSITORY = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(300)  # the simulator may be compiled first
PIECES = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "planner.md").read_text(), re.DOTALL)


def first_line(piece: str) -> str:
    return piece.partition("\n")[0].removeprefix("from ").replace(" import ", ": ")[:50]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A trace in the working folder, and what the pieces take as known."""
    from pdd.planner.checks.fleets import build_fleet
    from pdd.planner.workload import Workload, generate

    load: Load = generate(Workload(rate_per_s=20), 3000, 1)
    with (tmp_path / "conversation_trace.jsonl").open("w") as file:
        for i in range(300):
            ids = [1, 2, 3, 10 * i, 10 * i + 1]
            request = {"timestamp": 500 * i, "input_length": 2500, "output_length": 20 + i, "hash_ids": ids}
            file.write(json.dumps(request) + "\n")
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    monkeypatch.chdir(tmp_path)
    link, deployment = yaml.safe_load_all((REPOSITORY / "crds" / "samples" / "vllm.yaml").read_text())
    rows = np.column_stack([np.linspace(0, 100, 500), np.full(500, 8000), np.full(500, 6000), np.full(500, 200)])
    return {
        "load": load,
        "fleet": build_fleet(Way.PDD),
        "sla": Sla(ttft_p99_s=3.0, tpot_p99_s=0.1),
        "deployment": PDDDeployment.from_object(deployment),
        "link": PDDLink.from_object(link),
        "text": "",
        "reach_s": 120.0,
        "rows": rows.tolist(),
        "unserved": 0,
    }


def test_there_is_something_to_run() -> None:
    assert len(PIECES) >= 7


@pytest.mark.parametrize("piece", PIECES, ids=first_line)
def test_it_runs(piece: str, given: dict[str, Any]) -> None:
    exec(compile(piece.replace("n=1_000_000", "n=10_000"), "docs/planner.md", "exec"), given)
