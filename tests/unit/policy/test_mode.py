"""Local mode, and the ramp back."""

from __future__ import annotations

import pytest

from pdd.policy.mode import HOLD_S, RAMP_S, LineMode, admit, compute_open_share, observe


def test_the_first_main_decode_after_the_start_is_used_at_once() -> None:
    mode = observe(observe(LineMode(), False, 0.0), True, 5.0)
    assert admit(mode, 5.0)[1] and not mode.local


def test_losing_the_last_main_decode_is_local_at_once() -> None:
    mode = observe(observe(LineMode(), True, 0.0), False, 1.0)
    assert mode.local and not admit(mode, 1.0)[1]


@pytest.mark.parametrize(
    ("after_s", "share"), [(0.0, 0.0), (HOLD_S, 0.0), (HOLD_S + RAMP_S / 2, 0.5), (HOLD_S + RAMP_S, 1.0)]
)
def test_the_way_back_is_held_then_ramped(after_s: float, share: float) -> None:
    mode = observe(observe(observe(LineMode(), True, 0.0), False, 1.0), True, 10.0)
    assert compute_open_share(mode, 10.0 + after_s) == pytest.approx(share)


def test_the_ramp_lets_exactly_its_share_through() -> None:
    mode = observe(observe(observe(LineMode(), True, 0.0), False, 1.0), True, 10.0)
    through = 0
    for _ in range(100):
        mode, may = admit(mode, 10.0 + HOLD_S + RAMP_S / 4)
        through += may
    assert 24 <= through <= 25


def test_a_flap_starts_the_hold_anew() -> None:
    mode = observe(observe(observe(LineMode(), True, 0.0), False, 1.0), True, 10.0)
    mode = observe(observe(mode, False, 10.5), True, 11.0)
    assert compute_open_share(mode, 12.5) == 0.0
