"""Tokens drawn by (seed, position)."""

from __future__ import annotations

import numpy as np
import pytest

from pdd.engine.reference.sampling import Sampling, choose, draw

LOGITS = np.random.default_rng(0).normal(0, 2, 272).astype(np.float32)


def test_greedy_takes_the_lowest_of_equal_logits() -> None:
    logits = np.zeros(10, np.float32)
    logits[[3, 7]] = 5
    assert choose(logits, Sampling(), 1) == 3


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    sampling = Sampling(temperature=1.0, seed=5)
    drawn = [choose(LOGITS, sampling, p) for p in range(200)]
    assert [choose(LOGITS, sampling, p) for p in reversed(range(200))] == drawn[::-1]
    assert len(set(drawn)) > 20
    assert drawn != [choose(LOGITS, Sampling(temperature=1.0, seed=6), p) for p in range(200)]


def test_draws_look_uniform() -> None:
    shares = np.array([draw(seed, position) / 2**64 for seed in range(40) for position in range(100)])
    assert abs(shares.mean() - 0.5) < 0.02
    counts = np.histogram(shares, bins=16, range=(0, 1))[0]
    assert counts.min() > 180 and counts.max() < 320


def test_frequencies_follow_the_softmax() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
    drawn = [choose(logits, Sampling(temperature=1.0, seed=1), p) for p in range(6000)]
    assert np.bincount(drawn, minlength=3) / 6000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_low_temperature_is_nearly_greedy() -> None:
    drawn = {choose(LOGITS, Sampling(temperature=0.01, seed=2), p) for p in range(50)}
    assert drawn == {int(LOGITS.argmax())}


def test_top_k_keeps_the_k_largest() -> None:
    best = set(np.argsort(-LOGITS)[:4].tolist())
    drawn = {choose(LOGITS, Sampling(temperature=2.0, top_k=4, seed=3), p) for p in range(400)}
    assert drawn == best
    assert {choose(LOGITS, Sampling(temperature=2.0, top_k=1, seed=3), p) for p in range(50)} == {int(LOGITS.argmax())}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])).astype(np.float32)
    for top_p, size in ((0.4, 1), (0.7, 2), (0.9, 3), (0.99, 4), (1.0, 4)):
        drawn = {choose(logits, Sampling(temperature=1.0, top_p=top_p, seed=4), p) for p in range(600)}
        assert drawn == set(range(size))


def test_negative_and_huge_seeds_are_fine() -> None:
    for seed in (-1, -(2**63), 2**64 - 1):
        assert 0 <= draw(seed, 0) < 2**64
        assert 0 <= choose(LOGITS, Sampling(temperature=1.0, seed=seed), 10**6) < 272


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-300, 1e-9, 2.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6, 1e30])
def test_no_temperature_overflows(temperature: float, scale: float) -> None:
    """The smallest temperatures are greedy; none makes an infinity or a NaN of the logits."""
    logits = (LOGITS * np.float32(scale)).astype(np.float32)
    for top_p in (5e-324, 0.5, 1.0):
        drawn = choose(logits, Sampling(temperature=temperature, top_p=top_p, seed=1), 7)
        assert 0 <= drawn < len(logits)
        if scale and temperature < 1e-8:
            assert drawn == int(logits.argmax())
