"""A reader's connection: frames parsed where the socket put them, so that a block is copied but once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from pdd.engine.reference import wire
from pdd.engine.reference.wire import Kind, WireError

OnBlock = Callable[[memoryview], None]
_FRAMES_AHEAD = 8
"""Frames of the largest size that fit the buffer: one read of the socket takes several blocks."""


class FrameStream(asyncio.BufferedProtocol):
    """Frames of up to `max_body_bytes`. BLOCKs go to `on_block` as they come; any other frame ends a `reply`.

    The body given to on_block is gone when it returns. What it raises ends the connection and comes out of `reply`.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray(_FRAMES_AHEAD * (max_body_bytes + wire.HEAD_BYTES))
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[tuple[Kind, bytes]] | None = None
        self._preamble: asyncio.Future[bytes] | None = None
        self._lost: BaseException | None = None
        self._heard_s = 0.0
        self.on_block: OnBlock | None = None

    # -- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or EOFError("the connection was closed"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._heard_s = self._loop.time()
        try:
            if self._preamble is not None:
                self._take_preamble(self._preamble)
            if self._preamble is None:
                self._take_frames()
        except WireError as error:
            self._fail(error)
            self.abort()

    # -- what a reader calls ------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Asks are small: they go into the transport's buffer."""
        if self._lost is not None or self._transport is None:
            raise self._lost or ConnectionError("not connected")
        self._transport.write(data)

    async def reply(self, idle_timeout_s: float) -> tuple[Kind, bytes]:
        """The next frame that is no BLOCK. Raises TimeoutError after so many seconds without a byte, OSError, EOFError,
        WireError."""
        if self._lost is not None:
            raise self._lost
        self._reply = self._loop.create_future()
        self._heard_s = self._loop.time()
        try:
            while True:
                left_s = self._heard_s + idle_timeout_s - self._loop.time()
                done, _ = await asyncio.wait([self._reply], timeout=max(0.0, left_s))
                if done:
                    return self._reply.result()
                if self._loop.time() >= self._heard_s + idle_timeout_s:
                    raise TimeoutError(f"nothing came for {idle_timeout_s:g} s")
        finally:
            self._reply.cancel()
            self._reply = None

    async def preamble(self) -> bytes:
        """Bytes up to an empty line: a proxy's answer. Call before the first frame is due, under a timeout."""
        self._preamble = self._loop.create_future()
        if self._lost is not None:
            raise self._lost
        return await self._preamble

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _take_preamble(self, waiting: asyncio.Future[bytes]) -> None:
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end >= 0:
            head = bytes(self._view[: end + 4])
            self._drop(end + 4)
            self._preamble = None
            if not waiting.done():
                waiting.set_result(head)
        elif self._filled > 1 << 14:
            raise WireError("the proxy does not speak HTTP")

    def _take_frames(self) -> None:
        at = 0
        while self._filled - at >= wire.HEAD_BYTES:
            kind, size = wire.decode_head(self._view[at : at + wire.HEAD_BYTES], self._max_body_bytes)
            end = at + wire.HEAD_BYTES + size
            if end > self._filled:
                break
            self._take(kind, self._view[at + wire.HEAD_BYTES : end])
            at = end
        self._drop(at)

    def _take(self, kind: Kind, body: memoryview) -> None:
        if kind is Kind.BLOCK and self.on_block is not None:
            self.on_block(body)
        elif self._reply is None or self._reply.done():
            raise WireError(f"unexpected frame {kind.name}")
        else:
            self._reply.set_result((kind, bytes(body)))

    def _drop(self, count: int) -> None:
        """Forget the first bytes; what is left moves to the front."""
        rest = self._filled - count
        if count and rest:
            self._buffer[:rest] = self._buffer[count : self._filled]
        self._filled = rest

    def _fail(self, error: BaseException) -> None:
        if self._lost is None:
            self._lost = error
        for waiting in (self._reply, self._preamble):
            if waiting is not None and not waiting.done():
                waiting.set_exception(self._lost)


async def dial(host: str, port: int, *, max_body_bytes: int, proxy: tuple[str, int] | None) -> FrameStream:
    """Connect to host:port, through an HTTP CONNECT proxy if given. Bound it with a timeout.

    Raises OSError, EOFError or WireError.
    """
    loop = asyncio.get_running_loop()
    target_host, target_port = proxy or (host, port)
    _, stream = await loop.create_connection(lambda: FrameStream(max_body_bytes), target_host, target_port)
    if proxy is None:
        return stream
    opened = False
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        stream.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        status = (await stream.preamble()).split(b"\r\n", 1)[0].split(b" ", 1)
        if len(status) < 2 or not status[1].startswith(b"200"):
            said = b" ".join(status[1:]).decode("latin-1") or "nothing"
            raise ConnectionRefusedError(f"proxy {proxy[0]}:{proxy[1]} refuses {target}: {said}")
        opened = True
        return stream
    finally:
        if not opened:
            stream.abort()
