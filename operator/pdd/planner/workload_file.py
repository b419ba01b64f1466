"""Workloads as YAML: `read_workload` and, back, `workload_to_document`. Strict; errors name file, line and field.

    kind: Workload
    rate: 80/s
    input: {mean: 64K, sigma: 0.5, high: 256K}     # median instead of mean; sigma 0: all equal
    output: {mean: 1K, sigma: 0.5}
    hits: production                               # {mean: 80 %}, {narrow: [85 %, 95 %]}, or a list of buckets
    arrivals: {kind: mmpp, burst: 4, burstLength: 10 s, calmLength: 60 s}
    sessions: {turns: 10, growth: {median: 700, sigma: 1.2}, think: {median: 10 s, sigma: 1.8, high: 1 h}}
    odd: {share: 0.5 %}

Only `rate` must be given. `KEYS` lists every key; `units` says how quantities are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pdd.api.validate import show_path
from pdd.api.yaml_places import Document, read_yaml
from pdd.common.errors import InvalidInput
from pdd.planner import units
from pdd.planner.hit_law import HitBucket, HitMixture
from pdd.planner.laws import ArrivalLaw, Arrivals, LengthLaw, OddLaw, SessionLaw
from pdd.planner.workload import Workload

T = TypeVar("T")
API_VERSION = "pdd.dev/workload/v1"
MAX_BUCKETS = 64
MAX_FILE_BYTES = 1 << 20
_LENGTH = ("median", "mean", "sigma", "low", "high")
KEYS: Mapping[str, tuple[str, ...]] = {
    "": ("apiVersion", "kind", "rate", "input", "output", "hits", "arrivals", "sessions", "odd", "blockTokens"),
    "input": _LENGTH,
    "output": _LENGTH,
    "hits": ("mean", "narrow"),
    "hits[]": ("from", "to", "share", "mean"),
    "arrivals": ("kind", "cv", "burst", "burstLength", "calmLength"),
    "sessions": ("turns", "growth", "think", "answersCached", "context", "firstToken", "perToken"),
    "sessions.growth": _LENGTH,
    "sessions.think": _LENGTH,
    "odd": ("share", "input", "output"),
    "odd.input": _LENGTH,
    "odd.output": _LENGTH,
}
_NAMES = {"rate_per_s": "rate", "block_tokens": "blockTokens", "burst_s": "burstLength", "calm_s": "calmLength"}
_NAMES |= {"context_tokens": "context", "first_token_s": "firstToken", "token_s": "perToken"}
FieldPath = tuple[str | int, ...]


def read_workload(path: Path) -> Workload:
    """Reads the file. Raises InvalidInput that names file, line, field, value and remedy."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"{path}: file", path.stat().st_size, f"has more than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: file", str(path), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: file", str(path), f"is no UTF-8 at byte {error.start}") from None
    return read_workload_text(str(path), text)


