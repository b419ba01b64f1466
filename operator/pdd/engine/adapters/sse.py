"""Server-sent events out of a byte stream that may be cut anywhere."""

from __future__ import annotations

from pdd.common.errors import EngineError

MAX_EVENT_BYTES = 1 << 20


class EventSplitter:
    """Feed bytes as they come; get the `data` of each complete event. Comments and other fields are skipped."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Data of the events that `data` completes. Raises EngineError if one event exceeds MAX_EVENT_BYTES."""
        buffer = self._rest + data if self._rest else data
        if b"\r" in buffer:
            # a lone trailing CR may be the first half of a CRLF: keep it for the next piece
            tail = b"\r" if buffer.endswith(b"\r") else b""
            buffer = buffer[: len(buffer) - len(tail)].replace(b"\r\n", b"\n") + tail
        *events, self._rest = buffer.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EngineError(f"the engine sent an event of more than {MAX_EVENT_BYTES} bytes")
        out: list[bytes] = []
        for event in events:
            if event.startswith(b"data: ") and b"\n" not in event:
                out.append(event[6:])
                continue
            lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                out.append(b"\n".join(lines))
        return out
