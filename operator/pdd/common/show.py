"""Values that strangers sent, as a message may show them."""

from __future__ import annotations

import reprlib

MAX_SHOWN_CHARS = 80
_MAX_DEPTH = 4


class _Bounded(reprlib.Repr):
    """`repr` of bounded length, depth and cost."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _MAX_DEPTH
        self.maxstring = self.maxother = self.maxlong = MAX_SHOWN_CHARS

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        """In the order given: sorting a stranger's keys costs, and may not be possible."""
        if level <= 0:
            return "{...}" if x else "{}"
        shown = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for (key, value), _ in zip(x.items(), range(self.maxdict), strict=False)
        ]
        return "{" + ", ".join(shown + ["..."] * (len(x) > self.maxdict)) + "}"


_BOUNDED = _Bounded()


def shown(value: object, limit: int = MAX_SHOWN_CHARS) -> str:
    """`repr(value)`, cut to `limit` characters. Never fails on deep nesting, never costs more than what it shows."""
    text = _BOUNDED.repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
