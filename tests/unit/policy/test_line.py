"""The line's arithmetic."""

from __future__ import annotations

import pytest

from pdd.policy.line import FluidQueue, LineState, compute_rate_bps, compute_wait_s


def test_wait_is_queue_plus_own_bytes_plus_one_round_trip() -> None:
    line = LineState(rate_bps=8_000_000, queue_bytes=500_000, rtt_s=0.02)
    assert compute_wait_s(line, 1_000_000) == pytest.approx(0.5 + 1.0 + 0.02)


def test_a_share_of_the_rate_stretches_our_own_bytes_only() -> None:
    line = LineState(rate_bps=8_000_000, queue_bytes=500_000, rtt_s=0.0, share=0.5)
    assert compute_wait_s(line, 1_000_000) == pytest.approx(0.5 + 2.0)


def test_nothing_missing_waits_for_nothing() -> None:
    assert compute_wait_s(LineState(1_000.0, queue_bytes=1e9, rtt_s=1.0), 0) == 0.0


def test_eight_thousand_tokens_over_the_demo_line_take_seconds() -> None:
    """The case of the demo: 8,000 tokens of 4 KiB over 100 Mbit/s and 20 ms."""
    assert compute_wait_s(LineState(100e6, rtt_s=0.02), 8000 * 4096) == pytest.approx(2.64, abs=0.01)


@pytest.mark.parametrize(
    ("cap", "goodput", "limited_by", "expected"),
    [
        (0.0, 0.0, "idle", 100.0),
        (80.0, 10.0, "idle", 80.0),
        (80.0, 75.0, "cap", 80.0),
        (80.0, 20.0, "window", 20.0),
        (80.0, 20.0, "loss", 20.0),
        (80.0, 0.001, "core", 0.8),
        (80.0, 90.0, "loss", 80.0),
    ],
)
def test_rate_is_the_cap_unless_the_line_itself_limits(
    cap: float, goodput: float, limited_by: str, expected: float
) -> None:
    assert compute_rate_bps(100.0, cap, goodput, limited_by) == pytest.approx(expected)


def test_fluid_queue_drains_at_the_rate_and_never_below_zero() -> None:
    queue = FluidQueue()
    queue.add(0.0, 8_000.0, 1_000)
    assert queue.at(0.5, 8_000.0) == pytest.approx(500)
    queue.add(0.5, 8_000.0, 1_000)
    assert queue.at(1.0, 8_000.0) == pytest.approx(1_000)
    assert queue.at(9.0, 8_000.0) == 0.0


def test_fluid_queue_forgets_what_landed_early_or_was_given_up() -> None:
    queue = FluidQueue()
    queue.add(0.0, 8.0, 1_000)
    queue.add(0.0, 8.0, 500)
    queue.remove(0.0, 8.0, 1_000)
    assert queue.at(0.0, 8.0) == 500
    queue.remove(0.0, 8.0, 500)
    assert queue.at(0.0, 8.0) == 0
