"""Small fleets and loads whose queues have known answers. Seconds, tokens, bytes, bits a second."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdd.planner.fleet import Fleet, LineSpec, Pool, RuleSpec, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.load import Load
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime


def times(
    *, token_s: float = 0.0, fixed_s: float = 0.0, chunk: int = 1 << 40, step_s: float = 0.02, sequence_s: float = 0.0,
    context_s: float = 0.0, extend_token_s: float = 0.001, most: int = 4096, kv: int = 0,
) -> EngineTimes:  # fmt: skip
    """One engine; prefill takes fixed_s a chunk and token_s a token, nothing else."""
    return EngineTimes(
        PrefillTime(per_token_s=token_s, chunk_tokens=chunk, fixed_s=fixed_s),
        DecodeTime(step_s, sequence_s, context_s), ExtendTime(step_s, extend_token_s), most, kv,
    )  # fmt: skip


def fleet(
    way: Way = Way.NAIVE, *, prefills: int = 1, relays: int = 2, mains: int = 1, prefill: EngineTimes | None = None,
    relay: EngineTimes | None = None, main: EngineTimes | None = None, line: LineSpec | None = None,
    bytes_per_token: float = 1000.0, rules: RuleSpec | None = None, block_tokens: int = 64,
) -> Fleet:  # fmt: skip
    """A fleet in which everything that is not named takes no time worth a word."""
    return Fleet(
        way, Pool(prefills, prefill or times()), Pool(relays, relay or times()), Pool(mains, main or times()),
        line or LineSpec(1e9, rtt_s=0.0, efficiency=1.0), KVLaw(bytes_per_token), rules or RuleSpec(),
        block_tokens=block_tokens,
    )  # fmt: skip


def load(
    n: int, *, rate: float, seed: int = 1, inputs: Any = 1000, outputs: Any = 1, hits: Any = 0, session: Any = -1,
    previous: Any = -1, think_s: Any = 0.0,
) -> Load:  # fmt: skip
    """n requests, Poisson arrivals at `rate` a second (0: all at once); the rest numbers or arrays of n."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, n) if rate > 0 else np.zeros(n)

    def column(value: Any, kind: type) -> Any:
        return np.broadcast_to(np.asarray(value, kind), (n,)).copy()

    return Load(
        np.cumsum(gaps), column(inputs, np.int64), column(outputs, np.int64), column(hits, np.int64),
        column(session, np.int64), column(previous, np.int64), column(think_s, np.float64),
    )  # fmt: skip
