"""What the line is like, and the shaping of one direction. Pure: time and randomness come in as arguments."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace
from typing import Any

MIN_QUEUE_BYTES = 1 << 19
QUEUE_S = 0.2


@dataclass(frozen=True, slots=True)
class LineSettings:
    """Both directions alike. `delay_ms` is one way; `queue_bytes` 0: 200 ms at the line's rate, at least 512 KiB."""

    delay_ms: float = 10.0
    jitter_ms: float = 0.0
    mbps: float = 1000.0
    loss: float = 0.0
    queue_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms", "queue_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)}: must not be negative")
        if self.mbps <= 0:
            raise ValueError(f"mbps: {self.mbps}: must be above 0; to cut the line use `partition`")
        if not 0 <= self.loss < 1:
            raise ValueError(f"loss: {self.loss}: must be a share from 0 to below 1")

    @property
    def bytes_per_s(self) -> float:
        return self.mbps * 1e6 / 8

    @property
    def queue_limit_bytes(self) -> int:
        return self.queue_bytes or max(MIN_QUEUE_BYTES, int(self.bytes_per_s * QUEUE_S))

    def changed(self, values: dict[str, Any]) -> LineSettings:
        """A copy with some fields changed. Raises ValueError that names an unknown field or a bad value."""
        known = {field.name for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"{name}: unknown; known are {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name}: {value!r}: must be a number")
        return replace(self, **values)


class Shaper:
    """One direction of the line: a bounded queue before a link of fixed rate, then a delay. Packets stay in order."""

    def __init__(self, settings: LineSettings) -> None:
        self.settings = settings
        self.dropped_queue = 0
        self.dropped_loss = 0
        self._free_at_s = 0.0  # when the link has sent all that was accepted
        self._last_at_s = 0.0  # arrival of the last accepted packet
        self._flight: deque[tuple[float, bytes]] = deque()

    def offer(self, packet: bytes, size_bytes: int, now_s: float, luck: float, jitter: float) -> bool:
        """Takes a packet in or drops it. `luck`, `jitter`: uniform in [0, 1). `size_bytes`: what the line carries."""
        settings = self.settings
        if luck < settings.loss:
            self.dropped_loss += 1
            return False
        if self.backlog_bytes(now_s) + size_bytes > settings.queue_limit_bytes and self._free_at_s > now_s:
            self.dropped_queue += 1
            return False
        self._free_at_s = max(now_s, self._free_at_s) + size_bytes / settings.bytes_per_s
        at_s = self._free_at_s + (settings.delay_ms + jitter * settings.jitter_ms) / 1000
        self._last_at_s = max(at_s, self._last_at_s)
        self._flight.append((self._last_at_s, packet))
        return True

    def due(self, now_s: float) -> list[bytes]:
        """Removes and returns the packets that have arrived by now."""
        out = []
        while self._flight and self._flight[0][0] <= now_s:
            out.append(self._flight.popleft()[1])
        return out

    def next_at_s(self) -> float | None:
        return self._flight[0][0] if self._flight else None

    def backlog_bytes(self, now_s: float) -> float:
        """Bytes that wait for the link, those on their way not counted."""
        return max(0.0, self._free_at_s - now_s) * self.settings.bytes_per_s

    def clear(self) -> int:
        """Loses what is queued and in flight, as a cut line does. Returns how many packets that were."""
        lost = len(self._flight)
        self._flight.clear()
        self._free_at_s = self._last_at_s = 0.0
        return lost
