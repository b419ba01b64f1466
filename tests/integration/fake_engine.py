"""A scripted stand-in for an engine, for what a real one does not do on demand: hang, break off, answer nonsense, cut
its events anywhere. The token at output position k is (prompt length + k) % 200 + 32, so any loss shows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import orjson

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def true_token(base: int, position: int) -> int:
    """The token at `position` (0 is the first behind a prompt of `base` tokens)."""
    return (base + position) % 200 + 32


class FakeEngine:
    """behaviour(body) may return "hang", "reset", "500", "garbage", "break" (reset after two tokens), "drip" (events
    cut into bytes), "429", or "" (well)."""

    def __init__(self, behaviour: Callable[[dict[str, Any]], str] = lambda body: "") -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []
        self.open = 0
        self.healthy = True
        self.engine_id = "first"
        self.delay_s = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> FakeEngine:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0)
                raw = await reader.readexactly(length)
                if head.startswith(b"GET /health"):
                    status = b"200 OK" if self.healthy else b"503 No"
                    name = b"\r\nx-pdd-engine-id: " + self.engine_id.encode()
                    writer.write(b"HTTP/1.1 " + status + name + b"\r\nContent-Length: 0\r\n\r\n")
                    continue
                body = orjson.loads(raw)
                self.bodies.append(body)
                self.open += 1
                try:
                    await self._answer(body, reader, writer)
                finally:
                    self.open -= 1
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaviour = self.behaviour(body)
        if behaviour == "hang":
            await reader.read(1)
            raise EOFError
        if behaviour == "reset":
            raise EOFError
        if behaviour in ("500", "429"):
            self._send(writer, behaviour.encode() + b" No", b'{"error":{"message":"as scripted"}}')
            return
        if behaviour == "garbage":
            self._send(writer, b"200 OK", b"<html>")
            return
        count = body["max_tokens"]
        base = self.base(body)
        start = len(body["prompt"]) - base
        if not body["stream"]:
            params = body.get("kv_transfer_params") or {}
            handle = {"do_remote_prefill": True, "remote_request_id": "x"} if params.get("do_remote_decode") else None
            answer = {
                "choices": [{"token_ids": [true_token(base, start)], "finish_reason": "length"}],
                "kv_transfer_params": handle,
                "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": 1},
            }
            await asyncio.sleep(self.delay_s)
            self._send(writer, b"200 OK", orjson.dumps(answer))
            return
        writer.write(HEAD)
        for k in range(count):
            finish = "length" if k == count - 1 else None
            event = orjson.dumps({"choices": [{"token_ids": [true_token(base, start + k)], "finish_reason": finish}]})
            data = b"data: " + event + b"\n\n"
            for piece in [data[i : i + 1] for i in range(len(data))] if behaviour == "drip" else [data]:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            if behaviour == "break" and k == 1:
                raise EOFError
            hung_up = asyncio.ensure_future(reader.read(1))
            done, _ = await asyncio.wait({hung_up}, timeout=self.delay_s)
            if done:
                raise EOFError
            hung_up.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hung_up
        end = b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
        await writer.drain()

    base_tokens = 4

    def base(self, body: dict[str, Any]) -> int:
        """Length of the user's prompt (tests send prompts of this many tokens)."""
        return self.base_tokens

    def _send(self, writer: asyncio.StreamWriter, status: bytes, body: bytes) -> None:
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
