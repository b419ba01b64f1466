"""The reference engine: a real, tiny transformer with paged KV, behind the part of vLLM's HTTP API that PDD uses.

Importing this package loads neither numpy nor the weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pdd.engine.reference.config import ModelConfig
from pdd.engine.tokenizer import ByteTokenizer

DEFAULT_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What others must know of the built-in model. Sizes in bytes and tokens."""

    bytes_per_token: int
    block_size: int
    vocab_size: int
    eos_token_id: int
    max_context: int


def model_info(block_size: int = DEFAULT_BLOCK_SIZE) -> dict[str, int]:
    """The built-in model's sizes, for planners of bytes and for tests."""
    config = ModelConfig()
    tokenizer = ByteTokenizer()
    info = ModelInfo(
        config.bytes_per_token, block_size, config.vocab_size, int(tokenizer.eos_token_id), config.max_context
    )
    return asdict(info)
