"""Times of an engine from data sheets: each step takes as long as its computing, its reading and its sending need.

For engines that nobody has measured. Data sheets know nothing of kernels: expect errors of tens of per cent, and
`pdd calibrate` wherever an engine runs. Efficiencies are AIConfigurator's (80 % of memory bandwidth, 3 us an operation)
and InferSim's (share of the peak in prefill, by chip; matrix products of m tokens reach m / (m + 700) of that).
"""

from __future__ import annotations

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue.entries import Chip, ModelEntry
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

MEMORY_EFFICIENCY = 0.8
NETWORK_EFFICIENCY = 0.8
OPERATION_S = 3e-6
OPERATIONS_PER_LAYER = 10
EXCHANGES_PER_LAYER = 2
NODE_EXCHANGE_S, NETWORK_EXCHANGE_S = 5e-6, 20e-6
"""Latency of one collective within a node, and between nodes over RDMA; our own round figures."""
HALF_TOKENS = 700.0
USABLE_MEMORY = 0.9
BATCH_SHARE = 0.5
"""Of the sequences that an engine may run: the batch for which its steps' share of touched experts is taken."""


def estimate_times(
    chip: Chip, accelerators: int, entry: ModelEntry, precision: str, chunk_tokens: int, max_sequences: int
) -> EngineTimes:
    """The laws of one engine of `accelerators` chips. Raises InvalidInput if the weights do not fit."""
    weights = entry.weight_bytes(precision)
    chosen = precision or entry.default_precision
    room = accelerators * chip.memory_bytes * USABLE_MEMORY - weights
    if room <= 0:
        need = int(-(-weights // (chip.memory_bytes * USABLE_MEMORY)))
        raise InvalidInput("accelerators", accelerators, f"{entry.name} ({chosen}) needs at least {need} x {chip.name}")
    low = chosen != "bf16"
    flops = accelerators * chip.flops(chosen) * chip.mfu
    attention_flops = accelerators * chip.bf16_flops * chip.mfu
    read_bytes_per_s = accelerators * chip.memory_bytes_per_s * MEMORY_EFFICIENCY
    launch_s = entry.layers * (
        OPERATIONS_PER_LAYER * OPERATION_S + EXCHANGES_PER_LAYER * _exchange_s(chip, accelerators)
    )
    sent_s = compute_sent_bytes(chip, entry, accelerators) / compute_link_bytes_per_s(chip, accelerators)
    pair_s = sum(group.flops_per_pair for group in entry.attention) / attention_flops
    extra_s = sum(group.flops_per_token for group in entry.attention) / attention_flops
    token_s = max(2 * entry.active_params / flops, sent_s) + extra_s
    step_weights = entry.active_weight_bytes(precision, BATCH_SHARE * max_sequences)
    step_s = step_weights / read_bytes_per_s + launch_s
    fixed_read = sum(group.read_bytes_fixed(low) for group in entry.attention)
    context_s = sum(group.read_bytes_per_token(low) for group in entry.attention) / read_bytes_per_s
    law = entry.kv_law(precision)
    kept = law.window_bytes_per_token * law.window_tokens + law.state_bytes
    free = room - max_sequences * kept
    return EngineTimes(
        prefill=PrefillTime(token_s, chunk_tokens, HALF_TOKENS, pair_s, launch_s),
        decode=DecodeTime(step_s, token_s + fixed_read / read_bytes_per_s, context_s),
        extend=ExtendTime(step_s, token_s, context_s),
        max_sequences=max_sequences,
        kv_capacity_tokens=max(1, int(free / law.bytes_per_token)) if law.bytes_per_token else 0,
    )


def compute_sent_bytes(chip: Chip, entry: ModelEntry, accelerators: int) -> float:
    """Bytes that each chip sends for one token: two all-reduces a layer (dense), or dispatch and combine (experts).

    Experts: one byte a number there, two back. Within a node a copy for each expert; between nodes one for each node,
    which spreads it inside.
    """
    if accelerators <= 1:
        return 0.0
    away = (accelerators - 1) / accelerators
    if not entry.experts:
        return entry.layers * 2 * 2 * entry.hidden * 2.0 * away
    nodes = -(-accelerators // chip.node)
    copies = entry.experts_per_token * away if nodes == 1 else float(min(entry.experts_per_token, nodes - 1))
    return entry.layers * entry.hidden * 3.0 * copies / accelerators


def compute_link_bytes_per_s(chip: Chip, accelerators: int) -> float:
    """One direction: within a node, or the cluster network if the engine spans more than one."""
    one_way = chip.interconnect_bytes_per_s / 2 if accelerators <= chip.node else chip.network_bytes_per_s
    return one_way * NETWORK_EFFICIENCY


def _exchange_s(chip: Chip, accelerators: int) -> float:
    if accelerators <= 1:
        return 0.0
    return NODE_EXCHANGE_S if accelerators <= chip.node else NETWORK_EXCHANGE_S
