"""One accelerator, one model: what the catalogue says of it, in base units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue.layers import Attention, build_kv_law
from pdd.planner.kvlaw import KVLaw

PRECISIONS = ("bf16", "fp8", "fp4")
BITS_OF_PRECISION = {"bf16": 16, "fp8": 8, "fp4": 4}
"""Bits of most weights; where some are larger, `weight_bytes` tells what all of them take."""
PRECISION_OF_BITS = {bits: name for name, bits in BITS_OF_PRECISION.items()}
"""bf16: weights and KV. fp8: weights and KV. fp4: routed experts (all weights of a dense model) in FP4 with scales for
32 numbers, other weights and KV in FP8."""
FP4_BYTES = 0.5 + 1 / 32


@dataclass(frozen=True, slots=True)
class Chip:
    """Peak figures of one accelerator: operations a second, bytes, bytes a second; price in USD an hour, None: unknown.

    interconnect_bytes_per_s: both directions together, within a node of `node` chips; network_bytes_per_s: one
    direction, beyond it. mfu: share of the peak in large prefills. sources: field of the file -> where it is from.
    disputed: field -> what other sources say.
    """

    name: str
    title: str
    bf16_flops: float
    low_flops: float
    fp4_flops: float
    memory_bytes: float
    memory_bytes_per_s: float
    interconnect_bytes_per_s: float
    network_bytes_per_s: float
    mfu: float
    node: int = 8
    price_per_h: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    disputed: Mapping[str, str] = field(default_factory=dict)

    def flops(self, precision: str) -> float:
        """Peak of matrix products; a chip without the precision computes in the next larger one it has."""
        return {"bf16": self.bf16_flops, "fp8": self.low_flops, "fp4": self.fp4_flops}[precision]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """parameters, active_params: all, and those that one token uses. experts: routed experts of a layer, 0: dense.

    published: precision -> KV bytes a token that others state, and who. ids: names on model hubs.
    """

    name: str
    ids: tuple[str, ...]
    parameters: float
    active_params: float
    hidden: int
    layers: int
    default_precision: str
    attention: tuple[Attention, ...]
    experts: int = 0
    experts_per_token: int = 0
    expert_share: float = 0.0
    published: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    published_state_bytes: float | None = None
    source: str = ""

    def kv_law(self, precision: str = "") -> KVLaw:
        """Of KV in that precision, from the layers. Raises InvalidInput."""
        return build_kv_law(self.attention, self._check(precision) != "bf16")

    def weight_bytes(self, precision: str = "") -> float:
        """All weights. Raises InvalidInput."""
        chosen = self._check(precision)
        if chosen != "fp4":
            return self.parameters * (2 if chosen == "bf16" else 1)
        share = self.expert_share if self.experts else 1.0
        return self.parameters * (share * FP4_BYTES + (1 - share))

    def active_weight_bytes(self, precision: str, batch: float) -> float:
        """Weights that a step of `batch` tokens reads: of the routed experts those that at least one token takes."""
        whole = self.weight_bytes(precision)
        if not self.experts:
            return whole
        expert_bytes = self.parameters * self.expert_share * self._expert_bytes_per_param(precision)
        untouched = math.pow(1 - self.experts_per_token / self.experts, max(batch, 0.0))
        return whole - expert_bytes * untouched

    def _expert_bytes_per_param(self, precision: str) -> float:
        return {"bf16": 2.0, "fp8": 1.0, "fp4": FP4_BYTES}[self._check(precision)]

    def _check(self, precision: str) -> str:
        chosen = precision or self.default_precision
        if chosen not in PRECISIONS:
            raise InvalidInput("precision", chosen, f"write one of {', '.join(PRECISIONS)}")
        return chosen
