"""An engine without a model, for measuring the router alone: it answers every completion at once with made-up ids.

Only `pdd bench router` starts it. Its own cost is small and is measured beside the router's.

usage: python -m pdd.cli.bench.null_engine PORT [PORT ...]     serves the same on each port; prints `ready`
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys

import httptools
import uvloop

from pdd.common.tasks import spawn

TICK_S = 0.01
"""Time between two tokens of a stream: each is a write of its own, as an engine's step is."""
_MAX_TOKENS = re.compile(rb'"max_tokens":\s*(\d+)')
_TAIL_BYTES = 4096
_TOKEN = 65
_HANDLE = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[0]],
    "remote_engine_id": "null",
    "remote_request_id": "null",
    "remote_host": "127.0.0.1",
    "remote_port": 1,
    "tp_size": 1,
}


class NullEngine(asyncio.Protocol):
    """One connection. The answer depends on the body's end alone: `max_tokens`, `stream`, `do_remote_decode`."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._url = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url, self._body = url, []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._url.endswith(b"/completions"):
            self._reply(b"{}")
            return
        body = b"".join(self._body)
        tail = body[-_TAIL_BYTES:]
        found = _MAX_TOKENS.search(tail)
        tokens = int(found.group(1)) if found else 16
        prompt_tokens = body.count(b",", 0, max(0, len(body) - 512)) + 1
        if b'"stream":true' in tail:
            task = spawn(self._stream(prompt_tokens, tokens), name="null-stream")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        choice = {"index": 0, "text": "A" * tokens, "token_ids": [_TOKEN] * tokens, "finish_reason": "length"}
        answer = {"choices": [choice], "usage": usage(prompt_tokens, tokens)}
        if b'"do_remote_decode":true' in tail:
            answer["kv_transfer_params"] = _HANDLE
        self._reply(json.dumps(answer).encode())

    def _reply(self, body: bytes) -> None:
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)

    async def _stream(self, prompt_tokens: int, tokens: int) -> None:
        assert self._transport is not None
        write = self._transport.write
        write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for index in range(tokens):
            finish = "length" if index == tokens - 1 else None
            choice = {"index": 0, "text": "A", "token_ids": [_TOKEN], "finish_reason": finish}
            write(chunk({"choices": [choice]}))
            if finish is None:
                await asyncio.sleep(TICK_S)
        write(chunk({"choices": [], "usage": usage(prompt_tokens, tokens)}))
        write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def usage(prompt_tokens: int, tokens: int) -> dict[str, int]:
    """The usage object of an answer."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}


def chunk(document: object) -> bytes:
    """One server-sent event as one HTTP chunk."""
    event = b"data: " + json.dumps(document).encode() + b"\n\n"
    return b"%x\r\n" % len(event) + event + b"\r\n"


async def serve(ports: list[int]) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, ended.set)
    servers = [await loop.create_server(NullEngine, "127.0.0.1", port) for port in ports]
    print("ready", flush=True)
    await ended.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
