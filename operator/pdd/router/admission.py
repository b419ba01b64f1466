"""Admission: at most so many requests at once, at most so many waiting, the rest told when to come back."""

from __future__ import annotations

import asyncio
from collections import deque

from pdd.common.errors import Overloaded

MAX_WAIT_S = 30.0


class Admission:
    """First come, first served. A place is taken by `enter` and given back by `leave`."""

    def __init__(self, max_concurrent: int, max_queued: int) -> None:
        self._max_concurrent = max_concurrent
        self._max_queued = max_queued
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def try_enter(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self.in_flight < self._max_concurrent and not self._waiting:
            self.in_flight += 1
            return True
        return False

    async def enter(self) -> None:
        """Take a place, waiting at most MAX_WAIT_S. Raises Overloaded when the queue is full or the wait is over."""
        if self.try_enter():
            return
        if len(self._waiting) >= self._max_queued:
            raise Overloaded(
                f"{self.in_flight} requests are being served and {len(self._waiting)} wait: come back later",
                retry_after_s=1.0 + len(self._waiting) / max(1, self._max_concurrent),
                reason="QueueFull",
            )
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.leave()  # it was ours already
            elif place in self._waiting:
                self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                raise Overloaded(f"no place became free in {MAX_WAIT_S:g} s", reason="QueueTimedOut") from None
            raise

    def leave(self) -> None:
        """Give the place to the first who waits, else free it."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.in_flight -= 1
