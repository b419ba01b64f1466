"""The process that holds a line and answers its control socket.

The control socket (unix, stream) takes one JSON object a line and answers with one a line:

    {"command": "stats"}                      bytes and drops of each direction, the settings, the filter
    {"command": "set", "mbps": 100, ...}      any of delay_ms, jitter_ms, mbps, loss, queue_bytes
    {"command": "partition"}                  nothing passes
    {"command": "block", "ports": [6443]}     these TCP or UDP ports do not pass, the rest does
    {"command": "only", "ports": [6443]}      only these pass
    {"command": "heal"}                       ends partition, block and only
    {"command": "count", "ports": [31443]}    counts these ports apart, under "ports" of stats
    {"command": "quit"}
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from e2e.wan.line import LineSettings
from e2e.wan.packets import Filter

IDLE_S = 1.0
MAX_REQUEST_BYTES = 65536
MAX_CLIENTS = 64


class Line(Protocol):
    backend: str
    settings: LineSettings
    filter: Filter
    fds: list[int]

    def configure(self, settings: LineSettings) -> None: ...
    def restrict(self, new: Filter) -> None: ...
    def wait_s(self) -> float | None: ...
    def turn(self, readable: list[int]) -> None: ...
    def stats(self) -> dict[str, object]: ...
    def close(self) -> None: ...


class Stop(Exception):
    """Asked to end."""


def answer(line: Line, request: dict[str, Any]) -> dict[str, Any]:
    """Does what a request asks. Raises ValueError that names what is wrong, Stop on `quit`."""
    values = dict(request)
    match values.pop("command", None):
        case "stats":
            pass
        case "set":
            line.configure(line.settings.changed(values))
        case "partition":
            line.restrict(replace(line.filter, partitioned=True))
        case "block":
            line.restrict(replace(line.filter, blocked=_ports(values)))
        case "only":
            line.restrict(replace(line.filter, only=_ports(values)))
        case "heal":
            line.restrict(Filter(counted=line.filter.counted))
        case "count":
            line.restrict(replace(line.filter, counted=line.filter.counted | _ports(values)))
        case "quit":
            raise Stop
        case other:
            raise ValueError(f"command: {other!r}: use stats, set, partition, block, only, heal, count or quit")
    shown = {name: sorted(v) if isinstance(v, frozenset) else v for name, v in asdict(line.filter).items()}
    return {"ok": True, "backend": line.backend, "settings": asdict(line.settings), "filter": shown, **line.stats()}


def _ports(values: dict[str, Any]) -> frozenset[int]:
    given = values.get("ports")
    if not isinstance(given, list) or not all(isinstance(port, int) and 0 < port < 65536 for port in given):
        raise ValueError(f"ports: {given!r}: must be a list of numbers from 1 to 65535")
    return frozenset(given)


def serve(line: Line, control: Path) -> None:
    """Runs the line until SIGTERM, SIGINT or `quit`; then the line is closed and the socket removed."""
    waker = _signals()
    control.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server, contextlib.suppress(Stop):
        server.bind(str(control))
        os.chmod(control, 0o600)
        server.listen(16)
        clients: dict[socket.socket, bytes] = {}
        try:
            print(json.dumps({"up": True, "backend": line.backend}), flush=True)
            while True:
                wait_s = line.wait_s()
                # select, not poll: its timeout counts microseconds, poll's milliseconds.
                wait_s = IDLE_S if wait_s is None else min(wait_s, IDLE_S)
                watched: list[int | socket.socket] = [*line.fds, server, waker, *clients]
                readable, _, _ = select.select(watched, [], [], wait_s)
                line.turn([item for item in readable if isinstance(item, int)])
                for item in readable:
                    if item is waker:
                        raise Stop
                    if item is server:
                        _accept(server, clients)
                    elif isinstance(item, socket.socket):
                        _talk(line, item, clients)
        finally:
            for client in clients:
                client.close()
            line.close()
            control.unlink(missing_ok=True)


def _signals() -> socket.socket:
    """A socket that becomes readable on SIGTERM or SIGINT, so that a signal between two waits is not lost."""
    waker, write_end = socket.socketpair()
    write_end.setblocking(False)

    def wake(number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            write_end.send(b"x")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, wake)
    return waker


def _accept(server: socket.socket, clients: dict[socket.socket, bytes]) -> None:
    client, _ = server.accept()
    if len(clients) >= MAX_CLIENTS:
        client.close()
        return
    client.setblocking(False)
    clients[client] = b""


def _talk(line: Line, client: socket.socket, clients: dict[socket.socket, bytes]) -> None:
    try:
        data = client.recv(4096)
        clients[client] += data
        if not data or len(clients[client]) > MAX_REQUEST_BYTES:
            raise ConnectionError
        while b"\n" in clients[client]:
            first, clients[client] = clients[client].split(b"\n", 1)
            client.sendall(json.dumps(_safe(line, first)).encode() + b"\n")
    except Stop:
        client.close()
        clients.pop(client)
        raise
    except OSError:
        client.close()
        clients.pop(client)


def _safe(line: Line, text: bytes) -> dict[str, Any]:
    try:
        request = json.loads(text)
        if not isinstance(request, dict):
            raise ValueError("a request is one JSON object a line")
        return answer(line, request)
    except (ValueError, TypeError) as error:
        return {"ok": False, "error": str(error)}
