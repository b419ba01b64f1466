"""What keeps a member's bulk lane from being faster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LimitedBy(StrEnum):
    IDLE = "idle"
    """Nothing waits to be sent, or not for all of the time: what was delivered then is no measure of the line."""
    CAP = "cap"
    """The rate cap: the line is used as it was meant to be."""
    WINDOW = "window"
    """A receive or congestion window: the reader is slow, or the line itself is full or longer than configured."""
    LOSS = "loss"
    """Packets are lost and sent again."""
    CORE = "core"
    """This process has used up its core."""


@dataclass(frozen=True, slots=True)
class LineSample:
    """What happened on a bulk lane in `elapsed_s` seconds. Shares are 0..1."""

    elapsed_s: float
    delivered_bytes: int
    backlog_bytes: int
    """Queued or unacknowledged at the end."""
    backlog_before_bytes: int
    """The same at the beginning."""
    capped_s: float
    receiver_limited_share: float
    """Of the time in which the streams had something to send."""
    starved: bool
    """Bytes are queued, and no channel has credit."""
    resent_share: float
    """Of the bytes on the wire."""
    core_share: float


def limited_by(sample: LineSample) -> LimitedBy:
    """The nearest cause, the one to change first."""
    if not sample.backlog_bytes and not sample.delivered_bytes:
        return LimitedBy.IDLE
    if sample.elapsed_s and sample.capped_s / sample.elapsed_s >= 0.2:
        return LimitedBy.CAP
    if not sample.backlog_bytes or not sample.backlog_before_bytes:
        return LimitedBy.IDLE  # the source is slower than the line, or has just begun
    if sample.resent_share >= 0.01:
        return LimitedBy.LOSS
    if sample.starved or sample.receiver_limited_share >= 0.5:
        return LimitedBy.WINDOW
    if sample.core_share >= 0.9:
        return LimitedBy.CORE
    return LimitedBy.WINDOW
