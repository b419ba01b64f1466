"""Runs `helm template` and reads the result."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
NAMES = ("pdd-operator", "pdd-member")
KUBERNETES = "1.34.0"
"""Given explicitly: a helm that was built from source claims an old version by default."""
Objects = list[dict[str, Any]]


class Refused(Exception):
    """helm did not render; the text is its complaint."""


@dataclass(frozen=True)
class Helm:
    program: Path

    def run(self, *words: str) -> str:
        """Standard output. Raises Refused."""
        done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    def text(self, chart: str | Path, values: dict[str, Any] | None = None, namespace: str = "pdd-system") -> str:
        """The manifests of release `pdd` as text."""
        path = CHARTS / chart if isinstance(chart, str) else chart
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values or {}, file)
            file.flush()
            words = ("template", "pdd", str(path), "-n", namespace, "-f", file.name, "--kube-version", KUBERNETES)
            return self.run(*words)

    def objects(self, chart: str, values: dict[str, Any] | None = None, namespace: str = "pdd-system") -> Objects:
        """The manifests, read. Duplicate keys are an error."""
        return [o for o in yaml.load_all(self.text(chart, values, namespace), Loader=_Strict) if o]


@cache
def default_values(chart: str) -> dict[str, Any]:
    """values.yaml of a chart."""
    values: dict[str, Any] = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    return values


def find(objects: Objects, kind: str, name: str = "") -> dict[str, Any]:
    """The one object of that kind (and name)."""
    (found,) = [o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"])]
    return found


def kinds(objects: Objects) -> list[str]:
    return [o["kind"] for o in objects]


class _Strict(yaml.CSafeLoader):
    pass


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"line {node.start_mark.line + 1}: given twice: {twice}")
    return loader.construct_mapping(node, deep=True)


_Strict.add_constructor("tag:yaml.org,2002:map", _mapping)
