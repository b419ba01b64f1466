"""One stream of a lane: a TLS connection, written when the socket can take bytes and the gate permits."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Protocol

from pdd.common.clock import Clock, monotonic_s
from pdd.link.frames import (
    HEADER_BYTES,
    Buffer,
    Frame,
    FrameError,
    FrameType,
    check_payload,
    decode_header,
    encode,
)
from pdd.link.frames import Header as FrameHeader
from pdd.link.gate import Gate
from pdd.link.lane import Lane
from pdd.link.tcpinfo import TCPInfo, read_tcp_info

_READ_BUDGET_BYTES = 512 * 1024  # then other sockets have their turn
_RECORD_BYTES = 16 * 1024  # a TLS record's largest payload
_RECORD_OVERHEAD = 22  # header, content type and tag of a TLS 1.3 record


class CarrierOwner(Protocol):
    """What a carrier reports to: the lane's driver."""

    lane: Lane

    def on_frames(self, carrier: Carrier, frames: list[Frame]) -> None: ...

    def on_carrier_lost(self, carrier: Carrier, reason: str) -> None: ...


class Carrier:
    """Drives one connected and welcomed TLS socket. `index` is the stream's place within its lane.

    `gate`: what asks for leave before bulk frames; a fast carrier has none to ask but charges `charge_to` all the same.
    """

    def __init__(
        self,
        sock: ssl.SSLSocket,
        index: int,
        number: int,
        owner: CarrierOwner,
        *,
        member: str,
        gate: Gate,
        paced: bool,
        clock: Clock = monotonic_s,
    ) -> None:
        self.sock = sock
        self.index = index
        self.number = number
        """Unique within the lane, never used again: what the lane knows the stream by."""
        self.owner = owner
        self.closed = False
        self.heard_at_s = clock()
        self.began_at_s = clock()
        self.ping_rtt_s = 0.0
        self.wire_received_bytes = 0
        self._last_info = TCPInfo()
        self._member = member
        self._gate = gate
        self._paced = paced and gate.capped
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the stream is closed, for whatever reason."""
        self._fd = sock.fileno()
        self._out: deque[Buffer] = deque()
        self._blocked = False
        self._own: deque[bytes] = deque()
        self._pinged_at: dict[int, float] = {}
        self._pings = 0
        self._head = bytearray(HEADER_BYTES)
        self._header: FrameHeader | None = None
        self._payload = memoryview(bytearray())
        self._got = 0
        self._loop.add_reader(self._fd, self._on_readable)

    # -- writing --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send all that may leave now: urgent frames at once, data as the gate permits."""
        self._write(may_pull=not self._paced)

    def pump_one(self) -> None:
        """The gate's turn: one data frame."""
        self._write(may_pull=True, one=True)
        self._settle()

    def ping(self) -> None:
        """Ask the other end for a sign of life; the answer gives `ping_rtt_s`."""
        self._pings += 1
        self._pinged_at[self._pings] = self._clock()
        if len(self._pinged_at) > 16:
            del self._pinged_at[next(iter(self._pinged_at))]
        self.send_own(Frame(FrameType.PING, seq=self._pings))

    def send_own(self, frame: Frame) -> None:
        """Send a frame of the stream itself, ahead of the lane's."""
        self._own.append(encode(frame))
        self.pump()

    def _write(self, *, may_pull: bool, one: bool = False) -> None:
        if self._blocked or self.closed:
            return
        try:
            while True:
                while self._out:
                    part = self._out[0]
                    self.sock.send(part)  # all of it or an exception: OpenSSL keeps its place until called again
                    self._out.popleft()
                    self._gate.charge(len(part) + _RECORD_OVERHEAD * (len(part) // _RECORD_BYTES + 1))
                if self._pull_small():
                    continue
                if may_pull and self._pull_data():
                    may_pull = not one
                    continue
                break
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._blocked = True
            self._loop.add_writer(self._fd, self._on_writable)
            return
        except OSError as error:
            self.fail(f"write failed: {error.strerror or error}")
            return
        if self._paced and self.owner.lane.has_data:
            self._gate.ask(self._member, self)

    def _pull_small(self) -> bool:
        """Own and urgent frames, as many as fit into one TLS record."""
        parts: list[Buffer] = []
        size = 0
        while size < _RECORD_BYTES - 2048:
            if self._own:
                parts.append(self._own.popleft())
            elif (pulled := self.owner.lane.pull_urgent(self.number)) is not None:
                parts.extend(pulled)
            else:
                break
            size += len(parts[-1])
        if parts:
            self._out.append(b"".join(parts))
        return bool(parts)

    def _pull_data(self) -> bool:
        pulled = self.owner.lane.pull_data(self.number)
        if pulled is None:
            return False
        head, payload = pulled
        room = _RECORD_BYTES - len(head)
        if len(payload) <= room:
            self._out.append(head + payload)
        else:  # the header fills up the first record, the rest goes without a copy
            view = memoryview(payload)
            self._out.append(head + view[:room])
            self._out.append(view[room:])
        return True

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._fd)
        self._blocked = False
        self.pump()
        self._settle()

    def _settle(self) -> None:
        """Pulling frees room in the channels' queues: let the driver hear of it."""
        if self.owner.lane.has_events:
            self.owner.on_frames(self, [])

    # -- reading --------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self.closed:
            return
        frames: list[Frame] = []
        failure = ""
        budget = _READ_BUDGET_BYTES
        try:
            while budget > 0:
                got = self._read_some(frames)
                if got == 0:
                    failure = "closed by the other end"
                    break
                budget -= got
                self.wire_received_bytes += got
            else:
                self._loop.call_soon(self._on_readable)  # TLS may hold bytes that the socket no longer shows
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (FrameError, OSError) as error:
            failure = error.message if isinstance(error, FrameError) else f"read failed: {error.strerror or error}"
            if isinstance(error, FrameError):
                self.owner.lane.counters.frame_errors += 1
        self.heard_at_s = self._clock()
        if frames:
            self.owner.on_frames(self, [frame for frame in frames if not self._take_own(frame)])
        if failure:
            self.fail(failure)

    def _read_some(self, frames: list[Frame]) -> int:
        """One read; a frame that it completes goes to `frames`. The number of bytes, 0 at the end of the stream."""
        if self._header is None:
            got = self.sock.recv_into(memoryview(self._head)[self._got :])
            self._got += got
            if self._got < HEADER_BYTES:
                return got
            self._header = decode_header(self._head)
            self._payload = memoryview(bytearray(self._header.length))
            self._got = 0
            if self._header.length:
                return got
        else:
            got = self.sock.recv_into(self._payload[self._got :])
            self._got += got
            if self._got < self._header.length:
                return got
        frames.append(check_payload(self._header, self._payload))
        self._header = None
        self._got = 0
        return got

    def _take_own(self, frame: Frame) -> bool:
        if frame.type is FrameType.PING:
            self.send_own(Frame(FrameType.PONG, seq=frame.seq))
            return True
        if frame.type is FrameType.PONG:
            sent_at = self._pinged_at.pop(frame.seq, None)
            if sent_at is not None:
                self.ping_rtt_s = self._clock() - sent_at
            return True
        return False

    # -- end ------------------------------------------------------------------------------------------------------

    def info(self) -> TCPInfo:
        """The kernel's figures; the last known ones after the end."""
        if not self.closed:
            self._last_info = read_tcp_info(self.sock)
        return self._last_info

    def fail(self, reason: str) -> None:
        """The stream is dead: close it and tell the driver, once."""
        if not self.closed:
            self.close()
            self._loop.call_soon(self.owner.on_carrier_lost, self, reason)

    def close(self) -> None:
        """Close without telling anybody."""
        if self.closed:
            return
        self.info()
        self.closed = True
        self._gate.leave(self._member, self)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._out.clear()
        self.sock.close()
        if not self.ended.done():
            self.ended.set_result(None)
