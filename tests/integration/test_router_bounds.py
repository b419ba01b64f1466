"""What the router's HTTP bears: clients that send or read nothing, heads without end, bytes that are no HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import httpx
import pytest
from tests.integration.fake_engine import FakeEngine
from tests.integration.test_router_http import BODY, router

from pdd.router import app, serving


async def dial(client: httpx.AsyncClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", client.base_url.port)


async def talk(client: httpx.AsyncClient, *pieces: bytes) -> bytes:
    """Send, then read until the router closes the connection."""
    reader, writer = await dial(client)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


def request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


def error_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head, answer
    return int(head[9:12]), json.loads(body)["error"]["message"]


async def until(what: Any, timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nx: " + b"a" * (1 << 20),
        b"GET /" + b"a" * (1 << 20),
        b"GET /health HTTP/1.1\r\n" + b"x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 40_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nx: " + b"a" * (1 << 20),
    ],
)
async def test_a_head_without_end_is_431(head: bytes) -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        reader, writer = await dial(client)
        writer.write(head)
        answer = b""
        try:
            while data := await asyncio.wait_for(reader.read(65536), 10):
                answer += data
        except ConnectionResetError:
            pass  # the router closed while the rest of the head was on its way
        assert not answer or b"HTTP/1.1 431" in answer
        writer.transport.abort()
        assert (await client.get("/health")).status_code == 200


async def test_a_head_that_drips_is_408_and_an_unused_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_TIMEOUT_S", 0.3)
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        status, message = error_of(await talk(client, b"GET /health HTTP/1.1\r\n"))
        assert status == 408 and "0.3 s" in message
        assert await talk(client) == b""
        assert (await client.post("/v1/completions", json={**BODY, "max_tokens": 2})).status_code == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"hello\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_http_are_a_400_of_openais_shape(raw: bytes) -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        assert error_of(await talk(client, raw))[0] == 400


async def test_hanging_up_on_pipelined_requests_ends_the_one_that_runs() -> None:
    async with FakeEngine(lambda _: "hang") as p, FakeEngine() as r, router([p], [r], []) as client:
        _, writer = await dial(client)
        writer.write(request(BODY) * 3)
        await until(lambda: p.open == 1)
        writer.transport.abort()
        await until(lambda: p.open == 0)
        await asyncio.sleep(0.1)
        assert len(p.bodies) == 1, "a request that waited behind it was begun for nobody"
        assert "pdd_router_requests_in_flight 0.0" in (await client.get("/metrics")).text


async def test_a_client_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = serving.BoundedProtocol.connection_made

    def connection_made(protocol: serving.BoundedProtocol, transport: asyncio.Transport) -> None:
        """With a small buffer: the kernel's own would take megabytes before anything stalls."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        accept(protocol, transport)

    monkeypatch.setattr(serving.BoundedProtocol, "connection_made", connection_made)
    monkeypatch.setattr(serving, "STALL_S", 0.3)
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", client.base_url.port))
        raw.sendall(request({**BODY, "max_tokens": 90_000, "stream": True, "return_token_ids": True}))
        await until(lambda: r.open == 1)
        await until(lambda: r.open == 0, 15)
        raw.close()
        assert (await client.post("/v1/completions", json={**BODY, "max_tokens": 2})).status_code == 200


async def test_a_fault_of_the_router_is_a_500_of_openais_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        monkeypatch.setattr(app, "parse_ask", fail)
        reply = await client.post("/v1/completions", json=BODY, headers={"x-request-id": "my-id"})
        assert reply.status_code == 500
        error = reply.json()["error"]
        assert error["code"] == "InternalError" and "my-id" in error["message"]


async def test_one_model_can_be_asked_for_and_head_is_get_without_a_body() -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        assert (await client.get("/v1/models/tiny")).json()["id"] == "tiny"
        missing = await client.get("/v1/models/nope")
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
        assert (await client.post("/v1/models/tiny")).status_code == 404
        for path in ("/health", "/ready", "/v1/models", "/metrics"):
            reply = await client.head(path)
            assert (reply.status_code, reply.content) == (200, b""), path
