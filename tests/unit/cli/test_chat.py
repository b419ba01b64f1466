"""The streaming client against a small server that speaks as the router does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pdd.cli.chat import stream_chat
from pdd.common.errors import EngineError, TimedOut, Unreachable


def chunk(text: str, producer: str, *ids: int, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice], 'pdd': {'producer': producer, 'token_ids': ids}})}\n\n"


@asynccontextmanager
async def router(status: int, body: str, *, hang: bool = False) -> AsyncIterator[tuple[str, list[str]]]:
    seen: list[str] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.lower().splitlines() if line.startswith("content-length")
        )
        seen.extend([head.lower(), (await reader.readexactly(length)).decode()])
        writer.write(f"HTTP/1.1 {status} X\r\nx-pdd-pipeline: P-RLD-MD\r\nx-pdd-reason: Because\r\n".encode())
        writer.write(b"connection: close\r\n\r\n" + body.encode())
        await writer.drain()
        if hang:
            await reader.read()  # until the client has had enough
        writer.close()
        await writer.wait_closed()
        done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", seen
        await asyncio.wait_for(done.wait(), 5)
    finally:
        server.close()


async def test_tokens_producers_and_the_trace_are_collected() -> None:
    trace = {"choices": [], "pdd": {"producers": {"P": 1, "RLD": 2, "MD": 0}}}
    body = (
        chunk("a", "P", 1)
        + chunk("bc", "RLD", 2, 3, finish="length")
        + f"data: {json.dumps(trace)}\n\ndata: [DONE]\n\n"
    )
    pieces: list[tuple[str, str, int]] = []
    async with router(200, body) as (url, seen):
        run = await stream_chat(url, {"model": "m"}, override="P-MD", on_piece=lambda *piece: pieces.append(piece))
    assert run.token_ids == (1, 2, 3) and run.text == "abc" and run.finish_reason == "length"
    assert (run.pipeline, run.reason) == ("P-RLD-MD", "Because")
    assert run.trace == trace["pdd"]
    assert len(run.token_at_ms) == 3 and run.second_token_ms is not None and run.second_token_ms >= 0
    assert pieces == [("P", "a", 1), ("RLD", "bc", 3)]
    assert "x-pdd-trace: 1" in seen[0] and "x-pdd-pipeline-override: p-md" in seen[0]
    assert json.loads(seen[1]) == {"model": "m", "stream": True}


async def test_a_stream_that_breaks_off_is_an_error_not_a_short_answer() -> None:
    async with router(200, chunk("a", "P", 1)) as (url, _):
        with pytest.raises(EngineError, match="broke off before"):
            await stream_chat(url, {})


async def test_an_error_inside_the_stream_is_told() -> None:
    async with router(200, chunk("a", "P", 1) + 'data: {"error": {"message": "no engine left"}}\n\n') as (url, _):
        with pytest.raises(EngineError, match="no engine left"):
            await stream_chat(url, {})


async def test_a_refusal_carries_the_routers_message() -> None:
    async with router(404, '{"error": {"message": "no model x; there is: tiny"}}') as (url, _):
        with pytest.raises(EngineError, match="404: no model x; there is: tiny"):
            await stream_chat(url, {})


async def test_silence_is_bounded() -> None:
    async with router(200, chunk("a", "P", 1), hang=True) as (url, _):
        with pytest.raises(TimedOut, match=r"nothing came for 0\.2 s"):
            await stream_chat(url, {}, timeout_s=0.2)


async def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await stream_chat("http://127.0.0.1:9", {})
