"""The rate cap: one token bucket for all that leaves on a link's bulk lanes. Pure: time is an argument."""

from __future__ import annotations

BURST_S = 0.025
"""How much of a busy moment of this process is made up for afterwards."""
MIN_BURST_BYTES = 32 * 1024
HEADROOM = 0.98
"""Share of the cap that is used, so that a queue on the line drains when the cap equals the line's capacity."""


class TokenBucket:
    """Bytes may leave while the level is positive; a frame may take it below zero, and the next one then waits.

    rate_bps: the cap in bits per second; 0 means no cap. What the fast lane sends is charged too, but never waits.
    """

    __slots__ = ("_at", "_burst", "_bytes_per_s", "_level")

    def __init__(self, rate_bps: int, now_s: float) -> None:
        self._bytes_per_s = rate_bps / 8 * HEADROOM
        self._burst = max(MIN_BURST_BYTES, self._bytes_per_s * BURST_S)
        self._level = self._burst
        self._at = now_s

    @property
    def capped(self) -> bool:
        return self._bytes_per_s > 0

    def wait_s(self, now_s: float) -> float:
        """Seconds until bytes may leave; 0 if they may now."""
        if not self._bytes_per_s:
            return 0.0
        if now_s > self._at:
            self._level = min(self._burst, self._level + (now_s - self._at) * self._bytes_per_s)
            self._at = now_s
        return 0.0 if self._level > 0 else -self._level / self._bytes_per_s + 1e-6

    def charge(self, size: int) -> None:
        """Take `size` bytes, even below zero."""
        if self._bytes_per_s:
            self._level -= size
