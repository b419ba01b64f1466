"""The fleet of the paper's tests as far as it is published; what is not is named where it is varied."""

from __future__ import annotations

from pdd.planner.fleet import Fleet, LineSpec, Pool, RuleSpec, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

KAPPA = KVLaw(4_400.0)
"""Bytes a token that 80 x 64K = 23 GB mean."""
PER_FLOW_BPS = 200e6
"""Three published numbers agree on it (models.md 8.3)."""
LINE = LineSpec(20e9, 0.02, efficiency=0.975, flow_bps=PER_FLOW_BPS, connections=256)
"""Useful rate 19.5 Gbit/s, in the middle of 19 to 20; RTT and pool are not published (models.md 8.4)."""
EXTEND = ExtendTime(0.0, 0.00305)
"""305 ms for 100 tokens."""


def build_fleet(way: Way, tpot_s: float = 0.023, rules: RuleSpec | None = None) -> Fleet:
    """So many engines that neither prefill nor decode is short: only the line and the handoff show. tpot_s: a step,
    whatever the batch."""
    times = EngineTimes(PrefillTime(50e-6, 8_192), DecodeTime(tpot_s), EXTEND, 256)
    pool = Pool(200, times)
    relay = Pool(200 if way is Way.PDD else 0, times)
    return Fleet(way, pool, relay, pool, LINE, KAPPA, rules or RuleSpec(), block_tokens=1)
