"""The lines and the values of a trace file, strictly: what is refused names file, line, field, value and remedy.

Refused on purpose, because a spreadsheet or an editor then rewrote the file, and such programs also round numbers and
times: a byte order mark, CRLF line ends in JSON lines, some lines with CRLF and some without. A CSV may end all its
lines with CRLF: RFC 4180 says so, and published traces do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pdd.common.errors import InvalidInput

MAX_TOKENS = 1_000_000_000
"""No prompt is longer. Sums over a trace then stay far below 2^63."""
MAX_LINE_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"PK": "unzip",
}
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; makes errors that name it."""

    path: Path
    line: int

    def error(self, field: str, value: object, remedy: str) -> InvalidInput:
        """`FILE:LINE: field`, the value and what to do."""
        return InvalidInput(f"{self.path}:{self.line}: {field}", value, remedy)


def read_lines(path: Path, *, crlf: bool = False) -> Iterator[tuple[Place, str]]:
    """Line after line without its end. crlf: all lines may end with CRLF, if the first does.

    Raises InvalidInput: missing, empty, packed, byte order mark, other line ends, blank line, no UTF-8.
    """
    number = 0
    end = b"\n"
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES):
                number += 1
                place = Place(path, number)
                if number == 1:
                    _check_start(place, raw)
                    end = b"\r\n" if crlf and raw.endswith(b"\r\n") else end
                yield place, _decode(place, raw, end)
    except OSError as error:
        raise InvalidInput(f"{path}: file", str(path), f"cannot be read: {error.strerror or error}") from error
    if not number:
        raise Place(path, 1).error("file", "", "is empty: a trace has at least one request")


def read_whole(place: Place, field: str, value: object, low: int = 0, high: int = MAX_TOKENS) -> int:
    """A whole number from a JSON number or a CSV cell. Raises InvalidInput."""
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise place.error(field, value, "must be a whole number" if value else "is missing: must be a whole number")
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise place.error(field, value, "must be a whole number")
    if not low <= number <= high:
        raise place.error(field, value, f"must be at least {low}" if number < low else f"must be at most {high}")
    return number


def read_number(place: Place, field: str, value: object, low: float = 0.0, high: float = 1e15) -> float:
    """A finite number from a JSON number or a CSV cell. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise place.error(field, value, "must be a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise place.error(field, value, "must be a number" if value != "" else "is missing: must be a number") from None
    if not math.isfinite(number):
        raise place.error(field, value, "must be finite")
    if not low <= number <= high:
        raise place.error(field, value, f"must be at least {low:g}" if number < low else f"must be at most {high:g}")
    return number


def describe_missing(name: str, found: list[str]) -> str:
    """The remedy for a field that is not there; names the nearest of what is there."""
    lowered = {other.strip().lower(): other for other in found}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if near:
        return f"is missing: rename {lowered[near[0]]!r}"
    return f"is missing: found {', '.join(found[:12]) or 'nothing'}"


def _check_start(place: Place, raw: bytes) -> None:
    if raw.startswith(_BOM) or raw.startswith(_WIDE_BOMS):
        raise place.error("byte order mark", raw[:3], "save the file as UTF-8 without a byte order mark")
    for magic, tool in _PACKED.items():
        if raw.startswith(magic):
            raise place.error("file", raw[:4], f"is packed: unpack it first ({tool})")


def _decode(place: Place, raw: bytes, end: bytes) -> str:
    if len(raw) >= MAX_LINE_BYTES:
        raise place.error("line", raw[:40], f"is longer than {MAX_LINE_BYTES} bytes: is this a trace?")
    body = raw.removesuffix(end)
    if b"\r" in body or body.endswith(b"\n"):
        remedy = "all lines must end alike, JSON lines with LF: convert the file (dos2unix, or tr -d '\\r')"
        raise place.error("line end", raw[-8:], remedy)
    if b"\0" in raw:
        raise place.error("line", raw[:40], "holds a NUL byte: a trace is text")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.error("line", raw[:40], f"is no UTF-8 at byte {error.start}") from None
    if not text.strip():
        raise place.error("line", text, "is blank: remove it")
    return text
