"""Grouped-query attention over one sequence's keys and values, exact in any tiling.

Scores are integers below 2^24; the row's largest score does not depend on order; weights are integers; weighted values
are summed in float32 over chunks that cannot exceed 2^24 and across chunks in float64. So the number of queries handled
at once and the way the keys are cut change no bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pdd.engine.reference.config import (
    ATTENTION_SCALE,
    FLOAT32_EXACT,
    VALUE_CHUNK,
    VALUE_MAX,
    ModelConfig,
)
from pdd.engine.reference.numerics import MASKED, Doubles, Floats, softmax_weights

Mask = NDArray[np.bool_]
_TILE_SCORES = 1 << 19
"""Scores held at once per head: 2 MiB of float32, about one core's second-level cache."""
_MAX_TILE_ROWS = 128
_BATCH_HEADS_BELOW = 8
"""With fewer query rows than this all heads go in one call: call overhead outweighs the cache."""


@dataclass(frozen=True, slots=True)
class Context:
    """Keys and values of positions start .. start + len, each [len, kv_width] of integers."""

    start: int
    keys: Floats
    values: Floats


def attend(config: ModelConfig, queries: Floats, first_position: int, context: Context, window: int) -> Floats:
    """Attention of consecutive queries. queries [T, heads, head_dim] -> [T, heads * head_dim] integers (quarters).

    queries are integers times 2^9 (see `softmax_weights` on units). window 0 means every earlier position.
    """
    total = queries.shape[0]
    out = np.empty((total, config.query_heads * config.head_dim), dtype=np.float32)
    row = 0
    while row < total:
        length = window if window else first_position + row + 1
        rows = min(total - row, _MAX_TILE_ROWS, max(16, _TILE_SCORES // (config.group * length)))
        position = first_position + row
        low = max(0, position - window + 1) if window else 0
        high = position + rows
        keys = context.keys[low - context.start : high - context.start]
        values = context.values[low - context.start : high - context.start]
        _attend_tile(config, queries[row : row + rows], keys, values, position, window, out[row : row + rows])
        row += rows
    return out


@lru_cache(maxsize=1024)
def _later(rows: int) -> Mask:
    """[rows, 1, rows] true where a key of the tile's own rows is later than the query."""
    return ~np.tri(rows, dtype=bool)[:, None, :]


@lru_cache(maxsize=1024)
def _outside(rows: int, clipped: int) -> Mask:
    """[rows, 1, rows] true where one of the first keys has left the query's window.

    clipped is how many positions of the first query's window lie before the sequence's start.
    """
    return np.tri(rows, k=-1 - clipped, dtype=bool)[:, None, :]


def _hide(scores: Floats, position: int, window: int) -> None:
    """Mask what queries from `position` on must not see. scores [heads, rows, group, keys]; the last key is theirs."""
    rows = scores.shape[1]
    if rows == 1:
        return
    np.copyto(scores[..., -rows:], MASKED, where=_later(rows))
    if window:
        clipped = max(0, window - 1 - position)
        if clipped < rows - 1:
            np.copyto(scores[..., :rows], MASKED, where=_outside(rows, clipped))


def _attend_tile(
    config: ModelConfig, queries: Floats, keys: Floats, values: Floats, position: int, window: int, out: Floats
) -> None:
    rows, dim, group = queries.shape[0], config.head_dim, config.group
    heads = config.kv_heads
    k = keys.reshape(-1, heads, dim).transpose(1, 2, 0)
    v = values.reshape(-1, heads, dim).transpose(1, 0, 2)
    q = queries.reshape(rows, heads, group, dim).transpose(1, 0, 2, 3).reshape(heads, rows * group, dim)
    shaped = out.reshape(rows, heads, group, dim)
    step = heads if rows < _BATCH_HEADS_BELOW else 1
    for head in range(0, heads, step):
        part = slice(head, head + step)
        scores = np.matmul(q[part], k[part])
        _hide(scores.reshape(step, rows, group, scores.shape[-1]), position, window)
        weights, sums = softmax_weights(scores)
        mixed = _mix(weights, sums, v[part])
        shaped[:, part] = mixed.reshape(step, rows, group, dim).transpose(1, 0, 2, 3)


def _mix(weights: Floats, sums: Floats, values: Floats) -> Doubles:
    """Weighted mean of values, rounded to quarters. weights [h, M, S], sums [h, M, 1], values [h, S, dim]."""
    length = weights.shape[-1]
    if float(sums.max()) * VALUE_MAX < FLOAT32_EXACT:
        total: Doubles = np.matmul(weights, values).astype(np.float64)
    else:
        total = np.zeros((weights.shape[0], weights.shape[1], values.shape[2]))
        for at in range(0, length, VALUE_CHUNK):
            total += np.matmul(weights[:, :, at : at + VALUE_CHUNK], values[:, at : at + VALUE_CHUNK])
    total *= ATTENTION_SCALE
    total /= sums
    np.rint(total, out=total)
    return total
