"""A lane at work: its streams' carriers on one side, its channels' sinks on the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from pdd.common.clock import Clock, monotonic_s
from pdd.link.carrier import Carrier
from pdd.link.events import Accepted, Data, Drained, Event, Finished, Opened, Reset
from pdd.link.frames import Buffer, Frame, FrameError, FrameType
from pdd.link.hello import LaneName
from pdd.link.lane import Lane
from pdd.link.tcpinfo import TCPInfo

_log = logging.getLogger("pdd.link.driver")

_ACK_DELAY_S = 0.01


class Sink(Protocol):
    """The local end of a channel."""

    def on_accepted(self) -> None: ...

    def on_data(self, payload: Buffer) -> None: ...

    def on_finished(self) -> None: ...

    def on_reset(self, reason: str) -> None: ...

    def on_drained(self) -> None: ...


class LaneDriver:
    """Moves frames between a pure Lane and sockets. All calls from the event loop's thread.

    on_open(channel, target): the peer opened a channel; registers a sink with `attach`, and accepts or resets later.
    on_broken(reason): the peer broke the protocol, or said goodbye: the session must end.
    on_change(): a stream came or went.
    """

    def __init__(
        self,
        name: LaneName,
        lane: Lane,
        *,
        on_open: Callable[[int, str], None],
        on_broken: Callable[[str], None],
        on_change: Callable[[], None],
        clock: Clock = monotonic_s,
    ) -> None:
        self.name = name
        self.lane = lane
        self.carriers: dict[int, Carrier] = {}
        """By the stream's index."""
        self.past = TCPInfo()
        """Sums over streams that are gone."""
        self._numbers = 0
        self._sinks: dict[int, Sink] = {}
        self._on_open = on_open
        self._on_broken = on_broken
        self._on_change = on_change
        self._clock = clock
        self._settling = False
        self._ack_timer: asyncio.TimerHandle | None = None
        self._turn = 0

    # -- streams --------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A number for a new stream."""
        self._numbers += 1
        return self._numbers

    def add_carrier(self, carrier: Carrier) -> None:
        """Take a new stream into use, in place of the one with its index if that has not been missed yet."""
        old = self.carriers.get(carrier.index)
        if old is not None:
            old.close()
            self._remove(old)
        self.carriers[carrier.index] = carrier
        self.lane.ack_pending = self.lane.ack_now = True
        self._on_change()
        self.settle()

    def on_carrier_lost(self, carrier: Carrier, reason: str) -> None:
        if self.carriers.get(carrier.index) is not carrier:
            return
        resent = self._remove(carrier)
        fields = {"lane": str(self.name), "stream": carrier.index, "reason": reason, "resend_frames": resent}
        _log.info("stream lost", extra={"fields": fields})
        self._on_change()
        self.settle()

    def _remove(self, carrier: Carrier) -> int:
        del self.carriers[carrier.index]
        self.past = add_info(self.past, carrier.info())
        return self.lane.stream_down(carrier.number)

    def on_frames(self, carrier: Carrier, frames: list[Frame]) -> None:
        """Frames of a stream, own ones taken out; then all that follows from them."""
        try:
            for frame in frames:
                if frame.type is FrameType.GOODBYE:
                    self._on_broken("the other end says goodbye: " + bytes(frame.payload).decode(errors="replace"))
                    return
                self.lane.receive(frame)
        except FrameError as error:
            _log.error("the peer breaks the link protocol: %s", error, extra={"fields": {"lane": str(self.name)}})
            self._on_broken(error.message)
            return
        self.settle()

    def wire_totals(self) -> TCPInfo:
        """Bytes and segments of all streams, past and present."""
        total = self.past
        for carrier in self.carriers.values():
            total = add_info(total, carrier.info())
        return total

    # -- channels -------------------------------------------------------------------------------------------------

    def attach(self, channel: int, sink: Sink) -> None:
        self._sinks[channel] = sink

    def detach(self, channel: int) -> None:
        self._sinks.pop(channel, None)

    def reset_all(self, reason: str) -> None:
        """End every channel here; nothing is told to the peer."""
        self.lane.reset_all(reason)
        self._dispatch()

    def close(self) -> None:
        """Close the streams, without a word."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        for carrier in list(self.carriers.values()):
            carrier.close()
            self.past = add_info(self.past, carrier.info())
        self.carriers.clear()

    # -- the loop -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Hand out what happened, then send what may leave. Safe to call from within itself."""
        if self._settling:
            return
        self._settling = True
        try:
            self._dispatch()
            self._kick()
            while self.lane.has_events:
                self._dispatch()
                self._kick()
        finally:
            self._settling = False
        if self.lane.ack_pending and self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(_ACK_DELAY_S, self._ack_due)

    def _ack_due(self) -> None:
        self._ack_timer = None
        if self.lane.ack_pending:
            self.lane.ack_now = True
            self.settle()

    def _kick(self) -> None:
        """Let the streams pull, beginning with another one each time."""
        if not (self.lane.has_urgent or self.lane.has_data):
            return
        carriers = list(self.carriers.values())
        self._turn += 1
        for step in range(len(carriers)):
            carriers[(self._turn + step) % len(carriers)].pump()
            if not (self.lane.has_urgent or self.lane.has_data):
                return

    def _dispatch(self) -> None:
        for event in self.lane.take_events():
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._on_open(event.channel, event.target)
            return
        sink = self._sinks.get(event.channel)
        if sink is None:
            return
        if isinstance(event, Data):
            sink.on_data(event.payload)
        elif isinstance(event, Drained):
            sink.on_drained()
        elif isinstance(event, Finished):
            sink.on_finished()
        elif isinstance(event, Accepted):
            sink.on_accepted()
        elif isinstance(event, Reset):
            del self._sinks[event.channel]
            sink.on_reset(event.reason)


def add_info(one: TCPInfo, other: TCPInfo) -> TCPInfo:
    """Sums of the counters; times and rates that do not add up are left at 0."""
    return TCPInfo(
        retransmits=one.retransmits + other.retransmits,
        segments_out=one.segments_out + other.segments_out,
        sent_bytes=one.sent_bytes + other.sent_bytes,
        received_bytes=one.received_bytes + other.received_bytes,
        busy_s=one.busy_s + other.busy_s,
        receiver_limited_s=one.receiver_limited_s + other.receiver_limited_s,
        buffer_limited_s=one.buffer_limited_s + other.buffer_limited_s,
    )
