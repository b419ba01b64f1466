"""Dips, valley and advice: against the reported figures, brute force, and the scalar time law."""

from __future__ import annotations

import numpy as np
import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.bathtub import (
    GRID,
    BathtubSpec,
    Tails,
    advise,
    compute_bathtub,
    compute_times_s,
    compute_valley,
    find_dips,
)
from pdd.planner.hit_law import HitMixture
from pdd.planner.timing import PrefillTime, prefill_s

CHUNKS = (2048, 4096, 8192, 16_384)


def engine(chunk: int, fixed_s: float = 0.0, attention_s: float = 0.0) -> PrefillTime:
    return PrefillTime(1e-5, chunk, 700.0, attention_s, fixed_s)


def dips(prompt: int, chunk: int, tails: Tails = Tails.ALONE, fixed_s: float = 0.0) -> list[int]:
    return [round(100 * dip.hit_rate) for dip in find_dips(BathtubSpec(engine(chunk, fixed_s), (prompt,)), tails)]


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("ratio", [3.8, 3.9, 4.0])
def test_dips_at_20_40_and_70_percent_as_reported(ratio: float, chunk: int) -> None:
    assert dips(round(ratio * chunk), chunk) == [20, 40, 70]


def test_no_other_ratio_of_prompt_to_chunk_has_these_dips() -> None:
    ratios = [r / 10 for r in range(20, 120)]
    same = [r for r in ratios if all(dips(round(r * chunk), chunk) == [20, 40, 70] for chunk in CHUNKS)]
    assert same == [3.8, 3.9, 4.0]


@pytest.mark.parametrize(("prompt", "chunk"), [(16_000, 4096), (32_000, 8192), (64_000, 16_384)])
def test_the_examples(prompt: int, chunk: int) -> None:
    found = find_dips(BathtubSpec(engine(chunk), (prompt,)))
    assert [round(100 * dip.hit_rate) for dip in found] == [20, 40, 70]
    deeper = find_dips(BathtubSpec(engine(chunk, 0.1), (prompt,)))
    assert all(0.005 < a.depth < b.depth for a, b in zip(found, deeper, strict=True))
    # Up to 9 % by the tails alone, and a fixed cost of a forward makes them deeper (their depth is not published).
    assert max(dip.depth for dip in found) < 0.09


@pytest.mark.parametrize("fixed_s", [0.0, 0.1])
@pytest.mark.parametrize("ratio", [2.0, 3.3, 3.9, 5.1, 7.7, 11.9])
def test_fused_tails_have_no_dips(ratio: float, fixed_s: float) -> None:
    for chunk in CHUNKS:
        assert dips(round(ratio * chunk), chunk, Tails.FUSED, fixed_s) == []


