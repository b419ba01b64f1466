"""The overload loop: what happens if requests with low hit rates end at RLD instead of moving on to MD.

Conversations of many turns. A turn that ends at RLD leaves nothing in MD's cache, so the next one misses that turn's
tokens too, its transfer takes longer, it is relayed, and so on. RLD's load is sessions (Little): relayed turns x time
that each stays: the transfer if it moves on, its whole output if it ends there.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pdd.planner.checks.fleets import KAPPA, PER_FLOW_BPS
from pdd.planner.checks.loads import MIXED, OUTPUT_TOKENS, PROMPT_TOKENS
from pdd.planner.relay_pool import payload_rows_bytes
from pdd.planner.tails import Reals

CONVERSATIONS = 4_000
TURNS = 40
THRESHOLD_S = 0.8
TPOT_S = 0.023


@lru_cache(maxsize=64)
def compute_relay_load(ended: float) -> Reals:
    """RLD's sessions for each turn, a conversation each, if a share `ended` of relayed turns ends at RLD."""
    rng = np.random.default_rng(11)
    behind = np.zeros(CONVERSATIONS)
    load = np.zeros(TURNS)
    for turn in range(TURNS):
        fresh = (1.0 - MIXED.draw(CONVERSATIONS, rng)) * PROMPT_TOKENS
        missing = np.minimum(fresh + behind, PROMPT_TOKENS)
        wan_s = payload_rows_bytes(KAPPA, missing, 1) * 8 / PER_FLOW_BPS
        relayed = wan_s > THRESHOLD_S
        ends = relayed & (rng.random(CONVERSATIONS) < ended)
        stays_s = np.where(ends, OUTPUT_TOKENS * TPOT_S, np.minimum(wan_s, OUTPUT_TOKENS * TPOT_S))
        load[turn] = float((stays_s * relayed).mean())
        behind = np.where(ends, missing + OUTPUT_TOKENS, 0.0)
    return load


def find_collapse(growth: float) -> float:
    """Least share of relayed turns ending at RLD at which its load, once settled, is `growth` times that of none."""
    base = float(np.mean(compute_relay_load(0.0)))
    for percent in range(0, 101, 2):
        if float(np.mean(compute_relay_load(percent / 100)[-10:])) > growth * base:
            return percent / 100
    return 1.0
