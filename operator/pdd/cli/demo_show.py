"""The stream as it comes, each piece under the name of the engine that made it."""

from __future__ import annotations

from pdd.cli.console import Console

_COLOURS = {"P": "yellow", "RLD": "magenta", "MD": "cyan"}
_MARGIN = 6
_NO_TEXT = "\N{REPLACEMENT CHARACTER}"


class StreamView:
    """Call it for each piece; a new line begins whenever the producer changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._producer = ""

    def __call__(self, producer: str, text: str, tokens: int) -> None:
        """`tokens` is how many have come so far; the view does not need it."""
        if producer and producer != self._producer:
            if self._producer:
                self._console.write("\n")
            self._producer = producer
            label = self._console.style(producer.ljust(_MARGIN - 2), _COLOURS.get(producer, "bold"), "bold")
            self._console.write(f"  {label}|")
        shown = "".join(c if c == "\n" or (c.isprintable() and c not in _NO_TEXT) else "\N{MIDDLE DOT}" for c in text)
        lines = shown.split("\n")
        colour = _COLOURS.get(self._producer, "bold")
        margin = "\n" + " " * _MARGIN + "|"
        self._console.write(margin.join(self._console.style(line, colour) if line else "" for line in lines))

    def end(self) -> None:
        """Close the last line."""
        if self._producer:
            self._console.write("\n")
