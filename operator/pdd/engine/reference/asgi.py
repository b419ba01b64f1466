"""The pieces of ASGI that the engine needs: bodies in with a bound, JSON and event streams out with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SEND_TIMEOUT_S = 60.0
BODY_TIMEOUT_S = 60.0
_JSON = (b"content-type", b"application/json")


class Disconnected(Exception):
    """The client closed its connection, or takes nothing any more."""


class BodyTooLarge(Exception):
    """The body exceeds the bound."""


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """The whole request body. Raises BodyTooLarge, Disconnected, TimeoutError."""
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(BODY_TIMEOUT_S):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > max_bytes:
                raise BodyTooLarge(f"the body exceeds {max_bytes} bytes")
            if not message.get("more_body", False):
                return b"".join(parts)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, body: object, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await send_bytes(send, status, orjson.dumps(body), [_JSON, *(headers or [])])


async def send_bytes(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await _send(send, {"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await _send(send, {"type": "http.response.body", "body": body, "more_body": False})


async def start_events(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    event_stream = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await _send(send, {"type": "http.response.start", "status": 200, "headers": [*event_stream, *headers]})


async def send_event(send: Send, body: object) -> None:
    data = b"data: " + orjson.dumps(body) + b"\n\n"
    await _send(send, {"type": "http.response.body", "body": data, "more_body": True})


async def end_events(send: Send) -> None:
    await _send(send, {"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


async def _send(send: Send, message: Message) -> None:
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send(message)
    except (OSError, TimeoutError) as error:
        raise Disconnected from error
