"""Two lanes and the streams between them, without sockets: frames are moved when the test says so."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pdd.link.events import Accepted, Data, Event, Finished, Opened, Reset
from pdd.link.frames import HEADER_BYTES, Frame, check_payload, decode_header
from pdd.link.lane import Lane
from pdd.link.sizing import LaneLimits

LIMITS = LaneLimits(
    frame_bytes=1000,
    window_bytes=100_000,
    send_high_bytes=8000,
    send_low_bytes=4000,
    ack_every_bytes=4000,
    window_budget_bytes=2_000_000,
    max_channels=64,
)


@dataclass
class End:
    """One lane with what its sinks got."""

    lane: Lane
    opened: dict[int, str] = field(default_factory=dict)
    accepted: list[int] = field(default_factory=list)
    got: dict[int, bytearray] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    reset: dict[int, str] = field(default_factory=dict)
    slow: set[int] = field(default_factory=set)
    """Channels whose sink takes nothing."""
    held: dict[int, int] = field(default_factory=dict)
    """Bytes that a slow sink was given and has not passed on."""

    def settle(self) -> list[Event]:
        events = self.lane.take_events()
        for event in events:
            if isinstance(event, Opened):
                assert event.channel not in self.opened, "opened twice"
                self.opened[event.channel] = event.target
                self.lane.accept(event.channel)
            elif isinstance(event, Accepted):
                self.accepted.append(event.channel)
            elif isinstance(event, Data):
                assert event.channel not in self.finished, "data after the end"
                self.got.setdefault(event.channel, bytearray()).extend(event.payload)
                if event.channel in self.slow:
                    self.held[event.channel] = self.held.get(event.channel, 0) + len(event.payload)
                else:
                    self.lane.consume(event.channel, len(event.payload))
            elif isinstance(event, Finished):
                assert event.channel not in self.finished, "finished twice"
                self.finished.append(event.channel)
            elif isinstance(event, Reset):
                self.reset[event.channel] = event.reason
        return events

    def release(self, channel: int) -> None:
        """The slow sink takes all that it was given."""
        self.slow.discard(channel)
        self.lane.consume(channel, self.held.pop(channel, 0))


class Wire:
    """`a` is the gateway's lane, `b` the endpoint's. Streams are numbered 0.."""

    def __init__(self, streams: int = 4, limits: LaneLimits = LIMITS) -> None:
        self.a = End(Lane(limits, initiator=False))
        self.b = End(Lane(limits, initiator=True))
        self.flight: dict[tuple[str, int], deque[bytes]] = {}
        self.streams: list[int] = []
        self._next = 0
        self.carried: dict[int, int] = {}
        self.max_payload = 0
        for _ in range(streams):
            self.up()

    def up(self) -> int:
        """A new stream."""
        number = self._next
        self._next += 1
        self.streams.append(number)
        self.flight["a", number], self.flight["b", number] = deque(), deque()
        self.carried[number] = 0
        return number

    def kill(self, stream: int, *, seen_by: str = "ab") -> None:
        """Frames in flight on it are lost. `seen_by`: the ends that notice now."""
        if stream in self.streams:
            self.streams.remove(stream)
            self.flight.pop(("a", stream))
            self.flight.pop(("b", stream))
        for side in seen_by:
            self.end(side).lane.stream_down(stream)

    def end(self, side: str) -> End:
        return self.a if side == "a" else self.b

    def pull(self, side: str, stream: int, *, data: bool = True) -> bool:
        """One frame of `side` onto a stream."""
        lane = self.end(side).lane
        pulled = lane.pull_urgent(stream) or (lane.pull_data(stream) if data else None)
        if pulled is None:
            return False
        head, payload = pulled
        self.max_payload = max(self.max_payload, len(payload))
        self.flight[side, stream].append(head + bytes(payload))
        self.carried[stream] += len(payload)
        self.end(side).settle()
        return True

    def arrive(self, side: str, stream: int) -> bool:
        """The oldest frame that `side` sent on a stream reaches the other end."""
        queue = self.flight[side, stream]
        if not queue:
            return False
        frame = parse(queue.popleft())
        other = self.b if side == "a" else self.a
        other.lane.receive(frame)
        other.settle()
        return True

    def run(self, rounds: int = 100_000) -> None:
        """Move everything until nothing moves any more."""
        for _ in range(rounds):
            moved = False
            for stream in list(self.streams):
                for side in "ab":
                    moved |= self.pull(side, stream)
                    moved |= self.arrive(side, stream)
            if not moved:
                lanes = (self.a.lane, self.b.lane)
                if not any(lane.ack_pending for lane in lanes) or not self.streams:
                    return
                for lane in lanes:
                    lane.ack_now = lane.ack_pending
        raise AssertionError("never comes to rest")


def parse(data: bytes) -> Frame:
    header = decode_header(data[:HEADER_BYTES])
    return check_payload(header, data[HEADER_BYTES:])
