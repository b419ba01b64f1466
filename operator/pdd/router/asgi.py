"""The few ASGI steps that the app needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from pdd.router.openai import BadRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
BODY_TIMEOUT_S = 60.0


class Disconnected(Exception):
    """The client left before its request was complete."""


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """The request's body. Raises BadRequest (413, 408), Disconnected."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part = message.get("body", b"")
                size += len(part)
                if size > max_bytes:
                    raise BadRequest(
                        None, f"the body is longer than {max_bytes} bytes", status=413, code="body_too_large"
                    )
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise BadRequest(None, f"the body did not arrive within {BODY_TIMEOUT_S:g} s", status=408) from None


async def wait_gone(receive: Receive) -> None:
    """Until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_all(
    send: Send, status: int, body: bytes, headers: Headers = (), kind: bytes = b"application/json"
) -> None:
    """A whole answer."""
    length = (b"content-length", b"%d" % len(body))
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


def header(scope: Scope, name: bytes) -> str:
    """A request header by its lower-case name; "" if absent."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""
