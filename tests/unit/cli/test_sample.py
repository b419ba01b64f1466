"""The sample that runs when no file is given, in a repository and in a wheel."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pdd.cli import options
from pdd.cli.runner.spec import load_local_spec

REPOSITORY = Path(__file__).parents[3]


def test_the_packages_copy_is_the_repositorys_sample() -> None:
    copy = REPOSITORY / "operator/pdd/cli/samples/demo.yaml"
    assert copy.read_bytes() == (REPOSITORY / "crds/samples/demo.yaml").read_bytes(), (
        "copy crds/samples/demo.yaml to operator/pdd/cli/samples"
    )


def test_without_a_repository_the_packages_copy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: "crds" not in path.parts and is_file(path))
    try:
        sample = importlib.reload(options).SAMPLE
    finally:
        monkeypatch.undo()
        importlib.reload(options)
    assert sample.parts[-3:] == ("cli", "samples", "demo.yaml")
    assert load_local_spec(sample).deployment.name == "tiny"
