"""Is the member there? A pure state machine fed with times."""

from __future__ import annotations

from enum import StrEnum

MISSED_KEEPALIVES = 3


class MemberState(StrEnum):
    CONNECTING = "connecting"
    """Never complete so far: not offered to anybody."""
    CONNECTED = "connected"
    SUSPECT = "suspect"
    """Silent for MISSED_KEEPALIVES keepalives, or without a stream on one of its lanes. Channels are kept."""


class Liveness:
    """State of one session. Times in seconds of the caller's clock.

    connected: the fast lane was heard within MISSED_KEEPALIVES keepalives and each lane has a stream. A lane that has
    just lost its last stream gets one keepalive's time to return, so that a mere reconnect flips nothing.
    """

    __slots__ = ("_bulk", "_complete_at", "_fast", "_heard_at", "keepalive_s", "retention_s", "since_s", "state")

    def __init__(self, *, keepalive_s: float, retention_s: float, now_s: float) -> None:
        self.keepalive_s = keepalive_s
        self.retention_s = retention_s
        self.state = MemberState.CONNECTING
        self.since_s = now_s
        self._heard_at = now_s
        self._fast = False
        self._bulk = 0
        self._complete_at = now_s

    def note_streams(self, *, fast: bool, bulk: int, now_s: float) -> None:
        """How many streams there are now."""
        if self._fast and self._bulk:
            self._complete_at = now_s
        self._fast, self._bulk = fast, bulk
        if fast and bulk:
            self._complete_at = now_s
            self._heard_at = max(self._heard_at, now_s)
            self.update(now_s)

    def note_heard(self, at_s: float) -> None:
        """Something arrived on the fast lane."""
        self._heard_at = max(self._heard_at, at_s)

    def update(self, now_s: float) -> bool:
        """Bring the state up to date; True if it changed."""
        complete = self._fast and self._bulk > 0
        if complete:
            self._complete_at = now_s
        silent = now_s - self._heard_at > MISSED_KEEPALIVES * self.keepalive_s
        returning = self.state is MemberState.CONNECTED and now_s - self._complete_at <= self.keepalive_s
        if (complete or returning) and not silent:
            state = MemberState.CONNECTED
        else:
            state = self.state if self.state is MemberState.CONNECTING else MemberState.SUSPECT
        changed = state is not self.state
        if changed:
            self.state, self.since_s = state, now_s
        return changed

    def expired(self, now_s: float) -> bool:
        """No complete set of streams, or no sign of life, for the whole retention: the session is lost."""
        return now_s - min(self._complete_at, self._heard_at) > self.retention_s
