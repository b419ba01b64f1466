"""A deployment running on this machine: folder, certificates, processes, readiness, and the end of it all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdd.api.deployment import Role
from pdd.cli.runner.http import answers, get_json
from pdd.cli.runner.plan import StackPlan, count_ports, plan_stack
from pdd.cli.runner.ports import free_ports, next_free_port
from pdd.cli.runner.spec import LocalSpec
from pdd.cli.runner.supervisor import Supervisor
from pdd.common.certs import issue, make_ca
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import PDDError, Unreachable

ENGINE_TIMEOUT_S = 60.0
LINK_TIMEOUT_S = 30.0
ROUTER_TIMEOUT_S = 30.0
ROUTER_PORT = 8080
_FOLDER_PREFIX = "pdd-run-"

Progress = Callable[[str, float], None]
"""Called with what became ready and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A running deployment."""

    plan: StackPlan
    supervisor: Supervisor
    folder: Path

    @property
    def router_url(self) -> str:
        return self.plan.router_url

    async def members(self) -> list[dict[str, Any]]:
        """The gateway's view of the line, one entry an MD. Raises Unreachable."""
        return list((await get_json(f"{self.plan.gateway_url}/members")).get("members", []))

    async def bulk_bytes(self) -> int:
        """Bytes of KV that the line has carried so far, over all MDs."""
        return sum(int(member.get("bulk_bytes_total", 0)) for member in await self.members())


@asynccontextmanager
async def running_stack(
    spec: LocalSpec,
    *,
    router_port: int = 0,
    progress: Progress = lambda what, seconds: None,
    clock: Clock = monotonic_s,
) -> AsyncIterator[Stack]:
    """Start everything, wait until the router serves through the whole path, and end everything on the way out.

    router_port: 0 takes any free one; a taken one is passed over for the next.
    Raises ChildFailed or TimedOut with the cause. After a failure of a process the logs stay, and the error says where.
    """
    remove_stale_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
    keep_logs = False
    try:
        port = next_free_port(router_port) if router_port else free_ports(1)[0]
        plan = plan_stack(spec, router_port=port, ports=free_ports(count_ports(spec), taken=[port]), folder=folder)
        write_files(plan, folder)
        logs = folder / "logs"
        logs.mkdir()
        async with Supervisor(logs) as supervisor:
            try:
                for process in plan.processes:
                    supervisor.start(process)
                await _wait_until_serving(plan, supervisor, progress, clock)
                yield Stack(plan, supervisor, folder)
            except PDDError as error:
                if error.reason in ("ProcessFailed", "TimedOut"):
                    keep_logs = True
                    error.message = f"{error}\nall logs: {logs}"
                    error.args = (error.message,)
                raise
    finally:
        remove_folder(folder, keep_logs=keep_logs)


async def _wait_until_serving(plan: StackPlan, supervisor: Supervisor, progress: Progress, clock: Clock) -> None:
    started = clock()
    for engine in plan.engines:
        ready = answers(f"{engine.url}/health")
        await supervisor.wait_ready(supervisor.child(engine.name), ready, ENGINE_TIMEOUT_S)
    names = {role: sum(engine.role is role for engine in plan.engines) for role in Role}
    progress(
        f"engines: {names[Role.PREFILL]} P, {names[Role.RELAY_DECODE]} RLD, {names[Role.MAIN_DECODE]} MD "
        "(reference model, CPU)",
        clock() - started,
    )
    started = clock()
    gateway = supervisor.child("gateway")
    await supervisor.wait_ready(gateway, answers(f"{plan.gateway_url}/healthz"), LINK_TIMEOUT_S)

    async def all_connected() -> bool:
        try:
            members = (await get_json(f"{plan.gateway_url}/members")).get("members", [])
        except Unreachable:
            return False
        connected = [member for member in members if member.get("state") == "connected"]
        return len(connected) == len(plan.endpoints)

    last = supervisor.child(f"endpoint-{plan.endpoints[-1].engine.name}")
    await supervisor.wait_ready(last, all_connected, LINK_TIMEOUT_S, "connected to the gateway")
    line, streams = plan.spec.link.spec.line, plan.spec.link.spec.streams
    progress(
        f"line: {line.capacity_mbps} Mbit/s, {line.rtt_ms} ms, {streams} streams (emulated on this machine)",
        clock() - started,
    )
    started = clock()
    router = supervisor.child("router")
    await supervisor.wait_ready(router, answers(f"{plan.router_url}/ready"), ROUTER_TIMEOUT_S)
    progress(f"router: {plan.router_url}/v1", clock() - started)


def write_files(plan: StackPlan, folder: Path) -> None:
    """Configurations, and a certificate for each end from a CA of this run alone (its key is never written)."""
    for name, text in plan.files.items():
        (folder / name).write_text(text)
    ca = make_ca("pdd-local-ca", days=2)
    for name, dns_name in plan.tls_names.items():
        pair = issue(ca, [dns_name], days=2)
        (folder / name).mkdir()
        for file, content in (("tls.crt", pair.cert), ("tls.key", pair.key), ("ca.crt", ca.cert)):
            path = folder / name / file
            path.touch(mode=0o600)
            path.write_bytes(content)


def remove_folder(folder: Path, *, keep_logs: bool) -> None:
    """Remove a run's folder; with `keep_logs` all of it but the logs."""
    if not keep_logs:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for entry in folder.iterdir():
        if entry.name != "logs":
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def remove_stale_folders() -> None:
    """Remove what a runner that was killed (SIGKILL) left: its folder names its process, which is no more. Kept logs of
    a failed run stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        pid = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if not pid.isdigit() or Path(f"/proc/{pid}").exists() or not os.access(folder, os.W_OK):
            continue
        if (folder / "router.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
