"""Real engines and a real router as processes on loopback, for the router's integration tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

MODEL = "tiny"
START_TIMEOUT_S = 40.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(eq=False)
class Process:
    """A child, its log, and where it answers."""

    name: str
    command: list[str]
    url: str
    log: Path
    health: str = "/health"
    child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        env = {**os.environ, "PDD_LOG_FORMAT": "text", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with self.log.open("ab") as out:
            self.child = await asyncio.create_subprocess_exec(*self.command, stdout=out, stderr=out, env=env)

    async def wait_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        async with httpx.AsyncClient(timeout=2) as client:
            while time.monotonic() < deadline:
                assert self.child is not None
                if self.child.returncode is not None:
                    break
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(self.url + self.health)).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise AssertionError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")

    async def kill(self) -> None:
        assert self.child is not None
        if self.child.returncode is None:
            self.child.kill()
        await self.child.wait()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after 6 s."""
        if self.child is None or self.child.returncode is not None:
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.child.wait(), 6)
        except TimeoutError:
            await self.kill()


def engine_process(name: str, role: str, folder: Path, flags: Mapping[str, Any] | None = None) -> Process:
    port = free_port()
    options: dict[str, Any] = {
        "role": role,
        "host": "127.0.0.1",
        "port": port,
        "kv-port": free_port(),
        "advertise-host": "127.0.0.1",
        "served-model-name": MODEL,
        "block-size": 16,
        "num-blocks": 1024,
        "max-model-len": 4096,
        "max-num-seqs": 16,
        "step-ms": 0,
        **(flags or {}),
    }
    command = [sys.executable, "-m", "pdd.engine.reference"]
    for key, value in options.items():
        command += [f"--{key}", str(value)]
    return Process(name, command, f"http://127.0.0.1:{port}", folder / f"{name}.log")


