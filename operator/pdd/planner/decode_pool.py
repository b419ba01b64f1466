"""Continuous batching in closed form: how full the batches of a decode pool are, and when they overflow.

Little's law closes the loop: B = lambda x tokens x step(B), with step(B) linear in B and in the context that it reads:

    B = lambda O f / (1 - e - lambda O (s + k ctx))        f, s, k: `DecodeTime`; e: share of time spent on extends

Memory bounds B too: batch x (prompt + half the output, and the request's state) next to the prefixes that the radix
cache keeps must fit the free KV of an engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pdd.planner.fleet import Pool
from pdd.planner.timing import decode_step_s

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """One pool under a load.

    batch: mean sequences of an engine. limit: most it may run (sequences, memory). step_s: mean time between tokens of
    one sequence. capacity_per_s: requests of this pool a second at the limit. utilisation: offered / capacity; >= 1:
    overload (batch and step are then those at the limit). context: mean tokens of a running sequence, by steps.
    """

    batch: float
    limit: float
    step_s: float
    capacity_per_s: float
    utilisation: float
    context: float


IDLE = DecodeLoad(0.0, 0.0, 0.0, math.inf, 0.0, 0.0)


def compute_batch_limit(pool: Pool, context: float, state_tokens: float, cap: int) -> float:
    """Most sequences that one engine runs at once: its own maximum, `cap` (0: none), and what its KV memory holds."""
    limit = float(pool.times.max_sequences)
    if cap > 0:
        limit = min(limit, float(cap))
    if pool.times.kv_capacity_tokens > 0 and context > 0:
        limit = min(limit, pool.times.kv_capacity_tokens / (context + state_tokens))
    return limit


def compute_decode_load(
    pool: Pool,
    rate_per_s: float,
    prompt: Reals,
    tokens: Reals,
    *,
    state_tokens: float = 0.0,
    extend_s: float = 0.0,
    cap: int = 0,
) -> DecodeLoad:
    """rate_per_s: requests of this pool a second, over all its engines, each with a row of `prompt` (context at start)
    and `tokens` (to decode). state_tokens: constant memory of a request, in tokens of KV. extend_s: mean time a request
    takes from the steps for its extends. cap: sessions an engine may have, 0: as many as it can run.
    """
    mean = float(tokens.mean()) if len(tokens) else 0.0
    if rate_per_s <= 0 or mean <= 0:
        return IDLE
    context = float((tokens * (prompt + tokens / 2.0)).mean()) / mean
    limit = compute_batch_limit(pool, context, state_tokens, cap)
    times = pool.times.decode
    if pool.engines <= 0 or limit < 1.0:
        return DecodeLoad(0.0, limit, decode_step_s(times, 1.0, context), 0.0, math.inf, context)
    rate = rate_per_s / pool.engines
    full_s = decode_step_s(times, limit, limit * context)
    capacity = 1.0 / (mean * full_s / limit + extend_s)
    utilisation = rate / capacity
    if utilisation >= 1.0:
        return DecodeLoad(limit, limit, full_s, capacity * pool.engines, utilisation, context)
    growth = times.per_sequence_s + times.per_context_token_s * context
    left = 1.0 - rate * extend_s - rate * mean * growth
    batch = rate * mean * times.fixed_s / left
    # A lone sequence runs alone: the batch of an engine that is busy is never below one.
    step_s = max(batch / (rate * mean), decode_step_s(times, 1.0, context))
    return DecodeLoad(batch, limit, step_s, capacity * pool.engines, utilisation, context)


def compute_kept_share(pool: Pool, batch: float, context: float, prefix_tokens: float) -> float:
    """Share of waiting prefixes that the pool's caches keep: what running sequences leave free / what waits (tokens).

    1 where memory is not limited or nothing is known to wait. LRU: the running come first.
    """
    capacity = pool.times.kv_capacity_tokens
    if capacity <= 0 or prefix_tokens <= 0 or pool.engines <= 0:
        return 1.0
    free = pool.engines * max(0.0, capacity - batch * context)
    return min(1.0, free / prefix_tokens)


def compute_step_rows(pool: Pool, load: DecodeLoad, hold_s: Reals, normal: Reals) -> Reals:
    """Mean time between tokens for each of the rows: the batch varies about its mean like a Poisson number (M/G/inf).

    A request averages it over its own time: the variance falls by 2 (x - 1 + exp(-x)) / x^2 with x = hold / mean hold.
    normal: a standard normal quantile for each row.
    """
    if load.batch <= 0 or not len(hold_s):
        return np.full(len(normal), load.step_s)
    x = np.maximum(hold_s / max(float(hold_s.mean()), 1e-12), 1e-3)
    averaged = 2.0 * (x - 1.0 + np.exp(-x)) / (x * x)
    swing = normal * np.sqrt(averaged * load.batch)
    swing = np.minimum(swing, max(0.0, load.limit - load.batch))
    times = pool.times.decode
    growth = times.per_sequence_s + times.per_context_token_s * load.context
    floor = decode_step_s(times, 1.0, load.context)
    step_s: Reals = np.maximum(floor, load.step_s + growth * swing)
    return step_s
