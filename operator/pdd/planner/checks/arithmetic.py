"""The interview's and the paper's arithmetic (models.md 8.1): what follows from their numbers, and what does not."""

from __future__ import annotations

from pdd.planner.checks.check import Check, compare, within
from pdd.planner.cost import compare_costs
from pdd.planner.fleet import Fleet, LineSpec, Pool, Way
from pdd.planner.kvlaw import KVLaw, payload_bytes
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

PAPER = "arXiv 2609.13161"
INTERVIEW = "interview with the PDD authors (models.md 8.1)"
V4_ENTRY_BYTES = 584
"""One FP8 entry of DeepSeek-V4's compressed KV: 448 + 64 x 2 (rotary) + 8 (scales)."""
V4_LAYERS = 61
V4_KV = KVLaw(
    bytes_per_token=V4_ENTRY_BYTES * (30 / 4 + 31 / 128),
    window_bytes_per_token=V4_LAYERS * V4_ENTRY_BYTES,
    window_tokens=128,
)
"""DeepSeek-V4-Pro in FP8, attention only: 30 layers keep an entry for 4 tokens, 31 for 128; all the last 128 tokens."""
COUNT_A, COUNT_B, COUNT_BASE = 43, 32, 88


def check_arithmetic() -> list[Check]:
    """Rows of models.md 8.1 that are exact, and those where two statements meet."""
    return [*_check_tokens(), *_check_bytes(), *_check_times(), *_check_costs()]


def _check_tokens() -> list[Check]:
    low, high = 1 / 0.0625 - 1, 1 / 0.0615 - 1
    return [
        within(
            "relay share 6.2 % against 93.8 % is a ratio of 15.2",
            INTERVIEW,
            {"relay_share": 0.062, "said": 15.2},
            0.938 / 0.062,
            low,
            high,
            "the band of what rounds to 6.2 %; 15.2 itself means 6.17 %",
        ),
        compare("100K tokens of 50 KB are 5 GB", INTERVIEW, {"tokens": 1e5, "bytes_per_token": 5e4}, 1e5 * 5e4, 5e9, 0),
    ]


def _check_bytes() -> list[Check]:
    batch = payload_bytes(V4_KV, 65_536) * 80
    per_token = V4_KV.bytes_per_token
    short = payload_bytes(V4_KV, 100)
    return [
        compare(
            "80 prompts of 64K weigh 23 GB",
            INTERVIEW,
            {"prompts": 80, "tokens": 65_536, "bytes_per_token": per_token},
            per_token * 65_536 * 80 / 1e9,
            23.0,
            0.035,
            "from DeepSeek-V4-Pro's published configuration, FP8, without the indexer",
        ),
        compare(
            "23 GB each second are more than 180 Gbit/s",
            INTERVIEW,
            {"bytes": batch, "per_s": 1},
            23.07e9 * 8 / 1e9,
            184.6,
            0.001,
            "80 requests a second, as the paper has it; 80 at once says nothing of a rate",
        ),
        within(
            "a hit rate of 90 % brings that to the test's 20 Gbit/s line",
            PAPER,
            {"bits_per_s": 184.6e9, "hit_rate": 0.9, "line_bps": 20e9},
            184.6 * 0.1 / 20,
            0.92,
            0.925,
        ),
        compare(
            "KV of a 100-token increment is 4649 KB",
            INTERVIEW,
            {"tokens": 100, "window_bytes_per_token": V4_KV.window_bytes_per_token, "bytes_per_token": per_token},
            short / 1e3,
            4649,
            0.15,
            "not exact: 0.4 MB of indexer and alignment are not published. The sliding window makes short increments "
            "dear: 46.5 KB a token is no contradiction to 4.5 KB a token of long ones",
        ),
        compare("1.5 KB for 100 ids are 15 B each", INTERVIEW, {"bytes": 1500, "ids": 100}, 1500 / 100, 15, 0),
        compare(
            "ids are 3,099 times lighter than KV", INTERVIEW, {"kv_kb": 4649, "ids_kb": 1.5}, 4649 / 1.5, 3099, 1e-3
        ),
    ]


