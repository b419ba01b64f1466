"""Catch-up's law, and the two modes."""

from __future__ import annotations

import pytest

from pdd.api.config import HandoffMode
from pdd.policy.handoff import MAX_ROUNDS, choose_mode, choose_step


@pytest.mark.parametrize("mode", [HandoffMode.ONE_SHOT, HandoffMode.CATCH_UP])
def test_a_configured_mode_is_kept(mode: HandoffMode) -> None:
    assert choose_mode(mode, 1, 64) is mode and choose_mode(mode, 999, 64) is mode


def test_one_shot_is_always_the_last_step() -> None:
    assert choose_step(HandoffMode.ONE_SHOT, 0, 5000, None).last


def simulate(eager: int, rtt_s: float, tpot_s: float, extend_s_per_token: float) -> tuple[int, int]:
    """(extends, tokens in the last batch) when RLD makes a token each tpot."""
    batch, previous, rounds = eager, None, 0
    while not choose_step(HandoffMode.CATCH_UP, rounds, batch, previous).last:
        took_s = rtt_s + tpot_s + batch * extend_s_per_token
        batch, previous, rounds = int(took_s / tpot_s), batch, rounds + 1
    return rounds, batch


def test_catch_up_shrinks_a_long_backlog_to_the_floor_of_rtt_over_tpot() -> None:
    rounds, last = simulate(1000, rtt_s=0.02, tpot_s=0.02, extend_s_per_token=0.0005)
    assert last <= 4 and 1 <= rounds <= 4


def test_catch_up_stops_where_no_round_helps_any_more() -> None:
    rounds, last = simulate(300, rtt_s=0.2, tpot_s=0.01, extend_s_per_token=0.0005)
    assert rounds <= 3 and last <= 25


def test_catch_up_ends_though_relay_is_faster_than_mains_extend() -> None:
    rounds, _ = simulate(50, rtt_s=0.02, tpot_s=0.005, extend_s_per_token=0.006)
    assert rounds <= MAX_ROUNDS