def test_times_are_those_of_the_scalar_law() -> None:
    times = PrefillTime(2e-5, 4096, 700.0, 3e-10, 0.02)
    uncached = np.array([1, 100, 4096, 4097, 16_000, 123_456])
    cached = np.array([9, 0, 5000, 100_000, 48_000, 7])
    found = compute_times_s(times, uncached.astype(float), cached.astype(float))
    expected = [prefill_s(times, int(u), int(c)) for u, c in zip(uncached, cached, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_equal_pieces_cost_what_a_tail_costs() -> None:
    times = engine(4096, 0.05, 1e-9)
    uncached = np.linspace(2, 60_000, 500)
    kinds = (Tails.ALONE, Tails.BALANCED, Tails.FUSED)
    alone, balanced, fused = (compute_times_s(times, uncached, uncached, tails) for tails in kinds)
    assert alone == pytest.approx(balanced)
    assert (fused <= alone + 1e-12).all()


@pytest.mark.parametrize(
    ("rho", "b", "target"), [(0.1, 0.5, 0.667), (0.1, 0.3, 0.491), (0.25, 0.3, 0.118), (0.2, 0.5, 0.5)]
)
def test_the_valley_by_formula_and_by_search(rho: float, b: float, target: float) -> None:
    x = np.linspace(0, 0.999, 100_001)
    by_search = float(x[np.argmin((1 - b * x) * (1 + rho * x / (1 - x)))])
    assert compute_valley(rho, b) == pytest.approx(target, abs=1e-3) == pytest.approx(by_search, abs=1e-3)


@pytest.mark.parametrize(("rho", "b"), [(0.3, 0.3), (0.5, 0.3), (0.0, 0.3), (0.1, 1.0), (0.1, -0.2)])
def test_no_valley(rho: float, b: float) -> None:
    assert compute_valley(rho, b) is None


def test_higher_hit_rate_less_revenue_only_where_cached_tokens_are_cheap() -> None:
    """Attention over a long cached part makes uncached tokens slower: about b = 0.5."""
    times = PrefillTime(1e-5, 1 << 20, 0.0, 3.2e-10, 0.0)
    cheap, dear = (compute_bathtub(BathtubSpec(times, (64_000,), rho)) for rho in (0.10, 0.60))
    assert 0.3 < cheap.valley.slope < 0.6 and cheap.valley.hit_rate is not None
    assert cheap.valley.least == pytest.approx(cheap.valley.hit_rate, abs=0.12)
    assert cheap.points[60].revenue_per_h < cheap.points[0].revenue_per_h < cheap.points[98].revenue_per_h
    assert dear.valley.hit_rate is None
    assert [p.revenue_per_h for p in dear.points] == sorted(p.revenue_per_h for p in dear.points)


def test_points_add_up() -> None:
    spec = BathtubSpec(engine(4096, 0.05), (16_000, 24_000), 0.25, 2.0)
    curves = compute_bathtub(spec)
    assert [point.hit_rate for point in curves.points] == list(GRID)
    for point, fused in zip(curves.points, curves.fused, strict=True):
        money = (point.miss_tokens_per_s + 0.25 * point.hit_tokens_per_s) * 2.0 * 3600 / 1e6
        assert point.revenue_per_h == pytest.approx(money)
        share = point.hit_tokens_per_s / (point.hit_tokens_per_s + point.miss_tokens_per_s)
        assert share == pytest.approx(point.hit_rate, abs=1e-3)
        assert fused.revenue_per_h >= point.revenue_per_h * (1 - 1e-9)


def test_many_lengths_wash_the_dips_out() -> None:
    one = find_dips(BathtubSpec(engine(4096), (16_000,)))
    many = find_dips(BathtubSpec(engine(4096), tuple(range(8000, 24_000, 37))))
    assert max((dip.depth for dip in many), default=0.0) < 0.1 * max(dip.depth for dip in one)


def test_advice_is_what_it_says() -> None:
    spec = BathtubSpec(engine(4096, 0.05), (16_000,), 0.1)
    rates = HitMixture().quantiles([(i + 0.5) / 100 for i in range(100)])
    found = {each.what.split()[0]: each for each in advise(spec, rates)}
    assert found["fuse"].revenue_gain > 0.2 and found["cut"].revenue_gain == pytest.approx(0)
    assert found["more"].requests_gain > 0 > found["more"].throughput_gain
    uncached = np.maximum(1, np.rint(16_000 * (1 - np.array(rates))))
    seconds = [prefill_s(spec.prefill, int(u), 16_000 - int(u)) for u in uncached]
    larger = PrefillTime(1e-5, 16_384, 700.0, 0.0, 0.05)
    faster = [prefill_s(larger, int(u), 16_000 - int(u)) for u in uncached]
    assert found["chunks"].requests_gain == pytest.approx(sum(seconds) / sum(faster) - 1)
    assert [each.revenue_gain for each in advise(spec, rates)] == sorted(
        (e.revenue_gain for e in found.values()), reverse=True
    )


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.9, 1.0])
def test_quantiles_of_a_mixture_have_its_mean(mean: float) -> None:
    rates = HitMixture().with_mean(mean).quantiles([(i + 0.5) / 1000 for i in range(1000)])
    assert rates == sorted(rates) and np.mean(rates) == pytest.approx(mean, abs=3e-3)


@pytest.mark.parametrize(
    "values",
    [
        {"input_tokens": ()}, {"input_tokens": (1,)}, {"input_tokens": (16, -5)}, {"cached_price": -0.1},
        {"cached_price": 1.1}, {"cached_price": float("nan")}, {"price": 0.0}, {"price": float("inf")},
    ],
)  # fmt: skip
def test_what_cannot_be(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        BathtubSpec(**{"prefill": engine(4096), "input_tokens": (16_000,), **values})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        advise(BathtubSpec(engine(4096), (16_000,)), [0.5, 1.5])
