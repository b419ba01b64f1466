"""The near end of a line's control socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class WanError(RuntimeError):
    """The line refused a command, or its process is gone."""


@dataclass(frozen=True, slots=True)
class Wan:
    """A running line. `pid` and `started_ticks` together name its process for good: a pid alone may be used again."""

    control: Path
    pid: int
    started_ticks: int

    def ask(self, command: str, **values: Any) -> dict[str, Any]:
        """One command, one answer (see server.py). Raises WanError."""
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(15)
                sock.connect(str(self.control))
                sock.sendall(json.dumps({"command": command, **values}).encode() + b"\n")
                with sock.makefile("rb") as stream:
                    line = stream.readline()
        except OSError as error:
            raise WanError(f"{self.control}: {error}: is the WAN running? `python -m e2e.clusters status`") from error
        if not line:
            raise WanError(f"{command}: the line's process ended")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise WanError(f"{command}: {answer['error']}")
        return answer

    def stats(self) -> dict[str, Any]:
        return self.ask("stats")

    def line_bytes(self) -> tuple[int, int]:
        """Bytes that went from A to B and from B to A since the line came up: IP packets, headers included."""
        stats = self.stats()
        return stats["a_to_b"]["bytes"], stats["b_to_a"]["bytes"]

    def port_bytes(self, port: int) -> tuple[int, int]:
        """The same for one port, since `count` first named it."""
        found = self.stats()["ports"].get(str(port), {"a_to_b": 0, "b_to_a": 0})
        return found["a_to_b"], found["b_to_a"]

    def set(self, **values: float) -> None:
        """Changes delay_ms, jitter_ms, mbps, loss, queue_bytes."""
        self.ask("set", **values)

    def count(self, *ports: int) -> None:
        self.ask("count", ports=list(ports))

    def partition(self) -> None:
        self.ask("partition")

    def block(self, *ports: int) -> None:
        self.ask("block", ports=list(ports))

    def only(self, *ports: int) -> None:
        self.ask("only", ports=list(ports))

    def heal(self) -> None:
        self.ask("heal")

    @contextlib.contextmanager
    def partitioned(self) -> Iterator[None]:
        """The whole line is cut inside the block."""
        self.partition()
        try:
            yield
        finally:
            self.heal()

    @contextlib.contextmanager
    def blocking(self, *ports: int) -> Iterator[None]:
        """These ports are cut inside the block, the rest passes."""
        self.block(*ports)
        try:
            yield
        finally:
            self.heal()

    def running(self) -> bool:
        return start_ticks(self.pid) == self.started_ticks

    def stop(self, timeout_s: float = 10) -> None:
        """Ends the process; the nodes' routes are what they were before. Does nothing if it is gone."""
        deadline = time.monotonic() + timeout_s
        number = signal.SIGTERM
        while self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            time.sleep(0.1)
            if time.monotonic() > deadline:
                number = signal.SIGKILL


def start_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None if there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
