"""Calibrations as JSON documents: written by `pdd calibrate --out`, read by `pdd plan`, `pdd simulate` and the benches.

A document holds the samples too, so that a fit can be made anew and looked at later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdd.common.errors import InvalidInput
from pdd.planner.calibration import Calibration, EngineLaws
from pdd.planner.fitting import Fit
from pdd.planner.kvlaw import KVLaw
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

API_VERSION = "pdd.dev/v1alpha1"
KIND = "EngineCalibration"


def to_object(calibration: Calibration) -> dict[str, Any]:
    """The document. Times in seconds, errors as shares of 1."""
    facts, times = calibration.facts, calibration.times
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "engine": facts.engine,
        "model": facts.model,
        "block_tokens": facts.block_tokens,
        "kv_bytes_per_token": facts.kv_bytes_per_token,
        "request_s": calibration.request_s,
        "times": asdict(times),
        "fit": {name: _fit(fit) for name, fit in _fits(calibration).items()},
        "warnings": list(calibration.warnings),
        "samples": {
            "prefill": [asdict(s) for s in calibration.samples.prefill],
            "decode": [asdict(s) for s in calibration.samples.decode],
            "extend": [asdict(s) for s in calibration.samples.extend],
        },
    }


def _fits(calibration: Calibration) -> dict[str, Fit]:
    return {"prefill": calibration.prefill, "decode": calibration.decode, "extend": calibration.extend}


def _fit(fit: Fit) -> dict[str, float | list[float]]:
    return {
        "mape": round(fit.mape, 4),
        "worst": round(fit.worst, 4),
        "r2": round(fit.r2, 5),
        "predicted_s": [round(p, 6) for p in fit.predicted],
    }


def read_engine_times(path: Path) -> EngineTimes:
    """The times of a document. Raises InvalidInput that names file and field."""
    return times_from_object(_load(path), str(path))


def read_kv_law(path: Path) -> KVLaw | None:
    """The engine's KV bytes per token, if it told them."""
    per_token = _number(_load(path), "kv_bytes_per_token", str(path), default=0.0)
    return KVLaw(per_token) if per_token > 0 else None


def read_laws(path: Path) -> EngineLaws:
    """All that predictions need of the engine. Raises InvalidInput that names file and field."""
    document, where = _load(path), str(path)
    return EngineLaws(
        times=times_from_object(document, where),
        request_s=_number(document, "request_s", where, default=0.0),
        kv_bytes_per_token=_number(document, "kv_bytes_per_token", where, default=0.0),
    )


def times_from_object(document: Mapping[str, Any], where: str) -> EngineTimes:
    """The times of an EngineCalibration document. `where` names it in errors."""
    if document.get("kind") != KIND:
        raise InvalidInput(f"{where}: kind", document.get("kind"), f"must be {KIND}: a file of `pdd calibrate --out`")
    times = _part(document, "times", where)
    prefill, decode, extend = (_part(times, name, f"{where}: times") for name in ("prefill", "decode", "extend"))
    p, d, e = (f"{where}: times.{name}" for name in ("prefill", "decode", "extend"))
    return EngineTimes(
        prefill=PrefillTime(
            per_token_s=_number(prefill, "per_token_s", p),
            chunk_tokens=_whole(prefill, "chunk_tokens", p, least=1),
            half_tokens=_number(prefill, "half_tokens", p, default=0.0),
            attention_s=_number(prefill, "attention_s", p, default=0.0),
            fixed_s=_number(prefill, "fixed_s", p, default=0.0),
        ),
        decode=DecodeTime(
            fixed_s=_number(decode, "fixed_s", d),
            per_sequence_s=_number(decode, "per_sequence_s", d, default=0.0),
            per_context_token_s=_number(decode, "per_context_token_s", d, default=0.0),
        ),
        extend=ExtendTime(
            fixed_s=_number(extend, "fixed_s", e),
            per_token_s=_number(extend, "per_token_s", e),
            per_context_token_s=_number(extend, "per_context_token_s", e, default=0.0),
        ),
        max_sequences=_whole(times, "max_sequences", f"{where}: times", least=1),
        kv_capacity_tokens=_whole(times, "kv_capacity_tokens", f"{where}: times", least=0, default=0),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInput(str(path), None, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput(str(path), None, f"is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput(str(path), None, "must hold one JSON object: a file of `pdd calibrate --out`")
    return document


def _part(document: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = document.get(name)
    if not isinstance(part, dict):
        raise InvalidInput(f"{where}: {name}", part, "must be an object: a file of `pdd calibrate --out`")
    return part


def _number(part: Mapping[str, Any], name: str, where: str, default: float | None = None) -> float:
    value = part.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{where}: {name}", value, "must be a number that is not negative")
    return float(value)


def _whole(part: Mapping[str, Any], name: str, where: str, *, least: int, default: int | None = None) -> int:
    value = part.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{where}: {name}", value, f"must be a whole number of at least {least}")
    return value
