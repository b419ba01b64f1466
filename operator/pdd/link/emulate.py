"""A line in user space: a TCP proxy that delays and paces bytes, for machines and users without rights on the kernel.

What it models: one rate shared by all connections of a direction, in order of arrival; a delay of half the round trip
each way; a bounded queue in front of the rate, which holds senders back when it is full (a real line would drop); one
more round trip for a new connection; a partition, in which nothing moves and nothing breaks. What it does not model:
loss, reordering, and the sender's congestion window: for those use the TUN device or netem.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import cast

from pdd.common.clock import Clock, monotonic_s
from pdd.common.tasks import spawn
from pdd.link.acceptor import Acceptor
from pdd.link.http import Request, Response, serve_connection
from pdd.link.sockets import dial, listen

_log = logging.getLogger("pdd.link.emulate")

KIB = 1024
DIAL_TIMEOUT_S = 5.0
MAX_UNWRITTEN_BYTES = 1024 * KIB
_LINGER_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class LineSpec:
    """rtt_ms: round trip; rate_bps: of each direction, 0 for none; queue_bytes: in front of the rate, per direction."""

    rtt_ms: float
    rate_bps: float
    queue_bytes: int

    @staticmethod
    def of(rtt_ms: float, mbps: float) -> LineSpec:
        """A queue of one bandwidth-delay product, as a router of that line would have, 128 KiB at least."""
        bdp = int(mbps * 1e6 / 8 * rtt_ms / 1000)
        return LineSpec(rtt_ms, mbps * 1e6, max(128 * KIB, bdp))

    @property
    def read_bytes(self) -> int:
        """About a millisecond of the rate, so that connections interleave finely."""
        return max(4 * KIB, min(256 * KIB, int(self.rate_bps / 8 * 0.001))) if self.rate_bps else 256 * KIB


class _Half(asyncio.BufferedProtocol):
    """One socket of a carried connection. Reads go into the direction that leaves from here."""

    def __init__(self, line: EmulatedLine, way: _Direction) -> None:
        self.line = line
        self.way = way
        self.peer: _Half | None = None
        self.transport: asyncio.Transport | None = None
        self.held = True
        """Before the connection's first round trip is over."""
        self.unwritten = False
        self._buffer = bytearray(line.spec.read_bytes)
        self._paused = False
        self._early: list[bytes | None] = []
        self._ended = False
        """The peer's end of stream has been delivered here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's
        transport = self.transport
        transport.set_write_buffer_limits(high=MAX_UNWRITTEN_BYTES)
        self.way.halves.add(self)
        self.regulate()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool:
        self._take(None)
        return True  # the other direction may go on

    def _take(self, data: bytes | None) -> None:
        if self.held:  # a transport may read once more before it heeds a pause
            self._early.append(data)
        else:
            self.way.push(self, data)

    def release(self) -> None:
        """The first round trip is over."""
        self.held = False
        for data in self._early:
            self.way.push(self, data)
        self._early.clear()
        self.regulate()

    def deliver(self, data: bytes | None) -> int:
        """The peer's bytes come out here; how many were written."""
        if self.transport is None or self.transport.is_closing():
            return 0
        if data is not None:
            self.transport.write(data)
            return len(data)
        self._ended = True
        if self.peer is not None and self.peer._ended:
            self.transport.close()
            if self.peer.transport is not None:
                self.peer.transport.close()
        else:
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()
        return 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.way.halves.discard(self)
        if self.peer is not None and self.peer.transport is not None:
            self.way.push_end(self.peer)

    def pause_writing(self) -> None:
        self.unwritten = True
        if self.peer is not None:
            self.peer.regulate()

    def resume_writing(self) -> None:
        self.unwritten = False
        if self.peer is not None:
            self.peer.regulate()

    def regulate(self) -> None:
        """Read, or hold the sender back."""
        if self.transport is None or self.transport.is_closing():
            return
        slow_reader = self.peer is not None and self.peer.unwritten
        hold = self.held or slow_reader or self.way.full or self.line.partitioned
        if hold and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        elif self._paused and not hold:
            self._paused = False
            self.transport.resume_reading()


