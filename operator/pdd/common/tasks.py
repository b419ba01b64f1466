"""Background tasks that are neither lost nor silent.

asyncio keeps only a weak reference to a task: one that nobody holds may vanish in mid-flight, and its exception is
reported only when it is collected. `spawn` keeps the reference and logs the failure at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("pdd.tasks")
_alive: set[asyncio.Task[Any]] = set()


def spawn(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start `coroutine` in the running loop, keep it alive until done, and log an exception that nobody awaited."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _alive.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _alive.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _log.error("task %s failed: %r", task.get_name(), error, exc_info=error)


async def cancel(*tasks: asyncio.Task[Any], timeout_s: float = 5.0) -> None:
    """Cancel `tasks` and wait at most `timeout_s` seconds for them to end."""
    for task in tasks:
        task.cancel()
    pending = [task for task in tasks if not task.done()]
    if pending:
        await asyncio.wait(pending, timeout=timeout_s)
