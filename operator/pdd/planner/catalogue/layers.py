"""Layers of attention: what each keeps of a token, and what it costs to read and to compute.

Bytes by precision: BF16 is 2 bytes a number. In FP8, compressed entries keep their rotary part in BF16 and have scales:
512 + 16 + 2 x 64 = 656 bytes for sparse MLA, 448 + 8 + 2 x 64 = 584 for DeepSeek-V4, 128 + 4 = 132 for an indexer key;
plain MLA and full attention are 1 byte a number. States of linear attention are FP32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdd.planner.kvlaw import KVLaw

SCALE_TOKENS = 128
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Attention:
    """`layers` layers of one kind; the fields that the kind does not have are 0. See models.yaml for the kinds."""

    kind: str
    layers: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    latent: int = 0
    rope: int = 0
    ratio: int = 1
    window: int = 0
    indexer: int = 0
    indexer_heads: int = 0
    top_k: int = 0
    key_dim: int = 0
    value_dim: int = 0

    def entry_bytes(self, low: bool) -> float:
        """One entry of one layer's cache (a token's, or that of `ratio` tokens). low: FP8."""
        if self.kind == "full":
            return 2.0 * self.kv_heads * self.head_dim * (1 if low else 2)
        if self.kind == "latent":
            if not low:
                return 2.0 * (self.latent + self.rope)
            scaled = self.latent + self.latent / SCALE_TOKENS * FP32_BYTES + 2 * self.rope
            return scaled if self.indexer else float(self.latent + self.rope)
        if self.kind in ("compressed", "window"):
            return self.head_dim - self.rope + 8.0 + 2 * self.rope if low else 2.0 * self.head_dim
        return 0.0

    def indexer_bytes(self, low: bool) -> float:
        """An indexer key, of one layer."""
        return (self.indexer + FP32_BYTES if low else 2.0 * self.indexer) if self.indexer else 0.0

    def bytes_per_token(self, low: bool) -> float:
        """Kept for every token, over all layers of the group."""
        if self.kind == "window":
            return 0.0
        return self.layers * (self.entry_bytes(low) + self.indexer_bytes(low)) / self.ratio

    def window_bytes_per_token(self, low: bool) -> float:
        """Kept for each of the last `window` tokens beside that."""
        return self.layers * self.entry_bytes(low) if self.window else 0.0

    @property
    def state_bytes(self) -> float:
        """Kept for a request, whatever its length."""
        return float(self.layers * self._state_numbers * FP32_BYTES)

    def read_bytes_per_token(self, low: bool) -> float:
        """Read in a decode step for each token of context: with an indexer only its keys, the rest is top_k entries."""
        kept = self.indexer_bytes(low) if self.indexer else self.entry_bytes(low)
        return 0.0 if self.kind == "window" else self.layers * kept / self.ratio

    def read_bytes_fixed(self, low: bool) -> float:
        """Read in one decode step for a sequence, whatever its length: chosen entries, window, state (and written)."""
        entries = self.top_k if self.indexer else 0
        return self.layers * self.entry_bytes(low) * (entries + self.window) + 2 * self.state_bytes

    @property
    def flops_per_pair(self) -> float:
        """Operations for each (new token, earlier token)."""
        if self.indexer:
            return self.layers * 2.0 * self.indexer_heads * self.indexer / self.ratio
        return 0.0 if self.kind in ("window", "linear") else self.layers * self._flops_per_entry / self.ratio

    @property
    def flops_per_token(self) -> float:
        """Operations for each new token beside the weights: chosen entries, window, state."""
        entries = (self.top_k if self.indexer else 0) + self.window
        return self.layers * (entries * self._flops_per_entry + 4.0 * self._state_numbers)

    @property
    def _state_numbers(self) -> int:
        return self.heads * self.key_dim * self.value_dim if self.kind == "linear" else 0

    @property
    def _flops_per_entry(self) -> float:
        if self.kind == "latent" and self.indexer:  # each token has its own entries: they stay compressed
            return 2.0 * self.heads * (2 * self.latent + self.rope)
        if self.kind == "latent":  # prefill expands an entry once for all tokens
            return 2.0 * self.heads * (self.key_dim + self.rope + self.value_dim)
        return 4.0 * self.heads * self.head_dim


def build_kv_law(groups: Iterable[Attention], low: bool) -> KVLaw:
    """The law of all layers together. All windows of a model are equally long. low: FP8."""
    groups = tuple(groups)
    return KVLaw(
        bytes_per_token=sum(group.bytes_per_token(low) for group in groups),
        window_bytes_per_token=sum(group.window_bytes_per_token(low) for group in groups),
        window_tokens=max((group.window for group in groups), default=0),
        state_bytes=sum(group.state_bytes for group in groups),
    )
