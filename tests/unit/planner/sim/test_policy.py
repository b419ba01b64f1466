"""The simulator decides with the functions of the router and the controller, and as they would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.planner.sim.fleets import fleet, load, times

import pdd.planner.kvlaw as kvlaw
import pdd.planner.sim.engines as engines
import pdd.planner.sim.handover as handover
import pdd.planner.sim.line as sim_line
import pdd.planner.sim.loop as loop
import pdd.planner.sim.picks as picks
import pdd.planner.sim.scaling as sim_scaling
import pdd.planner.timing as timing
import pdd.planner.wan as wan
import pdd.policy.handoff as handoff
import pdd.policy.line as line
import pdd.policy.pipeline as pipeline
import pdd.policy.placement as placement
import pdd.policy.scaling as scaling
from pdd.api.config import HandoffMode
from pdd.planner.fleet import Fleet, LineSpec, RuleSpec, Way
from pdd.planner.sim import SimOptions, simulate
from pdd.policy.handoff import choose_step
from pdd.policy.line import LineState, compute_wait_s
from pdd.policy.pipeline import Pipeline, Rules, Situation, choose_pipeline
from pdd.policy.scaling import ScalingLaw

PLAIN = SimOptions(caches=False, main_cache=False, warmup_share=0.0)
RELAYING = LineSpec(20e9, rtt_s=0.02, efficiency=1.0, flow_bps=2e8)


@pytest.mark.parametrize(
    ("compiled", "source"),
    [
        (loop.route_of, pipeline.choose_route),
        (picks.wait_of, line.predict_wait_s),
        (picks.score_of, placement.score_main),
        (handover.last_step, handoff.is_last_step),
        (handover.one_shot_of, handoff.fits_one_shot),
        (loop.prefill_of, timing.compute_prefill_s),
        (handover.extend_of, timing.compute_extend_s),
        (picks.payload_of, kvlaw.compute_payload_bytes),
        (engines.decode_step_s, timing.compute_decode_step_s),
        (sim_line.start_of, wan.compute_start_s),
    ],
)
def test_compiled_decisions_are_the_very_functions_of_the_policy(compiled: Any, source: Any) -> None:
    assert compiled.py_func is source


def test_scaling_is_the_controllers_law() -> None:
    assert sim_scaling.step is scaling.step


def _relayed(mode: HandoffMode, **rules: Any) -> Fleet:
    return fleet(
        Way.PDD, relay=times(step_s=0.02), main=times(step_s=0.02, extend_token_s=0.00305), line=RELAYING,
        bytes_per_token=4400, rules=RuleSpec(handoff_mode=mode, **rules),
    )  # fmt: skip


def test_each_request_takes_the_pipeline_that_the_router_would_choose() -> None:
    """One request at a time, so the line is empty: the router's own wrapper says the same for each."""
    n = 300
    rng = np.random.default_rng(2)
    inputs, outputs = rng.integers(200, 60_000, n), rng.integers(2, 2000, n)
    rules = RuleSpec(relay_threshold_s=1.0, abnormal_max_output_tokens=300, abnormal_min_transfer_s=3.0)
    run = simulate(
        fleet(Way.PDD, line=RELAYING, bytes_per_token=4400, rules=rules),
        load(n, rate=0.001, inputs=inputs, outputs=outputs), PLAIN,
    )  # fmt: skip
    wanted = Rules(1.0, True, 300, 3.0)
    previous: Pipeline | None = None
    names = {0: Pipeline.P_MD, 1: Pipeline.P_RLD_MD, 2: Pipeline.P_RLD}
    for i in range(n):
        missing = int(inputs[i]) * 4400
        wait_s = compute_wait_s(LineState(20e9, 0.0, 0.02, 2e8 / 20e9), missing)
        choice = choose_pipeline(wanted, Situation(wait_s, missing, int(outputs[i]), True, True, True, True, previous))
        assert names[int(run.columns.route[i])] is choice.pipeline
        if choice.pipeline is not Pipeline.P_RLD:
            previous = choice.pipeline
    assert len(set(run.columns.route)) == 3


