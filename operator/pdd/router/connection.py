"""One HTTP/1.1 client connection on asyncio.Protocol and httptools: kept alive, optionally through a CONNECT tunnel.

Bounded: when more than HIGH_WATER_BYTES of an answer wait to be read, the socket is not read until they are taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import httptools

from pdd.common.errors import EngineError, PDDError, TimedOut, Unreachable

HIGH_WATER_BYTES = 1 << 18
GENTLE_S = 5.0
_MAX_HEAD_BYTES = 16 * 1024
_JOIN_BELOW_BYTES = 64 * 1024


class Connection(asyncio.Protocol):
    """At most one exchange at a time. `on_idle_lost` is called when it closes while nobody uses it."""

    def __init__(self, on_idle_lost: Callable[[Connection], None]) -> None:
        self.status = 0
        self.content_type = b""
        self.retry_after = b""
        self.engine_id = b""
        self.idle_since_s = 0.0
        self.reused = False
        self.heard = False
        self._on_idle_lost = on_idle_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._tunnel_head: bytearray | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._head_done = False
        self._done = False
        self._until_close = False
        self._error: PDDError | None = None
        self._paused = False
        self._busy = False
        self._waiter: asyncio.Future[None] | None = None

    # ---- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._tunnel_head is not None:
            self._tunnel_head += data
            if b"\r\n\r\n" in self._tunnel_head or len(self._tunnel_head) > _MAX_HEAD_BYTES:
                self._wake()
            return
        parser = self._parser
        if parser is None or self._done:
            self.abort()  # bytes that nobody asked for: the stream cannot be trusted
            return
        self.heard = True
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._error = EngineError("the engine wants to upgrade the protocol")
        except httptools.HttpParserError as error:
            self._error = EngineError(f"the engine's HTTP is broken: {error}")
        if self._size > HIGH_WATER_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._parts or self._done or self._error is not None or self._head_done:
            self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._until_close and self._head_done and exc is None:
            self._done = True
        elif self._error is None:
            self._error = Unreachable(f"the connection was lost: {exc}" if exc else "the peer closed the connection")
        if self._busy:
            self._wake()
        else:
            self._on_idle_lost(self)

    # ---- httptools ------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered == b"content-type":
            self.content_type = value
        elif lowered == b"retry-after":
            self.retry_after = value
        elif lowered == b"x-pdd-engine-id":
            self.engine_id = value
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        self._head_done = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        self._done = True

    # ---- one exchange ---------------------------------------------------------------------------------------------

    async def tunnel(self, name: str, timeout_s: float) -> None:
        """Make this a raw connection to `name` through the proxy at its other end.

        Raises Unreachable (the proxy refuses), TimedOut.
        """
        self._busy = True
        self._tunnel_head = bytearray()
        self._write((f"CONNECT {name}:80 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(),))
        try:
            await self._wait(timeout_s, "the link gateway")
            head = bytes(self._tunnel_head)
            status = head[9:12]
            if not head.startswith(b"HTTP/1.") or status != b"200":
                line = head.split(b"\r\n", 1)[0][:80].decode("latin-1")
                raise Unreachable(f"the link gateway does not reach {name}: {line}", reason="NotConnected")
        except BaseException:
            self.abort()
            raise
        self._tunnel_head = None
        self._busy = False

    def send(self, head: bytes, body: Sequence[bytes]) -> None:
        """Begin an exchange. `head` ends with the empty line."""
        self._busy = True
        self.status = 0
        self.content_type = self.retry_after = self.engine_id = b""
        self.heard = self._head_done = self._done = False
        self._until_close = True
        self._parts = []
        self._size = 0
        self._parser = httptools.HttpResponseParser(self)
        self._write((head, *body))

    async def wait_head(self, timeout_s: float, who: str) -> None:
        """Until status and headers are here. Raises Unreachable, EngineError, TimedOut."""
        while not self._head_done:
            if self._error is not None:
                raise self._error
            await self._wait(timeout_s, who)

    async def read(self, timeout_s: float, who: str) -> bytes:
        """The bytes of the body that have come; b"" at its end. Raises EngineError if it breaks off, TimedOut."""
        while not self._parts:
            if self._done:
                return b""
            if self._error is not None:
                raise EngineError(f"{who} broke off: {self._error.message}", reason="BrokenStream")
            await self._wait(timeout_s, who)
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def finish(self) -> bool:
        """The exchange is over. True: the connection can be used again; otherwise it was closed."""
        reusable = (
            self._done
            and self._error is None
            and self._transport is not None
            and not self._transport.is_closing()
            and self._parser is not None
            and self._parser.should_keep_alive()
        )
        self._busy = False
        self._parser = None
        self._parts = []
        if not reusable:
            self.abort()
        return reusable

    def abort(self) -> None:
        """Close at once; whoever waits is woken with an error."""
        if self._error is None:
            self._error = Unreachable("the connection was closed here")
        if self._transport is not None:
            self._transport.abort()

    def close_gently(self) -> None:
        """Close after what was written has gone out, at most GENTLE_S later: the engine reads the request, sees the
        hang-up, and gives back what the request names (a reset could overtake it)."""
        if self._error is None:
            self._error = Unreachable("the connection was closed here")
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(GENTLE_S, self._transport.abort)

    @property
    def usable(self) -> bool:
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    def _write(self, pieces: Sequence[bytes]) -> None:
        if self._transport is None:
            return
        if sum(map(len, pieces)) <= _JOIN_BELOW_BYTES:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    async def _wait(self, timeout_s: float, who: str) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, _expire, waiter)
        try:
            await waiter
        except TimeoutError:
            raise TimedOut(f"{who} did not answer within {timeout_s:g} s") from None
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
