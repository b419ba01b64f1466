"""Azure LLM inference traces (CSV), releases of 2023 and 2024, code, conversation and multimodal.

Header `TIMESTAMP,ContextTokens,GeneratedTokens` (multimodal: `TIMESTAMP,NumImages,ContextTokens,GeneratedTokens`; the
tokens of images are counted in ContextTokens). Times are `2023-11-16 18:17:03.9799600` or, since 2024,
`2024-05-10 00:00:00.009930+00:00`. There are no hashes and no sessions: nothing is known about hits.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pdd.planner.load import Load
from pdd.planner.traces.columns import Columns, read_rows
from pdd.planner.traces.text import Place, read_whole

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_DATE_CHARS = len("2023-11-16")


def read_azure(path: Path, limit: int | None = None) -> Load:
    """The (first `limit`) requests, without hits. Raises InvalidInput."""
    columns = Columns()
    start: datetime | None = None
    last = 0.0
    for place, (stamp, context, generated) in read_rows(path, COLUMNS):
        at = _read_time(place, stamp)
        if start is None:
            start = at
        elif (at.tzinfo is None) != (start.tzinfo is None):
            raise place.error("TIMESTAMP", stamp, "some times have a zone and some have none: give all the same")
        arrival_s = (at - start).total_seconds()
        if arrival_s < last:
            raise place.error("TIMESTAMP", stamp, "earlier than the line before: sort by time")
        last = arrival_s
        inputs = read_whole(place, "ContextTokens", context, low=1)
        columns.add(arrival_s, inputs, read_whole(place, "GeneratedTokens", generated), 0, -1, -1, 0.0)
        if len(columns) == limit:
            break
    return columns.to_load()


def _read_time(place: Place, stamp: str) -> datetime:
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        raise place.error("TIMESTAMP", stamp, "must be a time like 2023-11-16 18:17:03.9799600") from None
    if len(stamp) <= _DATE_CHARS:
        raise place.error("TIMESTAMP", stamp, "must have a time of day, like 2023-11-16 18:17:03.9799600")
    return at.astimezone(UTC) if at.tzinfo else at
