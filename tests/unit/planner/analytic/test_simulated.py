"""The closed forms beside the simulator: where they agree, and on which side they err."""

from __future__ import annotations

import pytest
from tests.unit.planner.analytic.fleets import make_fleet

from pdd.planner.analytic import predict
from pdd.planner.fleet import Way
from pdd.planner.laws import LengthLaw
from pdd.planner.sim import SimOptions, simulate
from pdd.planner.stats import summarize
from pdd.planner.workload import Workload, generate

RATE_PER_S = 40.0


@pytest.mark.parametrize("way", list(Way))
def test_predictions_meet_the_simulator(way: Way) -> None:
    """P at 0.84 of its capacity, the line at 0.55. TTFT is overestimated, most at the median, never underestimated."""
    workload = Workload(
        rate_per_s=RATE_PER_S,
        input_tokens=LengthLaw.from_mean(64_000, 0.3, 1_000, 300_000),
        output_tokens=LengthLaw.from_mean(1_024, 0.5, 1, 8_192),
    )
    load = generate(workload, 20_000, 1)
    fleet = make_fleet(way, p=22)
    said, played = predict(fleet, summarize(load), RATE_PER_S), simulate(fleet, load, SimOptions(seed=1))

    def ratio(value: float, share: float) -> float:
        measured = played.ttft[share]
        assert measured is not None
        return value / measured.value

    assert 0.9 < ratio(said.ttft.p50_s, 0.5) < 1.6
    assert 0.9 < ratio(said.ttft.p90_s, 0.9) < 1.35
    assert 0.95 < ratio(said.ttft.p99_s, 0.99) < 1.10
    tpot = played.tpot[0.99]
    assert tpot is not None
    assert said.tpot.p99_s == pytest.approx(tpot.value, rel=0.1)
    assert said.relay_share == pytest.approx(played.relay_token_share, rel=0.15)
    if way is not Way.SAME_SITE:
        crossed = played.line_bytes / 20_000
        assert said.line_bytes_per_s / RATE_PER_S == pytest.approx(crossed, rel=0.1)
