"""The local end of a channel: a plain TCP connection to an engine, or from an engine or the router."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable

from pdd.link.driver import LaneDriver
from pdd.link.frames import Buffer
from pdd.link.sockets import tune_local

_LINGER_RESET = struct.pack("ii", 1, 0)


class Plug:
    """Couples a channel with a local socket, byte for byte: half-close, reset and back-pressure in both directions.

    The channel may exist before the socket does (a dial is under way): bytes wait, within the channel's credit.

    accept_reply: sent to the local side once the peer has accepted, before any of the peer's bytes. Until then the
        local side is not read.
    refuse_reply(reason): sent to the local side when the peer refuses instead; then the connection ends in order.
    """

    def __init__(
        self,
        driver: LaneDriver,
        channel: int,
        *,
        chunk_bytes: int,
        accept_reply: bytes = b"",
        refuse_reply: Callable[[str], bytes] | None = None,
        on_closed: Callable[[Plug], None] | None = None,
    ) -> None:
        self._driver = driver
        self._lane = driver.lane
        self.channel = channel
        self._chunk_bytes = chunk_bytes
        self._accept_reply = accept_reply
        self._refuse_reply = refuse_reply
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._fd = -1
        self._queue: deque[memoryview] = deque()
        self._uncounted = 0
        """Bytes at the head of the queue that did not come over the channel."""
        self._awaiting_accept = False
        self._reading = False
        self._writing = False
        self._read_ended = False
        self._write_ended = False
        self._peer_finished = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        driver.attach(channel, self)

    # -- the local side -------------------------------------------------------------------------------------------

    def connect(
        self, sock: socket.socket, *, early: bytes = b"", await_accept: bool = False, timeout_s: float | None = None
    ) -> None:
        """Take `sock` over. `early`: bytes already read from it; `timeout_s`: longest wait for the peer's accept."""
        if self._closed:  # the channel ended while the dial was under way
            _reset(sock)
            return
        tune_local(sock)
        self._sock = sock
        self._fd = sock.fileno()
        if early:
            self._lane.write(self.channel, early)
        if await_accept:
            self._awaiting_accept = True
            if timeout_s is not None:
                self._timer = self._loop.call_later(timeout_s, self._accept_overdue)
        else:
            self._read_on()
        self._flush()
        self._driver.settle()

    def refuse(self, reason: str) -> None:
        """The local side cannot be reached: end the channel, and say why to the peer."""
        if not self._closed:
            self._lane.reset(self.channel, reason)
            self._end(abort=True)
            self._driver.settle()

    def _accept_overdue(self) -> None:
        self._timer = None
        if self._awaiting_accept:
            self._lane.reset(self.channel, "DialTimedOut")
            self._refused("DialTimedOut")
            self._driver.settle()

    def _read_on(self) -> None:
        if self._sock is not None and not (self._reading or self._read_ended or self._closed):
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if self._sock is None or not self._reading:
            return
        try:
            data = self._sock.recv(self._chunk_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._local_broke()
            return
        if data:
            if not self._lane.write(self.channel, data):
                self._read_off()
        else:
            self._read_ended = True
            self._read_off()
            self._lane.finish(self.channel)
        self._driver.settle()
        self._maybe_end()

    def _local_broke(self) -> None:
        self._lane.reset(self.channel, "LocalReset")
        self._end(abort=True)
        self._driver.settle()

    # -- the channel's side ---------------------------------------------------------------------------------------

    def on_accepted(self) -> None:
        if not self._awaiting_accept:
            return
        self._stop_timer()
        self._awaiting_accept = False
        self._queue_local(self._accept_reply)
        self._read_on()
        self._flush()

    def on_data(self, payload: Buffer) -> None:
        if self._closed:
            return
        self._queue.append(memoryview(payload))
        if not self._writing:
            self._flush()

    def on_finished(self) -> None:
        self._peer_finished = True
        self._flush()

    def on_drained(self) -> None:
        if not self._awaiting_accept:
            self._read_on()

    def on_reset(self, reason: str) -> None:
        if self._awaiting_accept:
            self._refused(reason)
        else:
            self._end(abort=True)

    def _refused(self, reason: str) -> None:
        """Answer in the local side's own protocol, if it has one."""
        self._stop_timer()
        self._awaiting_accept = False
        if self._refuse_reply is None:
            self._end(abort=True)
            return
        with contextlib.suppress(OSError):
            if self._sock is not None:
                self._sock.send(self._refuse_reply(reason))  # a fresh connection: a few hundred bytes always fit
        self._end(abort=False)

    def _queue_local(self, data: bytes) -> None:
        if data:
            self._queue.appendleft(memoryview(data))
            self._uncounted += len(data)

    def _flush(self) -> None:
        """Write what is queued; credit goes back to the peer as the local side takes it."""
        if self._sock is None or self._closed or self._awaiting_accept:
            return
        taken = 0
        try:
            while self._queue:
                part = self._queue[0]
                sent = self._sock.send(part)
                own = min(sent, self._uncounted)
                self._uncounted -= own
                taken += sent - own
                if sent == len(part):
                    self._queue.popleft()
                else:
                    self._queue[0] = part[sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._local_broke()
            return
        if taken:
            self._lane.consume(self.channel, taken)
        self._writer(bool(self._queue))
        if self._peer_finished and not self._queue and not self._write_ended:
            self._write_ended = True
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        self._maybe_end()

    def _writer(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing and not wanted:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._flush()
        self._driver.settle()

    # -- end ------------------------------------------------------------------------------------------------------

    def _maybe_end(self) -> None:
        if self._read_ended and self._write_ended:
            self._end(abort=False)

    def _end(self, *, abort: bool) -> None:
        """Let go of socket and channel. `abort`: the local side sees a reset, not an orderly end."""
        if self._closed:
            return
        self._closed = True
        self._stop_timer()
        self._driver.detach(self.channel)
        self._read_off()
        if self._writing:
            self._writer(False)
        self._queue.clear()
        if self._sock is not None:
            if abort:
                _reset(self._sock)
            else:
                self._sock.close()
            self._sock = None
        if self._on_closed is not None:
            self._on_closed(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reset(sock: socket.socket) -> None:
    """Close so that the other end sees a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    sock.close()
