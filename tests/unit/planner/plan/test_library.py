"""The library's surface: every name is there, and importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pdd.planner


def test_every_public_name_is_there_with_a_docstring() -> None:
    for name in pdd.planner._HOME_OF:
        assert getattr(pdd.planner, name).__doc__, name


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, pdd.planner, pdd.planner.analytic; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
