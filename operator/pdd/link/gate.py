"""The rate cap at work: which stream may send its next bulk frame, and when.

One gate a process: all bulk streams of all members share it, so all that leaves here shares the cap. Members take
turns, and within a member its streams do.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from pdd.common.clock import Clock, monotonic_s
from pdd.link.pacing import TokenBucket


class Paced(Protocol):
    """What waits at the gate. `pump_one` sends one frame at most and queues itself again if it has more."""

    def pump_one(self) -> None: ...


class Gate:
    """Hands out turns under a token bucket. Call only from the event loop's thread."""

    def __init__(self, rate_bps: int, clock: Clock = monotonic_s) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate_bps, clock())
        self._waiting: OrderedDict[str, OrderedDict[Paced, None]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False
        self.capped_s = 0.0
        """Time during which somebody wanted to send and the cap said wait."""

    @property
    def capped(self) -> bool:
        return self._bucket.capped

    def charge(self, size: int) -> None:
        """`size` bytes have been given to the line."""
        self._bucket.charge(size)

    def ask(self, owner: str, stream: Paced) -> None:
        """`stream` of member `owner` has a frame to send: its pump_one is called when it is its turn."""
        self._waiting.setdefault(owner, OrderedDict())[stream] = None
        if not self._draining and self._timer is None:
            self._drain()

    def leave(self, owner: str, stream: Paced) -> None:
        """`stream` has nothing to send any more, or is gone."""
        queue = self._waiting.get(owner)
        if queue is not None:
            queue.pop(stream, None)
            if not queue:
                del self._waiting[owner]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _drain(self) -> None:
        self._draining = True
        try:
            while self._waiting:
                wait_s = self._bucket.wait_s(self._clock())
                if wait_s > 0:
                    self._timer = asyncio.get_running_loop().call_later(wait_s, self._due, self._clock())
                    return
                owner, queue = next(iter(self._waiting.items()))
                stream, _ = queue.popitem(last=False)
                if queue:
                    self._waiting.move_to_end(owner)
                else:
                    del self._waiting[owner]
                stream.pump_one()
        finally:
            self._draining = False

    def _due(self, since_s: float) -> None:
        self.capped_s += self._clock() - since_s
        self._timer = None
        self._drain()
