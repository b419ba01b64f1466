"""What happens to a request when engines, or the line, fail: nothing lost, nothing doubled, nothing left running."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.router.play import HANDLE, LOST, Play, landing, relaying

from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import (
    ClientGone,
    Decided,
    Done,
    Event,
    Expired,
    Failed,
    Failure,
    Kind,
    Plan,
    Release,
    Role,
    StartCall,
    Tokens,
    Woken,
)
from pdd.router.machine import DECODE_WAIT_S
from pdd.router.recovery import MAIN_RETRIES, RECOVERY_WINDOW_S, TRIES_BEFORE_FIRST_TOKEN

P, RLD, MD = Role.PREFILL, Role.RELAY, Role.MAIN
NO_ENGINE = Failure("NoEngine", "none", 503)


def test_prefill_that_dies_before_the_first_token_is_replaced() -> None:
    play = Play().begin()
    play.lose(P, Kind.FIRST)
    assert play.leg(P, Kind.FIRST).avoid == {"prefill-0"}
    play.prefilled(1)
    assert play.delivered == [1] and play.failed is None


def test_without_any_prefill_main_computes_alone_and_says_why() -> None:
    play = Play().begin()
    play.lose(P, Kind.FIRST)
    play.lose(P, Kind.FIRST)
    call = play.leg(MD, Kind.DECODE)
    assert call.kv is None and call.output_tokens == 0
    play.tokens(MD, 4, finish="length")
    assert play.announced is not None
    assert (play.announced.pipeline, play.announced.reason) == (Pipeline.MD, Reason.PREFILL_UNAVAILABLE)


def test_tries_before_the_first_token_are_bounded() -> None:
    play = Play().begin()
    for _ in range(TRIES_BEFORE_FIRST_TOKEN + 2):
        if play.failed is not None:
            break
        if play.live:
            call = next(iter(play.live.values()))
            play.lose(call.role, call.kind, NO_ENGINE)
        else:
            play.wake("recover")
    assert play.failed is not None and play.failed.status == 503 and not play.live


def test_a_refusal_of_the_request_itself_is_not_retried() -> None:
    play = Play().begin()
    play.lose(P, Kind.FIRST, Failure("RefusedByEngine", "prompt: too long", 400, retryable=False))
    assert play.failed is not None and play.failed.status == 400


def test_relay_that_dies_while_main_lands_is_replaced_by_way_of_prefill() -> None:
    play = landing()
    play.tokens(RLD, 1, 2)
    play.lose(RLD, Kind.DECODE)
    resume = play.leg(P, Kind.RESUME)
    assert resume.output_tokens == 3
    play.prefilled(3, Kind.RESUME)
    assert play.delivered == [0, 1, 2, 3]
    call = play.leg(RLD, Kind.DECODE)
    assert call.output_tokens == 4 and call.kv is not None and call.kv.covers == 3 and "relay-decode-0" in call.avoid
    assert play.has(MD, Kind.LAND)
    play.tokens(RLD, 4)
    play.done(MD, Kind.LAND)
    play.tokens(MD, 5, finish="stop")
    assert play.delivered == [0, 1, 2, 3, 4, 5] and not play.live


def test_main_that_lands_while_relay_is_being_replaced_takes_over() -> None:
    play = landing()
    play.lose(RLD, Kind.DECODE)
    play.done(MD, Kind.LAND)
    assert play.leg(MD, Kind.DECODE).output_tokens == 1
    play.tokens(MD, 1, 2)
    assert not play.has(P) and play.delivered == [0, 1, 2]


def test_relay_that_dies_after_the_switch_began_is_not_replaced() -> None:
    play = landing()
    play.done(MD, Kind.LAND)
    play.lose(RLD, Kind.DECODE)
    assert [call.role for call in play.live.values()] == [MD]
    play.tokens(MD, 1, finish="length")
    assert play.finished == "length"


def test_relay_that_dies_before_prefills_second_answer_makes_main_decode_at_once() -> None:
    play = relaying()
    play.tokens(RLD, 1)
    play.lose(RLD, Kind.DECODE)
    play.lose(P, Kind.RESUME)
    play.prefilled(0, Kind.HANDLE)
    call = play.leg(MD, Kind.DECODE)
    assert call.output_tokens == 2 and call.kv is not None


def test_main_lost_while_landing_is_tried_again_and_relay_goes_on() -> None:
    play = landing()
    play.lose(MD, Kind.LAND)
    play.tokens(RLD, 1)
    play.wake("main")
    assert play.leg(P, Kind.HANDLE).output_tokens == 0
    play.prefilled(0, Kind.HANDLE)
    assert play.leg(MD, Kind.LAND).engine == ""  # any that is ready
    play.done(MD, Kind.LAND)
    play.tokens(MD, 2)
    assert play.delivered == [0, 1, 2]


def test_a_line_that_stays_lost_leaves_the_request_to_relay() -> None:
    play = landing()
    play.lose(MD, Kind.LAND, Failure("LineLost", "the link is down"))
    token = 1
    while play.wakes:
        play.tokens(RLD, token)
        token += 1
        play.wake("main")
        play.lose(P, Kind.HANDLE, NO_ENGINE)
    assert len(play.machine.record.retries) == MAIN_RETRIES + 1
    play.tokens(RLD, token, finish="stop")
    assert play.finished == "stop" and play.delivered == list(range(token + 1))


def test_main_that_dies_in_mid_stream_is_replaced_from_the_ledger() -> None:
    play = landing()
    play.done(MD, Kind.LAND)
    play.tokens(MD, 1, 2, 3)
    play.lose(MD, Kind.DECODE)
    first = play.leg(P, Kind.FIRST)
    assert first.output_tokens == 4
    play.plan = Plan(Pipeline.P_RLD, Reason.LINE_LOST)
    play.prefilled(4)
    call = play.leg(RLD, Kind.DECODE)
    assert call.output_tokens == 5 and call.max_tokens == 95
    play.tokens(RLD, 5, finish="length")
    assert play.delivered == [0, 1, 2, 3, 4, 5]
    assert play.machine.record.pipeline is Pipeline.P_RLD_MD  # what the header said stands
    assert [r["role"] for r in play.machine.record.retries] == ["main-decode"]


def test_main_that_fails_at_the_switch_leaves_relay_streaming() -> None:
    play = landing()
    play.done(MD, Kind.LAND)
    play.tokens(RLD, 1)
    play.lose(MD, Kind.DECODE)
    play.tokens(RLD, 2)
    assert play.delivered == [0, 1, 2] and not play.cancelled
    play.wake("main")
    assert play.has(P, Kind.HANDLE)


def test_a_stream_that_the_engine_aborts_is_replaced_and_keeps_its_tokens() -> None:
    play = Play()
    play.plan = Plan(Pipeline.P_RLD, Reason.LINE_LOST)
    play.begin().prefilled(0)
    play.tokens(RLD, 1, finish="abort")
    assert play.delivered == [0, 1] and play.finished is None
    assert play.leg(P, Kind.FIRST).output_tokens == 2


def test_mid_stream_refusal_waits_for_an_engine_instead_of_failing() -> None:
    play = Play()
    play.plan = Plan(Pipeline.P_RLD, Reason.LINE_LOST)
    play.begin().prefilled(0)
    play.plan = Plan(Pipeline.REFUSED, Reason.RELAY_FULL_LINE_LOST)
    play.lose(RLD, Kind.DECODE)
    play.prefilled(1)
    assert play.failed is None
    while play.live:
        call = next(iter(play.live.values()))
        play.lose(call.role, call.kind, NO_ENGINE)
    play.plan = Plan(Pipeline.P_RLD, Reason.LINE_LOST)
    play.wake("recover")
    play.prefilled(1)
    play.tokens(RLD, 2)
    assert play.delivered == [0, 1, 2]


def test_standing_still_is_given_up_after_the_window() -> None:
    play = Play()
    play.plan = Plan(Pipeline.P_RLD, Reason.LINE_LOST)
    play.begin().prefilled(0)
    play.lose(RLD, Kind.DECODE)
    for _ in range(200):
        if play.failed is not None:
            break
        play.now_s += 1.0
        if play.live:
            call = next(iter(play.live.values()))
            play.lose(call.role, call.kind, NO_ENGINE)
        else:
            play.wake("recover")
    assert play.failed is not None and not play.live
    assert play.now_s - 100.0 < RECOVERY_WINDOW_S + 10


def test_refused_at_the_start_is_told_to_come_back() -> None:
    play = Play()
    play.plan = Plan(Pipeline.REFUSED, Reason.RELAY_FULL_LINE_LOST)
    play.begin().prefilled(0)
    assert play.failed is not None and play.failed.status == 429 and play.delivered == []


def test_a_request_that_looks_back_on_its_output_fails_when_its_engine_dies() -> None:
    play = Play(pinned=True, resumable=False)
    play.plan = Plan(Pipeline.PINNED, Reason.PINNED_FEATURE, main="md-0")
    play.begin().prefilled(0)
    play.tokens(MD, 1)
    play.lose(MD, Kind.DECODE)
    assert play.failed is not None and play.failed.reason == "EngineLost"


def test_a_pinned_request_that_can_move_goes_on_from_the_ledger() -> None:
    play = Play(pinned=True)
    play.plan = Plan(Pipeline.PINNED, Reason.PINNED_FEATURE, main="md-0")
    play.begin().prefilled(0)
    play.tokens(MD, 1, 2)
    play.lose(MD, Kind.DECODE)
    play.prefilled(9)
    call = play.leg(MD, Kind.DECODE)
    assert call.output_tokens == 2 and call.kv is not None and call.kv.covers == 2
    play.tokens(MD, 3)
    assert play.delivered == [1, 2, 3]


def test_single_run_that_has_begun_fails_rather_than_moves() -> None:
    play = Play(override=Pipeline.SINGLE).begin()
    play.tokens(RLD, 1)
    play.lose(RLD, Kind.DECODE)
    assert play.failed is not None


def test_prefill_without_a_handle_in_its_answer_counts_as_failed() -> None:
    play = Play().begin()
    play.prefilled(0, handle=None)
    assert play.has(P, Kind.FIRST) and play.machine.record.retries[0]["reason"] == "NoHandle"


@pytest.mark.parametrize("seed", range(300))
def test_whatever_fails_in_whatever_order_the_client_gets_each_token_once(seed: int) -> None:
    """A random world: engines answer, die, come late; the true token at position k is k % 20. The request must end,
    with exactly the true tokens or with a failure after a true prefix; and nothing may be left running."""
    rng = random.Random(seed)
    length = rng.randint(2, 40)
    play = Play(
        max_tokens=length,
        clamps_remote_kv=rng.random() < 0.5,
        overlap=rng.random() < 0.7,
        one_shot_limit_tokens=rng.choice([1, 8, 64]),
    )
    failing = rng.choice([0.0, 0.05, 0.2])
    plans = [
        Plan(Pipeline.P_RLD_MD, Reason.LONG_TRANSFER, main="md-0"),
        Plan(Pipeline.P_MD, Reason.SHORT_TRANSFER, main="md-0"),
        Plan(Pipeline.P_RLD, Reason.LINE_LOST),
    ]
    play.begin()
    made: dict[int, int] = {}
    for _ in range(3000):
        if play.machine.over:
            break
        play.plan = rng.choice(plans)
        if not play.live:
            assert play.wakes, "nothing runs and nothing is awaited"
            play.wake(play.wakes[0].tag)
            continue
        if play.wakes and rng.random() < 0.1:
            play.wake(play.wakes[0].tag)
            continue
        call = rng.choice(list(play.live.values()))
        play.feed(_happens(rng, play, call, made, failing, length))
    assert play.machine.over and not play.live
    truth = [k % 20 for k in range(length)]
    if play.failed is None:
        assert play.delivered == truth and play.finished == "length"
    else:
        assert play.delivered == truth[: len(play.delivered)]
    if failing == 0.0:
        assert play.failed is None


def _happens(
    rng: random.Random, play: Play, call: StartCall, made: dict[int, int], failing: float, length: int
) -> Event:
    """Something that may happen to `call` next."""
    if rng.random() < failing:
        del play.live[call.leg]
        return Failed(call.leg, LOST)
    if call.kind is not Kind.DECODE:
        del play.live[call.leg]
        handle = HANDLE if call.kind in (Kind.FIRST, Kind.RESUME, Kind.HANDLE) else None
        return Done(call.leg, (call.output_tokens % 20,), "length", handle, None)
    position = call.output_tokens + made.get(call.leg, 0)
    count = min(rng.randint(1, 3), call.output_tokens + call.max_tokens - position)
    made[call.leg] = made.get(call.leg, 0) + count
    last = position + count >= call.output_tokens + call.max_tokens
    if last:
        del play.live[call.leg]
    return Tokens(call.leg, tuple(k % 20 for k in range(position, position + count)), "length" if last else None)


def test_late_events_after_the_end_do_nothing() -> None:
    play = landing()
    play.feed(ClientGone())
    for event in (Woken("main"), Decided(play.plan), Tokens(1, (1,), None)):
        assert play.feed(event) == []


def woken(play: Play, tag: str) -> Play:
    """The delay that was asked for last is over."""
    wake = play.wakes[-1]
    assert wake.tag == tag
    play.now_s += wake.delay_s
    play.feed(Woken(tag))
    return play


def without_decode(**task: Any) -> Play:
    """P has prefilled, and no decode engine answers."""
    play = Play(**task)
    plan, play.plan = play.plan, Plan(Pipeline.REFUSED, Reason.NO_DECODE_ENGINE)
    play.begin().prefilled(0)
    assert (play.failed, play.delivered) == (None, [])
    play.plan = plan
    return play


def test_a_decode_engine_that_is_back_soon_serves_the_request() -> None:
    play = woken(without_decode(), "decide")
    assert play.delivered == [0]
    assert play.has(Role.RELAY, Kind.DECODE)
    assert play.has(Role.PREFILL, Kind.HANDLE), "the first prefill was not in vain: only MD's handle is asked for"


def test_a_decode_engine_that_stays_away_is_an_error_after_two_seconds() -> None:
    play = without_decode()
    play.plan = Plan(Pipeline.REFUSED, Reason.NO_DECODE_ENGINE)
    begun = play.now_s
    while play.failed is None:
        woken(play, "decide")
    assert play.failed.status == 503
    assert DECODE_WAIT_S <= play.now_s - begun < DECODE_WAIT_S + 0.5
    assert sum(isinstance(command, Release) for command in play.out) == 1


def test_a_full_relay_behind_a_lost_line_is_said_at_once() -> None:
    """Overload: the client is to come back later, not to add to it."""
    play = Play()
    play.plan = Plan(Pipeline.REFUSED, Reason.RELAY_FULL_LINE_LOST)
    play.begin().prefilled(0)
    assert play.failed is not None and play.failed.status == 429


@pytest.mark.parametrize("event", [ClientGone(), Expired()])
def test_who_goes_while_it_waits_leaves_no_kv_behind(event: Event) -> None:
    play = without_decode()
    play.feed(event)
    assert sum(isinstance(command, Release) for command in play.out) == 1
    play.feed(Woken("decide"))
    assert play.out == []


def test_a_forced_pipeline_that_cannot_run_names_the_header_that_forced_it() -> None:
    play = Play(override=Pipeline.P_RLD_MD)
    play.plan = Plan(Pipeline.REFUSED, Reason.NO_DECODE_ENGINE)
    play.begin().prefilled(0)
    while play.failed is None:
        woken(play, "decide")
    assert play.failed.status == 503
    assert "P-RLD-MD" in play.failed.message and "x-pdd-pipeline-override" in play.failed.message
