"""Shape and fixed-point scales of the built-in model.

Everything that the model computes is either an exact integer held in a float or one IEEE operation on such values, so a
token's bits are the same whatever the batch, the chunking, the BLAS or the processor. The bounds that make it so are
stated here beside the constants and checked by `tests/unit/engine/test_numerics.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32_EXACT = 1 << 24
"""Integers up to this magnitude are exact in float32, and so are sums of them in any order while they stay below."""

ACTIVATION_MAX = 511
"""Clip of a normalised activation (units of 1/64): 511 * 127 * 256 < 2^24."""
ACTIVATION_SCALE = 64.0
WEIGHT_MAX = 127
QUERY_MAX = 511
"""Clip of queries (units of 1/32) and keys (units of 1/64): 511 * 511 * 64 < 2^24."""
QUERY_SCALE = 32.0
KEY_SCALE = 64.0
VALUE_MAX = 127
"""Clip of values (units of 1/16): VALUE_CHUNK * PROBABILITY_ONE * 127 < 2^24."""
VALUE_SCALE = 16.0
PROBABILITY_BITS = 9
PROBABILITY_ONE = 1 << PROBABILITY_BITS
VALUE_CHUNK = 256
"""Tokens whose weighted values are summed in float32; chunks are added in float64."""
ATTENTION_SCALE = 4.0
"""Attention output in quarters of a value unit: 4 * 127 * 127 * 256 < 2^24."""
HIDDEN_MAX = 255
"""Clip of the feed-forward's hidden activation: 255 * 127 * 512 < 2^24."""
HIDDEN_SCALE = 32.0
RESIDUAL_SCALE = 256.0
RESIDUAL_MAX = float(1 << 22)
"""Clip of the residual stream (units of 1/256): its square sums to at most 2^52 over 256 channels, exact in float64."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of the model. `windows[i]` is layer i's attention window in tokens, 0 for full attention.

    Layers with a window use rotary positions; the full layer uses none, so that it serves any distance.
    """

    vocab_size: int = 272
    hidden_size: int = 256
    ffn_size: int = 512
    query_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    windows: tuple[int, ...] = (256, 256, 256, 0)
    rope_theta: float = 10_000.0
    max_context: int = 32_768

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.query_heads // self.kv_heads

    @property
    def kv_width(self) -> int:
        """Floats of K (or of V) per token and layer."""
        return self.kv_heads * self.head_dim

    @property
    def bytes_per_token(self) -> int:
        """KV bytes of one token: K and V of every layer as float32."""
        return self.layers * 2 * self.kv_width * 4