class _Direction:
    """One direction of the line: what is under way, in order."""

    def __init__(self, line: EmulatedLine) -> None:
        self.line = line
        self.halves: set[_Half] = set()
        """The sockets that read into this direction."""
        self.bytes_total = 0
        self.full = False
        self._free_at = 0.0
        self._queue: deque[tuple[float, float, _Half, bytes | None]] = deque()
        self._waiting: deque[tuple[float, int]] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, half: _Half, data: bytes | None) -> None:
        """`data` (None: end of the stream) leaves `half` for its peer."""
        now = self.line.clock()
        size = len(data) if data is not None else 0
        spec = self.line.spec
        self._free_at = max(now, self._free_at) + (size * 8 / spec.rate_bps if spec.rate_bps else 0.0)
        self._queue.append((self._free_at + spec.rtt_ms / 2000, self._free_at, half, data))
        if spec.rate_bps:
            self._waiting.append((self._free_at, size))
            self._waiting_bytes += size
        self._check_full(now)
        self._arm(now)

    def push_end(self, peer: _Half) -> None:
        """The connection broke off: so does the other side, after the delay."""
        loop = asyncio.get_running_loop()
        loop.call_later(self.line.spec.rtt_ms / 2000, _abort, peer)

    def freeze_or_thaw(self) -> None:
        for half in list(self.halves):
            half.regulate()
        if not self.line.partitioned:
            self._arm(self.line.clock())

    def _check_full(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting_bytes -= self._waiting.popleft()[1]
        full = self._waiting_bytes > self.line.spec.queue_bytes
        if full != self.full:
            self.full = full
            for half in list(self.halves):
                half.regulate()

    def _arm(self, now: float) -> None:
        if self._timer is not None or self.line.partitioned:
            return
        due = min([at for at in (self._first_due(),) if at is not None], default=None)
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._due)

    def _first_due(self) -> float | None:
        if self._waiting and self.full:
            return min(self._waiting[0][0], self._queue[0][0]) if self._queue else self._waiting[0][0]
        return self._queue[0][0] if self._queue else None

    def _due(self) -> None:
        self._timer = None
        if self.line.partitioned:
            return
        now = self.line.clock()
        while self._queue and self._queue[0][0] <= now + 0.0002:
            _, _, half, data = self._queue.popleft()
            if half.peer is not None:
                self.bytes_total += half.peer.deliver(data)
        self._check_full(now)
        self._arm(now)


def _abort(half: _Half) -> None:
    if half.transport is None or half.transport.is_closing():
        return
    sock = half.transport.get_extra_info("socket")
    if sock is not None:  # so that the peer sees a reset, not an orderly end
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    half.transport.abort()


class EmulatedLine:
    """Carries connections from `listen_at` to `to`. A is the side of `to` (the gateway), B the side that dials in."""

    def __init__(
        self,
        spec: LineSpec,
        listen_at: tuple[str, int],
        to: tuple[str, int],
        control_port: int = 0,
        clock: Clock = monotonic_s,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.partitioned = False
        self._listen_at = listen_at
        self._to = to
        self._control_port = control_port
        self.b_to_a = _Direction(self)
        self.a_to_b = _Direction(self)
        self._acceptors: list[Acceptor] = []

    async def start(self) -> None:
        sock = listen(*self._listen_at, "--listen")
        if self.spec.rate_bps:  # small kernel buffers: bytes should wait in the emulated queue, and at the sender
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, min(self.spec.queue_bytes, 1024 * KIB))
        self._acceptors = [Acceptor(sock, self._carry, name="line", limit=4096)]
        if self._control_port:
            control = listen("127.0.0.1", self._control_port, "--control")
            self._acceptors.append(Acceptor(control, self._on_control, name="control"))

    async def stop(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.close()
        self.reset_connections()

    def set_partitioned(self, partitioned: bool) -> None:
        """Stop everything, or let it go on; no connection breaks by it."""
        self.partitioned = partitioned
        self.a_to_b.freeze_or_thaw()
        self.b_to_a.freeze_or_thaw()

    def reset_connections(self) -> int:
        """Break every connection off, at once and on both sides; how many."""
        halves = [*self.a_to_b.halves, *self.b_to_a.halves]
        for half in halves:
            _abort(half)
        return len(halves) // 2

    async def _carry(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near = _Half(self, self.b_to_a)
        far = _Half(self, self.a_to_b)
        near.peer, far.peer = far, near
        await loop.connect_accepted_socket(lambda: near, sock)
        try:
            out = await dial(*self._to, timeout_s=DIAL_TIMEOUT_S)
        except Exception as error:
            _log.warning("cannot reach --to: %s", error)
            _abort(near)
            return
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.spec.rate_bps:
            out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, min(self.spec.queue_bytes, 1024 * KIB))
        await loop.create_connection(lambda: far, sock=out)
        spawn(self._release(near, far), name="first round trip")

    async def _release(self, *halves: _Half) -> None:
        await asyncio.sleep(self.spec.rtt_ms / 1000)
        for half in halves:
            half.release()

    async def _on_control(self, sock: socket.socket) -> None:
        await serve_connection(sock, self._answer, methods=("GET", "HEAD", "POST"))

    def _answer(self, request: Request) -> Response:
        route = (request.method, request.target.partition("?")[0])
        if route == ("POST", "/partition"):
            self.set_partitioned(True)
        elif route == ("POST", "/heal"):
            self.set_partitioned(False)
        elif route == ("POST", "/reset"):
            self.reset_connections()
        elif route[1] in ("/healthz", "/health"):
            return Response(200, b"ok\n")
        elif route != ("GET", "/stats"):
            return Response(404, b"routes: GET /stats, POST /partition, POST /heal, POST /reset\n")
        body = {
            "bytes_a_to_b": self.a_to_b.bytes_total,
            "bytes_b_to_a": self.b_to_a.bytes_total,
            "connections": len(self.b_to_a.halves),
            "partitioned": self.partitioned,
        }
        return Response(200, json.dumps(body).encode(), "application/json")
