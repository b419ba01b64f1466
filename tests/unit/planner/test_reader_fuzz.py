"""Broken traces, workloads and catalogues of any kind: what was asked for, or InvalidInput that names the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.planner.fuzz import mutate
from tests.unit.planner.test_workload_file import FULL

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import load_chips, load_models
from pdd.planner.catalogue.files import HERE
from pdd.planner.traces import read_trace, trace_stats
from pdd.planner.workload import Workload
from pdd.planner.workload_file import read_workload_text

DATA = Path(__file__).parents[3] / "tests" / "data" / "traces"
NAMES = ("mooncake.jsonl", "agentic.csv", "azure_2023.csv", "azure_2024.csv", "azure_multimodal.csv")
CELLS = (
    b"",
    b"NaN",
    b"-1",
    b"1e9",
    b"1e400",
    b'"',
    b"\xff",
    b"0",
    b"9" * 30,
    b"[]",
    b"null",
    b"true",
    b"{",
    b",,",
    b"\r",
)


def spoil(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, lost and doubled; lines cut, swapped and doubled; numbers replaced."""
    kind = rng.randrange(4)
    at = rng.randrange(len(content))
    if kind == 0:
        return content[:at] + bytes([rng.randrange(256)]) + content[at + rng.randrange(2) :]
    if kind == 1:
        return content[:at] + rng.choice(CELLS) + content[at + rng.randrange(4) :]
    lines = content.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    if kind == 2:
        lines[a], lines[b] = lines[b], lines[a]
    else:
        lines.insert(a, lines[b][: rng.randrange(len(lines[b]) + 1)])
    return b"".join(lines)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_traces(tmp_path: Path, name: str, seed: int) -> None:
    rng = random.Random(seed)
    path, refused = tmp_path / "trace", 0
    for _ in range(100):
        content = (DATA / name).read_bytes()
        for _ in range(rng.randint(1, 3)):
            content = spoil(content, rng)
        path.write_bytes(content)
        try:
            trace_stats(read_trace(path), [1000.0])
        except InvalidInput as refusal:
            assert refusal.field.startswith(f"{path}:") and refusal.remedy
            refused += 1
    assert 20 < refused <= 100


@pytest.mark.parametrize("seed", range(5))
def test_workloads(seed: int) -> None:
    for text in mutate(FULL, seed, 60):
        try:
            assert isinstance(read_workload_text("w.yaml", text), Workload)
        except InvalidInput as refusal:
            assert refusal.field.startswith("w.yaml:") and refusal.remedy


@pytest.mark.parametrize("seed", range(3))
def test_catalogues(tmp_path: Path, seed: int) -> None:
    chips = (HERE / "chips.yaml").read_text().split("H200:")[0]
    models = (HERE / "models.yaml").read_text().split("Qwen3-32B:")[0]
    path = tmp_path / "mine.yaml"
    for load, text in ((load_chips, chips), (load_models, models)):
        for changed in mutate(text, seed, 60):
            path.write_text(changed, encoding="utf-8", newline="")
            try:
                load(path)
            except InvalidInput as refusal:
                assert refusal.field.startswith(f"{path}:") and refusal.remedy
