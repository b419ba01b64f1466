"""The paged KV arrays. Block b holds the slots b * block_size .. of every layer's K and V."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdd.engine.reference.attention import Context
from pdd.engine.reference.config import ModelConfig
from pdd.engine.reference.numerics import Floats

BlockIds = NDArray[np.int64]


class KVStore:
    """Who may write what is the block manager's business; here are only the bytes.

    A block's exported form is [layers, 2, tokens, kv_width] float32 little-endian: layer by layer, K before V.
    """

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int) -> None:
        self.config = config
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (num_blocks * block_size, config.kv_width)
        self.keys: list[Floats] = [np.zeros(shape, dtype=np.float32) for _ in range(config.layers)]
        self.values: list[Floats] = [np.zeros(shape, dtype=np.float32) for _ in range(config.layers)]

    def write(self, layer: int, slots: BlockIds, keys: Floats, values: Floats) -> None:
        """Store keys and values, each [T, kv_width], at `slots` [T]."""
        self.keys[layer][slots] = keys
        self.values[layer][slots] = values

    def read(self, layer: int, blocks: BlockIds, low: int, high: int) -> Context:
        """Positions low .. high of a sequence whose block table is `blocks`. A view where the blocks are neighbours."""
        size = self.block_size
        first = low // size
        ids = blocks[first : -(-high // size)]
        start = first * size
        if ids[-1] - ids[0] == len(ids) - 1 and (len(ids) < 3 or bool((np.diff(ids) == 1).all())):
            span = slice(int(ids[0]) * size, int(ids[0]) * size + (high - start))
            return Context(start, self.keys[layer][span], self.values[layer][span])
        width = self.config.kv_width
        paged = (self.num_blocks, size * width)
        keys = self.keys[layer].reshape(paged).take(ids, axis=0).reshape(-1, width)[: high - start]
        values = self.values[layer].reshape(paged).take(ids, axis=0).reshape(-1, width)[: high - start]
        return Context(start, keys, values)

    def copy_tokens(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` positions of block `source` into block `target`."""
        a, b = source * self.block_size, target * self.block_size
        for array in (*self.keys, *self.values):
            array[b : b + tokens] = array[a : a + tokens]

    def export_tokens(self, block: int, start: int, end: int) -> memoryview:
        """Positions start .. end within a block, copied into the exported form."""
        at = block * self.block_size
        part = slice(at + start, at + end)
        pieces = np.empty((self.config.layers, 2, end - start, self.config.kv_width), dtype=np.float32)
        for layer in range(self.config.layers):
            pieces[layer, 0] = self.keys[layer][part]
            pieces[layer, 1] = self.values[layer][part]
        return pieces.data.cast("B")

    def import_tokens(self, block: int, start: int, end: int, payload: bytes | memoryview) -> None:
        """Inverse of export_tokens. The payload's length must be (end - start) * bytes_per_token."""
        at = block * self.block_size
        part = slice(at + start, at + end)
        shape = (self.config.layers, 2, end - start, self.config.kv_width)
        pieces = np.frombuffer(payload, dtype=np.float32).reshape(shape)
        for layer in range(self.config.layers):
            self.keys[layer][part] = pieces[layer, 0]
            self.values[layer][part] = pieces[layer, 1]
