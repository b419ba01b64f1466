"""The pooled HTTP client towards engines and gateway: about 20 us a request, every wait bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import EngineError, TimedOut, Unreachable
from pdd.router.connection import Connection
from pdd.router.target import Target

IDLE_S = 4.0
"""Idle connections older than this are not used again: uvicorn (vLLM, the reference engine) closes them at 5 s."""
MAX_IDLE = 128
MAX_BODY_BYTES = 64 << 20


class Reply:
    """An answer whose head is here. Close it by `release` (body read) or `abort` (stop now); `async with` does."""

    __slots__ = ("_connection", "_pool", "who")

    def __init__(self, connection: Connection, pool: Pool, who: str) -> None:
        self._connection: Connection | None = connection
        self._pool = pool
        self.who = who

    @property
    def status(self) -> int:
        return self._connection.status if self._connection is not None else 0

    @property
    def retry_after(self) -> bytes:
        return self._connection.retry_after if self._connection is not None else b""

    @property
    def engine_id(self) -> str:
        """Which process answered, if it says so (`x-pdd-engine-id`)."""
        return self._connection.engine_id.decode("latin-1") if self._connection is not None else ""

    async def read(self, timeout_s: float) -> bytes:
        """Some bytes of the body, b"" at its end. Raises EngineError, TimedOut."""
        if self._connection is None:
            raise EngineError(f"{self.who}: the answer was closed", reason="BrokenStream")
        return await self._connection.read(timeout_s, self.who)

    async def read_all(self, timeout_s: float) -> bytes:
        """The whole body; `timeout_s` bounds each wait. Raises EngineError beyond MAX_BODY_BYTES."""
        parts: list[bytes] = []
        size = 0
        while data := await self.read(timeout_s):
            parts.append(data)
            size += len(data)
            if size > MAX_BODY_BYTES:
                raise EngineError(f"{self.who}: the answer is longer than {MAX_BODY_BYTES} bytes")
        return b"".join(parts)

    def release(self) -> None:
        """Back into the pool if all was read, else closed."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.finish():
            self._pool.put(connection)

    def abort(self) -> None:
        """Close the connection: the engine sees the hang-up and aborts the request."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            connection.finish()

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Pool:
    """Idle connections to one target, last used first."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self.target = target
        self._clock = clock
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        now_s = self._clock()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now_s - connection.idle_since_s < IDLE_S:
                connection.reused = True
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        if len(self._idle) >= MAX_IDLE:
            self._idle.popleft().abort()
        connection.idle_since_s = self._clock()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def connect(self, timeout_s: float) -> Connection:
        """A new connection, through the tunnel if the target has one. Raises Unreachable, TimedOut."""
        target = self.target
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(lambda: Connection(self.forget), target.host, target.port)
        except TimeoutError:
            raise TimedOut(
                f"{target.authority}: no connection within {timeout_s:g} s", reason="ConnectTimedOut"
            ) from None
        except OSError as error:
            detail = error.strerror or str(error)
            raise Unreachable(f"{target.host}:{target.port}: {detail}", reason="ConnectionRefused") from error
        if target.tunnel:
            await connection.tunnel(target.tunnel, timeout_s)
        return connection


class Client:
    """Connections to all targets."""

    def __init__(self, *, connect_timeout_s: float = 2.0, clock: Clock = monotonic_s) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock
        self._pools: dict[Target, Pool] = {}

    async def request(
        self,
        target: Target,
        method: str,
        path: bytes,
        body: Sequence[bytes] = (),
        *,
        headers: bytes = b"",
        timeout_s: float,
        after_send: Callable[[], bool] | None = None,
    ) -> Reply:
        """Send, and wait at most `timeout_s` for status and headers.

        headers: further lines, each ended by CRLF. A kept-alive connection that turns out to be closed before a byte of
        the answer came is replaced. after_send: called once the request is written; True means that nobody waits for
        the answer any more. Raises Unreachable, EngineError, TimedOut; asyncio.CancelledError, also by after_send.
        """
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = Pool(target, self._clock)
        size = sum(map(len, body))
        kind = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % size if body else b""
        head = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n" % (
            method.encode(), path, target.authority.encode(), kind, headers,
        )  # fmt: skip
        who = target.authority
        while True:
            connection = pool.take() or await pool.connect(self._connect_timeout_s)
            try:
                connection.send(head, body)
                if after_send is not None and after_send():
                    raise asyncio.CancelledError
                await connection.wait_head(timeout_s, who)
            except Unreachable as error:
                connection.abort()
                connection.finish()
                if connection.reused and not connection.heard:
                    continue
                raise EngineError(
                    f"{who} broke off before its answer: {error.message}", reason="BrokenStream"
                ) from error
            except asyncio.CancelledError:
                connection.close_gently()
                raise
            except BaseException:
                connection.abort()
                connection.finish()
                raise
            return Reply(connection, pool, who)

    def forget(self, target: Target) -> None:
        """The target is gone: close what is kept for it."""
        pool = self._pools.pop(target, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
