"""Starts children, waits until each is ready, tells why one failed, and ends them all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from pdd.cli.runner.process import Child, ProcessSpec
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import PDDError, TimedOut

Probe = Callable[[], Awaitable[bool]]
"""True when ready. Raises nothing for "not yet"."""
T = TypeVar("T")

_POLL_S = 0.05


class ChildFailed(PDDError):
    """A process ended by itself. The message carries its last log lines: the cause is in there."""

    reason = "ProcessFailed"

    def __init__(self, child: Child, while_doing: str) -> None:
        lines = child.last_lines()
        shown = "\n".join(f"    {line}" for line in lines) if lines else "    (it wrote nothing)"
        super().__init__(f"{child.spec.name} {child.describe_exit()} {while_doing}; its last lines:\n{shown}")
        self.name = child.spec.name


class Supervisor:
    """Owns the children of one run. Use as an async context manager: leaving it ends every child."""

    def __init__(self, log_folder: Path, *, clock: Clock = monotonic_s, grace_s: float = 5.0) -> None:
        self._log_folder = log_folder
        self._clock = clock
        self._grace_s = grace_s
        self._children: list[Child] = []
        self._stopping = False

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(self._children)

    def child(self, name: str) -> Child:
        """The child called `name`. Raises KeyError."""
        for child in self._children:
            if child.spec.name == name:
                return child
        raise KeyError(name)

    def start(self, spec: ProcessSpec) -> Child:
        """Start a process. Raises PDDError if its program cannot be run."""
        try:
            child = Child(spec, self._log_folder / f"{spec.name}.log")
        except OSError as error:
            raise PDDError(
                f"{spec.name}: cannot run {spec.argv[0]}: {error.strerror}", reason="ProcessFailed"
            ) from error
        self._children.append(child)
        return child

    async def wait_ready(self, child: Child, probe: Probe, timeout_s: float, what: str = "ready") -> None:
        """Wait until `probe` answers True. Raises ChildFailed as soon as any child has ended (the one that we wait for
        may hang because of it), TimedOut with the last log lines after `timeout_s`."""
        deadline = self._clock() + timeout_s
        while True:
            self.check()
            if await probe():
                return
            if self._clock() >= deadline:
                shown = "\n".join(f"    {line}" for line in child.last_lines())
                raise TimedOut(f"{child.spec.name} is not {what} after {timeout_s:g} s; its last lines:\n{shown}")
            await asyncio.sleep(_POLL_S)

    def check(self) -> None:
        """Raise ChildFailed if a child that should run has ended."""
        if self._stopping:
            return
        for child in self._children:
            if child.returncode is not None:
                raise ChildFailed(child, "while it was needed")

    async def watch(self) -> None:
        """Run until a child ends; then raise ChildFailed."""
        while True:
            self.check()
            await asyncio.sleep(4 * _POLL_S)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of `work`, given up with ChildFailed as soon as a child ends. An error of `work` that a child's death
        explains is replaced by that death: the cause, not the symptom."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self.watch(), name="watch-children")
                result = await work
                watching.cancel()
                return result
        except ExceptionGroup as group_error:
            error = group_error.exceptions[0]
            if not isinstance(error, ChildFailed):
                await asyncio.sleep(4 * _POLL_S)  # a process that broke the connection may still be exiting
                self.check()
            raise error from None

    async def stop_child(self, child: Child) -> None:
        """End one child (SIGTERM, after the grace SIGKILL) and forget it."""
        await self._end([child])
        self._children.remove(child)

    async def stop(self) -> None:
        """End all children, the last started first to hear of it. Idempotent; no child outlives this call."""
        self._stopping = True
        await self._end(list(reversed(self._children)))

    def kill(self) -> None:
        """SIGKILL to every group at once, for a second Ctrl-C."""
        for child in self._children:
            if child.returncode is None:
                child.signal_group(signal.SIGKILL)

    async def _end(self, children: list[Child]) -> None:
        try:
            for child in children:
                if child.returncode is None:
                    child.signal_group(signal.SIGTERM)
            deadline = self._clock() + self._grace_s
            while self._clock() < deadline:
                if all(child.returncode is not None for child in children):
                    break
                await asyncio.sleep(_POLL_S)
        finally:  # also when this wait is cancelled: nothing may stay behind
            for child in children:
                # The group too: a grandchild may outlive the process that led it.
                child.signal_group(signal.SIGKILL)
                child.reap()
