"""Seen numbers: the same answers as a set, in the memory of the holes."""

from __future__ import annotations

import random

from pdd.link.intervals import SeenNumbers


def test_in_order_needs_no_ranges() -> None:
    seen = SeenNumbers()
    assert all(seen.add(n) for n in range(1, 1000))
    assert seen.floor == 1000
    assert seen.ranges(10) == []


def test_holes_show_as_ranges_and_close() -> None:
    seen = SeenNumbers()
    for number in (2, 3, 7, 5):
        assert seen.add(number)
    assert (seen.floor, seen.ranges(10)) == (1, [(2, 4), (5, 6), (7, 8)])
    assert seen.add(6)
    assert seen.ranges(10) == [(2, 4), (5, 8)]
    assert seen.add(1)
    assert (seen.floor, seen.ranges(10)) == (4, [(5, 8)])
    assert seen.add(4)
    assert (seen.floor, seen.ranges(10)) == (8, [])


def test_any_order_with_repeats_agrees_with_a_set() -> None:
    dice = random.Random(3)
    for _ in range(200):
        seen, model = SeenNumbers(), set[int]()
        for _ in range(120):
            number = dice.randint(1, 60)
            assert (number in seen) == (number in model)
            assert seen.add(number) == (number not in model)
            model.add(number)
        shown = set(range(1, seen.floor)) | {n for first, end in seen.ranges(100) for n in range(first, end)}
        assert shown == model
        edges = [edge for pair in seen.ranges(100) for edge in pair]
        assert edges == sorted(set(edges))
        assert not edges or edges[0] > seen.floor
