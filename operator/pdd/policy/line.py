"""The line's arithmetic: how long would KV take to cross, as the line is now."""

from __future__ import annotations

from dataclasses import dataclass

BITS = 8
_LIMITED_BY_LINE = frozenset({"window", "core", "loss"})


@dataclass(frozen=True, slots=True)
class LineState:
    """The line towards one MD, seen from A.

    rate_bps: bits per second that KV may use now. queue_bytes: KV that is to cross before ours. rtt_s: round trip.
    share: part of the rate that is ours, 0 < share <= 1 (several deployments on one link).
    """

    rate_bps: float
    queue_bytes: float = 0.0
    rtt_s: float = 0.0
    share: float = 1.0


def compute_rate_bps(capacity_bps: float, rate_bps: float, goodput_bps: float, limited_by: str) -> float:
    """The rate to reckon with, from what the gateway says.

    The cap (`rate_bps`, else the stated `capacity_bps`) holds unless the gateway sees that something else limits the
    line (congestion window, a CPU core, loss): then what really goes through (`goodput_bps`) does. An idle line's
    goodput says nothing. Never more than the cap; never zero.
    """
    cap = rate_bps if rate_bps > 0 else capacity_bps
    if limited_by in _LIMITED_BY_LINE and 0 < goodput_bps < cap:
        return max(goodput_bps, cap / 100)
    return cap


def compute_wait_s(line: LineState, missing_bytes: float) -> float:
    """Seconds until `missing_bytes` have landed: queue / rate + bytes / (share x rate) + RTT.

    The queue drains at the whole rate (first come, first served on the bulk lane), our own bytes at our share of it;
    one RTT is the reader's request and the last byte's way. Nothing missing means no wait: only token ids cross.
    """
    return predict_wait_s(missing_bytes, line.rate_bps, line.queue_bytes, line.rtt_s, line.share)


def predict_wait_s(missing_bytes: float, rate_bps: float, queue_bytes: float, rtt_s: float, share: float) -> float:
    """`compute_wait_s` in plain numbers: the simulator compiles this very function."""
    if missing_bytes <= 0:
        return 0.0
    return queue_bytes * BITS / rate_bps + missing_bytes * BITS / (rate_bps * share) + rtt_s


@dataclass(slots=True)
class FluidQueue:
    """What this router has sent on its way and has not yet landed, as a fluid that drains at the line's rate.

    The gateway sees only the bytes that it holds; the rest of a transfer waits inside the engine. So the router counts
    what it has started (`add`), lets it drain (`at`), and forgets what landed or was cancelled (`remove`). The level
    never exceeds what is outstanding, and never is negative.
    """

    level_bytes: float = 0.0
    outstanding_bytes: int = 0
    at_s: float = 0.0

    def at(self, now_s: float, rate_bps: float) -> float:
        """Bytes still to cross at `now_s`."""
        drained = max(0.0, now_s - self.at_s) * rate_bps / BITS
        self.level_bytes = min(max(0.0, self.level_bytes - drained), float(self.outstanding_bytes))
        self.at_s = now_s
        return self.level_bytes

    def add(self, now_s: float, rate_bps: float, size_bytes: int) -> None:
        """A transfer of `size_bytes` begins."""
        self.at(now_s, rate_bps)
        self.level_bytes += size_bytes
        self.outstanding_bytes += size_bytes

    def remove(self, now_s: float, rate_bps: float, size_bytes: int) -> None:
        """A transfer of `size_bytes` has landed or was given up."""
        self.outstanding_bytes = max(0, self.outstanding_bytes - size_bytes)
        self.at(now_s, rate_bps)
