"""A load generator that costs little: prebuilt requests over kept connections, answers read but not parsed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pdd.common.errors import EngineError, TimedOut

_LIMIT_BYTES = 16 * 1024 * 1024
_TIMEOUT_S = 60.0


def build_request(path: str, document: object, headers: str = "") -> bytes:
    """A POST as bytes. `headers`: complete lines with their line ends."""
    body = json.dumps(document, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, size of the body in bytes, and seconds from sending to the last byte."""

    status: int
    body_bytes: int
    seconds: float


class Connection:
    """One kept connection to `port` of loopback; one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes, timeout_s: float = _TIMEOUT_S) -> Reply:
        """Raises TimedOut, EngineError for another status than 200, OSError."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=_LIMIT_BYTES)
                reader, writer = self._streams
                writer.write(request)
                await writer.drain()
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = await _body(reader, head)
        except TimeoutError as error:
            raise TimedOut(f"no whole answer within {timeout_s:g} s") from error
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            raise EngineError(f"the router answered {status}", status=status)
        return Reply(status, size, time.perf_counter() - started)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def _body(reader: asyncio.StreamReader, head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            size = int(line.partition(b":")[2])
            await reader.readexactly(size)
            return size
    total = 0
    while True:  # chunked
        size = int((await reader.readuntil(b"\r\n")).strip() or b"0", 16)
        await reader.readexactly(size + 2)
        if size == 0:
            return total
        total += size


async def _all_of(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one, name="load")
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def closed_loop(port: int, requests: Sequence[bytes], connections: int) -> list[Reply]:
    """All `requests`, `connections` at once, each as soon as the one before it on its connection is done."""
    pending = iter(requests)
    replies: list[Reply] = []

    async def work() -> None:
        connection = Connection(port)
        try:
            while (request := next(pending, None)) is not None:
                replies.append(await connection.send(request))
        finally:
            await connection.close()

    await _all_of([work() for _ in range(connections)])
    return replies


async def open_loop(port: int, requests: Sequence[bytes], rate: float) -> list[Reply]:
    """`requests` at `rate` a second, whatever the answers take. A connection is taken from those that are free."""
    free: list[Connection] = []
    replies: list[Reply] = []
    started = time.perf_counter()

    async def one(index: int, request: bytes) -> None:
        await asyncio.sleep(max(0.0, started + index / rate - time.perf_counter()))
        connection = free.pop() if free else Connection(port)
        replies.append(await connection.send(request))
        free.append(connection)

    try:
        await _all_of([one(index, request) for index, request in enumerate(requests)])
    finally:
        for connection in free:
            await connection.close()
    return replies
