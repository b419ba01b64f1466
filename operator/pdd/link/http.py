"""The little HTTP/1.1 that both ends of the link serve: GET routes, and CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pdd.link.sockets import tune_local

MAX_HEAD_BYTES = 16 * 1024
HEAD_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """`rest`: bytes that came after the head."""

    method: str
    target: str
    version: str
    keep_alive: bool
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class BadRequest(Exception):
    """The head is not HTTP, or too long."""


_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

CONNECTED_REPLY = b"HTTP/1.1 200 Connection established\r\n\r\n"


def encode_response(response: Response, *, keep_alive: bool = False) -> bytes:
    """Head and body in one piece."""
    head = (
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}\r\n"
        f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n\r\n"
    )
    return head.encode("latin-1") + response.body


def refusal(status: int, message: str) -> bytes:
    """An error answer with one line of text, after which the connection closes."""
    return encode_response(Response(status, message.encode() + b"\n"))


def parse_head(head: bytes) -> Request:
    """Parse everything up to and without the empty line. Raises BadRequest."""
    lines = head.split(b"\r\n")
    parts = lines[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("the first line is not METHOD TARGET HTTP/1.1")
    method, target, version = parts
    keep_alive = version != "HTTP/1.0"
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BadRequest("a header line has no colon")
        if name.strip().lower() == b"connection":
            keep_alive = value.strip().lower() != b"close" and (keep_alive or value.strip().lower() == b"keep-alive")
    return Request(method, target, version, keep_alive)


async def read_request(sock: socket.socket, already: bytes = b"", *, first: bool = True) -> Request | None:
    """The next request's head; None when the peer closed or stayed idle in between. Raises BadRequest."""
    loop = asyncio.get_running_loop()
    data = bytearray(already)
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S if first else IDLE_TIMEOUT_S):
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) > MAX_HEAD_BYTES:
                    raise BadRequest(f"the head is longer than {MAX_HEAD_BYTES} bytes")
                chunk = await loop.sock_recv(sock, 4096)
                if not chunk:
                    return None
                data += chunk
    except TimeoutError:
        return None
    request = parse_head(bytes(data[:end]))
    return Request(
        request.method, request.target, request.version, request.keep_alive, rest=bytes(data[end + 4 :])
    )


Handler = Callable[[Request], Response]
Connector = Callable[[Request, socket.socket], Awaitable[bool]]
"""Takes the socket over for a CONNECT and returns True, or returns False after answering."""


async def serve_connection(
    sock: socket.socket,
    handle: Handler,
    connect: Connector | None = None,
    *,
    methods: tuple[str, ...] = ("GET", "HEAD"),
) -> None:
    """Answer requests on an accepted socket until it ends; hand a CONNECT on."""
    loop = asyncio.get_running_loop()
    tune_local(sock)
    taken = False
    try:
        request = await read_request(sock)
        while request is not None:
            if request.method == "CONNECT" and connect is not None:
                taken = await connect(request, sock)
                return
            if request.method not in methods:
                answer, keep_alive = Response(405, f"served here: {', '.join(methods)}\n".encode()), False
            else:  # a body, which no route needs, would be taken for the next request: hence no keep-alive
                answer, keep_alive = handle(request), request.keep_alive and request.method != "POST"
            data = encode_response(answer, keep_alive=keep_alive)
            if request.method == "HEAD":
                data = data[: data.find(b"\r\n\r\n") + 4]
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                await loop.sock_sendall(sock, data)
            if not keep_alive:
                return
            request = await read_request(sock, request.rest, first=False)
    except BadRequest as error:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                await loop.sock_sendall(sock, refusal(400, str(error)))
    except (OSError, TimeoutError):
        pass  # the client went away
    finally:
        if not taken:
            sock.close()
