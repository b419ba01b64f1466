"""The load generator and the engine without a model speak HTTP to one another, as the router's bench relies on."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator

import httpx
import pytest

from pdd.cli.bench.load import build_request, closed_loop, open_loop
from pdd.cli.bench.null_engine import NullEngine
from pdd.cli.bench.router import read_usage, router_config
from pdd.common.errors import EngineError

PATH = "/v1/completions"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(NullEngine, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_prefill_call_gets_a_handle_and_a_reader_gets_its_tokens(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        call = {"prompt": [1, 2], "max_tokens": 1, "stream": False, "kv_transfer_params": {"do_remote_decode": True}}
        content = json.dumps(call, separators=(",", ":"))
        answer = (await client.post(PATH, content=content)).json()
        assert answer["choices"][0]["token_ids"] == [65] and answer["kv_transfer_params"]["do_remote_prefill"] is True
        content = json.dumps({"prompt": [1], "max_tokens": 3, "stream": True}, separators=(",", ":"))
        lines = [line for line in (await client.post(PATH, content=content)).text.splitlines() if line]
        chunks = [json.loads(line[6:]) for line in lines[:-1]]
        assert lines[-1] == "data: [DONE]"
        assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, "length"]
        assert chunks[-1]["usage"]["completion_tokens"] == 3
        assert (await client.get("/health")).status_code == 200


async def test_every_request_is_answered_once_in_both_loops(port: int) -> None:
    requests = [build_request(PATH, {"prompt": [1], "max_tokens": 2, "stream": i % 2 == 0}) for i in range(10)]
    closed = await closed_loop(port, requests, connections=3)
    opened = await open_loop(port, requests, rate=1000.0)
    assert len(closed) == len(opened) == 10
    assert all(reply.status == 200 and reply.body_bytes > 50 and reply.seconds > 0 for reply in (*closed, *opened))


async def test_a_refusal_ends_the_bench_with_its_status() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        with pytest.raises(EngineError, match="answered 429") as caught:
            await closed_loop(server.sockets[0].getsockname()[1], [build_request(PATH, {})], connections=1)
    finally:
        server.close()
        await server.wait_closed()
    assert caught.value.status == 429


def test_usage_is_read_from_the_kernel() -> None:
    before = read_usage(os.getpid())
    sum(range(3_000_000))
    after = read_usage(os.getpid())
    assert after.cpu_s >= before.cpu_s > 0 and after.rss_bytes > 1_000_000


def test_the_benched_router_takes_long_prompts_and_reaches_main_decode_directly() -> None:
    config = router_config([1, 2, 3])
    assert config.max_context_tokens >= 100_000 and config.gateway == ""
    assert config.main_decode.urls == ("http://127.0.0.1:3",)
