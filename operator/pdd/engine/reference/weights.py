"""The weights file: int8 matrices with one float32 scale per output channel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdd.common.errors import InvalidInput
from pdd.engine.reference.config import ModelConfig
from pdd.engine.reference.numerics import Floats

WEIGHTS_PATH = Path(__file__).with_name("weights.npz")
Arrays = dict[str, NDArray[Any]]
LAYER_MATRICES = ("qkv", "out", "gate_up", "down")


@dataclass(frozen=True, slots=True)
class Matrix:
    """weight [in, out] of integers held in float32; scale [out] brings the product to the next step's units."""

    weight: Floats
    scale: Floats

    def apply(self, rows: Floats) -> Floats:
        """[T, in] integers -> [T, out]: an exact integer product, then one multiplication per element."""
        product: Floats = rows @ self.weight
        return np.multiply(product, self.scale, out=product)


@dataclass(frozen=True, slots=True)
class Layer:
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class Weights:
    """embedding [vocab, hidden] in residual units. fingerprint names the bits: KV of other weights is refused."""

    embedding: Floats
    layers: tuple[Layer, ...]
    head: Matrix
    fingerprint: str


def matrix_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """[in, out] of each matrix of a layer."""
    heads = config.query_heads * config.head_dim
    return {
        "qkv": (config.hidden_size, heads + 2 * config.kv_width),
        "out": (heads, config.hidden_size),
        "gate_up": (config.hidden_size, 2 * config.ffn_size),
        "down": (config.ffn_size, config.hidden_size),
    }


def save_weights(path: Path, arrays: Arrays) -> None:
    """Write the file: int8 `name` and float32 `name.scale` of each matrix and of the embedding."""
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # the stub takes names for its own flags


def load_weights(config: ModelConfig, path: Path = WEIGHTS_PATH) -> Weights:
    """Read the file. Raises InvalidInput when it is missing or of another shape."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise InvalidInput("weights", str(path), f"cannot be read ({error}); make it with make_weights.py") from error
    digest = hashlib.blake2b(repr(config).encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())

    def matrix(name: str, shape: tuple[int, int]) -> Matrix:
        weight, scale = arrays[name], arrays[name + ".scale"]
        if weight.shape != shape or weight.dtype != np.int8 or scale.shape != shape[1:]:
            raise InvalidInput(
                f"weights.{name}", weight.shape, f"must be int8 of shape {shape}; run make_weights.py again"
            )
        return Matrix(np.ascontiguousarray(weight, dtype=np.float32), scale.astype(np.float32))

    shapes = matrix_shapes(config)
    layers = tuple(
        Layer(*(matrix(f"layers.{i}.{name}", shapes[name]) for name in LAYER_MATRICES)) for i in range(config.layers)
    )
    head = matrix("head", (config.hidden_size, config.vocab_size))
    embedding = np.rint(arrays["embedding"].astype(np.float32) * arrays["embedding.scale"].astype(np.float32))
    return Weights(embedding, layers, head, digest.hexdigest())