def read_workload_text(file: str, text: str) -> Workload:
    """As `read_workload`, of the text of `file`."""
    documents, broken = read_yaml(file, text)
    if broken is not None:
        raise InvalidInput(f"{file}:{broken.line}: YAML", None, f"mend it: {broken.problem}")
    if len(documents) != 1:
        raise InvalidInput(f"{file}:1: file", f"{len(documents)} documents", "a workload file holds one document")
    reader = _Reader(documents[0])
    for path in documents[0].duplicates:
        raise reader.fail(path, documents[0].value(path), "is given twice: keep one")
    reader.section()
    reader.read(("kind",), _fixed("Workload"), "Workload")
    reader.read(("apiVersion",), _fixed(API_VERSION), API_VERSION)
    default = Workload()
    return reader.build(
        (),
        lambda: Workload(
            rate_per_s=reader.read(("rate",), units.read_per_s),
            input_tokens=_read_length(reader, ("input",), default.input_tokens, units.read_tokens),
            output_tokens=_read_length(reader, ("output",), default.output_tokens, units.read_tokens),
            hits=_read_hits(reader),
            arrivals=_read_arrivals(reader),
            sessions=_read_sessions(reader) if reader.given(("sessions",)) else None,
            odd=_read_odd(reader) if reader.given(("odd",)) else None,
            block_tokens=int(reader.read(("blockTokens",), units.read_tokens, 1.0)),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    document: Document

    def fail(self, path: FieldPath, value: object, remedy: str) -> InvalidInput:
        """`FILE:LINE: field`; a field that is missing is placed at its parent."""
        line = self.document.place(path)[0]
        return InvalidInput(f"{self.document.file}:{line}: {show_path(path) or 'file'}", value, remedy)

    def given(self, path: FieldPath) -> bool:
        return self.document.value(path) is not None

    def section(self, *path: str | int) -> None:
        """The mapping at path has known keys only."""
        value = self.document.value(path)
        if not isinstance(value, dict):
            raise self.fail(path, value, "write a mapping (key: value lines)")
        known = KEYS[re.sub(r"\[\d+\]", "[]", show_path(path))]
        for key in value:
            if key not in known:
                near = get_close_matches(str(key), known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                raise self.fail((*path, str(key)), value[key], f"is not a known field; {hint}")

    def read(self, path: FieldPath, reader: Callable[[object], T], default: T | None = None) -> T:
        """The value through `reader`; without a default it must be there."""
        value = self.document.value(path)
        if value is None:
            if default is None or path in self.document.places:
                raise self.fail(path, None, "is missing: it has no default")
            return default
        try:
            return reader(value)
        except units.UnitError as error:
            raise self.fail(path, value, str(error)) from None

    def build(self, path: FieldPath, make: Callable[[], T]) -> T:
        """What `make` makes; a refusal of its values is placed in the file."""
        try:
            return make()
        except InvalidInput as error:
            if error.field.startswith(f"{self.document.file}:"):
                raise
            name = _NAMES.get(error.field, error.field)
            raise self.fail((*path, name), error.value, error.remedy) from None


def _read_length(
    reader: _Reader, path: tuple[str, ...], default: LengthLaw, quantity: Callable[[object], float]
) -> LengthLaw:
    if not reader.given(path):
        return default
    reader.section(*path)
    sigma = reader.read((*path, "sigma"), _number, 0.0)
    low = reader.read((*path, "low"), quantity, default.low)
    if reader.given((*path, "mean")):
        if reader.given((*path, "median")):
            raise reader.fail((*path, "mean"), reader.document.value((*path, "mean")), "give median or mean, not both")
        mean = reader.read((*path, "mean"), quantity)
        high = reader.read((*path, "high"), quantity, max(default.high, mean))
        return reader.build(path, lambda: LengthLaw.from_mean(mean, sigma, min(low, mean), high))
    median = reader.read((*path, "median"), quantity)
    high = reader.read((*path, "high"), quantity, max(default.high, median))
    least = low if reader.given((*path, "low")) else min(low, median)
    return reader.build(path, lambda: LengthLaw(median, sigma, least, high))


def _read_hits(reader: _Reader) -> HitMixture:
    value = reader.document.value(("hits",))
    if value is None or value == "production":
        return HitMixture()
    if isinstance(value, list):
        if len(value) > MAX_BUCKETS:
            raise reader.fail(("hits",), f"{len(value)} buckets", f"write at most {MAX_BUCKETS}")
        return reader.build(("hits",), lambda: HitMixture(tuple(_read_bucket(reader, i) for i in range(len(value)))))
    if not isinstance(value, dict):
        raise reader.fail(
            ("hits",), value, "write production, {mean: 80 %}, {narrow: [85 %, 95 %]} or a list of buckets"
        )
    reader.section("hits")
    if len(value) != 1:
        raise reader.fail(("hits",), value, "write mean or narrow")
    if reader.given(("hits", "mean")):
        mean = reader.read(("hits", "mean"), units.read_share)
        return reader.build(("hits",), lambda: HitMixture().with_mean(mean))
    ends = value["narrow"]
    if not isinstance(ends, list) or len(ends) != 2:
        raise reader.fail(("hits", "narrow"), ends, "write two shares: [85 %, 95 %]")
    low, high = (reader.read(("hits", "narrow", i), units.read_share) for i in range(2))
    return reader.build(("hits", "narrow"), lambda: HitMixture.narrow(low, high))


def _read_bucket(reader: _Reader, index: int) -> HitBucket:
    path: FieldPath = ("hits", index)
    reader.section(*path)
    low, high, share = (reader.read((*path, key), units.read_share) for key in ("from", "to", "share"))
    given = reader.given((*path, "mean"))
    mean = reader.read((*path, "mean"), units.read_share) if given else None
    return reader.build(path, lambda: HitBucket(low, high, share, mean))


def _read_arrivals(reader: _Reader) -> ArrivalLaw:
    if not reader.given(("arrivals",)):
        return ArrivalLaw()
    reader.section("arrivals")
    default = ArrivalLaw()
    kind = reader.read(("arrivals", "kind"), _arrivals, default.kind)
    cv = reader.read(("arrivals", "cv"), _number, default.cv)
    burst = reader.read(("arrivals", "burst"), _number, default.burst)
    burst_s = reader.read(("arrivals", "burstLength"), units.read_seconds, default.burst_s)
    calm_s = reader.read(("arrivals", "calmLength"), units.read_seconds, default.calm_s)
    return reader.build(("arrivals",), lambda: ArrivalLaw(kind, cv, burst, burst_s, calm_s))


def _read_sessions(reader: _Reader) -> SessionLaw:
    path, default = ("sessions",), SessionLaw()
    reader.section(*path)
    growth = _read_length(reader, (*path, "growth"), default.growth, units.read_tokens)
    think = _read_length(reader, (*path, "think"), default.think_s, units.read_seconds)
    turns = reader.read((*path, "turns"), _number, default.turns)
    cached = reader.read((*path, "answersCached"), _flag, default.answers_cached)
    context = int(reader.read((*path, "context"), units.read_tokens, float(default.context_tokens)))
    first_s = reader.read((*path, "firstToken"), units.read_seconds, default.first_token_s)
    token_s = reader.read((*path, "perToken"), units.read_seconds, default.token_s)
    return reader.build(path, lambda: SessionLaw(turns, growth, think, cached, context, first_s, token_s))


def _read_odd(reader: _Reader) -> OddLaw:
    path, default = ("odd",), OddLaw()
    reader.section(*path)
    share = reader.read((*path, "share"), units.read_share, default.share)
    inputs = _read_length(reader, (*path, "input"), default.input_tokens, units.read_tokens)
    outputs = _read_length(reader, (*path, "output"), default.output_tokens, units.read_tokens)
    return reader.build(path, lambda: OddLaw(share, inputs, outputs))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise units.UnitError("write a plain number")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise units.UnitError("write true or false")
    return value


def _arrivals(value: object) -> Arrivals:
    try:
        return Arrivals(str(value))
    except ValueError:
        raise units.UnitError(f"write one of {', '.join(kind.value for kind in Arrivals)}") from None


def _fixed(wanted: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value != wanted:
            raise units.UnitError(f"write {wanted}")
        return wanted

    return check
