"""Make the built-in model's weights file: seeded random matrices, quantised to int8.

    python -m pdd.engine.reference.make_weights [--seed N] [--out PATH]

The scales are chosen so that attention is peaked enough for far tokens to matter, so that greedy output does not fall
into a short loop, and so that it is printable. It is no language: the model is not trained.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdd.engine.reference.config import (
    ACTIVATION_SCALE,
    ATTENTION_SCALE,
    HIDDEN_SCALE,
    KEY_SCALE,
    QUERY_SCALE,
    RESIDUAL_SCALE,
    VALUE_SCALE,
    WEIGHT_MAX,
    ModelConfig,
)
from pdd.engine.reference.weights import WEIGHTS_PATH, Arrays, matrix_shapes, save_weights
from pdd.engine.tokenizer import Special

_BY_FREQUENCY = " etaoinshrdlucmfwypgbvk,."
_DEVIATION = 36.0
"""Standard deviation of the int8 weights: 3.5 of them reach the clip."""


def output_scales(config: ModelConfig) -> Arrays:
    """Per matrix: float32 [out], integer product of unit-variance weights -> the next step's units.

    A real-valued weight w is stored as round(w / column_scale); multiply what this gives by column_scale.
    """
    heads, width = config.query_heads * config.head_dim, config.kv_width
    octaves = QUERY_SCALE * math.log2(math.e)
    qkv = np.concatenate([np.full(heads, octaves), np.full(width, KEY_SCALE), np.full(width, VALUE_SCALE)])
    gate_up = np.concatenate([np.ones(config.ffn_size), np.full(config.ffn_size, HIDDEN_SCALE)])
    return {
        "qkv": qkv / ACTIVATION_SCALE,
        "out": np.full(config.hidden_size, RESIDUAL_SCALE / (VALUE_SCALE * ATTENTION_SCALE)),
        "gate_up": gate_up / ACTIVATION_SCALE,
        "down": np.full(config.hidden_size, RESIDUAL_SCALE / HIDDEN_SCALE),
        "head": np.full(config.vocab_size, 1.0 / ACTIVATION_SCALE),
    }


def head_gains(config: ModelConfig) -> NDArray[np.float64]:
    """Per token: how far its logit swings. Greedy output then looks like text: lower-case letters, spaces, a few stops.

    Bytes that are no printable ASCII, and the marks of a chat's turns, swing so little that they never win; the end
    mark seldom does.
    """
    gains = np.full(config.vocab_size, 0.05)
    gains[32:127] = 0.6
    for rank, letter in enumerate(_BY_FREQUENCY):
        gains[ord(letter)] = 1.0 - 0.006 * rank
    gains[Special.END] = 0.4
    return gains


def random_arrays(config: ModelConfig, seed: int) -> Arrays:
    """All arrays of the file. Gains are the standard deviation of each matrix's output for unit-variance input."""
    rng = np.random.default_rng(seed)
    scales = output_scales(config)
    heads, width = config.query_heads * config.head_dim, config.kv_width
    gains = {
        "qkv": np.concatenate([np.full(heads + width, 1.5), np.full(width, 1.0)]),
        "out": np.full(config.hidden_size, 2.0),
        "gate_up": np.full(2 * config.ffn_size, 1.5),
        "down": np.full(config.hidden_size, 1.0),
    }

    def integers(shape: tuple[int, int]) -> np.ndarray:
        return np.clip(np.rint(rng.normal(0, _DEVIATION, shape)), -WEIGHT_MAX, WEIGHT_MAX).astype(np.int8)

    arrays: Arrays = {
        "embedding": integers((config.vocab_size, config.hidden_size)),
        "embedding.scale": np.array(RESIDUAL_SCALE / _DEVIATION, dtype=np.float32),
    }
    for layer in range(config.layers):
        for name, shape in matrix_shapes(config).items():
            unit = 1.0 / (_DEVIATION * math.sqrt(shape[0]))
            arrays[f"layers.{layer}.{name}"] = integers(shape)
            arrays[f"layers.{layer}.{name}.scale"] = (gains[name] * unit * scales[name]).astype(np.float32)
    arrays["head"] = integers((config.hidden_size, config.vocab_size))
    unit = 3.0 / (_DEVIATION * math.sqrt(config.hidden_size))
    arrays["head.scale"] = (unit * scales["head"] * head_gains(config)).astype(np.float32)
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--out", type=Path, default=WEIGHTS_PATH)
    args = parser.parse_args()
    save_weights(args.out, random_arrays(ModelConfig(), args.seed))


if __name__ == "__main__":
    main()
