"""Which chip for which role: scores for people to look at, and roofline times to decide by.

The score of a dimension is log2 of the chip's figure over the reference's: one step outward is twice as much. The fit
for a role weighs the four scores; it ignores prices and models, so it is only shown, never used. The decision compares
what a prefilled and what a decoded token cost on each chip, for one model, at the workload's lengths and hit rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue.entries import Chip, ModelEntry
from pdd.planner.kvlaw import payload_bytes
from pdd.planner.roofline import estimate_times
from pdd.planner.timing import decode_step_s, prefill_s

REFERENCE = "H100"
DIMENSIONS = ("compute", "memory", "bandwidth", "interconnect")
WEIGHTS: Mapping[str, tuple[float, float, float, float]] = {
    "prefill": (0.6, 0.05, 0.1, 0.25),
    "decode": (0.1, 0.3, 0.55, 0.05),
}
ENGINE_SIZES = (1, 2, 4, 8, 16, 32, 64)
TARGET_TPOT_S = 0.05
USABLE_MEMORY = 0.9


@dataclass(frozen=True, slots=True)
class Scores:
    """log2 of the figures over the reference's, in the order of DIMENSIONS; fit: weighted, by role."""

    chip: str
    values: tuple[float, float, float, float]
    fit: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RoleTimes:
    """One engine of the chip for one model. prefill_tokens_per_s: uncached prompt tokens; decode_tokens_per_s: answer
    tokens, with `batch` sequences, the most within the TPOT target and the memory. Costs are money for 10^6 of them,
    None without a price."""

    chip: str
    accelerators: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    batch: int
    tpot_s: float
    prefill_cost: float | None
    decode_cost: float | None


def score_chips(chips: Iterable[Chip], reference: Chip) -> list[Scores]:
    """Scores of all; FP8 (or the next larger precision) is the compute that counts."""
    base = _figures(reference)
    scores = []
    for chip in chips:
        values = tuple(math.log2(mine / other) for mine, other in zip(_figures(chip), base, strict=True))
        compute, memory, bandwidth, interconnect = values
        fit = {role: sum(w * v for w, v in zip(weights, values, strict=True)) for role, weights in WEIGHTS.items()}
        scores.append(Scores(chip.name, (compute, memory, bandwidth, interconnect), fit))
    return scores


def build_radar(chips: Iterable[Chip], reference: Chip, low: float = -4.0, high: float = 2.0) -> dict[str, list[float]]:
    """By chip, how far out each of DIMENSIONS lies, 0 to 1, for a radar plot with the reference at (0 - low) / span."""
    span = high - low
    return {
        score.chip: [min(1.0, max(0.0, (value - low) / span)) for value in score.values]
        for score in score_chips(chips, reference)
    }


def compare_roles(
    chips: Iterable[Chip],
    model: ModelEntry,
    *,
    input_tokens: int,
    hit_rate: float,
    output_tokens: int,
    precision: str = "",
    prices: Mapping[str, float] | None = None,
    chunk_tokens: int = 8192,
    target_tpot_s: float = TARGET_TPOT_S,
) -> list[RoleTimes]:
    """Roofline times and costs of the chips that can hold the model, in the order given.

    prices: by chip and hour, before the catalogue's. Raises InvalidInput for lengths or a rate that cannot be.
    """
    if input_tokens < 1 or output_tokens < 1:
        raise InvalidInput("input_tokens, output_tokens", (input_tokens, output_tokens), "must be at least 1")
    if not 0 <= hit_rate <= 1:
        raise InvalidInput("hit_rate", hit_rate, "must be from 0 to 1")
    found = []
    for chip in chips:
        price = (prices or {}).get(chip.name, chip.price_per_h)
        times = _compare_one(
            chip, model, input_tokens, hit_rate, output_tokens, precision, price, chunk_tokens, target_tpot_s
        )
        if times is not None:
            found.append(times)
    return found


def choose_roles(times: Iterable[RoleTimes]) -> dict[str, str]:
    """The chip of least cost for each role, among those with a price; a role that none has is left out."""
    priced = [each for each in times if each.prefill_cost is not None and each.decode_cost is not None]
    if not priced:
        return {}
    return {
        "prefill": min(priced, key=lambda each: each.prefill_cost or 0.0).chip,
        "decode": min(priced, key=lambda each: each.decode_cost or 0.0).chip,
    }


def _compare_one(
    chip: Chip,
    model: ModelEntry,
    input_tokens: int,
    hit_rate: float,
    output_tokens: int,
    precision: str,
    price: float | None,
    chunk_tokens: int,
    target_tpot_s: float,
) -> RoleTimes | None:
    context = input_tokens + output_tokens / 2
    kept = payload_bytes(model.kv_law(precision), input_tokens + output_tokens)
    usable = chip.memory_bytes * USABLE_MEMORY
    weights = model.weight_bytes(precision)
    count = next((each for each in ENGINE_SIZES if each * usable >= weights + 2 * kept), None)
    if count is None:
        return None
    fits = max(1, int((count * usable - weights) / kept))
    laws = estimate_times(chip, count, model, precision, chunk_tokens, min(fits, 1024))
    uncached = max(1, round(input_tokens * (1 - hit_rate)))
    prefill_rate = uncached / prefill_s(laws.prefill, uncached, input_tokens - uncached)
    room = target_tpot_s - laws.decode.fixed_s
    each_s = laws.decode.per_sequence_s + laws.decode.per_context_token_s * context
    batch = max(1, min(laws.max_sequences, int(room / each_s) if room > 0 else 1))
    tpot_s = decode_step_s(laws.decode, batch, batch * context)
    second = None if price is None else price * count / 3600

    def cost(rate: float) -> float | None:
        return None if second is None else second / rate * 1e6

    decode_rate = batch / tpot_s
    return RoleTimes(chip.name, count, prefill_rate, decode_rate, batch, tpot_s, cost(prefill_rate), cost(decode_rate))


def _figures(chip: Chip) -> tuple[float, float, float, float]:
    return chip.low_flops, chip.memory_bytes, chip.memory_bytes_per_s, chip.interconnect_bytes_per_s
