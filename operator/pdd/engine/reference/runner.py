"""The engine's own thread: takes calls from the event loop, runs steps, hands outputs back in one hop per step."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from pdd.common.clock import Clock
from pdd.common.errors import Overloaded
from pdd.engine.reference.core import EngineCore
from pdd.engine.reference.sequence import Output, Request, Sink

_log = logging.getLogger("pdd.engine.runner")
_LONGEST_WAIT_S = 0.25
"""How long a request that cannot go on waits before the engine looks again (leases expire without telling)."""


class EngineThread:
    """Runs an EngineCore. Methods are called on the event loop; sinks are called there too.

    step_s is the least duration of a step, slept, not burnt: it stands for an accelerator's step time.
    on_died is called on the loop when the thread ends by a fault: every request has been told by then.
    """

    def __init__(
        self,
        core: EngineCore,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        step_s: float,
        max_queued: int,
        on_died: Callable[[], None],
    ) -> None:
        self.core = core
        self._loop = loop
        self._clock = clock
        self._step_s = step_s
        self._max_queued = max_queued
        self._on_died = on_died
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._entered = 0
        """Requests handed over and not yet seen by the core; with its waiting ones they are the queue."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread after the step it is in; requests that are left get an error."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.failed is None

    @property
    def queued(self) -> int:
        return self.core.waiting + self._entered

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue a request. Raises Overloaded when the queue is full."""
        if self.queued >= self._max_queued:
            self.core.counters.rejections += 1
            raise Overloaded(f"{self.queued} requests wait already (limit {self._max_queued})", reason="QueueFull")
        self._entered += 1

        def enter() -> None:
            self.core.add(request, sink)
            self._entered -= 1

        self.call(enter)

    def abort(self, request_id: str) -> None:
        self.call(lambda: self.core.abort(request_id))

    def abort_all(self, reason: str) -> None:
        self.call(lambda: self.core.abort_all(reason))

    def finish_load(self, request_id: str, landed_tokens: int, error: str | None) -> None:
        self.call(lambda: self.core.finish_load(request_id, landed_tokens, error))

    def wake(self) -> None:
        """Something outside the queue changed (a lease ended)."""
        self.call(self.core.reclaim)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the engine's thread between two steps."""
        with self._wake:
            self._calls.append(function)
            self._wake.notify()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_calls()
                started_s = self._clock()
                report = self.core.step()
                if report.ran:
                    left_s = self._step_s - (self._clock() - started_s)
                    if left_s > 0:
                        time.sleep(left_s)
                self._deliver()
                if not report.ran:
                    self._wait()
            self._take_calls()
            self.core.abort_all("the engine is shutting down")
            self._deliver()
        except BaseException as error:
            self.failed = error
            _log.critical("the engine's thread died", exc_info=error)
            self._fail_everything(error)

    def _fail_everything(self, error: BaseException) -> None:
        try:
            self._take_calls()
            self.core.abort_all(f"the engine failed: {error!r}")
        finally:
            self._deliver()
            self._loop.call_soon_threadsafe(self._on_died)

    def _take_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _deliver(self) -> None:
        news = self.core.take_news()
        if news:
            self._loop.call_soon_threadsafe(_hand_over, news)

    def _wait(self) -> None:
        timeout_s = None if self.core.idle else _LONGEST_WAIT_S
        deadline_s = self.core.leases.next_deadline_s()
        if deadline_s is not None:
            until_s = max(0.001, deadline_s - self._clock())
            timeout_s = until_s if timeout_s is None else min(timeout_s, until_s)
        with self._wake:
            if not self._calls and not self._stopping:
                self._wake.wait(timeout_s)


def _hand_over(news: list[tuple[Sink, Output]]) -> None:
    for sink, output in news:
        sink(output)
