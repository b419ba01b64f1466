"""Normal or local mode (D11): when the line is lost requests stay in A; when it is back they return, ramped.

Losing the last MD makes the mode local at once (requests cannot wait). Coming back takes `HOLD_S` seconds of health and
then a linear ramp over `RAMP_S`, so that a line that flaps does not swing the whole load to and fro.
"""

from __future__ import annotations

from dataclasses import dataclass

HOLD_S = 2.0
RAMP_S = 10.0


@dataclass(frozen=True, slots=True)
class LineMode:
    """healthy_since_s: since when an MD has been reachable without a break; None while none is. credit: see `admit`."""

    healthy_since_s: float | None = None
    ever_lost: bool = False
    credit: float = 0.0

    @property
    def local(self) -> bool:
        return self.healthy_since_s is None


def observe(mode: LineMode, main_ready: bool, now_s: float) -> LineMode:
    """The mode after a look at the members. The first health after start is no recovery: no ramp."""
    if not main_ready:
        return mode if mode.healthy_since_s is None else LineMode(None, True, 0.0)
    if mode.healthy_since_s is not None:
        return mode
    return LineMode(now_s, mode.ever_lost, 0.0)


def compute_open_share(mode: LineMode, now_s: float) -> float:
    """Share of requests that may use the line, 0 to 1."""
    if mode.healthy_since_s is None:
        return 0.0
    if not mode.ever_lost:
        return 1.0
    healthy_s = now_s - mode.healthy_since_s - HOLD_S
    return min(1.0, max(0.0, healthy_s / RAMP_S))


def admit(mode: LineMode, now_s: float) -> tuple[LineMode, bool]:
    """(new mode, may this request use the line). Deterministic: credit grows by the open share, one costs 1."""
    share = compute_open_share(mode, now_s)
    if share >= 1.0:
        return mode, True
    credit = mode.credit + share
    if credit >= 1.0:
        return LineMode(mode.healthy_since_s, mode.ever_lost, credit - 1.0), True
    return LineMode(mode.healthy_since_s, mode.ever_lost, credit), False
