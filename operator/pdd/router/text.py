"""Ids to text as they come: no broken UTF-8, and no text that may yet turn out to be part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Detokenizer(Protocol):
    """Incremental: gives text only once its bytes are complete."""

    def feed(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fed:
    """text: what may go to the client now. stopped_after: how many of the fed ids were used when a stop string was
    complete; None if none was."""

    text: str
    stopped_after: int | None = None


class TextAssembler:
    """One request's text. `stops`: stop strings, none empty. `include_stop`: the output ends with the stop string."""

    __slots__ = ("_detokenizer", "_held", "_include_stop", "_longest", "_stopped", "_stops")

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...] = (), *, include_stop: bool = False) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._include_stop = include_stop
        self._longest = max((len(stop) for stop in stops), default=0)
        self._held = ""
        self._stopped = False

    def feed(self, ids: Sequence[int]) -> Fed:
        """The text that `ids` settle. Ids are taken one by one when there are stop strings, so that the token that
        completes one is known exactly."""
        if not self._stops:
            return Fed(self._detokenizer.feed(ids))
        out: list[str] = []
        for count, one in enumerate(ids, start=1):
            piece = self._detokenizer.feed((one,))
            if not piece:
                continue
            text, stopped = self._match(piece)
            out.append(text)
            if stopped:
                self._stopped = True
                return Fed("".join(out), count)
        return Fed("".join(out))

    def flush(self) -> str:
        """The rest: an unfinished character as U+FFFD, held text that became no stop string; nothing after a stop."""
        if self._stopped:
            return ""
        rest = self._detokenizer.flush()
        if not self._stops:
            return rest
        text, stopped = self._match(rest) if rest else ("", False)
        if not stopped:
            text += self._held
        self._held = ""
        return text

    def _match(self, piece: str) -> tuple[str, bool]:
        """(text to give out, whether a stop string is complete); what may begin one is held."""
        text = self._held + piece
        found = -1
        matched = ""
        for stop in self._stops:
            at = text.find(stop)
            if at >= 0 and (found < 0 or at < found):
                found, matched = at, stop
        if found >= 0:
            self._held = ""
            return (text[: found + len(matched)] if self._include_stop else text[:found]), True
        keep = min(self._longest - 1, len(text))
        while keep > 0 and not any(stop.startswith(text[len(text) - keep :]) for stop in self._stops):
            keep -= 1
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut], False
