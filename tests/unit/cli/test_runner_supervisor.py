"""The local runner against real small children: readiness, the cause of a failure, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pdd.cli.runner.http import answers
from pdd.cli.runner.ports import free_ports, is_free, next_free_port
from pdd.cli.runner.process import Child, ProcessSpec
from pdd.cli.runner.supervisor import ChildFailed, Supervisor
from pdd.common.errors import PDDError, TimedOut, Unreachable


def python(name: str, code: str) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-S", "-c", code))


async def until(condition, bound_s: float = 5.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.01)


async def test_a_server_is_ready_when_it_answers_and_gone_after_the_run(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    spec = ProcessSpec("web", (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"))
    async with Supervisor(tmp_path) as supervisor:
        child = supervisor.start(spec)
        await supervisor.wait_ready(child, answers(f"http://127.0.0.1:{port}/"), timeout_s=10)
        pid = child.pid
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert is_free(port)


async def test_a_child_that_fails_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        child = supervisor.start(
            python("engine-p", "import sys; print('no such model: x', file=sys.stderr); sys.exit(2)")
        )

        async def never() -> bool:
            return False

        with pytest.raises(ChildFailed) as caught:
            await supervisor.wait_ready(child, never, timeout_s=10)
    assert "engine-p exited with status 2" in str(caught.value)
    assert "no such model: x" in str(caught.value)


async def test_another_childs_death_ends_the_wait_at_once(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        supervisor.start(python("gateway", "print('port taken'); raise SystemExit(1)"))
        waiting = supervisor.start(python("router", "import time; time.sleep(60)"))

        async def never() -> bool:
            return False

        with pytest.raises(ChildFailed, match="gateway exited with status 1"):
            await supervisor.wait_ready(waiting, never, timeout_s=30)


async def test_a_wait_is_bounded(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        child = supervisor.start(python("slow", "print('still loading', flush=True); import time; time.sleep(60)"))
        await until(lambda: child.last_lines() == ["still loading"])

        async def never() -> bool:
            return False

        with pytest.raises(TimedOut, match=r"slow is not ready after 0.1 s(.|\n)*still loading"):
            await supervisor.wait_ready(child, never, timeout_s=0.1)


async def test_a_child_deaf_to_sigterm_and_its_grandchild_are_killed(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "g = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "print(g.pid, flush=True); time.sleep(60)"
    )
    async with Supervisor(tmp_path, grace_s=0.2) as supervisor:
        child = supervisor.start(python("deaf", code))
        await until(lambda: bool(child.last_lines()))
        grandchild = int(child.last_lines()[0])
        assert psutil.pid_exists(grandchild)
    await until(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == "zombie")
    assert not psutil.pid_exists(child.pid)
    assert child.describe_exit() == "was ended by SIGKILL"


async def test_cancelling_the_stop_still_leaves_nothing(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, grace_s=30)
    child = supervisor.start(
        python("deaf", "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)")
    )
    await until(lambda: bool(child.last_lines()))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(supervisor.stop(), 0.1)
    assert not psutil.pid_exists(child.pid)


async def test_children_die_when_the_runner_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from pdd.cli.runner.process import Child, ProcessSpec\n"
        "argv = (sys.executable, '-S', '-c', 'import time; time.sleep(60)')\n"
        f"c = Child(ProcessSpec('x', argv), Path({str(tmp_path)!r}) / 'x.log')\n"
        "print(c.pid, flush=True); time.sleep(60)"
    )
    runner = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert runner.stdout is not None
        pid = int(await asyncio.to_thread(runner.stdout.readline))
        assert psutil.pid_exists(pid)
        runner.kill()
        await until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")
    finally:
        runner.kill()
        runner.wait(5)
        assert runner.stdout is not None
        runner.stdout.close()


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(PDDError, match="x: cannot run /no/such/program"):
        Supervisor(tmp_path).start(ProcessSpec("x", ("/no/such/program",)))


def test_signal_after_reap_reaches_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(python("short", "pass"), tmp_path / "short.log")
    child.reap()
    called: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, signum: called.append(pid))
    child.signal_group(signal.SIGTERM)
    assert called == []
    assert child.returncode == 0


def test_ports_are_distinct_and_a_taken_one_is_passed_over() -> None:
    import socket

    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[0]))
        taken.listen()
        assert next_free_port(ports[0]) > ports[0]


async def test_work_is_given_up_when_a_child_dies(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        supervisor.start(python("gateway", "import sys; sys.exit('no route')"))
        with pytest.raises(ChildFailed, match=r"gateway exited with status 1(.|\n)*no route"):
            await asyncio.wait_for(supervisor.guard(asyncio.sleep(60)), 10)


async def test_the_cause_is_told_not_the_symptom(tmp_path: Path) -> None:
    async def symptom() -> None:
        raise Unreachable("connection reset")

    async with Supervisor(tmp_path) as supervisor:
        child = supervisor.start(python("router", "import sys; sys.exit('out of memory')"))
        await until(lambda: child.returncode is not None)
        with pytest.raises(ChildFailed, match="out of memory"):
            await supervisor.guard(symptom())


async def test_an_error_of_the_work_itself_passes_through(tmp_path: Path) -> None:
    async def wrong() -> None:
        raise Unreachable("connection reset")

    async with Supervisor(tmp_path) as supervisor:
        supervisor.start(python("router", "import time; time.sleep(60)"))
        with pytest.raises(Unreachable, match="connection reset"):
            await supervisor.guard(wrong())
        assert await supervisor.guard(asyncio.sleep(0, 7)) == 7
