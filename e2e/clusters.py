"""Two kind clusters, pdd-a and pdd-b, with a WAN between their nodes.

usage: python -m e2e.clusters up [--rtt-ms 20] [--mbps 1000] [--loss 0]   makes what is missing, uses what is there
       python -m e2e.clusters down                    deletes what `up` made, by name
       python -m e2e.clusters status                  one line each; exit status 1 if something is missing
       python -m e2e.clusters load IMAGE... [--to a|b|both]
       python -m e2e.clusters kubeconfig a|b [--internal]     prints a file's path
       python -m e2e.clusters env                     prints shell lines: eval "$(python -m e2e.clusters env)"
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import engine, kind, loading, paths
from e2e.kind import PLAN_A, PLAN_B, ClusterPlan, ClusterRef
from e2e.node_image import build as node_image
from e2e.shell import CommandFailed, say, wait_for
from e2e.wan.client import Wan, WanError, start_ticks
from e2e.wan.line import LineSettings

# The WAN outlives the process that starts it; until then somebody must hold it, or Python warns of a forgotten child.
_children: list[subprocess.Popen[bytes]] = []
_writing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Clusters:
    """The two sites and the line between them."""

    a: ClusterRef
    b: ClusterRef
    wan: Wan

    def load(self, *images: str) -> None:
        """Puts images of the engine into both nodes; those that a node has already are skipped."""
        loading.load((self.a, self.b), images)


@dataclass(frozen=True, slots=True)
class Line:
    """What `up` is asked for: a round trip's time, the rate each way, the share of packets lost."""

    rtt_ms: float = 20.0
    mbps: float = 1000.0
    loss: float = 0.0

    def settings(self) -> LineSettings:
        return LineSettings(delay_ms=self.rtt_ms / 2, mbps=self.mbps, loss=self.loss)


def up(line: Line | None = None) -> Clusters:
    """Makes both clusters and the WAN, or finds them. Raises NoEngine, CommandFailed, WanError."""
    if os.geteuid() != 0:
        raise engine.NoEngine("the WAN between the nodes enters their network namespaces, which needs root")
    with _lock():
        state = _read()
        started = engine.ensure()
        state["engine"] = started or state.get("engine", "")
        _write(state)
        image = node_image.ensure()
        if kind.ensure_network():
            state["network"] = kind.NETWORK
            _write(state)
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.map(lambda plan: _cluster(plan, image, state), (PLAN_A, PLAN_B))
        wan = _wan(a, b, (line or Line()).settings(), state)
        return Clusters(a, b, wan)


def find() -> Clusters | None:
    """The running clusters and WAN; None if any of the three is missing."""
    try:
        if not engine.answers():
            return None
        a, b = kind.find(PLAN_A), kind.find(PLAN_B)
        wan = _recorded_wan(_read())
    except CommandFailed:
        return None
    return Clusters(a, b, wan) if a and b and wan and wan.running() else None


def down() -> None:
    """Ends the WAN, the clusters, the network and the engine, each only if `up` made it."""
    with _lock():
        state = _read()
        if wan := _recorded_wan(state):
            wan.stop()
        if not engine.answers():
            _write({})
            return
        for plan in (PLAN_A, PLAN_B):
            if plan.name in state.get("clusters", []) or engine.is_own():
                kind.delete(plan)
        if state.get("network") or engine.is_own():
            kind.remove_network()
        if state.get("engine") == "ours":
            engine.stop()
        _write({})


def _cluster(plan: ClusterPlan, image: str, state: dict[str, Any]) -> ClusterRef:
    if found := kind.find(plan):
        return found
    made = state.setdefault("clusters", [])
    if kind.exists(plan.name):
        if plan.name not in made and not engine.is_own():
            raise CommandFailed(
                f"{plan.name}: a cluster of that name is there that this did not make: delete it by hand"
            )
        kind.delete(plan)
    if plan.name not in made:
        made.append(plan.name)
    _write(state)
    return kind.create(plan, image)


def _wan(a: ClusterRef, b: ClusterRef, settings: LineSettings, state: dict[str, Any]) -> Wan:
    wan = _recorded_wan(state)
    ends = [str(a.node_pid), a.node_ip, str(b.node_pid), b.node_ip]
    if wan and wan.running() and state["wan"]["ends"] == ends and state["wan"]["loss"] == bool(settings.loss):
        wan.heal()
        wan.set(delay_ms=settings.delay_ms, mbps=settings.mbps, loss=settings.loss)
        return wan
    if wan:
        wan.stop()
    control, log = paths.state() / "wan.sock", paths.state() / "wan.log"
    control.unlink(missing_ok=True)
    words = [sys.executable, "-m", "e2e.wan", "run", *ends, "--control", str(control)]
    words += ["--delay-ms", f"{settings.delay_ms:g}", "--mbps", f"{settings.mbps:g}", "--loss", f"{settings.loss:g}"]
    with log.open("w") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=paths.REPOSITORY, start_new_session=True
        )
    _children.append(process)
    ticks = start_ticks(process.pid)
    wan = Wan(control, process.pid, ticks or 0)
    state["wan"] = {"pid": process.pid, "ticks": ticks, "ends": ends, "loss": bool(settings.loss)}
    _write(state)

    def answers() -> bool:
        if process.poll() is not None:
            raise WanError(f"the WAN did not start: {log.read_text()[-500:]}")
        try:
            return bool(control.exists() and wan.stats())
        except WanError:
            return False

    wait_for("the WAN", answers, timeout_s=20, every_s=0.1)
    return wan