def test_catch_up_hands_over_in_a_few_rounds_with_a_short_pause() -> None:
    """100 tokens recomputed at once pause for 305 ms (interview); in rounds of 100, 15, 2 the last one is short."""
    inputs = 18_000  # about 3 s on the line, 160 tokens of relay decode
    shot = simulate(_relayed(HandoffMode.ONE_SHOT), load(1, rate=1, inputs=inputs, outputs=1024), PLAIN)
    catch = simulate(_relayed(HandoffMode.CATCH_UP), load(1, rate=1, inputs=inputs, outputs=1024), PLAIN)
    eager = int(shot.columns.relayed[0]) + 1
    assert shot.max_stall_s == pytest.approx(0.02 + 0.02 + 0.00305 * eager, rel=0.02)
    assert catch.max_stall_s < shot.max_stall_s / 4
    # The same rounds by the router's wrapper.
    batch, rounds, before = eager, 0, None
    while not choose_step(HandoffMode.CATCH_UP, rounds, batch, before).last:
        took_s = 0.02 + 0.02 + 0.00305 * batch
        batch, before, rounds = max(1, int(took_s / 0.02)), batch, rounds + 1
    assert catch.max_stall_s == pytest.approx(0.02 + 0.02 + 0.00305 * batch, rel=1e-6)
    assert catch.columns.relayed[0] > shot.columns.relayed[0]


def test_auto_takes_one_shot_up_to_the_limit() -> None:
    one = load(1, rate=1, inputs=18_000, outputs=1024)
    few = simulate(_relayed(HandoffMode.AUTO, one_shot_limit_tokens=1000), one, PLAIN)
    many = simulate(_relayed(HandoffMode.AUTO, one_shot_limit_tokens=10), one, PLAIN)
    assert few.max_stall_s > 4 * many.max_stall_s


def test_full_relay_engines_send_requests_straight_over_the_line() -> None:
    rules = RuleSpec(relay_sessions_per_engine=3)
    run = simulate(
        fleet(Way.PDD, relays=1, line=RELAYING, bytes_per_token=4400, rules=rules),
        load(10, rate=0, inputs=30_000, outputs=2000), PLAIN,
    )  # fmt: skip
    assert (run.columns.route == pipeline.RELAYED).sum() == 3
    assert (run.columns.route == pipeline.DIRECT_FOR_WANT).sum() == 7


def test_relay_engines_without_kv_room_take_no_more() -> None:
    run = simulate(
        fleet(Way.PDD, relays=1, relay=times(kv=70_000), line=RELAYING, bytes_per_token=4400),
        load(10, rate=0.5, inputs=30_000, outputs=2000), PLAIN,
    )  # fmt: skip
    assert 2 <= (run.columns.route == pipeline.RELAYED).sum() < 10


def test_relay_decode_goes_on_until_main_decode_has_a_place() -> None:
    """Main decode runs one sequence at a time, so the second waits; its client must not see that."""
    run = simulate(
        fleet(
            Way.PDD,
            relay=times(step_s=0.02),
            main=times(step_s=0.02, most=1),
            line=RELAYING,
            bytes_per_token=4400,
        ),
        load(2, rate=0, inputs=30_000, outputs=1000),
        PLAIN,
    )
    first, second = np.sort(run.columns.relayed)
    # 30,000 x 4,400 bytes at 200 Mbit/s: 5.3 s or 264 tokens; the other's answer takes 20 s.
    assert 250 < first < 300
    assert 960 < second <= 999
    assert run.max_stall_s < 0.1


def test_a_slower_line_makes_the_law_run_more_relay_engines() -> None:
    law = ScalingLaw(min_replicas=1, max_replicas=20, sessions_per_replica=10, target=0.7)
    rules = RuleSpec(relay_sessions_per_engine=10)
    n = 3000
    engines_run = []
    for flow_bps in (8e8, 2e8):
        spec = LineSpec(100e9, rtt_s=0.02, efficiency=1.0, flow_bps=flow_bps)
        run = simulate(
            fleet(Way.PDD, relays=1, mains=8, line=spec, bytes_per_token=4400, rules=rules),
            load(n, rate=10, inputs=30_000, outputs=1000),
            SimOptions(caches=False, main_cache=False, scaling=law, engine_start_s=5.0),
        )
        engines_run.append(max(count for _, count, _ in run.relay_engines))
    # Little: 10 a second x (1.3, 5.3 s) / 7 sessions an engine.
    assert engines_run[0] == pytest.approx(2, abs=2)
    assert engines_run[1] == pytest.approx(8, abs=2)
