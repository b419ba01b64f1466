"""Which MD a request goes to: the router's own score, so that a conversation follows its KV unless that costs more."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.planner.sim.fleets import fleet, load, times

from pdd.planner.fleet import LineSpec, Way
from pdd.planner.sim import SimOptions, simulate
from pdd.policy.placement import SESSION_COST_S, score_main

TURNS, TALKS = 20, 50


def conversations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(session, previous, hits) of TALKS conversations whose turns take turns: 1,000 tokens, 900 of them known."""
    n = TURNS * TALKS
    at = np.arange(n)
    first = at < TALKS
    return at % TALKS, np.where(first, -1, at - TALKS), np.where(first, 0, 900)


@pytest.mark.parametrize("mains", [2, 8, 32])
@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_a_conversation_stays_with_its_kv_however_idle_the_others_are(mains: int, rate: float) -> None:
    """What a move would send again takes 0.18 s on this line: nine sessions' worth."""
    session, previous, hits = conversations()
    given = load(len(session), rate=rate, outputs=20, hits=hits, session=session, previous=previous)
    line = LineSpec(4e9, rtt_s=0.0, efficiency=1.0)
    one = fleet(Way.NAIVE, mains=mains, main=times(step_s=0.01), line=line, bytes_per_token=100_000.0)
    result = simulate(one, given, SimOptions(warmup_share=0.1))
    assert result.mean_hit == pytest.approx(0.9, abs=0.01)


def test_a_conversation_moves_where_its_kv_weighs_less_than_the_queue() -> None:
    """900 tokens of 1 byte take no time to send again: then the emptier engine is better."""
    session, previous, hits = conversations()
    given = load(len(session), rate=200.0, outputs=200, hits=hits, session=session, previous=previous)
    one = fleet(Way.NAIVE, mains=8, main=times(step_s=0.01), bytes_per_token=1.0)
    result = simulate(one, given, SimOptions(warmup_share=0.1))
    assert result.mean_hit < 0.8


def test_the_score_counts_a_session_as_so_many_seconds() -> None:
    assert score_main(0.1, 3) == pytest.approx(0.1 + 3 * SESSION_COST_S)
    assert score_main(0.0, 5) > score_main(4.5 * SESSION_COST_S, 0)
