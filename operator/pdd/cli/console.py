"""What a person sees: talk on standard error, results on standard output, colour only where it is wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def wants_colour(stream_is_tty: bool, env: Mapping[str, str]) -> bool:
    """NO_COLOR (any value) wins, then FORCE_COLOR, then a terminal that is not dumb."""
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return stream_is_tty and env.get("TERM", "") not in ("", "dumb")


class Console:
    """`say` talks on standard error; `result` writes the result on standard output. Text is never styled when piped."""

    def __init__(
        self, *, err: TextIO | None = None, out: TextIO | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.err = err or sys.stderr
        self.out = out or sys.stdout
        environment = os.environ if env is None else env
        self.colour = wants_colour(self.err.isatty(), environment)
        self.colour_out = wants_colour(self.out.isatty(), environment)

    def style(self, text: str, *names: str, out: bool = False) -> str:
        """`text` in the given styles, or as it is without colour."""
        on = self.colour_out if out else self.colour
        if not on or not names:
            return text
        return f"\x1b[{';'.join(_STYLES[name] for name in names)}m{text}\x1b[0m"

    def say(self, text: str = "", *styles: str) -> None:
        """One line of talk."""
        self.write(self.style(text, *styles) + "\n")

    def write(self, text: str) -> None:
        """A piece of talk without a line's end, shown at once."""
        self.err.write(text)
        self.err.flush()

    def result(self, text: str) -> None:
        """The result, on standard output."""
        self.out.write(text + "\n")
        self.out.flush()


def table(rows: list[list[str]], *, indent: str = "  ") -> str:
    """Aligned columns: the first to the left, the others to the right. The first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(indent + "  ".join(cells).rstrip())
    return "\n".join(lines)
