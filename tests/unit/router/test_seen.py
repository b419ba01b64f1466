"""What the router tells of its last requests: bounded, and it reaches exactly as far back as it says."""

from __future__ import annotations

from pdd.router.seen import MAX_ROWS, WINDOW_S, SeenRequests


def test_young_router_reaches_back_to_its_start() -> None:
    seen = SeenRequests()
    seen.add(105.0, 100, 40, 7)
    assert seen.to_object(110.0, 10.0, 0) == {"reach_s": 10.0, "unserved": 0, "rows": [[5.0, 100, 40, 7]]}
    assert SeenRequests().to_object(110.0, 10.0, 0) == {"reach_s": 10.0, "unserved": 0, "rows": []}


def test_old_requests_leave_the_window() -> None:
    seen = SeenRequests()
    seen.add(0.0, 100, 0, 1)
    seen.add(900.0, 200, 0, 1)
    assert seen.to_object(1000.0, 1000.0, 0) == {"reach_s": WINDOW_S, "unserved": 0, "rows": [[100.0, 200, 0, 1]]}


def test_full_ring_says_that_it_is_shorter_than_the_window() -> None:
    seen = SeenRequests()
    for i in range(MAX_ROWS + 500):
        seen.add(i * 0.1, 100, 0, 1)
    now_s = (MAX_ROWS + 500) * 0.1
    told = seen.to_object(now_s, now_s, 0)
    assert len(told["rows"]) == MAX_ROWS and told["reach_s"] == round(MAX_ROWS * 0.1, 3)
    assert len(told["rows"]) / told["reach_s"] == 10.0


def test_cached_never_exceeds_the_prompt() -> None:
    seen = SeenRequests()
    seen.add(0.0, 10, 25, 1)
    seen.add(0.0, 10, -1, 1)
    assert [row[2] for row in seen.to_object(1.0, 1.0, 0)["rows"]] == [10, 0]


def test_refused_and_open_requests_are_counted_within_the_reach() -> None:
    seen = SeenRequests()
    for at_s in (100.0, 900.0, 950.0):
        seen.add_refused(at_s)
    assert seen.to_object(1000.0, 1000.0, 5)["unserved"] == 7
    for i in range(MAX_ROWS):
        seen.add_refused(1000.0 + i * 0.01)
    told = seen.to_object(1030.0, 1030.0, 0)
    assert told["reach_s"] == 30.0 and told["unserved"] == MAX_ROWS
