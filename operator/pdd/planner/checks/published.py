"""PrfaaS's table 6 by its own model, and the bathtub's dips and valley."""

from __future__ import annotations

import numpy as np

from pdd.planner.bathtub import BathtubSpec, Reals, compute_valley, find_dips
from pdd.planner.checks.check import Check, compare, equal
from pdd.planner.prfaas import Table, TruncatedLognormal, compute_capacity, predict_remote
from pdd.planner.timing import PrefillTime

PRFAAS = "arXiv 2604.15039 tables 5 and 6"
LENGTHS = TruncatedLognormal(9.9, 1.0, 128, 131_072)
TABLE_TOKENS = (1_024, 8_192, 32_768, 131_072)
PREFILL_S = Table(TABLE_TOKENS, (0.44, 0.72, 1.84, 7.40))
PAYLOAD_BYTES = Table(TABLE_TOKENS, tuple(mib * 2**20 for mib in (190.8, 308.9, 701.3, 2316.3)))
THRESHOLD = 19_400
BATHTUB = "Infinigence, on prefix-cache hit rates (models.md 7)"
HALF_TOKENS = 700.0


def check_prfaas() -> list[Check]:
    """Item 7 of models.md 8.2: the remote side of table 6, and the two rows that follow from it."""
    remote = predict_remote(LENGTHS, THRESHOLD, 4, PREFILL_S, PAYLOAD_BYTES, 100e9)
    mean = LENGTHS.mean_between(LENGTHS.low, LENGTHS.high)
    inputs = {"mu": 9.9, "sigma": 1.0, "low": 128, "high": 131_072, "threshold": THRESHOLD, "instances": 4}
    return [
        compare("PrfaaS: mean length (tokens)", PRFAAS, inputs, mean, 27_000, 0.03),
        compare("PrfaaS: share of long requests", PRFAAS, inputs, remote.long_share, 0.496, 0.005),
        compare("PrfaaS: remote throughput (1/s)", PRFAAS, inputs, remote.theta_per_s, 1.61, 0.06),
        compare("PrfaaS: egress (Gbit/s)", PRFAAS, inputs, remote.egress_bps / 1e9, 13.0, 0.10),
        compare(
            "PrfaaS: largest rate (1/s)",
            PRFAAS,
            {**inputs, "theta_pdp": 1.64, "theta_pdd": 3.91},
            compute_capacity(remote.theta_per_s, remote.long_share, 1.64, 3.91),
            3.24,
            0.06,
            "the local two throughputs are the paper's: H20's prefill times are not published",
        ),
        compare("PrfaaS: naive heterogeneous rate (1/s)", PRFAAS, inputs, 4 / PREFILL_S.at(mean), 2.45, 0.06),
        compare(
            "PrfaaS: gain over homogeneous",
            PRFAAS,
            {"homogeneous_per_s": 2.11},
            compute_capacity(remote.theta_per_s, remote.long_share, 1.64, 3.91) / 2.11 - 1,
            0.54,
            0.06,
        ),
    ]


def list_dips(ratio: float, chunk: int) -> list[int]:
    """Hit rates in % (10 % grid) where uncached tokens a second have a local minimum, for prompts of ratio x chunk."""
    spec = BathtubSpec(PrefillTime(1e-5, chunk, HALF_TOKENS), (round(ratio * chunk),))
    return [round(dip.hit_rate * 100) for dip in find_dips(spec)]


def compute_revenue(hit_rate: Reals, price_ratio: float, slope: float) -> Reals:
    """R(x) = (1 - b x) (1 + rho x / (1 - x)), 1 at no hits: revenue where the miss rate falls linearly."""
    return (1 - slope * hit_rate) * (1 + price_ratio * hit_rate / (1 - hit_rate))


def search_valley(price_ratio: float, slope: float) -> float:
    """Hit rate of the least revenue by search; for rho < b."""
    x = np.linspace(0.0, 0.999, 200_001)
    return float(x[np.argmin(compute_revenue(x, price_ratio, slope))])


def check_bathtub() -> list[Check]:
    """Item 8 of models.md 8.2."""
    ratios = [r / 10 for r in range(20, 120)]
    matches = [r for r in ratios if all(list_dips(r, c) == [20, 40, 70] for c in (2048, 4096, 8192, 16384))]
    found = [
        equal(
            "ratios of prompt to chunk with dips at 20, 40 and 70 % and nowhere else",
            BATHTUB,
            {"ratios": "2.0 to 11.9 by 0.1", "chunks": [2048, 4096, 8192, 16384], "half_tokens": HALF_TOKENS},
            matches,
            [3.8, 3.9, 4.0],
            "their position identifies the ratio; their depth depends on the fixed cost of a forward, not published",
        )
    ]
    for rho, b, target in ((0.1, 0.5, 0.667), (0.1, 0.3, 0.491), (0.25, 0.3, 0.118), (0.2, 0.5, 0.5)):
        inputs = {"price_ratio": rho, "slope": b, "by_search": round(search_valley(rho, b), 4)}
        valley = compute_valley(rho, b) or 0.0
        found.append(compare(f"valley at rho {rho:g}, b {b:g}", BATHTUB, inputs, valley, target, 0.005))
    slope = (1 - 0.8) / (0.7 - 0.8 * 0.4)
    found.append(compare("-20 % from 40 to 70 % means b", BATHTUB, {"fall": 0.2}, slope, 0.526, 0.001))
    for x, rho, target in ((0.4, 0.1, 0.842), (0.7, 0.1, 0.779)):
        revenue = float(compute_revenue(np.array(x), rho, slope))
        inputs = {"hit_rate": x, "price_ratio": rho, "slope": round(slope, 4)}
        found.append(compare(f"revenue at a hit rate of {x:.0%}", BATHTUB, inputs, revenue, target, 0.002))
    return found
