"""The reader's end of the KV pull: keeps a handle alive while its request queues, reads the missing blocks, lets go."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from pdd.common import tasks
from pdd.engine.reference import wire
from pdd.engine.reference.kv_stream import FrameStream, dial
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.sequence import BlockRange, RemoteHandle
from pdd.engine.reference.wire import Ask, Kind, WireError

_log = logging.getLogger("pdd.engine.kv")
_LEAST_BODY_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class PullSettings:
    """proxy: host and port of an HTTP CONNECT proxy. Times in seconds. attempts: connections tried per pull."""

    proxy: tuple[str, int] | None = None
    connect_timeout_s: float = 5.0
    idle_timeout_s: float = 30.0
    hold_interval_s: float = 10.0
    attempts: int = 3


class PullFailed(Exception):
    """The KV could not be had; trying again on this handle is of no use."""


@dataclass(slots=True)
class _Session:
    request_id: str
    handle: RemoteHandle
    reader: str
    ranges: asyncio.Future[tuple[BlockRange, ...]]
    started: bool = False
    landed_ranges: int = 0
    landed_tokens: int = 0
    stream: FrameStream | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Puller:
    """A core's LoadPort. `expect` runs on the loop; `start`, `cancel`, `release` may come from the engine's thread.

    on_loaded(request_id, landed tokens, error or None) is called on the loop, once for each `start`.
    """

    def __init__(
        self,
        store: KVStore,
        settings: PullSettings,
        *,
        fingerprint: str,
        loop: asyncio.AbstractEventLoop,
        on_loaded: Callable[[str, int, str | None], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._fingerprint = fingerprint
        self._loop = loop
        self._on_loaded = on_loaded
        self._sessions: dict[str, _Session] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def expect(self, request_id: str, handle: RemoteHandle) -> None:
        """A request with this handle has arrived: keep the lease alive until the engine says what to read."""
        session = _Session(request_id, handle, secrets.token_hex(8), self._loop.create_future())
        self._sessions[request_id] = session
        session.tasks.append(tasks.spawn(self._run(session), name=f"kv-pull-{request_id}"))

    def start(self, request_id: str, handle: RemoteHandle, ranges: tuple[BlockRange, ...]) -> None:
        self._loop.call_soon_threadsafe(self._give_ranges, request_id, ranges)

    def release(self, request_id: str, handle: RemoteHandle) -> None:
        self._loop.call_soon_threadsafe(self._give_ranges, request_id, ())

    def cancel(self, request_id: str) -> None:
        self._loop.call_soon_threadsafe(self._cancel, request_id)

    async def close(self) -> None:
        await tasks.cancel(*(t for s in list(self._sessions.values()) for t in s.tasks))

    def _give_ranges(self, request_id: str, ranges: tuple[BlockRange, ...]) -> None:
        session = self._sessions.get(request_id)
        if session is None:
            if ranges:
                self._on_loaded(request_id, 0, "the handle was not announced")
            return
        session.started = session.started or bool(ranges)
        if not session.ranges.done():
            session.ranges.set_result(ranges)

    def _cancel(self, request_id: str) -> None:
        session = self._sessions.get(request_id)
        if session is not None:
            for task in session.tasks:
                task.cancel()

    async def _run(self, session: _Session) -> None:
        error: str | None = None
        try:
            ranges = await self._wait_for_ranges(session)
            if ranges:
                await self._pull(session, ranges)
        except PullFailed as failure:
            error = str(failure)
        except asyncio.CancelledError:
            error = "aborted"
        finally:
            del self._sessions[session.request_id]
            if session.started:
                self._on_loaded(session.request_id, session.landed_tokens, error)
            elif error == "aborted":
                _log.debug("reader aborted before reading", extra={"fields": {"id": session.request_id}})
        if error is not None:
            self._hang_up(session)
        await self._let_go(session)

    async def _wait_for_ranges(self, session: _Session) -> tuple[BlockRange, ...]:
        while True:
            done, _ = await asyncio.wait([session.ranges], timeout=self._settings.hold_interval_s)
            if done:
                return session.ranges.result()
            try:
                await self._ask(session, Kind.HOLD)
            except (OSError, EOFError, TimeoutError, WireError) as error:
                self._hang_up(session)
                _log.info("cannot extend a lease", extra={"fields": {"id": session.request_id, "why": repr(error)}})

    async def _pull(self, session: _Session, ranges: tuple[BlockRange, ...]) -> None:
        why = ""
        for attempt in range(self._settings.attempts):
            if attempt:
                await asyncio.sleep(0.2 * 2**attempt)
            try:
                await self._read_ranges(session, ranges)
                return
            except WireError as error:
                raise PullFailed(str(error)) from error
            except (OSError, EOFError, TimeoutError) as error:
                self._hang_up(session)
                why = str(error) or type(error).__name__
        handle = session.handle
        raise PullFailed(f"{handle.host}:{handle.port}: {why} ({self._settings.attempts} attempts)")

    async def _read_ranges(self, session: _Session, ranges: tuple[BlockRange, ...]) -> None:
        todo = ranges[session.landed_ranges :]
        stream = await self._connected(session)
        token_bytes = self._store.config.bytes_per_token
        count = 0

        def store_block(body: memoryview) -> None:
            nonlocal count
            if count == len(todo):
                raise WireError("more blocks came than were asked for")
            wanted = todo[count]
            tokens = wanted.end - wanted.start
            payload = wire.decode_block(body, count, tokens * token_bytes)
            self._store.import_tokens(wanted.target, wanted.start, wanted.end, payload)
            count += 1
            session.landed_ranges += 1
            session.landed_tokens += tokens

        stream.on_block = store_block
        try:
            stream.write(self._build_ask(session, Kind.READ, tuple((r.index, r.start, r.end) for r in todo)))
            await self._expect_ok(stream)
        finally:
            stream.on_block = None
        if count < len(todo):
            raise WireError(f"{count} of {len(todo)} blocks came")

    async def _let_go(self, session: _Session) -> None:
        """Tell the owner that nothing more is wanted. Best effort: the lease ends by itself otherwise."""
        try:
            await self._ask(session, Kind.DONE)
        except (OSError, EOFError, TimeoutError, WireError) as error:
            _log.info("owner not told", extra={"fields": {"id": session.request_id, "why": str(error)}})
        finally:
            self._hang_up(session)

    async def _ask(self, session: _Session, kind: Kind) -> None:
        stream = await self._connected(session)
        stream.write(self._build_ask(session, kind, ()))
        await self._expect_ok(stream)

    def _build_ask(self, session: _Session, kind: Kind, ranges: tuple[tuple[int, int, int], ...]) -> bytes:
        handle = session.handle
        ask = Ask(kind, handle.engine_id, handle.request_id, session.reader, self._fingerprint, ranges)
        return wire.encode_ask(ask)

    async def _connected(self, session: _Session) -> FrameStream:
        if session.stream is None:
            handle, settings = session.handle, self._settings
            limit = wire.BLOCK_HEAD_BYTES + self._store.block_size * self._store.config.bytes_per_token
            async with asyncio.timeout(settings.connect_timeout_s):
                session.stream = await dial(
                    handle.host, handle.port, max_body_bytes=max(limit, _LEAST_BODY_BYTES), proxy=settings.proxy
                )
        return session.stream

    def _hang_up(self, session: _Session) -> None:
        if session.stream is not None:
            session.stream.abort()
            session.stream = None

    async def _expect_ok(self, stream: FrameStream) -> None:
        kind, body = await stream.reply(self._settings.idle_timeout_s)
        if kind is not Kind.OK:
            raise WireError(wire.decode_error(body) if kind is Kind.ERROR else f"unexpected frame {kind.name}")
