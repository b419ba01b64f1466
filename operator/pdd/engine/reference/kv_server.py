"""The owner's end of the KV pull: serves exported blocks to the readers that hold their handles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pdd.common.clock import Clock
from pdd.engine.reference import wire
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.leases import LeaseRefused, LeaseTable
from pdd.engine.reference.sequence import Lease
from pdd.engine.reference.wire import Ask, Kind, WireError

_log = logging.getLogger("pdd.engine.kv")
_MAX_CONNECTIONS = 256
_HANDSHAKE_TIMEOUT_S = 10.0
_DRAIN_BYTES = 1 << 20


@dataclass(slots=True)
class ServedTotals:
    """Bytes and blocks sent since the start; asks refused."""

    bytes: int = 0
    blocks: int = 0
    refused: int = 0


class KVServer:
    """Listens for readers. `on_ended` is called (on the loop) when a lease is over, so that the engine reclaims it."""

    def __init__(
        self,
        store: KVStore,
        leases: LeaseTable,
        *,
        engine_id: str,
        fingerprint: str,
        on_ended: Callable[[], None],
        clock: Clock,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._leases = leases
        self._engine_id = engine_id
        self._fingerprint = fingerprint
        self._on_ended = on_ended
        self._clock = clock
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.totals = ServedTotals()
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (chosen by the kernel when 0 was given)."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=1 << 20)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(writer)
        reading: Ask | None = None
        try:
            while True:
                head = await asyncio.wait_for(reader.readexactly(wire.HEAD_BYTES), self._idle_s(reading))
                kind, size = wire.decode_head(head, wire.MAX_CONTROL_BYTES)
                body = await asyncio.wait_for(reader.readexactly(size), _HANDSHAKE_TIMEOUT_S)
                ask = wire.decode_ask(kind, body)
                reading = ask if ask.kind is not Kind.DONE else None
                await self._answer(ask, writer)
        except (LeaseRefused, WireError) as error:
            self.totals.refused += 1
            _log.info("refused a reader", extra={"fields": {"why": str(error)}})
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(wire.encode_json(Kind.ERROR, {"message": str(error)}))
                await asyncio.wait_for(writer.drain(), _HANDSHAKE_TIMEOUT_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            if reading is not None:
                _log.info("a reader went away", extra={"fields": {"handle": reading.handle, "why": repr(error)}})
        finally:
            if reading is not None and reading.kind is Kind.READ:
                self._leases.break_read(reading.handle, reading.reader, self._clock())
                self._on_ended()
            self._connections.discard(writer)
            writer.close()

    def _idle_s(self, reading: Ask | None) -> float:
        return _HANDSHAKE_TIMEOUT_S if reading is None else max(self._timeout_s, self._leases.lease_s)

    async def _answer(self, ask: Ask, writer: asyncio.StreamWriter) -> None:
        if ask.engine_id != self._engine_id:
            raise WireError(f"engine {ask.engine_id} is gone; this is {self._engine_id}, started later")
        if ask.fingerprint != self._fingerprint:
            raise WireError("the engines run different weights; their KV does not fit one another")
        if ask.kind is Kind.HOLD:
            self._leases.extend(ask.handle, ask.reader, self._clock())
        elif ask.kind is Kind.DONE:
            self._leases.finish(ask.handle, ask.reader, self._clock())
            self._on_ended()
        else:
            await self._send(ask, self._leases.begin_read(ask.handle, ask.reader, self._clock()), writer)
        writer.write(wire.encode_json(Kind.OK, {}))
        await asyncio.wait_for(writer.drain(), self._timeout_s)

    async def _send(self, ask: Ask, lease: Lease, writer: asyncio.StreamWriter) -> None:
        wire.check_ranges(ask.ranges, len(lease.blocks), lease.num_tokens, self._store.block_size)
        unsent = 0
        for index, (block, start, end) in enumerate(ask.ranges):
            payload = self._store.export_tokens(lease.blocks[block], start, end)
            writer.write(wire.encode_block_head(index, payload))
            writer.write(payload)
            unsent += len(payload)
            self.totals.bytes += len(payload)
            self.totals.blocks += 1
            if unsent >= _DRAIN_BYTES:
                await asyncio.wait_for(writer.drain(), self._timeout_s)
                unsent = 0