def _check_times() -> list[Check]:
    return [
        compare(
            "4649 KB in 185 ms are 201 Mbit/s",
            INTERVIEW,
            {"kb": 4649, "s": 0.185},
            4649e3 * 8 / 0.185 / 1e6,
            201,
            0.005,
        ),
        compare("and 73 Mbit/s at the peak", INTERVIEW, {"kb": 4649, "s": 0.5126}, 4649e3 * 8 / 0.5126 / 1e6, 73, 0.01),
        compare("305 ms for 100 tokens are 3.05 ms each", INTERVIEW, {"ms": 305, "tokens": 100}, 305 / 100, 3.05, 0),
        compare(
            "its maximum is 3.4 deviations out",
            INTERVIEW,
            {"mean_ms": 305, "sd_ms": 4.8, "max_ms": 321.4},
            (321.4 - 305) / 4.8,
            3.4,
            0.01,
        ),
        compare(
            "TTFT P50 falls by 2.5 s",
            INTERVIEW,
            {"cross_s": 6.7, "pdd_s": 4.2},
            6.7 - 4.2,
            2.5,
            1e-9,
            "4.2 s is PDD's own; the same-site baseline is 3.9 s, so the gap that PDD closes is 2.8 s",
        ),
        compare("TTFT P50 -37.3 %", PAPER, {"cross_s": 6.7, "pdd_s": 4.2}, 4.2 / 6.7 - 1, -0.373, 0.002),
        compare("TTFT P90 -46.4 %", PAPER, {"cross_s": 18.3, "pdd_s": 9.8}, 9.8 / 18.3 - 1, -0.464, 0.002),
        compare("TTFT P99 -51.5 %", PAPER, {"cross_s": 29.7, "pdd_s": 14.4}, 14.4 / 29.7 - 1, -0.515, 0.001),
        compare("goodput +27.8 %", PAPER, {"from_per_s": 9.0, "to_per_s": 11.5}, 11.5 / 9.0 - 1, 0.278, 0.001),
    ]


def _check_costs() -> list[Check]:
    """Cost in units of one A accelerator (H100)."""
    found = []
    for premium, claim, line in ((1.2, -0.071, 0.35), (1.3, -0.035, 0.32)):
        engines = COUNT_A + COUNT_B * premium
        inputs = {"a": COUNT_A, "b": COUNT_B, "premium": premium, "base": COUNT_BASE}
        found.append(
            compare(
                f"cost at premium {premium:g}, without the line",
                PAPER,
                inputs,
                engines / COUNT_BASE - 1,
                {1.2: -0.075, 1.3: -0.0386}[premium],
                0.01,
            )
        )
        found.append(
            compare(
                f"the line that is left over at premium {premium:g}, in H100",
                PAPER,
                {**inputs, "claimed_change": claim},
                COUNT_BASE * (1 + claim) - engines,
                line,
                0.01,
                "0.36 to 0.40 % of the baseline: far less than public prices for 20 Gbit/s",
            )
        )
    for name, premium, line, bcr, token in (("high", 1.2, 0.352, 0.375, -0.273), ("low", 1.3, 0.32, 0.324, -0.245)):
        pdd = _fleet(Way.PDD, COUNT_A, COUNT_B, premium, line)
        gain = compare_costs(11.5, pdd.cost_per_h, 9.0, _fleet(Way.SAME_SITE, COUNT_BASE, 0, 1.0, 0.0).cost_per_h)
        inputs = {"goodput": 11.5, "base_goodput": 9.0, "cost": pdd.cost_per_h, "base_cost": COUNT_BASE}
        found.append(compare(f"BCR +{bcr:.1%} ({name} end)", f"{PAPER}; models.md 8.2 6", inputs, gain.bcr, bcr, 0.005))
        found.append(
            compare(
                f"a good token then costs {-token:.1%} less ({name} end)",
                "arithmetic; press reports say -37.5 %",
                inputs,
                gain.cost_per_good,
                token,
                0.005,
                "a ratio 1.375 times as high is a price 1 / 1.375 as high: the reported -37.5 % is a wrong reading",
            )
        )
    return found


def _fleet(way: Way, count_a: int, count_b: int, premium: float, line: float) -> Fleet:
    """Accelerators as engines of one; an A accelerator costs 1. Counts are normalised: 3 of the 43 are RLD's, and three
    H100 cannot hold the model (models.md 1)."""
    times = EngineTimes(PrefillTime(1e-5, 8_192), DecodeTime(0.02), ExtendTime(0.0, 0.003), 64)
    relay = 3 if way is Way.PDD else 0
    pools = (Pool(count_a - relay, times, price_per_h=1.0), Pool(relay, times, price_per_h=1.0))
    main = Pool(count_b, times, price_per_h=premium)
    return Fleet(way, *pools, main, LineSpec(20e9, 0.02, price_per_h=line), V4_KV)
