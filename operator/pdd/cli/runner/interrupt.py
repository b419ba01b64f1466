"""Runs a command's coroutine so that Ctrl-C and SIGTERM end it in order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""


def run_interruptible(main: Coroutine[Any, Any, int], on_interrupt: Callable[[], None]) -> int:
    """Exit code of `main`, or 130 after SIGINT, SIGTERM or SIGHUP.

    The first signal cancels `main`, which cleans up with patience; the second cancels the patience (the supervisor then
    kills at once). `on_interrupt` is called on the first.
    """

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            if not interrupted:
                interrupted = True
                on_interrupt()
            task.cancel()

        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signum, interrupt)
        try:
            return await main
        except asyncio.CancelledError:
            if not interrupted:
                raise
            return INTERRUPTED

    return asyncio.run(guarded())
