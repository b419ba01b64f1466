"""Every token once, at its position."""

from __future__ import annotations

import random

import pytest

from pdd.router.ledger import Gap, Ledger, Producer


def test_overlap_is_dropped_and_the_rest_taken() -> None:
    ledger = Ledger()
    assert ledger.offer(Producer.P, 0, [1]).fresh == (1,)
    assert ledger.offer(Producer.RLD, 1, [2, 3]).fresh == (2, 3)
    assert ledger.offer(Producer.MD, 2, [3, 4]).fresh == (4,)
    assert ledger.ids == [1, 2, 3, 4]
    assert ledger.runs == [(Producer.P, 1), (Producer.RLD, 2), (Producer.MD, 1)]


def test_a_different_id_takes_nothing() -> None:
    ledger = Ledger()
    ledger.offer(Producer.RLD, 0, [1, 2, 3])
    offer = ledger.offer(Producer.MD, 1, [2, 9, 4])
    assert offer.fresh == () and offer.diverged_at == 2 and ledger.ids == [1, 2, 3]


def test_a_gap_is_an_error() -> None:
    with pytest.raises(Gap):
        Ledger().offer(Producer.MD, 1, [1])


def test_truncating_keeps_runs_in_step() -> None:
    ledger = Ledger()
    for k, producer in enumerate((Producer.P, Producer.RLD, Producer.RLD, Producer.MD)):
        ledger.offer(producer, k, [k])
    ledger.truncate(2)
    assert ledger.ids == [0, 1] and ledger.counts() == {"P": 1, "RLD": 1, "MD": 0}


def test_any_overlapping_true_offers_give_the_true_sequence_once() -> None:
    rng = random.Random(1)
    truth = [rng.randrange(1000) for _ in range(500)]
    ledger = Ledger()
    out: list[int] = []
    while len(ledger) < len(truth):
        start = rng.randint(max(0, len(ledger) - 20), len(ledger))
        ids = truth[start : start + rng.randint(1, 30)]
        out += ledger.offer(rng.choice(list(Producer)), start, ids).fresh
    assert out == truth and sum(ledger.counts().values()) == len(truth)
