"""Percentiles with confidence intervals from correlated samples, and the refusal to print one from too few.

Requests that follow one another share queues, so their delays are correlated and the textbook interval of an order
statistic is too narrow. The run is cut into BATCHES equal parts in order of arrival; the percentile of each part is one
nearly independent observation, and Student's t over them gives the interval (batch means, Law and Kelton).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BATCHES = 20
T_95 = 2.093
"""Student's t, two-sided 95 %, 19 degrees of freedom."""
MIN_TAIL = 20
"""Samples that must lie beyond a percentile before it is printed: P99 needs 2,000 requests, P90 200."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A percentile in seconds, with its 95 % interval where the run is long enough for one (else low = high = None)."""

    value: float
    low: float | None
    high: float | None


def estimate(samples: Any, share: float) -> Estimate | None:
    """The `share` percentile (0.99 for P99) of samples in order of arrival; None if too few lie beyond it."""
    n = len(samples)
    if n * (1 - share) < MIN_TAIL - 1e-9 and not (share == 0.5 and n >= MIN_TAIL):
        return None
    value = float(np.quantile(samples, share))
    size = n // BATCHES
    if size * (1 - share) < 1:
        return Estimate(value, None, None)
    parts = np.quantile(np.reshape(samples[: size * BATCHES], (BATCHES, size)), share, axis=1)
    half = T_95 * float(np.std(parts, ddof=1)) / BATCHES**0.5
    return Estimate(value, max(0.0, value - half), value + half)


def refusal(n: int, share: float) -> str:
    """Why `estimate` gave None."""
    need = round(MIN_TAIL / (1 - share))
    return f"P{share * 100:g} needs {need} requests ({MIN_TAIL} beyond it), there are {n}"