class SlowProxy:
    """A CONNECT proxy that paces what comes back from P: the line, as far as the router's tests need one.

    One rate for all its connections. `cut` breaks them and refuses new ones until `heal`.
    """

    def __init__(self, mbps: float) -> None:
        self.bytes_back = 0
        self._rate = mbps * 1e6 / 8
        self._due_s = 0.0
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        self._cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        self._cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if self._cut:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                await writer.drain()
                return
            host, _, port = head.split(b" ")[1].decode().rpartition(":")
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            self._writers.add(up_writer)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            there = asyncio.ensure_future(self._pump(reader, up_writer, paced=False))
            back = asyncio.ensure_future(self._pump(up_reader, writer, paced=True))
            await asyncio.wait({there, back})
            self._writers.discard(up_writer)
        except (OSError, EOFError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, paced: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(16 * 1024):
                if paced:
                    self.bytes_back += len(data)
                    now_s = time.monotonic()
                    self._due_s = max(self._due_s, now_s) + len(data) / self._rate
                    await asyncio.sleep(self._due_s - now_s)
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if self._cut else writer.close()


@dataclass
class Stack:
    """P, RLD and MD engines (lists) behind one router."""

    folder: Path
    prefill: list[Process]
    relay: list[Process]
    main: list[Process]
    router: Process
    line: SlowProxy | None = None
    client: httpx.AsyncClient = field(default_factory=lambda: httpx.AsyncClient(timeout=60))

    async def complete(
        self, body: Mapping[str, Any], override: str = "", path: str = "/v1/completions"
    ) -> dict[str, Any]:
        """A completion without streaming, traced. Asserts 200."""
        headers = {"x-pdd-trace": "1"} | ({"x-pdd-pipeline-override": override} if override else {})
        reply = await self.client.post(self.router.url + path, json={"model": MODEL, **body}, headers=headers)
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        answer["headers"] = dict(reply.headers)
        return answer

    async def stream(
        self, body: Mapping[str, Any], override: str = "", path: str = "/v1/completions", trace: bool = True
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a stream, `[DONE]` left out (its absence is an error)."""
        headers = ({"x-pdd-trace": "1"} if trace else {}) | ({"x-pdd-pipeline-override": override} if override else {})
        body = {"model": MODEL, "stream": True, **body}
        async with self.client.stream("POST", self.router.url + path, json=body, headers=headers) as reply:
            assert reply.status_code == 200, (await reply.aread()).decode()
            done = False
            async for line in reply.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    yield json.loads(line[6:])
            assert done, "the stream ended without [DONE]"

    async def state(self, process: Process) -> dict[str, Any]:
        return dict((await self.client.get(process.url + "/pdd/state")).json())

    async def wait_idle(self, timeout_s: float = 5.0, *, leases: bool = True) -> None:
        """Until no living engine runs, waits or (leases) holds KV for a reader. A reader that was killed leaves its
        lease to expire."""
        deadline = time.monotonic() + timeout_s
        states: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            states = [
                await self.state(one)
                for one in (*self.prefill, *self.relay, *self.main)
                if one.child is not None and one.child.returncode is None
            ]
            keys = ("running", "waiting", "sessions", "loading") + (("leases",) if leases else ())
            if all(state[key] == 0 for state in states for key in keys):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"engines are not idle after {timeout_s} s: {states}")

    async def load(self) -> dict[str, Any]:
        return dict((await self.client.get(self.router.url + "/internal/load")).json())


def router_config(
    prefill: Iterable[Process], relay: Iterable[Process], main: Iterable[Process], **extra: Any
) -> dict[str, Any]:
    return {
        "deployment": MODEL,
        "servedModelNames": [MODEL],
        "capabilities": {"clampsRemoteKv": True, "positionKeyedSampling": True, "greedyPortable": True},
        "maxContextTokens": 4096,
        "kv": {"bytesPerToken": 4096, "blockSize": 16},
        "prefill": {"urls": [one.url for one in prefill]},
        "relayDecode": {"urls": [one.url for one in relay]},
        "mainDecode": {"urls": [one.url for one in main]},
        "link": {"capacityBps": 100_000_000, "rttMs": 20},
        "allowOverrides": True,
        **extra,
    }


@contextlib.asynccontextmanager
async def running_stack(
    folder: Path,
    *,
    prefill: int = 1,
    relay: int = 1,
    main: int = 1,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
    line_mbps: float = 0.0,
    **config: Any,
) -> AsyncIterator[Stack]:
    """Engines by role and a router over them. flags: by role. config: fields of RouterConfig. line_mbps: pace MD's
    pulls (Mbit/s); 0: straight to P."""
    flags = {role: dict(more) for role, more in (flags or {}).items()}
    line = SlowProxy(line_mbps) if line_mbps else None
    if line is not None:
        await line.start()
        flags.setdefault("main-decode", {})["kv-proxy"] = f"http://127.0.0.1:{line.port}"
    engines = {
        role: [engine_process(f"{role}-{k}", role, folder, flags.get(role)) for k in range(count)]
        for role, count in (("prefill", prefill), ("relay-decode", relay), ("main-decode", main))
    }
    p, r, m = engines["prefill"], engines["relay-decode"], engines["main-decode"]
    path = folder / "router.json"
    path.write_text(json.dumps(router_config(p, r, m, **config)))
    port = free_port()
    command = [sys.executable, "-m", "pdd.router", "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    router = Process("router", command, f"http://127.0.0.1:{port}", folder / "router.log", health="/ready")
    stack = Stack(folder, p, r, m, router, line)
    processes = [*p, *r, *m, router]
    try:
        for one in processes[:-1]:
            await one.start()
        await asyncio.gather(*(one.wait_healthy() for one in processes[:-1]))
        await router.start()
        await router.wait_healthy()
        yield stack
    finally:
        await stack.client.aclose()
        await asyncio.gather(*(one.stop() for one in processes))
        if line is not None:
            await line.stop()
