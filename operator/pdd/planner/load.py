"""The load: requests as columns, sorted by arrival. Traces, generators and the simulator meet here.

A million requests are about 60 MB; prompts are never held, only lengths, hits and, where a trace has them, hashes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Hashes of the prompts' blocks: request i has `ids[offsets[i]:offsets[i + 1]]`. Equal prefix, equal leading ids.

    offsets: int64 of n + 1. ids: int64, dense from 0 (renumbered by the reader). block_tokens: tokens of a block.
    """

    offsets: Tokens
    ids: Tokens
    block_tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """n requests. All arrays have n entries.

    arrival_s: from the start, not falling. For a request with `previous[i] >= 0` the arrival is that of an open replay;
    a closed-loop run takes the end of request `previous[i]` plus `think_s[i]` instead.
    input_tokens, output_tokens: at least 1. hit_tokens: prompt tokens that a cache of unlimited size holds (0 to
    input_tokens); where `blocks` is there, the simulator finds hits itself with finite caches.
    session: equal for the requests of one conversation, -1: none. previous: index of the request before it in the
    session, -1: none. think_s: user's or tool's time between the two.
    """

    arrival_s: Seconds
    input_tokens: Tokens
    output_tokens: Tokens
    hit_tokens: Tokens
    session: Tokens
    previous: Tokens
    think_s: Seconds
    blocks: Blocks | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second; 0 for fewer than two requests or no time between them."""
        n = len(self.arrival_s)
        span = float(self.arrival_s[-1] - self.arrival_s[0]) if n else 0.0
        return (n - 1) / span if span > 0 else 0.0
