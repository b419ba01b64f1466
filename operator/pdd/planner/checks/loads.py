"""The loads of the paper's tests, drawn with fixed seeds."""

from __future__ import annotations

from functools import lru_cache

from pdd.planner.hit_law import HitMixture
from pdd.planner.laws import LengthLaw
from pdd.planner.stats import WorkloadStats, summarize
from pdd.planner.workload import Workload, generate

PROMPT_TOKENS = 65_536
OUTPUT_TOKENS = 1_024
RATE_PER_S = 80.0
REQUESTS = 40_000
ROWS = 4_096
SEED = 7


@lru_cache(maxsize=16)
def draw_stats(hits: HitMixture, output_tokens: int = OUTPUT_TOKENS) -> WorkloadStats:
    """80 requests a second of 64K tokens in, with the given law of hits."""
    workload = Workload(
        rate_per_s=RATE_PER_S,
        input_tokens=LengthLaw(float(PROMPT_TOKENS)),
        output_tokens=LengthLaw(float(output_tokens)),
        hits=hits,
    )
    return summarize(generate(workload, REQUESTS, SEED), ROWS)


MIXED = HitMixture()
"""The seven buckets of production: mean 90.4 %."""
MEAN_90 = MIXED.with_mean(0.9)
"""The same, moved so that the mean is 90 % to the digit."""
NARROW = HitMixture.narrow(0.85, 0.95)
NONE = HitMixture.narrow(0.0, 0.0)
