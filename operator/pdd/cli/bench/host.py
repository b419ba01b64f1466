"""How much of this machine others took while something was measured, as Linux counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True)
class HostUse:
    """Means over a span. own_cores: CPU of the processes asked for. other_cores: of all others on the machine.
    stalled: share of the time in which some task waited for a CPU (pressure stall information; None: not there)."""

    cores: int
    own_cores: float
    other_cores: float
    stalled: float | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """Counters at one moment: seconds since some start."""

    at_s: float
    busy_s: float
    own_s: float
    stalled_s: float | None


def sample_host(pids: Iterable[int]) -> HostSample:
    """The counters now; `own` is this process and those of `pids`."""
    own_s = sum(cpu_seconds(pid) for pid in {os.getpid(), *pids})
    return HostSample(time.monotonic(), busy_seconds(_read(_STAT)), own_s, stalled_seconds(_read(_PRESSURE)))


def compare_samples(before: HostSample, after: HostSample) -> HostUse:
    """What happened between two samples."""
    span_s = max(1e-9, after.at_s - before.at_s)
    own = max(0.0, after.own_s - before.own_s) / span_s
    busy = max(0.0, after.busy_s - before.busy_s) / span_s
    stalled = None
    if before.stalled_s is not None and after.stalled_s is not None:
        stalled = min(1.0, (after.stalled_s - before.stalled_s) / span_s)
    return HostUse(os.cpu_count() or 1, round(own, 3), round(max(0.0, busy - own), 3), _rounded(stalled))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process of this machine; 0 once it is gone."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0


def busy_seconds(stat: str) -> float:
    """CPU seconds in which the machine worked, from the text of /proc/stat: user, nice, system, irq, softirq, steal."""
    for line in stat.splitlines():
        if line.startswith("cpu "):
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in line.split()[1:9])
            return (user + nice + system + irq + softirq + steal) / _TICKS
    return 0.0


def stalled_seconds(pressure: str) -> float | None:
    """Seconds in which some task waited for a CPU, from the text of /proc/pressure/cpu."""
    for line in pressure.splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
