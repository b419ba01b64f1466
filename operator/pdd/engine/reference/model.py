"""The decoder: embedding, layers of attention and SwiGLU, head. One call runs any mix of prefill, extend and decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdd.engine.reference.attention import attend
from pdd.engine.reference.config import HIDDEN_MAX, QUERY_MAX, VALUE_MAX, ModelConfig
from pdd.engine.reference.kvstore import BlockIds, KVStore
from pdd.engine.reference.numerics import (
    Floats,
    add_residual,
    build_rope_tables,
    build_sigmoid_table,
    normalise,
    rotate,
    round_clip,
    silu,
)
from pdd.engine.reference.weights import Layer, Weights

SCORE_UNITS = np.float32(512.0)
"""2^23 / 2^14: an integer score is 2^-14 octaves (32 * 64 * sqrt(64) = 2^14), a softmax unit is 2^-23."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens of one sequence: positions start .. start + len(tokens), with its block table."""

    tokens: Sequence[int]
    start: int
    blocks: BlockIds
    want_logits: bool


class Model:
    """Weights and tables. `forward` writes K and V into the store and returns logits of the rows that ask for them."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self._cos, self._sin = build_rope_tables(config.max_context, config.head_dim, config.rope_theta)
        self._sigmoid = build_sigmoid_table()

    def forward(self, store: KVStore, segments: Sequence[Segment]) -> Floats:
        """Run all segments as one batch. Returns [wanted, vocab]: logits after the last token of each that wants it."""
        tokens = np.concatenate([np.asarray(s.tokens, dtype=np.int64) for s in segments])
        positions = np.concatenate([np.arange(s.start, s.start + len(s.tokens)) for s in segments])
        slots = np.concatenate([_slots(s, store.block_size) for s in segments])
        residual = self.weights.embedding[tokens]
        for index, layer in enumerate(self.weights.layers):
            mixed = self._attention(store, index, layer, residual, positions, slots, segments)
            residual = add_residual(residual, layer.out.apply(mixed))
            gate_up = layer.gate_up.apply(normalise(residual))
            size = self.config.ffn_size
            hidden = silu(gate_up[:, :size], self._sigmoid)
            np.multiply(hidden, gate_up[:, size:], out=hidden)
            residual = add_residual(residual, layer.down.apply(round_clip(hidden, HIDDEN_MAX)))
        ends = np.cumsum([len(s.tokens) for s in segments]) - 1
        wanted = ends[[s.want_logits for s in segments]]
        return self.weights.head.apply(normalise(residual[wanted]))

    def _attention(
        self,
        store: KVStore,
        index: int,
        layer: Layer,
        residual: Floats,
        positions: BlockIds,
        slots: BlockIds,
        segments: Sequence[Segment],
    ) -> Floats:
        config = self.config
        heads, width, rows = config.query_heads * config.head_dim, config.kv_width, len(positions)
        qkv = layer.qkv.apply(normalise(residual))
        queries = qkv[:, :heads].reshape(rows, config.query_heads, config.head_dim)
        keys = qkv[:, heads : heads + width].reshape(rows, config.kv_heads, config.head_dim)
        window = config.windows[index]
        if window:
            cos, sin = self._cos[positions], self._sin[positions]
            queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
        queries = round_clip(queries, QUERY_MAX) * SCORE_UNITS
        flat = round_clip(keys, QUERY_MAX).reshape(rows, width)
        store.write(index, slots, flat, round_clip(qkv[:, heads + width :], VALUE_MAX))
        mixed = np.empty((rows, heads), dtype=np.float32)
        row = 0
        for segment in segments:
            count = len(segment.tokens)
            low = max(0, segment.start - window + 1) if window else 0
            context = store.read(index, segment.blocks, low, segment.start + count)
            mixed[row : row + count] = attend(config, queries[row : row + count], segment.start, context, window)
            row += count
        return mixed


def _slots(segment: Segment, block_size: int) -> BlockIds:
    """Where the store keeps the segment's positions."""
    at = np.arange(segment.start, segment.start + len(segment.tokens))
    return segment.blocks[at // block_size] * block_size + at % block_size
