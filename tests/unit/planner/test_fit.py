"""Fitting a workload to loads that were drawn from known ones, and to recorded ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.fit import fit_workload
from pdd.planner.hit_law import HitMixture
from pdd.planner.laws import ArrivalLaw, Arrivals, LengthLaw, SessionLaw
from pdd.planner.traces import read_trace
from pdd.planner.traces.stats import bucket_shares
from pdd.planner.workload import Workload, generate

DATA = Path(__file__).parents[3] / "tests" / "data" / "traces"


@pytest.mark.parametrize("seed", range(3))
def test_the_laws_come_back(seed: int) -> None:
    workload = Workload(
        rate_per_s=7.0,
        input_tokens=LengthLaw(20_000.0, 1.0, 128.0, 131_072.0),
        output_tokens=LengthLaw(300.0, 0.8, 1.0, 4000.0),
        arrivals=ArrivalLaw(Arrivals.GAMMA, cv=2.0),
    )
    load = generate(workload, 30_000, seed)
    fitted = fit_workload(load)
    assert fitted.rate_per_s == load.rate_per_s
    assert fitted.arrivals.kind is Arrivals.GAMMA and fitted.arrivals.cv == pytest.approx(2.0, rel=0.05)
    assert fitted.hits.mean == pytest.approx(HitMixture().mean, abs=0.005)
    again = generate(fitted, 30_000, seed + 100)
    for column in ("input_tokens", "output_tokens"):
        assert getattr(again, column).mean() == pytest.approx(getattr(load, column).mean(), rel=0.05)
        assert np.median(getattr(again, column)) == pytest.approx(np.median(getattr(load, column)), rel=0.12)
    shares = [bucket_shares(each.hit_tokens / each.input_tokens) for each in (load, again)]
    assert shares[0] == pytest.approx(shares[1], abs=0.015)


def test_poisson_is_recognised() -> None:
    assert fit_workload(generate(Workload(), 20_000, 1)).arrivals == ArrivalLaw()


def test_sessions_come_back() -> None:
    law = SessionLaw(8.0, LengthLaw(500.0, 0.8, 1.0, 8000.0), LengthLaw(6.0, 1.0, 0.1, 100.0))
    fitted = fit_workload(generate(Workload(rate_per_s=2.0, sessions=law), 30_000, 2))
    assert fitted.sessions is not None and fitted.sessions.answers_cached
    assert fitted.sessions.turns == pytest.approx(8.0, rel=0.1)
    assert fitted.sessions.growth.mean == pytest.approx(law.growth.mean, rel=0.05)
    assert fitted.sessions.think_s.median == pytest.approx(6.0, rel=0.05)


def test_no_hits_are_made_up() -> None:
    load = generate(Workload(hits=HitMixture().with_mean(0.0)), 100, 1)
    assert fit_workload(load).hits.mean == 0.0


def test_equal_values_fit_as_such() -> None:
    load = generate(Workload(input_tokens=LengthLaw(5000.0), output_tokens=LengthLaw(1.0)), 100, 1)
    fitted = fit_workload(load)
    assert (fitted.input_tokens.mean, fitted.input_tokens.sigma, fitted.output_tokens.mean) == (5000.0, 0.0, 1.0)


def test_too_few_requests_and_no_rate() -> None:
    with pytest.raises(InvalidInput, match="at least 20"):
        fit_workload(read_trace(DATA / "mooncake.jsonl", 19))
    assert fit_workload(read_trace(DATA / "mooncake.jsonl")).block_tokens == 512
