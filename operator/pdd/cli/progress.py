"""A progress bar on standard error: only on a terminal, and only for what takes more than a moment."""

from __future__ import annotations

import time
from types import TracebackType

from pdd.cli.console import Console

WIDTH = 30
QUIET_S = 0.5


class Progress:
    """Use as a context; `at(done, total)` as often as you like."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._began = time.monotonic()
        self._shown = False

    def at(self, done: int, total: int) -> None:
        elapsed = time.monotonic() - self._began
        if not self._console.err.isatty() or elapsed < QUIET_S or total <= 0:
            return
        full = WIDTH * done // total
        rate = done / elapsed
        self._console.write(f"\r{self._label} [{'=' * full}{' ' * (WIDTH - full)}] {done / total:4.0%} {rate:,.0f}/s")
        self._shown = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._console.write("\r\x1b[K")
