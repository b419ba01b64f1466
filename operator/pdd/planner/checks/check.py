"""One check: what was put in, what came out, what a source says, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Input = float | int | str | list[float] | dict[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """target: a number, a range [low, high], or a list that must be equal. tolerance: relative to a number; 0 for
    ranges and lists. source: where the target is from. note: what a reader must know, "" for nothing."""

    name: str
    source: str
    inputs: Mapping[str, Input]
    result: float | list[float]
    target: float | list[float]
    tolerance: float
    holds: bool
    note: str = ""


def compare(
    name: str,
    source: str,
    inputs: Mapping[str, Input],
    result: float,
    target: float,
    tolerance: float,
    note: str = "",
) -> Check:
    """Holds if the result is within `tolerance` (a share of 1) of the target."""
    holds = abs(result - target) <= tolerance * abs(target)
    return Check(name, source, inputs, _short(result), target, tolerance, holds, note)


def within(
    name: str, source: str, inputs: Mapping[str, Input], result: float, low: float, high: float, note: str = ""
) -> Check:
    """Holds if low <= result <= high."""
    return Check(name, source, inputs, _short(result), [low, high], 0.0, low <= result <= high, note)


def equal(
    name: str,
    source: str,
    inputs: Mapping[str, Input],
    result: list[float],
    target: list[float],
    note: str = "",
) -> Check:
    """Holds if both lists are the same."""
    return Check(name, source, inputs, result, target, 0.0, result == target, note)


def to_object(check: Check) -> dict[str, Any]:
    """For JSON."""
    return asdict(check)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
