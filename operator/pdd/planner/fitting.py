"""Robust least squares with coefficients that cannot be negative: a time law has no negative costs.

Relative errors are made small, not absolute ones: a millisecond in ten weighs as much as a second in ten thousand.
Outliers (a pause of the machine) count by Huber's weights. The laws have at most five coefficients, so the best set of
positive ones is found by trying all sets; no solver is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
HUBER = 1.345
"""In units of the residuals' scale: 95 % as good as least squares if there are no outliers."""
_ROUNDS = 20
_MAD_TO_SIGMA = 1.4826
_LEAST_SCALE = 0.002
"""Relative residuals below it are taken as exact: the scale of a perfect fit would be 0."""
_MOST_COEFFICIENTS = 6


@dataclass(frozen=True, slots=True)
class Fit:
    """coefficients: one a column, not negative. predicted: one a row. mape: mean of |predicted / measured - 1|.
    worst: the largest of them. r2: share of the variance explained; 1 where all measured values are equal and met."""

    coefficients: tuple[float, ...]
    predicted: tuple[float, ...]
    mape: float
    worst: float
    r2: float


def fit_nonnegative(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> Fit:
    """Coefficients c >= 0 with rows @ c near `measured` (all > 0), by relative residuals and Huber weights.

    Raises ValueError if there are fewer rows than columns, or values that are not positive and finite.
    """
    matrix = np.asarray(rows, dtype=np.float64)
    values = np.asarray(measured, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != len(values) or len(matrix) < matrix.shape[1]:
        raise ValueError(f"{len(values)} measurements are too few for {matrix.shape[-1]} coefficients")
    if matrix.shape[1] > _MOST_COEFFICIENTS:
        raise ValueError(f"{matrix.shape[1]} coefficients are more than {_MOST_COEFFICIENTS}")
    if not (np.isfinite(values).all() and (values > 0).all() and np.isfinite(matrix).all()):
        raise ValueError("measurements must be positive and finite")
    relative = matrix / values[:, None]
    weights = np.ones(len(values))
    found = np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        before, found = found, _solve(relative, weights)
        residuals = np.abs(relative @ found - 1.0)
        scale = max(_MAD_TO_SIGMA * float(np.median(residuals)), _LEAST_SCALE)
        weights = np.minimum(1.0, HUBER * scale / np.maximum(residuals, 1e-12))
        if np.allclose(before, found, rtol=1e-9, atol=0.0):
            break
    return _judge(matrix, values, found)


def _solve(relative: Floats, weights: Floats) -> Floats:
    """Weighted least squares of `relative @ c = 1` with c >= 0: the best of all sets of columns that gives no negative
    coefficient (that is the exact answer for a convex problem)."""
    columns = relative.shape[1]
    root = np.sqrt(weights)
    target = root
    best, least = np.zeros(columns), float(np.sum(target**2))
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            part = relative[:, chosen] * root[:, None]
            norms = np.linalg.norm(part, axis=0)
            if not (norms > 0).all():
                continue
            solution = np.linalg.lstsq(part / norms, target, rcond=None)[0] / norms
            if (solution < 0).any():
                continue
            loss = float(np.sum((part @ solution - target) ** 2))
            if loss < least - 1e-15:
                least = loss
                best = np.zeros(columns)
                best[list(chosen)] = solution
    return best


def _judge(matrix: Floats, values: Floats, found: Floats) -> Fit:
    predicted = matrix @ found
    errors = np.abs(predicted / values - 1.0)
    spread = float(np.sum((values - values.mean()) ** 2))
    left = float(np.sum((values - predicted) ** 2))
    r2 = 1.0 - left / spread if spread > 0 else float(left < 1e-12)
    return Fit(
        tuple(float(c) for c in found),
        tuple(float(p) for p in predicted),
        float(errors.mean()),
        float(errors.max()),
        r2,
    )
