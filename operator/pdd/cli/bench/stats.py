"""Percentiles of what was measured, not of a model of it."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], q: float) -> float | None:
    """The `q`-th percentile (0..100) by linear interpolation between the two nearest ranks; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float | int | None]:
    """`{"count", "p50", "p99", "max"}`, rounded."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, digits)

    return {
        "count": len(values),
        "p50": rounded(percentile(values, 50)),
        "p99": rounded(percentile(values, 99)),
        "max": rounded(max(values, default=None)),
    }
