"""Helm, and what it renders."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.chart.rendering import Helm


def find_helm() -> Path | None:
    """helm on the PATH, or the one that the cluster tests build into the cache folder."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    base = os.environ.get("PDD_CACHE") or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdd")
    cached = Path(base) / "bin" / "helm"
    return cached if cached.exists() else None


@pytest.fixture(scope="session")
def helm() -> Helm:
    program = find_helm()
    if program is None:
        reason = "no helm: install it, or run `make e2e` once, which builds it"
        if os.environ.get("PDD_E2E") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    version = subprocess.run([program, "version", "--short"], capture_output=True, text=True, timeout=30, check=True)
    assert version.stdout.startswith("v3"), version.stdout
    return Helm(program)
