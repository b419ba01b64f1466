"""One carried TCP connection inside a lane: two byte streams with credit, half-close and in-order reassembly. Pure."""

from __future__ import annotations

from collections import deque

from pdd.link.frames import Buffer, FrameError

INITIAL_CREDIT_BYTES = 64 * 1024
"""What an opener may send before the acceptor's grant arrives. A part of the protocol: both ends rely on it."""

_JOIN_BELOW_BYTES = 4 * 1024
_JOIN_UP_TO_BYTES = 16 * 1024


class Channel:
    """State of one channel at one end. Offsets are bytes from the start of the direction's stream."""

    __slots__ = (
        "consumed",
        "credit",
        "early",
        "early_bytes",
        "fin_offset",
        "fin_sent",
        "fin_wanted",
        "finished",
        "full",
        "granted",
        "id",
        "known",
        "queue",
        "queued_bytes",
        "received",
        "scheduled",
        "sent",
        "window",
    )

    def __init__(self, channel_id: int, *, window: int, known: bool, granted: int, credit: int) -> None:
        self.id = channel_id
        self.window = window
        """Bytes that may be received and not yet consumed."""
        self.known = known
        """False while frames of the channel have arrived but not yet its OPEN (it travels on another stream)."""
        # sending
        self.queue: deque[Buffer] = deque()
        self.queued_bytes = 0
        self.sent = 0
        self.credit = credit
        """Offset up to which the peer will receive."""
        self.fin_wanted = False
        self.fin_sent = False
        self.full = False
        """The local source has been told to stop; it waits to hear that the queue has drained."""
        self.scheduled = False
        """In the lane's round robin."""
        # receiving
        self.received = 0
        """Offset up to which all bytes have been delivered to the local sink."""
        self.consumed = 0
        """Offset up to which the local sink has passed them on."""
        self.granted = granted
        """Offset up to which the peer may send, as last told to it."""
        self.early: dict[int, Buffer] = {}
        self.early_bytes = 0
        self.fin_offset: int | None = None
        self.finished = False
        """The peer's last byte has been delivered."""

    # -- sending --------------------------------------------------------------------------------------------------

    def put(self, data: Buffer) -> None:
        """Queue `data` without copying it: the caller must not change it any more."""
        if len(data):
            self.queue.append(data)
            self.queued_bytes += len(data)

    @property
    def sendable(self) -> bool:
        """A DATA or FIN frame could leave now."""
        if self.queue:
            return self.credit > self.sent
        return self.fin_wanted and not self.fin_sent

    @property
    def starved(self) -> bool:
        """There are bytes to send and the peer's window is used up."""
        return bool(self.queue) and self.credit <= self.sent

    def take(self, max_bytes: int) -> tuple[int, Buffer]:
        """The next (offset, payload), at most `max_bytes` long and within the credit; only if `sendable` and queued."""
        limit = min(max_bytes, self.credit - self.sent)
        first = self.queue.popleft()
        if len(first) > limit:
            view = memoryview(first)
            self.queue.appendleft(view[limit:])
            first = view[:limit]
        elif len(first) < _JOIN_BELOW_BYTES and self.queue:
            first = self._join(first, min(limit, _JOIN_UP_TO_BYTES))
        offset = self.sent
        self.sent += len(first)
        self.queued_bytes -= len(first)
        return offset, first

    def _join(self, first: Buffer, limit: int) -> Buffer:
        """Many small writes as one frame: a copy of some KiB is cheaper than a frame each."""
        parts, size = [first], len(first)
        while self.queue and size + len(self.queue[0]) <= limit:
            part = self.queue.popleft()
            parts.append(part)
            size += len(part)
        return b"".join(parts) if len(parts) > 1 else first

    def drop_queue(self) -> int:
        """Forget what was not sent; how many bytes it was."""
        dropped = self.queued_bytes
        self.queue.clear()
        self.queued_bytes = 0
        return dropped

    # -- receiving ------------------------------------------------------------------------------------------------

    def arrive(self, offset: int, payload: Buffer) -> list[Buffer]:
        """Take bytes that came at `offset`; all that is now in order, oldest first.

        Out-of-order bytes wait in `early`, bounded by the window. Raises FrameError when the peer sends what it was
        not granted, or the same bytes twice: it does not keep the protocol.
        """
        end = offset + len(payload)
        if end > self.granted:
            raise FrameError(f"channel {self.id}: bytes up to {end}, but only {self.granted} were granted")
        if offset < self.received or offset in self.early or (self.fin_offset is not None and end > self.fin_offset):
            raise FrameError(f"channel {self.id}: unexpected bytes at {offset}..{end}, in order up to {self.received}")
        if offset != self.received or not self.known:
            self.early[offset] = payload
            self.early_bytes += len(payload)
            return []
        self.received = end
        return [payload, *self.pop_early()] if self.early else [payload]

    def pop_early(self) -> list[Buffer]:
        """Early bytes that are in order now."""
        ready: list[Buffer] = []
        while self.early and (payload := self.early.pop(self.received, None)) is not None:
            self.early_bytes -= len(payload)
            self.received += len(payload)
            ready.append(payload)
        return ready

    def at_end(self) -> bool:
        """True once, when the peer's last byte has just been delivered."""
        if self.finished or not self.known or self.fin_offset is None or self.received < self.fin_offset:
            return False
        self.finished = True
        return True

    def consume(self, size: int) -> int | None:
        """The sink passed on `size` bytes. A new grant worth telling the peer, or None."""
        self.consumed += size
        target = self.consumed + self.window
        if self.finished or self.fin_offset is not None or target - self.granted < self.window // 4:
            return None
        self.granted = target
        return target

    @property
    def done(self) -> bool:
        """Both directions have ended here."""
        return self.finished and self.fin_sent
