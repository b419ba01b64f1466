"""Opens a trace of any format: by its first line, never by its name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pdd.planner.load import Load
from pdd.planner.traces.agentic import COLUMNS as AGENTIC_COLUMNS
from pdd.planner.traces.agentic import SESSION_GAP_S, read_agentic
from pdd.planner.traces.azure import COLUMNS as AZURE_COLUMNS
from pdd.planner.traces.azure import read_azure
from pdd.planner.traces.columns import check_limit
from pdd.planner.traces.mooncake import read_mooncake
from pdd.planner.traces.text import read_lines


class TraceFormat(StrEnum):
    """What can be read. MOONCAKE: JSON lines with block hashes. AGENTIC, AZURE: CSV."""

    MOONCAKE = "mooncake"
    AGENTIC = "agentic"
    AZURE = "azure"


def detect_format(path: Path) -> TraceFormat:
    """By the first line. Raises InvalidInput if it is no trace that can be read."""
    place, line = next(read_lines(path, crlf=True))
    if line.lstrip().startswith(("{", "[")):
        return TraceFormat.MOONCAKE
    found = {name.strip().strip('"').lower() for name in line.split(",")}
    best, most = None, 0
    for kind, columns in ((TraceFormat.AZURE, AZURE_COLUMNS), (TraceFormat.AGENTIC, AGENTIC_COLUMNS)):
        known = sum(name.lower() in found for name in columns)
        if known > most:
            best, most = kind, known
    if best is None:
        remedy = (
            "is no trace: write Mooncake JSON lines, a CSV with header "
            f"{','.join(AZURE_COLUMNS)}, or one with {','.join(AGENTIC_COLUMNS)}"
        )
        raise place.error("header", line, remedy)
    return best


def read_trace(path: Path, limit: int | None = None, *, session_gap_s: float = SESSION_GAP_S) -> Load:
    """The (first `limit`) requests of a trace in any format, sorted by arrival.

    session_gap_s: seconds between the starts of two sessions, for the format that does not say (agentic).
    Raises InvalidInput that names file, line, field, value and remedy.
    """
    check_limit(limit)
    kind = detect_format(path)
    if kind is TraceFormat.MOONCAKE:
        return read_mooncake(path, limit)
    if kind is TraceFormat.AZURE:
        return read_azure(path, limit)
    return read_agentic(path, limit, session_gap_s)
