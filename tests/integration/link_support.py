"""A link on loopback for tests: certificates, gateway, endpoint, an engine in B and a KV server in A."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from pdd.api.config import EndpointConfig, GatewayConfig, LinkTuning, TLSFiles
from pdd.common.certs import Pair, issue, make_ca
from pdd.link.endpoint import Endpoint
from pdd.link.gateway import Gateway
from pdd.link.hello import LaneName
from pdd.link.lane import Lane
from pdd.link.session import Session

GATEWAY_NAME = "gateway.link.pdd"
ENDPOINT_NAME = "endpoint.link.pdd"
MEMBER = "default/tiny/md-0"
LIMIT_S = 20.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def write_pair(folder: Path, name: str, pair: Pair, ca: Pair, peer_name: str) -> TLSFiles:
    """One end's files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"cert": folder / f"{name}.crt", "key": folder / f"{name}.key", "ca": folder / f"{name}.ca"}
    paths["cert"].write_bytes(pair.cert)
    paths["key"].write_bytes(pair.key)
    paths["ca"].write_bytes(ca.cert)
    return TLSFiles(**{key: str(path) for key, path in paths.items()}, peer_name=peer_name)


async def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for a condition, with a bound."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition is another object's state, which signals nothing
            await asyncio.sleep(0.01)


class Lab:
    """gateway and endpoint run in the test's own loop. `line` may put something between them: (host, port) to dial."""

    def __init__(self, folder: Path, *, rate_bps: int = 0, streams: int = 4, **tuning: Any) -> None:
        self.folder = folder
        self.ca = make_ca()
        self.gateway_tls = write_pair(folder, "gateway", issue(self.ca, [GATEWAY_NAME]), self.ca, ENDPOINT_NAME)
        self.endpoint_tls = write_pair(folder, "endpoint", issue(self.ca, [ENDPOINT_NAME]), self.ca, GATEWAY_NAME)
        defaults = {"keepalive_s": 1, "dead_after_s": 3, "congestion_control": "cubic"}
        self.tuning = LinkTuning(rate_bps=rate_bps, streams=streams, **{**defaults, **tuning})
        self.line_port, self.http_port = free_port(), free_port()
        self.kv_port, self.endpoint_http_port = free_port(), free_port()
        self.engine_port = 0
        self.dial_port = self.line_port
        self.gateway: Gateway | None = None
        self.endpoint: Endpoint | None = None
        self.line: Any = None
        """What stands between the two, if a test put something there."""

    def gateway_config(self) -> GatewayConfig:
        return GatewayConfig(
            name="gw",
            host="127.0.0.1",
            line_port=self.line_port,
            http_port=self.http_port,
            tls=self.gateway_tls,
            tuning=self.tuning,
            allow=("127.0.0.1/32:1024-65535",),
        )

    def endpoint_config(self, **changes: Any) -> EndpointConfig:
        values: dict[str, Any] = {
            "name": "md-0",
            "deployment": "tiny",
            "gateway": f"127.0.0.1:{self.dial_port}",
            "tls": self.endpoint_tls,
            "tuning": self.tuning,
            "kv_port": self.kv_port,
            "http_host": "127.0.0.1",
            "http_port": self.endpoint_http_port,
            "engine_url": f"http://127.0.0.1:{self.engine_port or 9}",
        }
        return EndpointConfig(**{**values, **changes})

    async def start_gateway(self) -> Gateway:
        self.gateway = Gateway(self.gateway_config())
        await self.gateway.start()
        return self.gateway

    async def start_endpoint(self, **changes: Any) -> Endpoint:
        self.endpoint = Endpoint(self.endpoint_config(**changes))
        await self.endpoint.start()
        return self.endpoint

    async def start(self) -> None:
        await self.start_gateway()
        await self.start_endpoint()
        await self.up()

    async def up(self) -> None:
        """Until the member is connected with all its streams."""
        await until(self.is_up)

    def is_up(self) -> bool:
        assert self.gateway is not None
        members = self.gateway.members.describe()["members"]
        session = self.endpoint.session if self.endpoint is not None else None
        if session is None or not session.fast.carriers or len(session.bulk.carriers) != self.tuning.streams:
            return False
        return any(m["state"] == "connected" and m["streams"] == self.tuning.streams for m in members)

    async def stop(self) -> None:
        if self.endpoint is not None:
            await self.endpoint.stop()
        if self.gateway is not None:
            await self.gateway.stop()

    def session(self, end: str) -> Session:
        """The session at `gateway` or `endpoint`."""
        if end == "endpoint":
            assert self.endpoint is not None
            assert self.endpoint.session is not None
            return self.endpoint.session
        assert self.gateway is not None
        return next(iter(self.gateway.sessions.values()))

    def lane(self, end: str, lane: str) -> Lane:
        return self.session(end).lanes[LaneName(lane)].lane

    async def get(self, path: str, port: int | None = None, method: str = "GET") -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.http_port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        data = await asyncio.wait_for(reader.read(), LIMIT_S)
        await close(writer)
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    async def member(self) -> dict[str, Any]:
        _, body = await self.get("/members")
        found: dict[str, Any] = json.loads(body)["members"][0]
        return found

    async def connect_kv(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As the engine in B does: through the endpoint's proxy to a port in A."""
        return await connect_through(self.kv_port, f"127.0.0.1:{port}")

    async def connect_member(self, name: str = MEMBER) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As the router in A does: through the gateway to the engine in B."""
        return await connect_through(self.http_port, f"{name}:80")


class Refused(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.body = body


async def connect_through(proxy_port: int, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port, limit=1 << 20)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
    status = int(head.split()[1])
    if status != 200:
        body = await asyncio.wait_for(reader.read(), LIMIT_S)
        await close(writer)
        raise Refused(status, body)
    return reader, writer


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A TCP server on loopback; its port."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        await close(writer)

    listening = await asyncio.start_server(guarded, "127.0.0.1", 0, limit=1 << 20)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Back what comes, to the end."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def pattern(size: int, seed: int = 0) -> bytes:
    """`size` bytes that repeat nowhere near: a hash finds a swapped or doubled block."""
    block = hashlib.shake_256(seed.to_bytes(8, "big")).digest(65536)
    parts = [hashlib.sha256(block + i.to_bytes(8, "big")).digest() + block[32:] for i in range(size // 65536 + 1)]
    return b"".join(parts)[:size]


def source(size: int, seed: int = 0) -> Serve:
    """Sends `size` bytes and closes: a KV read."""
    data = pattern(size, seed)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        view = memoryview(data)
        for at in range(0, size, 1 << 18):
            writer.write(view[at : at + (1 << 18)])
            await writer.drain()
        writer.write_eof()

    return serve


async def read_all(reader: asyncio.StreamReader, limit_s: float = 60.0) -> bytes:
    return await asyncio.wait_for(reader.read(-1), limit_s)


def now() -> float:
    return time.monotonic()
