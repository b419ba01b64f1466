"""A workload in words of laws, and requests drawn from it: `generate(workload, n, seed)`.

The same workload, n and seed give the same load, to the last bit, on one version of numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.hit_law import HitMixture
from pdd.planner.laws import ArrivalLaw, LengthLaw, OddLaw, SessionLaw
from pdd.planner.load import Load, Tokens
from pdd.planner.sessions import FirstTurns, draw_sessions, to_tokens

MAX_REQUESTS = 50_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked. rate_per_s: mean requests a second, all together.

    input_tokens: of a prompt; with sessions of a session's first one. hits: hit rates of requests that stand alone;
    with sessions, of the first turns only, since those of later turns follow from the prompt before. sessions, odd:
    None: none. block_tokens: hits are whole blocks, rounded down; 1: any number.
    """

    rate_per_s: float = 1.0
    input_tokens: LengthLaw = field(default_factory=lambda: LengthLaw(56_000.0, 0.5, 128.0, 262_144.0))
    output_tokens: LengthLaw = field(default_factory=lambda: LengthLaw(880.0, 0.5, 1.0, 32_768.0))
    hits: HitMixture = field(default_factory=HitMixture)
    arrivals: ArrivalLaw = field(default_factory=ArrivalLaw)
    sessions: SessionLaw | None = None
    odd: OddLaw | None = None
    block_tokens: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_per_s) and 1e-9 <= self.rate_per_s <= 1e9):
            raise InvalidInput("rate_per_s", self.rate_per_s, "must be from 1e-9 to 1e9 requests a second")
        if not 1 <= self.block_tokens <= 1 << 20:
            raise InvalidInput("block_tokens", self.block_tokens, "must be from 1 to 1,048,576")


def generate(workload: Workload, n: int, seed: int) -> Load:
    """n requests, sorted by arrival. Lengths are whole tokens, at least 1; at least one token of a prompt is computed.

    Raises InvalidInput for n below 1 or above 50 million, or a negative seed.
    """
    if not 1 <= n <= MAX_REQUESTS:
        raise InvalidInput("n", n, f"must be from 1 to {MAX_REQUESTS:,}")
    if seed < 0:
        raise InvalidInput("seed", seed, "must be at least 0")
    seeds = np.random.SeedSequence(seed).spawn(3)
    if workload.odd is None or workload.odd.share == 0:
        return _draw_regular(workload, n, workload.rate_per_s, seeds[0])
    odd = min(int(np.random.default_rng(seeds[1]).binomial(n, workload.odd.share)), n - 1)
    regular = _draw_regular(workload, n - odd, workload.rate_per_s * (1 - odd / n), seeds[0])
    return _merge_odd(regular, workload.odd, odd, np.random.default_rng(seeds[2]))


def _draw_regular(workload: Workload, n: int, rate_per_s: float, seed: np.random.SeedSequence) -> Load:
    first = FirstTurns(workload.input_tokens, workload.output_tokens, workload.hits, workload.block_tokens)
    if workload.sessions is not None:
        return draw_sessions(workload.sessions, first, workload.arrivals, n, rate_per_s, seed)
    times, lengths, hits = (np.random.default_rng(s) for s in seed.spawn(3))
    arrival_s = workload.arrivals.draw(n, rate_per_s, times)
    inputs = to_tokens(workload.input_tokens.draw(n, lengths))
    outputs = to_tokens(workload.output_tokens.draw(n, lengths))
    hit = first.draw_hits(inputs, hits)
    return Load(arrival_s, inputs, outputs, hit, np.full(n, -1), np.full(n, -1), np.zeros(n))


def _merge_odd(regular: Load, law: OddLaw, count: int, rng: np.random.Generator) -> Load:
    """Odd requests come evenly over the whole time and belong to no session."""
    arrival_s = np.concatenate([regular.arrival_s, np.sort(rng.random(count)) * regular.arrival_s[-1]])
    order = np.argsort(arrival_s, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    none, alone = np.zeros(count, np.int64), np.full(count, -1)

    def merged(mine: Tokens, odd: Tokens) -> Tokens:
        return np.concatenate([mine, odd])[order]

    return Load(
        arrival_s=arrival_s[order],
        input_tokens=merged(regular.input_tokens, to_tokens(law.input_tokens.draw(count, rng))),
        output_tokens=merged(regular.output_tokens, to_tokens(law.output_tokens.draw(count, rng))),
        hit_tokens=merged(regular.hit_tokens, none),
        session=merged(regular.session, alone),
        previous=merged(np.where(regular.previous >= 0, place[regular.previous], -1), alone),
        think_s=np.concatenate([regular.think_s, np.zeros(count)])[order],
    )