def _recorded_wan(state: dict[str, Any]) -> Wan | None:
    if "wan" not in state:
        return None
    return Wan(paths.state() / "wan.sock", state["wan"]["pid"], state["wan"]["ticks"] or 0)


def _record() -> Path:
    return paths.state() / "clusters.json"


def _read() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_record().read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        # A cluster that it named and that is still there counts as ours only in our own engine.
        aside = _record().with_suffix(".broken")
        _record().replace(aside)
        say(f"the record of the clusters is no JSON: moved to {aside}, starting from none")
        return {}
    return found


def _write(state: dict[str, Any]) -> None:
    """Replaces the record whole. Both clusters are made at once, each by a thread that writes here."""
    with _writing:
        part = _record().with_suffix(".part")
        part.write_text(json.dumps(state, indent=2))
        part.rename(_record())


@contextmanager
def _lock() -> Iterator[None]:
    with (paths.state() / "clusters.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _status() -> int:
    if not engine.answers():
        print("engine: none answers")
        return 1
    complete = True
    for plan in (PLAN_A, PLAN_B):
        ref = kind.find(plan)
        complete &= ref is not None
        print(f"{plan.name}: ready at {ref.node_ip}, KUBECONFIG={ref.kubeconfig}" if ref else f"{plan.name}: missing")
    wan = _recorded_wan(_read())
    if wan and wan.running():
        stats = wan.stats()
        print(f"wan: {stats['backend']} {json.dumps(stats['settings'])} {json.dumps(stats['filter'])}")
        return 0 if complete else 1
    print("wan: missing")
    return 1


def _env() -> int:
    """Values are paths and addresses of our own making: no quoting is needed beyond the quotes."""
    host = engine.answers()
    if host is None:
        print("# no container engine answers")
        return 1
    lines = {"DOCKER_HOST": host, "PATH": f"{paths.tools()}:$PATH", "WAN_CONTROL": str(paths.state() / "wan.sock")}
    for letter, plan in (("A", PLAN_A), ("B", PLAN_B)):
        if ref := kind.find(plan):
            lines[f"KUBECONFIG_{letter}"] = str(ref.kubeconfig)
            lines[f"KUBECONFIG_{letter}_INTERNAL"] = str(ref.kubeconfig_internal)
            lines[f"NODE_{letter}"] = ref.node_ip
    print("\n".join(f'export {name}="{value}"' for name, value in lines.items() if value))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.clusters", usage=__doc__)
    sub = parser.add_subparsers(dest="command", required=True)
    make = sub.add_parser("up")
    for name, default in (("rtt-ms", 20.0), ("mbps", 1000.0), ("loss", 0.0)):
        make.add_argument(f"--{name}", type=float, default=default)
    for name in ("down", "status", "env"):
        sub.add_parser(name)
    load = sub.add_parser("load")
    load.add_argument("images", nargs="+")
    load.add_argument("--to", choices=["a", "b", "both"], default="both")
    kubeconfig = sub.add_parser("kubeconfig")
    kubeconfig.add_argument("site", choices=["a", "b"])
    kubeconfig.add_argument("--internal", action="store_true")
    args = parser.parse_args(arguments)
    try:
        return _run(args)
    except (CommandFailed, WanError, engine.NoEngine, ValueError) as error:
        print(f"clusters: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    match args.command:
        case "up":
            started = time.monotonic()
            up(Line(args.rtt_ms, args.mbps, args.loss))
            say(f"both clusters and the WAN are up after {time.monotonic() - started:.0f} s")
            return _status()
        case "down":
            down()
            return 0
        case "status":
            return _status()
        case "env":
            return _env()
    if not engine.answers():
        raise engine.NoEngine("no container engine answers: python -m e2e.clusters up")
    plans = {"a": [PLAN_A], "b": [PLAN_B], "both": [PLAN_A, PLAN_B]}[args.to if args.command == "load" else args.site]
    refs = []
    for plan in plans:
        ref = kind.find(plan)
        if ref is None:
            raise CommandFailed(f"{plan.name}: not running: python -m e2e.clusters up")
        refs.append(ref)
    if args.command == "load":
        loading.load(refs, args.images)
    else:
        print(refs[0].kubeconfig_internal if args.internal else refs[0].kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
