"""Looks at this machine for the local checks. Opens no connection."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pdd.cli.checks.local import DEMO_PACKAGES, KIND_TOOLS, LocalFacts
from pdd.cli.runner.ports import is_free
from pdd.common.errors import InvalidInput


def gather_local_facts(sample: Path) -> LocalFacts:
    """The facts now. Anything that cannot be read is a fact too; nothing is raised."""
    temp = tempfile.gettempdir()
    return LocalFacts(
        python=sys.version_info[:2],
        missing_packages=tuple(name for name in DEMO_PACKAGES if importlib.util.find_spec(name) is None),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_available_memory(),
        temp_folder=temp,
        temp_writable=os.access(temp, os.W_OK),
        temp_free_bytes=shutil.disk_usage(temp).free,
        loopback=is_free(0),
        router_port_free=is_free(8080),
        congestion_controls=_congestion_controls(),
        missing_tools=tuple(tool for tool in KIND_TOOLS if shutil.which(tool) is None),
        sample_error=_sample_error(sample),
        stale_runs=tuple(str(path) for path in sorted(Path(temp).glob("pdd-run-*")) if _is_over(path)),
    )


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in values else None


def _congestion_controls() -> tuple[str, ...]:
    try:
        return tuple(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
    except OSError:
        return ()


def _sample_error(sample: Path) -> str:
    from pdd.cli.runner.spec import load_local_spec

    try:
        load_local_spec(sample)
    except InvalidInput as error:
        return str(error)
    return ""


def _is_over(folder: Path) -> bool:
    pid = folder.name.removeprefix("pdd-run-").partition("-")[0]
    return pid.isdigit() and not Path(f"/proc/{pid}").exists()
