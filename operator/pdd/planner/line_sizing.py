"""How wide a line: the smallest port that keeps the P99 of transfers, its price a token, when to recompute instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.cost import compute_cost_per_million
from pdd.planner.fleet import LineSpec
from pdd.planner.kvlaw import KVLaw
from pdd.planner.prefill_pool import prefill_rows_s
from pdd.planner.relay_pool import payload_rows_bytes
from pdd.planner.stats import WorkloadStats
from pdd.planner.tails import Quantiles, Reals, spread_over_rows, wait_states
from pdd.planner.timing import PrefillTime
from pdd.planner.wan import STATES, compute_line_load, flow_rate_bps, stretch_rows, transfer_rows_s

PORTS_BPS = (1e9, 10e9, 20e9, 25e9, 40e9, 100e9)


@dataclass(frozen=True, slots=True)
class Port:
    """One port size. capacity_bps; utilisation of its useful rate; transfer: seconds of one transfer (infinite: it does
    not keep up); price_per_h; price_per_million_tokens: of output tokens; enough: keeps the wished P99."""

    capacity_bps: float
    utilisation: float
    transfer: Quantiles
    price_per_h: float
    price_per_million_tokens: float
    enough: bool


@dataclass(frozen=True, slots=True)
class Crossover:
    """Move or recompute `tokens` tokens: line rate (bits/s) at which both take equally long; below it, recompute."""

    tokens: float
    payload_bytes: float
    recompute_s: float
    rate_bps: float


def size_line(
    line: LineSpec,
    kv: KVLaw,
    stats: WorkloadStats,
    rate_per_s: float,
    transfer_p99_s: float,
    *,
    price_per_h: Callable[[float], float] = lambda _: 0.0,
    ports_bps: Sequence[float] = PORTS_BPS,
    block_tokens: int = 64,
) -> tuple[Port, ...]:
    """Each port with the other properties of `line`, in rising order; the first with `enough` is the smallest.

    price_per_h: money an hour for a line of so many bits per second.

    Where one transfer is limited by its flows, no port helps: then none is enough, and more streams are the remedy.
    """
    if transfer_p99_s <= 0:
        raise InvalidInput("transfer_p99_s", transfer_p99_s, "must be a positive time in seconds")
    payload = payload_rows_bytes(kv, stats.uncached.astype(np.float64), block_tokens)
    tokens_per_s = rate_per_s * stats.output_summary.mean
    found = []
    for capacity in sorted(ports_bps):
        port = replace(line, capacity_bps=capacity)
        utilisation, transfer = predict_transfers(port, payload, rate_per_s)
        price = price_per_h(capacity)
        each = compute_cost_per_million(price, tokens_per_s)
        found.append(Port(capacity, utilisation, transfer, price, each, transfer.p99_s <= transfer_p99_s))
    return tuple(found)


def predict_transfers(line: LineSpec, payload: Reals, rate_per_s: float) -> tuple[float, Quantiles]:
    """(utilisation, seconds of a transfer) of `rate_per_s` transfers a second with these sizes."""
    load = compute_line_load(line, payload, rate_per_s)
    if not load.stable:
        return load.utilisation, Quantiles(math.inf, math.inf, math.inf, math.inf)
    own_s = transfer_rows_s(line, payload, load.rate_bps)
    stretch = stretch_rows(load, own_s, spread_over_rows(load.states, len(payload)))
    rows = own_s + (stretch - 1.0) * payload * 8.0 / load.rate_bps
    rows = rows + spread_over_rows(wait_states(load.pool, STATES)[::-1], len(payload))
    p50, p90, p99 = (float(q) for q in np.quantile(rows, (0.5, 0.9, 0.99)))
    return load.utilisation, Quantiles(float(rows.mean()), p50, p90, p99)


def compute_crossovers(
    kv: KVLaw, prefill: PrefillTime, tokens: Sequence[float], cached: float = 0.0
) -> tuple[Crossover, ...]:
    """Transfer-or-recompute: MD could compute `tokens` tokens behind `cached` ones itself instead of waiting for KV."""
    wanted = np.array(tokens, dtype=np.float64)
    payload = payload_rows_bytes(kv, wanted, 1)
    recompute = prefill_rows_s(prefill, wanted, np.full(len(wanted), cached))
    return tuple(
        Crossover(float(n), float(s), float(t), float(s) * 8.0 / float(t))
        for n, s, t in zip(wanted, payload, recompute, strict=True)
    )


def compute_compute_bound_crossover_bps(bytes_per_token: float, flops_per_s: float, parameters: float) -> float:
    """B* = bytes x 8 x FLOP/s / (2 x parameters): the crossover without attention (Lightstorm, arXiv 2608.14967).
    flops_per_s: what is reached (peak x MFU). parameters: active ones."""
    return bytes_per_token * 8.0 * flops_per_s / (2.0 * parameters)


def compute_drc_saving(kv: KVLaw, stats: WorkloadStats, block_tokens: int = 64) -> float:
    """Bytes on the line without the decode-side radix cache, over those with it."""
    missing = payload_rows_bytes(kv, stats.uncached.astype(np.float64), block_tokens)
    whole = payload_rows_bytes(kv, (stats.uncached + stats.cached).astype(np.float64), block_tokens)
    return float(whole.sum() / missing.sum())


def compute_needed_streams(line: LineSpec, payload_bytes: float, within_s: float) -> int:
    """Streams that one transfer must be striped over to land `payload_bytes` within `within_s` on an idle line.

    Raises InvalidInput if the line itself is too narrow for that.
    """
    left_s = within_s - line.rtt_s
    useful_bps = line.capacity_bps * line.efficiency
    if left_s <= 0 or payload_bytes * 8.0 / useful_bps > left_s:
        raise InvalidInput("within_s", within_s, f"not possible over {useful_bps / 1e9:g} Gbit/s at {line.rtt_s:g} s")
    one_bps = flow_rate_bps(replace(line, streams=1))
    return max(1, math.ceil(payload_bytes * 8.0 / left_s / one_bps - 1e-9))
