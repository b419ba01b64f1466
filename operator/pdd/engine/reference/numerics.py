"""Order-independent arithmetic: rounding to integers held in floats, and a power of two from integer bits.

All functions work element by element with IEEE basic operations only (add, multiply, divide, square root, round to
even), which are defined to the last bit on every processor. No library exponential is used where a token depends on it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pdd.engine.reference.config import (
    ACTIVATION_MAX,
    ACTIVATION_SCALE,
    PROBABILITY_BITS,
    RESIDUAL_MAX,
)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

EXPONENT_BIAS = np.float32((127 + PROBABILITY_BITS) * (1 << 23))
"""Bits of the float32 2^PROBABILITY_BITS, as a number: the softmax weight of the largest score."""
MASKED = np.float32(-(2.0**40))
"""Score of a key that a query must not see; its weight is exactly zero."""

_SIGMOID_STEPS = 32
_SIGMOID_LIMIT = 8 * _SIGMOID_STEPS


def round_clip(values: Floats, limit: float) -> Floats:
    """`values` rounded to integers within ±limit, in place."""
    np.rint(values, out=values)
    return np.clip(values, -limit, limit, out=values)


def normalise(residual: Floats) -> Floats:
    """RMS-normalise rows of the residual stream. [T, hidden] integers -> [T, hidden] integers, 64 meaning 1.0.

    The squares sum exactly in float64 whatever the order; the gain is folded into the weights that follow.
    """
    wide = residual.astype(np.float64)
    np.multiply(wide, wide, out=wide)
    mean = wide.sum(axis=1) / residual.shape[1] + 1.0
    factor = (ACTIVATION_SCALE / np.sqrt(mean)).astype(np.float32)
    return round_clip(residual * factor[:, None], ACTIVATION_MAX)


def add_residual(residual: Floats, update: Floats) -> Floats:
    """residual + round(update), clipped; both [T, hidden] in units of 1/256. `update` is overwritten."""
    np.rint(update, out=update)
    np.add(update, residual, out=update)
    return np.clip(update, -RESIDUAL_MAX, RESIDUAL_MAX, out=update)


def softmax_weights(scores: Floats) -> tuple[Floats, Floats]:
    """Integer softmax weights of rows. scores [..., S] -> (weights [..., S] in 0..512, their sums [..., 1]).

    A score is in units of 2^-23 octaves, so that adding the exponent's bias makes it the bit pattern of a float: 2^x
    with a straight line between powers of two. Weights are rounded to integers; their sum is exact in any order.
    `scores` is overwritten.
    """
    peak = scores.max(axis=-1, keepdims=True) - EXPONENT_BIAS
    np.subtract(scores, peak, out=scores)
    np.maximum(scores, np.float32(0), out=scores)
    weights = scores.astype(np.int32).view(np.float32)
    np.rint(weights, out=weights)
    return weights, weights @ np.ones((scores.shape[-1], 1), dtype=np.float32)


def build_sigmoid_table() -> Floats:
    """sigmoid at steps of 1/32 from -8 to 8, on a grid of 2^-12, so that a last-bit difference of `exp` cannot show."""
    points = [1.0 / (1.0 + math.exp(-i / _SIGMOID_STEPS)) for i in range(-_SIGMOID_LIMIT, _SIGMOID_LIMIT + 1)]
    return np.array([round(p * 4096) / 4096 for p in points], dtype=np.float32)


def silu(gate: Floats, table: Floats) -> Floats:
    """gate * sigmoid(gate), the sigmoid looked up at the nearest 1/32."""
    index = np.rint(gate * np.float32(_SIGMOID_STEPS))
    np.clip(index, -_SIGMOID_LIMIT, _SIGMOID_LIMIT, out=index)
    looked_up: Floats = table[index.astype(np.int32) + _SIGMOID_LIMIT]
    return np.multiply(gate, looked_up, out=looked_up)


def build_rope_tables(max_context: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """cos and sin, each [max_context, head_dim / 2], rounded to a grid of 2^-14 for the same reason."""
    frequencies = np.array([theta ** (-2.0 * i / head_dim) for i in range(head_dim // 2)])
    angles = np.arange(max_context, dtype=np.float64)[:, None] * frequencies
    cos = (np.rint(np.cos(angles) * 16384) / 16384).astype(np.float32)
    sin = (np.rint(np.sin(angles) * 16384) / 16384).astype(np.float32)
    return cos, sin


def rotate(heads: Floats, cos: Floats, sin: Floats) -> Floats:
    """Rotary positions. heads [T, heads, head_dim], cos and sin [T, head_dim / 2]; pairs are (i, i + head_dim / 2)."""
    half = heads.shape[2] // 2
    low, high = heads[:, :, :half], heads[:, :, half:]
    c, s = cos[:, None, :], sin[:, None, :]
    out = np.empty_like(heads)
    np.subtract(low * c, high * s, out=out[:, :, :half])
    np.add(high * c, low * s, out=out[:, :, half:])
    return out
