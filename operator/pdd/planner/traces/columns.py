"""A table under construction, and the CSV header it is read by."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.load import Blocks, Load
from pdd.planner.traces.text import Place, describe_missing, read_lines


def _whole() -> array[int]:
    return array("q")


def _real() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Columns:
    """What a reader fills request by request: 56 bytes each, not an object each."""

    arrival_s: array[float] = field(default_factory=_real)
    input_tokens: array[int] = field(default_factory=_whole)
    output_tokens: array[int] = field(default_factory=_whole)
    hit_tokens: array[int] = field(default_factory=_whole)
    session: array[int] = field(default_factory=_whole)
    previous: array[int] = field(default_factory=_whole)
    think_s: array[float] = field(default_factory=_real)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def add(
        self, arrival_s: float, inputs: int, outputs: int, hit: int, session: int, previous: int, think_s: float
    ) -> None:
        """One request; the arguments as in `Load`. An answer of no token counts as one: something ended it."""
        self.arrival_s.append(arrival_s)
        self.input_tokens.append(inputs)
        self.output_tokens.append(max(1, outputs))
        self.hit_tokens.append(hit)
        self.session.append(session)
        self.previous.append(previous)
        self.think_s.append(think_s)

    def to_load(self, blocks: Blocks | None = None) -> Load:
        """The load in the order of arrival (equal times: order of the file); `previous` follows the requests.

        A load with blocks must have been added in that order.
        """
        arrival = np.array(self.arrival_s, np.float64)
        order = np.argsort(arrival, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        previous = np.array(self.previous, np.int64)[order]
        return Load(
            arrival_s=arrival[order],
            input_tokens=np.array(self.input_tokens, np.int64)[order],
            output_tokens=np.array(self.output_tokens, np.int64)[order],
            hit_tokens=np.array(self.hit_tokens, np.int64)[order],
            session=np.array(self.session, np.int64)[order],
            previous=np.where(previous >= 0, place[previous], -1),
            think_s=np.array(self.think_s, np.float64)[order],
            blocks=blocks,
        )


def read_rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Place, list[str]]]:
    """The cells of the wanted columns, in that order, row after row. Other columns are left out.

    Raises InvalidInput: a wanted column missing or twice, a row with more or fewer cells than the header, bad quotes.
    """
    lines = read_lines(path, crlf=True)
    place, first = next(lines)
    header = [name.strip() for name in _cells(place, first)]
    for name in wanted:
        if header.count(name) != 1:
            remedy = "stands twice in the header" if name in header else describe_missing(name, header)
            raise place.error(name, first, remedy)
    where = [header.index(name) for name in wanted]
    count = len(header)
    rows = 0
    for place, line in lines:
        cells = _cells(place, line)
        if len(cells) != count:
            raise place.error("row", line, f"has {len(cells)} cells, the header {count}")
        rows += 1
        yield place, [cells[i] for i in where]
    if not rows:
        raise Place(path, 2).error("file", first, "has a header and no request")


def _cells(place: Place, line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise place.error("row", line, f"is no CSV: {error}") from None


def check_limit(limit: int | None) -> None:
    """Raises InvalidInput unless limit is None or at least 1."""
    if limit is not None and limit < 1:
        raise InvalidInput("limit", limit, "must be at least 1")
