"""A lane: channels over interchangeable streams, as a machine without I/O.

    local sources --write()--> [channel queues] --pull(stream)--> bytes for that stream
    bytes of a stream --receive()--> events --> local sinks --consume()--> credit for the peer

Striping is by pull: a stream that can take bytes asks for the next frame, so a fast stream carries more and a dead one
nothing. Every frame that matters has a seq, is kept until acknowledged, and goes out again when its stream dies.
Order is restored per channel, by byte offset, so a channel never waits for another one. Credit is per channel too:
a sink that does not read stops its own source and nothing else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pdd.link.channel import INITIAL_CREDIT_BYTES, Channel
from pdd.link.events import Accepted, Data, Drained, Event, Finished, Opened, Reset
from pdd.link.frames import (
    MAX_ACK_RANGES,
    Buffer,
    Frame,
    FrameError,
    FrameType,
    decode_ranges,
    encode_header,
    encode_ranges,
)
from pdd.link.intervals import SeenNumbers
from pdd.link.sizing import LaneLimits

MAX_TARGET_BYTES = 512


@dataclass(slots=True, eq=False)
class Sent:
    """A frame with a seq, kept until the peer has acknowledged it."""

    seq: int
    type: FrameType
    channel: int
    offset: int
    payload: Buffer
    stream: int | None = None
    """The stream that it was given to last; None while it waits."""


@dataclass(slots=True)
class LaneCounters:
    """Totals since the lane began. Bytes are of DATA payload."""

    sent_bytes: int = 0
    """Acknowledged by the peer: each byte counts once."""
    received_bytes: int = 0
    resent_frames: int = 0
    duplicate_frames: int = 0
    frame_errors: int = 0
    """Frames that came corrupted: each cost its stream."""
    opened: int = 0
    resets: dict[str, int] = field(default_factory=dict)


class Lane:
    """One lane of one session at one end. `initiator`: this end takes the odd channel ids (the endpoint does)."""

    def __init__(self, limits: LaneLimits, *, initiator: bool) -> None:
        self.limits = limits
        self.counters = LaneCounters()
        self.channels: dict[int, Channel] = {}
        self.queued_bytes = 0
        """Written by local sources, not yet given to a stream."""
        self.unacked_bytes = 0
        """Given to a stream, not yet acknowledged."""
        self.ack_now = False
        """An ACK should leave at the next chance; otherwise it may wait some ms for company."""
        self.ack_pending = False
        self._odd = initiator
        self._next_channel = 1 if initiator else 2
        self._next_seq = 1
        self._unacked: dict[int, Sent] = {}  # in order of seq: inserted once, never moved
        self._control: deque[Sent] = deque()
        self._resend: deque[Sent] = deque()
        self._round: deque[Channel] = deque()
        self._seen = SeenNumbers()
        self._opened_by_peer = SeenNumbers()
        self._window_left = limits.window_budget_bytes
        self._unacked_arrivals = 0
        self._events: list[Event] = []

    # -- local side -----------------------------------------------------------------------------------------------

    def open(self, target: str) -> int:
        """Open a channel to `target`; its id. Data may be written at once."""
        encoded = target.encode()
        if len(encoded) > MAX_TARGET_BYTES:
            raise FrameError(f"a channel's target of {len(encoded)} bytes; the limit is {MAX_TARGET_BYTES}")
        channel_id = self._next_channel
        self._next_channel += 2
        window = self._take_window()
        channel = Channel(channel_id, window=window, known=True, granted=window, credit=INITIAL_CREDIT_BYTES)
        self.channels[channel_id] = channel
        self.counters.opened += 1
        self._queue_control(FrameType.OPEN, channel_id, channel.granted, encoded)
        return channel_id

    def accept(self, channel_id: int) -> None:
        """Say yes to a channel that the peer opened, and grant it its window."""
        channel = self.channels.get(channel_id)
        if channel is not None:
            channel.granted = max(channel.granted, channel.consumed + channel.window)
            self._queue_control(FrameType.ACCEPT, channel_id, channel.granted, b"")

    def write(self, channel_id: int, data: Buffer) -> bool:
        """Queue bytes without copying. False: the queue is full, wait for Drained before writing more."""
        channel = self.channels.get(channel_id)
        if channel is None or channel.fin_wanted:
            return True  # the channel is gone; its Reset is among the events
        channel.put(data)
        self.queued_bytes += len(data)
        self._schedule(channel)
        channel.full = channel.queued_bytes >= self.limits.send_high_bytes
        return not channel.full

    def finish(self, channel_id: int) -> None:
        """No more bytes from the local source: FIN follows what is queued."""
        channel = self.channels.get(channel_id)
        if channel is not None and not channel.fin_wanted:
            channel.fin_wanted = True
            self._schedule(channel)

    def reset(self, channel_id: int, reason: str) -> None:
        """Drop the channel in both directions and tell the peer why. No event for the local side."""
        channel = self.channels.get(channel_id)
        if channel is not None:
            self._forget(channel)
            self._count_reset(reason)
            self._queue_control(FrameType.RESET, channel_id, 0, reason.encode()[:MAX_TARGET_BYTES])

    def consume(self, channel_id: int, size: int) -> None:
        """The local sink passed on `size` bytes: the peer may send as many more."""
        channel = self.channels.get(channel_id)
        if channel is not None:
            grant = channel.consume(size)
            if grant is not None:
                self._queue_control(FrameType.WINDOW, channel_id, grant, b"")

    def reset_all(self, reason: str) -> None:
        """The session is lost: every channel ends with a Reset event, and nothing is left to send."""
        for channel in list(self.channels.values()):
            self._forget(channel)
            self._count_reset(reason)
            self._events.append(Reset(channel.id, reason))
        self._control.clear()
        self._resend.clear()
        self._unacked.clear()
        self.unacked_bytes = 0

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take_events(self) -> list[Event]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    # -- streams --------------------------------------------------------------------------------------------------

    def stream_down(self, stream: int) -> int:
        """Frames given to `stream` and not acknowledged go out again on others; how many."""
        lost = [sent for sent in self._unacked.values() if sent.stream == stream]
        for sent in reversed(lost):
            sent.stream = None
            (self._resend if sent.type is FrameType.DATA else self._control).appendleft(sent)
        self.counters.resent_frames += len(lost)
        self.ack_pending = self.ack_now = True  # an ACK may have died with the stream
        return len(lost)

    @property
    def has_urgent(self) -> bool:
        """Something small should leave now, whatever the rate cap says."""
        return self.ack_now or bool(self._control)

    @property
    def has_data(self) -> bool:
        return bool(self._resend) or bool(self._round)

    @property
    def starved(self) -> bool:
        """Nothing can leave although bytes are queued: the peers' windows are used up."""
        return self.queued_bytes > 0 and not self.has_data

    def pull_urgent(self, stream: int) -> tuple[bytes, Buffer] | None:
        """The next ACK or control frame for `stream`, as header and payload; None if there is none."""
        if self.ack_now or (self.ack_pending and self._control):
            self.ack_now = self.ack_pending = False
            self._unacked_arrivals = 0
            ranges = encode_ranges(self._seen.ranges(MAX_ACK_RANGES))
            return encode_header(FrameType.ACK, 0, 0, self._seen.floor, ranges), ranges
        if self._control:
            return self._give(self._control.popleft(), stream)
        return None

    def pull_data(self, stream: int) -> tuple[bytes, Buffer] | None:
        """The next DATA or FIN frame for `stream`: first what a dead stream lost, then channels in turn."""
        if self._resend:
            return self._give(self._resend.popleft(), stream)
        while self._round:
            channel = self._round.popleft()
            channel.scheduled = False
            if not channel.sendable:
                continue
            if channel.queue:
                offset, payload = channel.take(self.limits.frame_bytes)
                self.queued_bytes -= len(payload)
                self.unacked_bytes += len(payload)
                sent = self._number(FrameType.DATA, channel.id, offset, payload)
                if channel.full and channel.queued_bytes < self.limits.send_low_bytes:
                    channel.full = False
                    self._events.append(Drained(channel.id))
            else:
                channel.fin_sent = True
                sent = self._number(FrameType.FIN, channel.id, channel.sent, b"")
                self._maybe_done(channel)
            self._schedule(channel)
            return self._give(sent, stream)
        return None

    def receive(self, frame: Frame) -> None:
        """A frame arrived on any stream. Raises FrameError if the peer breaks the protocol: the session must end."""
        if frame.type is FrameType.ACK:
            self._on_ack(frame)
            return
        if frame.seq <= 0:
            raise FrameError(f"a {frame.type.name} frame without a seq")
        self.ack_pending = True
        self._unacked_arrivals += 1 + len(frame.payload)
        if self._unacked_arrivals >= self.limits.ack_every_bytes:
            self.ack_now = True
        if not self._seen.add(frame.seq):
            self.counters.duplicate_frames += 1
            self.ack_now = True
            return
        if frame.type is FrameType.NOOP:
            return
        channel = self.channels.get(frame.channel) or self._unknown(frame)
        if channel is not None:
            self._on_channel_frame(channel, frame)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _on_channel_frame(self, channel: Channel, frame: Frame) -> None:
        kind = frame.type
        if kind is FrameType.DATA:
            self.counters.received_bytes += len(frame.payload)
            self._deliver(channel, channel.arrive(frame.offset, frame.payload))
        elif kind is FrameType.WINDOW:
            self._grow_credit(channel, frame.offset)
        elif kind is FrameType.FIN:
            if channel.fin_offset is not None or frame.offset < channel.received:
                raise FrameError(f"channel {channel.id}: a FIN at {frame.offset}, in order up to {channel.received}")
            channel.fin_offset = frame.offset
            self._deliver(channel, [])
        elif kind is FrameType.OPEN:
            channel.known = True
            self._grow_credit(channel, frame.offset)
            self._events.append(Opened(channel.id, bytes(frame.payload).decode(errors="replace")))
            self._deliver(channel, channel.pop_early())
        elif kind is FrameType.ACCEPT:
            self._grow_credit(channel, frame.offset)
            self._events.append(Accepted(channel.id))
        elif kind is FrameType.RESET:
            reason = bytes(frame.payload).decode(errors="replace")
            was_known = channel.known
            self._forget(channel)
            self._count_reset(reason)
            if was_known:
                self._events.append(Reset(channel.id, reason))
        else:
            raise FrameError(f"a {kind.name} frame inside a lane")

    def _unknown(self, frame: Frame) -> Channel | None:
        """A frame for a channel that is not there: a new one of the peer's, or the late frame of one that has ended."""
        if frame.channel <= 0:
            raise FrameError(f"a {frame.type.name} frame without a channel")
        if frame.channel % 2 == (1 if self._odd else 0):
            if frame.channel >= self._next_channel:
                raise FrameError(f"a {frame.type.name} frame for channel {frame.channel}, which was never opened")
            return None
        if not self._opened_by_peer.add((frame.channel + 1) // 2):
            return None
        if frame.type is FrameType.RESET:
            return None  # its OPEN is still on the way, and will find the channel already ended
        if len(self.channels) >= self.limits.max_channels:
            self._count_reset("TooManyChannels")
            self._queue_control(FrameType.RESET, frame.channel, 0, b"TooManyChannels")
            return None
        channel = Channel(
            frame.channel, window=self._take_window(), known=False, granted=INITIAL_CREDIT_BYTES, credit=0
        )
        self.channels[frame.channel] = channel
        self.counters.opened += 1
        return channel

    def _deliver(self, channel: Channel, payloads: list[Buffer]) -> None:
        self._events.extend(Data(channel.id, payload) for payload in payloads)
        if channel.at_end():
            self._events.append(Finished(channel.id))
            self._maybe_done(channel)

    def _on_ack(self, frame: Frame) -> None:
        if frame.offset > self._next_seq:
            raise FrameError(f"an ACK for seq {frame.offset - 1}, but the last one sent is {self._next_seq - 1}")
        while self._unacked and (seq := next(iter(self._unacked))) < frame.offset:
            self._acknowledge(seq)
        for first, end in decode_ranges(frame.payload):
            if end > self._next_seq:
                raise FrameError(f"an ACK for seq {end - 1}, but the last one sent is {self._next_seq - 1}")
            for seq in range(first, end):
                if seq in self._unacked:
                    self._acknowledge(seq)

    def _acknowledge(self, seq: int) -> None:
        sent = self._unacked.pop(seq)
        if sent.type is FrameType.DATA:
            self.unacked_bytes -= len(sent.payload)
            self.counters.sent_bytes += len(sent.payload)
        if sent.stream is None:  # acknowledged while waiting to be sent again
            queue = self._resend if sent.type is FrameType.DATA else self._control
            if sent in queue:
                queue.remove(sent)

    def _grow_credit(self, channel: Channel, limit: int) -> None:
        channel.credit = max(channel.credit, limit)
        self._schedule(channel)

    def _schedule(self, channel: Channel) -> None:
        if not channel.scheduled and channel.sendable:
            channel.scheduled = True
            self._round.append(channel)

    def _number(self, kind: FrameType, channel_id: int, offset: int, payload: Buffer) -> Sent:
        sent = Sent(self._next_seq, kind, channel_id, offset, payload)
        self._next_seq += 1
        self._unacked[sent.seq] = sent
        return sent

    def _queue_control(self, kind: FrameType, channel_id: int, offset: int, payload: bytes) -> None:
        self._control.append(self._number(kind, channel_id, offset, payload))

    def _give(self, sent: Sent, stream: int) -> tuple[bytes, Buffer]:
        sent.stream = stream
        return encode_header(sent.type, sent.channel, sent.seq, sent.offset, sent.payload), sent.payload

    def _maybe_done(self, channel: Channel) -> None:
        if channel.done:
            self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        """Take the channel out; what is on the wire for it needs no second try."""
        del self.channels[channel.id]
        self.queued_bytes -= channel.drop_queue()
        channel.fin_wanted = channel.fin_sent  # it may still stand in the round robin: nothing is to leave from it
        self._window_left += channel.window
        if channel.done:
            return  # everything was sent in full and must still arrive
        for sent in self._unacked.values():
            if sent.channel == channel.id and sent.type in (FrameType.DATA, FrameType.FIN, FrameType.WINDOW):
                if sent.type is FrameType.DATA:
                    self.unacked_bytes -= len(sent.payload)
                    if sent in self._resend:
                        self._resend.remove(sent)
                        self._control.append(sent)
                sent.type, sent.payload = FrameType.NOOP, b""

    def _take_window(self) -> int:
        """The window for a new channel: full while the lane's budget lasts, then less, never below the minimum."""
        window = max(self.limits.min_window_bytes, min(self.limits.window_bytes, self._window_left // 8))
        self._window_left -= window
        return window

    def _count_reset(self, reason: str) -> None:
        known = reason if reason in RESET_REASONS else "Other"
        self.counters.resets[known] = self.counters.resets.get(known, 0) + 1


RESET_REASONS = frozenset(
    {
        "TooManyChannels",
        "NotAllowed",
        "DialFailed",
        "DialTimedOut",
        "LocalReset",
        "SessionLost",
        "ShuttingDown",
        "Unsupported",
    }
)
"""Reasons that a metric may carry as a label; anything else counts as Other."""
