"""The KV law: how many bytes a prompt's KV cache is, and how many of them an engine still lacks.

Source: a decoder layer keeps one key and one value vector for each KV head and token, so KV grows linearly:
`bytes_per_token = 2 * layers * kv_heads * head_dim * bytes_per_element`; state layers (linear attention, Mamba) add a
constant `state_bytes` for each sequence. Engines keep and move KV in blocks of `block_size` tokens, and a last partial
block crosses the line as a whole block (NIXL descriptors are per block).
"""

from __future__ import annotations

from dataclasses import dataclass

from pdd.api.config import KVLayout


@dataclass(frozen=True, slots=True)
class MissingKV:
    """What one engine lacks of one prompt.

    tokens: tokens past the last cached block. blocks: blocks that hold them. bytes_: those blocks plus the state.
    """

    tokens: int
    blocks: int
    bytes_: int


def compute_blocks(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` tokens: ceil(tokens / block_size)."""
    return -(-tokens // block_size)


def compute_kv_bytes(layout: KVLayout, tokens: int) -> int:
    """Bytes of the whole KV of `tokens` tokens as they would cross the line (whole blocks, plus the state)."""
    if tokens <= 0:
        return 0
    return compute_blocks(tokens, layout.block_size) * layout.block_size * layout.bytes_per_token + layout.state_bytes


def compute_missing(layout: KVLayout, prompt_tokens: int, cached_blocks: int) -> MissingKV:
    """What an engine with the first `cached_blocks` full blocks lacks of `prompt_tokens` tokens.

    A state (`state_bytes`) is valid for one position only, so it counts whenever anything at all is missing.
    """
    size = layout.block_size
    cached_tokens = min(cached_blocks * size, prompt_tokens)
    tokens = prompt_tokens - cached_tokens
    if tokens <= 0:
        return MissingKV(0, 0, 0)
    blocks = compute_blocks(prompt_tokens, size) - cached_tokens // size
    return MissingKV(tokens, blocks, blocks * size * layout.bytes_per_token + layout.state_bytes)
