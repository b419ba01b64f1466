"""Checks of this machine: can it run the demo, can it run two kind clusters."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdd.cli.checks.model import Check, Verdict

MIN_MEMORY_BYTES = 1024**3
MIN_DISK_BYTES = 200 * 1024**2
DEMO_PACKAGES = (
    "numpy",
    "uvicorn",
    "uvloop",
    "httptools",
    "orjson",
    "cryptography",
    "prometheus_client",
    "xxhash",
    "httpx",
)
KIND_TOOLS = ("docker", "kind", "kubectl", "helm")


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What was seen on this machine. Sizes in bytes; None: could not be read."""

    python: tuple[int, int]
    missing_packages: tuple[str, ...] = ()
    cores: int = 1
    memory_bytes: int | None = None
    temp_folder: str = "/tmp"
    temp_writable: bool = True
    temp_free_bytes: int = 0
    loopback: bool = True
    router_port_free: bool = True
    congestion_controls: tuple[str, ...] = ()
    missing_tools: tuple[str, ...] = ()
    sample_error: str = ""
    stale_runs: tuple[str, ...] = field(default=())


def _python(facts: LocalFacts) -> tuple[Verdict, str]:
    major, minor = facts.python
    return Verdict.OK if facts.python >= (3, 11) else Verdict.FAILED, f"Python {major}.{minor}"


def _packages(facts: LocalFacts) -> tuple[Verdict, str]:
    if facts.missing_packages:
        return Verdict.FAILED, f"missing: {', '.join(facts.missing_packages)}"
    return Verdict.OK, f"{len(DEMO_PACKAGES)} packages of the router, link and engine are installed"


def _cores(facts: LocalFacts) -> tuple[Verdict, str]:
    return Verdict.OK if facts.cores >= 2 else Verdict.WARNING, f"{facts.cores} cores"


def _memory(facts: LocalFacts) -> tuple[Verdict, str]:
    if facts.memory_bytes is None:
        return Verdict.WARNING, "available memory could not be read"
    shown = f"{facts.memory_bytes / 1024**3:.1f} GiB available"
    return Verdict.OK if facts.memory_bytes >= MIN_MEMORY_BYTES else Verdict.WARNING, shown


def _temp(facts: LocalFacts) -> tuple[Verdict, str]:
    if not facts.temp_writable:
        return Verdict.FAILED, f"{facts.temp_folder} is not writable"
    shown = f"{facts.temp_folder} has {facts.temp_free_bytes / 1024**2:.0f} MiB free"
    return Verdict.OK if facts.temp_free_bytes >= MIN_DISK_BYTES else Verdict.FAILED, shown


def _loopback(facts: LocalFacts) -> tuple[Verdict, str]:
    return (Verdict.OK, "127.0.0.1 can be bound") if facts.loopback else (Verdict.FAILED, "127.0.0.1 cannot be bound")


def _port(facts: LocalFacts) -> tuple[Verdict, str]:
    return (Verdict.OK, "8080 is free") if facts.router_port_free else (Verdict.WARNING, "8080 is taken")


def _sample(facts: LocalFacts) -> tuple[Verdict, str]:
    return (Verdict.FAILED, facts.sample_error) if facts.sample_error else (Verdict.OK, "the demo's sample is valid")


def _leftovers(facts: LocalFacts) -> tuple[Verdict, str]:
    if facts.stale_runs:
        return Verdict.WARNING, f"folders of runs that ended badly: {', '.join(facts.stale_runs)}"
    return Verdict.OK, "nothing left by earlier runs"


def _bbr(facts: LocalFacts) -> tuple[Verdict, str]:
    available = ", ".join(facts.congestion_controls) or "none could be read"
    return Verdict.OK if "bbr" in facts.congestion_controls else Verdict.WARNING, f"available: {available}"


def _tools(facts: LocalFacts) -> tuple[Verdict, str]:
    if facts.missing_tools:
        return Verdict.WARNING, f"missing: {', '.join(facts.missing_tools)}"
    return Verdict.OK, f"{', '.join(KIND_TOOLS)} found"


LOCAL_CHECKS: tuple[Check[LocalFacts], ...] = (
    Check("local.python", "Python 3.11 or newer", _python, "PDD uses its syntax and library", "install Python 3.11"),
    Check(
        "local.packages", "Python packages", _packages,
        "the processes of `pdd demo` and `pdd up` import them", "pip install 'pdd[router,link,engine,cli]'",
    ),
    Check(
        "local.cores", "two cores", _cores,
        "engines, link and router share the cores: figures of the demo will be worse", "use a larger machine",
    ),
    Check(
        "local.memory", "1 GiB of memory", _memory,
        "three engines and their KV cache need about 800 MiB", "end other programs, or lower spec.engine.kvBlocks",
    ),
    Check(
        "local.temp", "temporary folder", _temp,
        "logs, configurations and certificates of a run lie there", "free space, or set TMPDIR to another folder",
    ),
    Check("local.loopback", "loopback", _loopback, "all processes talk over it", "bring it up: ip link set lo up"),
    Check("local.port", "port 8080", _port, "`pdd up` takes the next free one instead", "pdd up --port PORT"),
    Check("local.sample", "the sample", _sample, "`pdd demo` runs it", "restore crds/samples/demo.yaml"),
    Check(
        "local.leftovers", "leftovers", _leftovers,
        "they hold the logs of runs that failed", "read them, then remove the folders",
    ),
    Check(
        "link.bbr", "BBR congestion control", _bbr,
        "on a line with loss CUBIC reaches less of its rate; the link falls back to it", "modprobe tcp_bbr",
    ),
    Check(
        "kind.tools", "tools for kind clusters", _tools,
        "only `make kind-demo` and `make test` need them, and install them", "make kind-demo",
    ),
)  # fmt: skip
"""In the order in which they are shown."""
