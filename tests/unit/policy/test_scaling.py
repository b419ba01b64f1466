"""Relay decode scaling: Little's law, windows, panic, drain before scale-in, silence holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdd.policy.scaling import (
    Counters,
    Decision,
    Sample,
    ScaleReason,
    ScalingLaw,
    ScalingState,
    add_counters,
    begin,
    compute_load,
    engines_for,
    step,
)

LAW = ScalingLaw(
    min_replicas=1, max_replicas=8, sessions_per_replica=10, target=0.5, down_stabilization_s=60, drain_timeout_s=30
)
POLL_S = 2.0


class Plant:
    """A cluster in virtual time: a constant load, as many engines as were decided, idle ordinals as told."""

    def __init__(self, law: ScalingLaw, replicas: int) -> None:
        self.law, self.replicas, self.now_s = law, replicas, 1000.0
        self.state = begin(replicas, self.now_s)
        self.arrivals = self.holding_sum = self.holding_count = self.refused = 0.0
        self.busy: dict[int, int] = {}
        self.decisions: list[Decision] = []

    def run(
        self, seconds: float, *, rate: float, holding_s: float, refused: float = 0.0, line_wait_s: float = 0.0
    ) -> None:
        for _ in range(round(seconds / POLL_S)):
            self.now_s += POLL_S
            done = rate * POLL_S
            self.arrivals += done
            self.holding_count += done
            self.holding_sum += done * holding_s
            self.refused += refused * POLL_S
            sample = Sample(
                self.now_s,
                self.arrivals,
                self.holding_sum,
                self.holding_count,
                self.refused,
                round(rate * holding_s),
                line_wait_s,
            )
            self.look(sample)

    def look(self, sample: Sample | None) -> Decision:
        busy = {ordinal: self.busy.get(ordinal, 0) for ordinal in range(self.replicas)}
        self.state, decision = step(self.state, self.law, sample, self.replicas, busy, self.now_s)
        self.replicas = decision.replicas
        self.decisions.append(decision)
        return decision


def test_engines_follow_littles_law() -> None:
    plant = Plant(LAW, 1)
    plant.run(120, rate=4.0, holding_s=5.0)  # 20 sessions at 5 an engine
    assert plant.replicas == 4
    assert "4.00 relayed requests/s x 5.00 s" in plant.decisions[-1].message


def test_slower_line_adds_engines_before_any_request_took_longer() -> None:
    plant = Plant(LAW, 1)
    plant.run(60, rate=1.0, holding_s=4.0)
    before = plant.replicas
    plant.run(4, rate=1.0, holding_s=4.0, line_wait_s=14.0)
    assert before == 1 and plant.replicas == 3


def test_never_beyond_bounds() -> None:
    plant = Plant(LAW, 1)
    plant.run(120, rate=100.0, holding_s=10.0)
    assert plant.replicas == LAW.max_replicas
    plant.run(600, rate=0.0, holding_s=0.0)
    assert plant.replicas == LAW.min_replicas


def test_growing_is_bounded_by_the_step_without_panic() -> None:
    law = replace(LAW, up_max_step=1)
    plant = Plant(law, 4)
    plant.run(60, rate=4.0, holding_s=5.0)
    plant.run(POLL_S * 20, rate=6.0, holding_s=5.0)
    steps = [b.replicas - a.replicas for a, b in zip(plant.decisions, plant.decisions[1:], strict=False)]
    assert max(steps) == 1 and plant.replicas > 4


def test_short_spike_does_not_grow_within_the_up_window() -> None:
    law = replace(LAW, up_stabilization_s=30.0)
    plant = Plant(law, 2)
    plant.run(60, rate=1.0, holding_s=8.0)
    plant.run(8, rate=1.8, holding_s=8.0)
    plant.run(30, rate=1.0, holding_s=8.0)
    assert {d.replicas for d in plant.decisions} == {2}


def test_panic_grows_at_once_past_step_and_window_and_forbids_shrinking() -> None:
    law = replace(LAW, up_stabilization_s=300.0, up_max_step=1)
    plant = Plant(law, 1)
    plant.run(20, rate=0.5, holding_s=4.0)
    plant.run(10, rate=8.0, holding_s=4.0)
    assert plant.replicas >= 4
    assert ScaleReason.PANIC in {d.reason for d in plant.decisions}
    peak = plant.replicas
    plant.run(50, rate=0.1, holding_s=1.0)
    assert plant.replicas == peak


def test_refused_requests_are_a_panic() -> None:
    plant = Plant(LAW, 2)
    plant.run(20, rate=0.5, holding_s=4.0)
    plant.run(4, rate=0.5, holding_s=4.0, refused=1.0)
    assert plant.decisions[-1].replicas == 3 or plant.replicas > 2


def test_shrinks_only_after_the_highest_need_has_left_the_window() -> None:
    plant = Plant(LAW, 4)
    plant.run(50, rate=0.2, holding_s=2.0)
    assert plant.replicas == 4
    assert plant.decisions[-1].reason is ScaleReason.STABILIZING
    plant.run(30, rate=0.2, holding_s=2.0)
    assert plant.replicas < 4


def test_scale_in_waits_for_the_sessions_of_the_highest_ordinal() -> None:
    plant = Plant(LAW, 3)
    plant.busy = {2: 5}
    plant.run(80, rate=0.2, holding_s=2.0)
    last = plant.decisions[-1]
    assert plant.replicas == 3 and last.reason is ScaleReason.DRAINING and last.drain_from == 2
    plant.busy = {}
    plant.run(2, rate=0.2, holding_s=2.0)
    assert plant.replicas == 2
    assert plant.decisions[-1].reason is ScaleReason.DRAINED


def test_scale_in_never_at_the_first_look_of_a_drain() -> None:
    """New sessions may be on their way to it until every router has been told."""
    plant = Plant(LAW, 2)
    plant.run(62, rate=0.1, holding_s=1.0)
    drains = [d for d in plant.decisions if d.drain_from is not None]
    assert drains[0].reason is ScaleReason.DRAINING


def test_drain_ends_after_its_timeout() -> None:
    plant = Plant(LAW, 2)
    plant.busy = {1: 3}
    plant.run(62 + LAW.drain_timeout_s + 2 * POLL_S, rate=0.1, holding_s=1.0)
    assert plant.replicas == 1
    assert ScaleReason.DRAIN_TIMEOUT in {d.reason for d in plant.decisions}


def test_unknown_ordinal_is_not_idle() -> None:
    plant = Plant(LAW, 2)
    plant.run(60, rate=0.1, holding_s=1.0)
    sample = Sample(plant.now_s + 2, plant.arrivals, 0, 0, 0, 0)
    for at_s in (2, 4, 6):
        plant.state, decision = step(
            plant.state, LAW, replace(sample, at_s=plant.now_s + at_s), 2, {0: 0}, plant.now_s + at_s
        )
        assert decision.replicas == 2


def test_load_that_comes_back_ends_the_drain() -> None:
    plant = Plant(LAW, 2)
    plant.busy = {1: 1}
    plant.run(70, rate=0.1, holding_s=1.0)
    assert plant.decisions[-1].drain_from == 1
    plant.run(60, rate=2.0, holding_s=4.0)
    assert plant.replicas == 2 and plant.decisions[-1].drain_from is None


def test_silence_holds_and_never_scales_in() -> None:
    plant = Plant(LAW, 4)
    for _ in range(200):
        plant.now_s += POLL_S
        decision = plant.look(None)
        assert decision.reason is ScaleReason.NO_DATA
    assert plant.replicas == 4


def test_fresh_observer_holds_for_a_whole_down_window() -> None:
    """An operator that was restarted knows nothing of the past and must not shrink on it."""
    plant = Plant(LAW, 6)
    plant.run(LAW.down_stabilization_s - 2, rate=0.1, holding_s=1.0)
    assert plant.replicas == 6


def test_below_minimum_is_raised_even_without_data() -> None:
    plant = Plant(replace(LAW, min_replicas=2), 1)
    decision = plant.look(None)
    assert (decision.replicas, decision.reason) == (2, ScaleReason.BOUNDS)


def test_down_window_of_a_day_does_not_slow_growing() -> None:
    plant = Plant(replace(LAW, down_stabilization_s=86400.0), 1)
    plant.run(600, rate=0.1, holding_s=1.0)
    plant.run(60, rate=1.5, holding_s=5.0)
    assert plant.replicas >= 2
    assert len(plant.state.highs) <= 62


@pytest.mark.parametrize(("sessions", "engines"), [(0, 1), (5, 1), (5.1, 2), (10, 2), (1000, 8)])
def test_engines_for_bounds_and_rounds_up(sessions: float, engines: int) -> None:
    assert engines_for(sessions, LAW) == engines


def test_load_of_no_samples_is_zero() -> None:
    assert compute_load((), 5.0, 60.0) == (0.0, 0.0, 0.0)


def counters(arrivals: float, uptime_s: float) -> Counters:
    return Counters(arrivals, arrivals * 2, arrivals, 0, uptime_s)


def test_counters_survive_a_router_restart() -> None:
    zero = Counters(0, 0, 0, 0, 0)
    one = add_counters(zero, {"r": counters(10, 100)}, {"r": counters(15, 102)})
    two = add_counters(one, {"r": counters(15, 102)}, {"r": counters(3, 1)})
    assert (one.arrivals, two.arrivals) == (5, 8)


def test_counters_of_a_new_router_do_not_jump() -> None:
    zero = Counters(0, 0, 0, 0, 0)
    assert add_counters(zero, {}, {"new": counters(1000, 500)}).arrivals == 0


def test_state_stays_bounded() -> None:
    plant = Plant(LAW, 1)
    plant.run(2000, rate=3.0, holding_s=2.0)
    assert len(plant.state.samples) <= 128 and len(plant.state.lows) <= 62 and len(plant.state.highs) <= 62


def test_equal_load_gives_equal_decisions() -> None:
    """No clock, no randomness: the same looks give the same state."""
    a, b = Plant(LAW, 2), Plant(LAW, 2)
    for plant in (a, b):
        plant.run(300, rate=2.0, holding_s=3.0)
    assert a.decisions == b.decisions and isinstance(a.state, ScalingState)
