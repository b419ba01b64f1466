"""What a lane tells its shell."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.link.frames import Buffer


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a channel; the shell dials `target` and answers with accept or reset."""

    channel: int
    target: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The peer said yes to a channel that was opened here."""

    channel: int


@dataclass(frozen=True, slots=True)
class Data:
    """The next bytes of the channel, in order; consume() when they have been passed on."""

    channel: int
    payload: Buffer


@dataclass(frozen=True, slots=True)
class Finished:
    """The peer's last byte has been delivered; the other direction may go on."""

    channel: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The channel is gone in both directions."""

    channel: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """There is room again for the channel's local source."""

    channel: int


Event = Opened | Accepted | Data | Finished | Reset | Drained
