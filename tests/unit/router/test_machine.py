"""The conduct of one request, pipeline by pipeline."""

from __future__ import annotations

import pytest
from tests.unit.router.play import Play, landing, relaying

from pdd.api.config import HandoffMode
from pdd.engine.adapters import Usage
from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import (
    CancelCall,
    ClientGone,
    Deliver,
    Expired,
    Kind,
    Learn,
    Observe,
    Plan,
    Role,
    StartCall,
    Tokens,
)

P, RLD, MD = Role.PREFILL, Role.RELAY, Role.MAIN


def test_first_token_of_prefill_goes_to_the_client_before_any_decode_call() -> None:
    play = Play().begin()
    out = play.prefilled(7)
    assert play.delivered == [7]
    delivered = next(k for k, command in enumerate(out) if isinstance(command, Deliver))
    assert all(k > delivered for k, command in enumerate(out) if isinstance(command, StartCall))
    assert play.announced is not None and play.announced.pipeline is Pipeline.P_RLD_MD


def test_relay_gets_the_first_handle_and_prefill_is_asked_for_a_second() -> None:
    play = relaying()
    relay = play.leg(RLD, Kind.DECODE)
    assert relay.kv is not None and relay.output_tokens == 1 and relay.max_tokens == 99
    second = play.leg(P, Kind.HANDLE)
    assert second.output_tokens == 0 and second.max_tokens == 1


def test_main_lands_the_prompt_alone_while_relay_streams() -> None:
    play = relaying()
    play.tokens(RLD, 1, 2)
    play.prefilled(0, Kind.HANDLE)
    land = play.leg(MD, Kind.LAND)
    assert (land.engine, land.output_tokens, land.max_tokens) == ("md-0", 0, 1)
    play.tokens(RLD, 3)
    assert play.delivered == [0, 1, 2, 3]


def test_one_shot_hands_all_eager_tokens_over_and_relay_stops_at_mains_first_token() -> None:
    play = landing(handoff_mode=HandoffMode.ONE_SHOT)
    play.tokens(RLD, 1, 2)
    play.done(MD, Kind.LAND)
    switch = play.leg(MD, Kind.DECODE)
    assert (switch.output_tokens, switch.max_tokens, switch.kv) == (3, 97, None)
    play.tokens(RLD, 3)  # RLD goes on until MD has spoken
    assert play.delivered == [0, 1, 2, 3]
    play.tokens(MD, 3, 4)
    assert play.delivered == [0, 1, 2, 3, 4]
    assert [call.role for call in play.cancelled] == [RLD]
    play.tokens(MD, 5, finish="stop")
    assert play.finished == "stop"
    assert play.machine.ledger.counts() == {"P": 1, "RLD": 3, "MD": 2}
    handoff = play.machine.record.handoff
    assert handoff is not None and (handoff.mode, handoff.rounds, handoff.tokens) == ("OneShot", 1, 3)
    assert handoff.stall_s == pytest.approx(0.01) and handoff.payload_bytes == 100


def test_relay_stops_before_the_switch_when_engines_may_differ() -> None:
    play = landing(overlap=False)
    play.tokens(RLD, 1)
    out = play.done(MD, Kind.LAND)
    kinds = [type(command) for command in out if isinstance(command, CancelCall | StartCall)]
    assert kinds == [CancelCall, StartCall]


def test_catch_up_extends_in_shrinking_batches_while_relay_goes_on() -> None:
    play = landing(max_tokens=400, handoff_mode=HandoffMode.CATCH_UP)
    play.tokens(RLD, *range(1, 120))
    play.done(MD, Kind.LAND)
    assert play.leg(MD, Kind.EXTEND).output_tokens == 120
    play.tokens(RLD, *range(120, 150))
    play.done(MD, Kind.EXTEND)
    assert play.leg(MD, Kind.EXTEND).output_tokens == 150
    play.tokens(RLD, 150, 151)
    play.done(MD, Kind.EXTEND)
    last = play.leg(MD, Kind.DECODE)
    assert last.output_tokens == 152
    play.tokens(MD, 152)
    handoff = play.machine.record.handoff
    assert handoff is not None and (handoff.rounds, handoff.mode) == (3, "CatchUp")
    assert play.delivered == list(range(153))


def test_catch_up_ends_when_batches_no_longer_shrink() -> None:
    play = landing(max_tokens=900, handoff_mode=HandoffMode.CATCH_UP)
    play.tokens(RLD, *range(1, 40))
    play.done(MD, Kind.LAND)
    play.tokens(RLD, *range(40, 80))
    play.done(MD, Kind.EXTEND)
    assert play.has(MD, Kind.DECODE)


@pytest.mark.parametrize(("eager", "mode"), [(64, "OneShot"), (65, "CatchUp")])
def test_auto_is_one_shot_up_to_the_limit(eager: int, mode: str) -> None:
    play = landing(max_tokens=400)
    play.tokens(RLD, *range(1, eager))
    play.done(MD, Kind.LAND)
    handoff = play.machine.record.handoff
    assert handoff is not None and handoff.mode == mode


def test_relay_that_ends_before_the_landing_ends_the_request_and_the_landing() -> None:
    play = landing()
    play.tokens(RLD, 1, 2, finish="stop")
    assert play.finished == "stop"
    assert [call.kind for call in play.cancelled] == [Kind.LAND]
    assert play.machine.over


def test_budget_spent_while_relaying_ends_by_length() -> None:
    play = landing(max_tokens=3)
    play.tokens(RLD, 1)
    play.tokens(RLD, 2)
    assert play.finished == "length" and play.delivered == [0, 1, 2]
    assert {call.role for call in play.cancelled} == {RLD, MD}


def test_more_tokens_than_asked_for_never_reach_the_client() -> None:
    play = landing(max_tokens=3)
    play.tokens(RLD, 1, 2, 3, 4)
    assert play.delivered == [0, 1, 2]


def test_p_md_decodes_at_main_with_the_handle() -> None:
    play = Play()
    play.plan = Plan(Pipeline.P_MD, Reason.PREFIX_CACHED, main="md-1")
    play.begin().prefilled(0)
    call = play.leg(MD, Kind.DECODE)
    assert (call.engine, call.output_tokens, call.max_tokens) == ("md-1", 1, 99) and call.kv is not None
    assert not play.has(P) and not play.has(RLD)
    play.tokens(MD, 1, finish="length")
    assert play.finished == "length"


def test_without_clamping_each_decode_engine_lands_before_it_gets_a_longer_prompt() -> None:
    play = Play(clamps_remote_kv=False).begin()
    play.prefilled(0)
    land = play.leg(RLD, Kind.LAND)
    assert land.output_tokens == 0 and land.kv is not None
    play.done(RLD, Kind.LAND)
    decode = play.leg(RLD, Kind.DECODE)
    assert decode.output_tokens == 1 and decode.kv is None and decode.engine == "relay-decode-0"


def test_without_clamping_p_md_lands_then_continues_on_the_same_engine() -> None:
    play = Play(clamps_remote_kv=False)
    play.plan = Plan(Pipeline.P_MD, Reason.SHORT_TRANSFER, main="md-0")
    play.begin().prefilled(0)
    play.done(MD, Kind.LAND)
    call = play.leg(MD, Kind.DECODE)
    assert (call.engine, call.output_tokens, call.kv) == ("md-0", 1, None)
    assert play.machine.record.handoff is None


def test_never_a_longer_prompt_with_a_handle_on_engines_that_do_not_clamp() -> None:
    play = relaying(clamps_remote_kv=False)
    play.done(RLD, Kind.LAND)
    play.tokens(RLD, 1, 2)
    play.prefilled(0, Kind.HANDLE)
    for call in play.calls.values():
        if call.kv is not None:
            assert call.output_tokens == call.kv.covers


def test_first_token_that_is_eos_finishes_at_once() -> None:
    play = Play(stop_ids=frozenset({256})).begin()
    play.prefilled(256, finish="stop", handle=None)
    assert play.finished == "stop" and play.delivered == [256] and play.text == ""
    assert play.announced is not None and play.announced.pipeline is Pipeline.P
    assert not play.live


def test_eos_in_a_stream_is_seen_without_the_engines_finish_reason() -> None:
    play = landing(stop_ids=frozenset({256}))
    play.tokens(RLD, 1, 256, 3)
    assert play.delivered == [0, 1, 256] and play.finished == "stop"


def test_min_tokens_lets_an_early_stop_id_pass() -> None:
    play = landing(stop_ids=frozenset({25}), min_tokens=3)
    play.tokens(RLD, 25, 25)
    assert play.finished is None
    play.tokens(RLD, 25)
    assert play.finished == "stop" and play.delivered == [0, 25, 25, 25]


def test_one_token_asks_prefill_alone_and_exports_nothing() -> None:
    play = Play(max_tokens=1).begin()
    play.prefilled(3, Kind.ONE, handle=None)
    assert play.finished == "length" and play.delivered == [3] and not play.live


def test_stop_string_over_two_chunks_cuts_ledger_and_text() -> None:
    play = landing(stops=("cde",))
    play.tokens(RLD, 1, 2, 3)  # b c d: "cd" is held back
    assert play.text == "ab"
    play.tokens(RLD, 4, 5)
    assert play.text == "ab" and play.finished == "stop"
    assert play.delivered == [0, 1, 2, 3, 4]
    assert len(play.machine.ledger) == 5


def test_held_text_that_is_no_stop_string_comes_at_the_end() -> None:
    play = landing(stops=("cdx",))
    play.tokens(RLD, 1, 2, 3, finish="length")
    assert play.text == "abcd" and play.finished == "length"


def test_pinned_drops_prefills_token_and_decodes_all_at_one_engine() -> None:
    play = Play(pinned=True)
    play.plan = Plan(Pipeline.PINNED, Reason.PINNED_FEATURE, main="md-0")
    play.begin().prefilled(5)
    assert play.delivered == []
    call = play.leg(MD, Kind.DECODE)
    assert call.output_tokens == 0 and call.max_tokens == 100 and call.kv is not None
    play.tokens(MD, 6, 7, finish="length")
    assert play.delivered == [6, 7]


def test_pinned_without_a_line_decodes_all_at_relay() -> None:
    play = Play(pinned=True)
    play.plan = Plan(Pipeline.PINNED, Reason.LINE_LOST)
    play.begin().prefilled(5)
    assert play.leg(RLD, Kind.DECODE).output_tokens == 0


def test_single_override_is_one_call_without_prefill() -> None:
    play = Play(override=Pipeline.SINGLE).begin()
    call = play.leg(RLD, Kind.DECODE)
    assert call.kv is None and call.output_tokens == 0 and not play.has(P)
    play.lose(RLD, Kind.DECODE)
    play.tokens(P, 1, 2, finish="length")
    assert play.machine.ledger.counts()["P"] == 2


@pytest.mark.parametrize("event", [ClientGone(), Expired()])
def test_hang_up_and_deadline_end_every_leg(event: ClientGone | Expired) -> None:
    play = landing()
    play.feed(event)
    assert not play.live and len(play.cancelled) == 2 and play.machine.over
    assert (play.failed is None) == isinstance(event, ClientGone)


def test_hang_up_while_prefill_works_ends_it() -> None:
    play = Play().begin()
    play.feed(ClientGone())
    assert [call.kind for call in play.cancelled] == [Kind.FIRST]


def test_events_of_a_cancelled_leg_are_ignored() -> None:
    play = landing()
    relay = play.leg(RLD, Kind.DECODE)
    play.done(MD, Kind.LAND)
    play.tokens(MD, 1)
    assert play.feed(Tokens(relay.leg, (1, 2, 3), None)) == []
    assert play.delivered == [0, 1]


def test_what_lands_is_learnt_and_what_was_cached_is_observed() -> None:
    play = landing()
    out = play.done(MD, Kind.LAND)
    assert [c for c in out if isinstance(c, Learn)] == [Learn("md-0", MD, 0)]
    decode = play.leg(MD, Kind.DECODE)
    play.tokens(MD, 1, 2, finish="length")
    assert Learn("md-0", MD, 2) in play.out
    out = play.feed(Tokens(decode.leg, (), None, Usage(12, 2, 12, 12)))
    assert out == []  # it had no handle: nothing to compare with


def test_usage_behind_the_last_token_still_counts() -> None:
    play = Play()
    play.plan = Plan(Pipeline.P_MD, Reason.SHORT_TRANSFER, main="md-0")
    play.begin().prefilled(0)
    call = play.leg(MD, Kind.DECODE)
    play.tokens(MD, 1, finish="length")
    out = play.feed(Tokens(call.leg, (), None, Usage(12, 1, 11, 4, 7, 4096)))
    assert out == [Observe(call.leg, "md-0", 4)]
    assert play.machine.record.remote_bytes == 4096 and play.machine.record.main_cached_tokens == 4


def test_a_different_token_at_the_handoff_restarts_main_from_what_the_client_has() -> None:
    play = landing()
    play.tokens(RLD, 1)
    play.done(MD, Kind.LAND)
    play.tokens(RLD, 2, 3)
    play.tokens(MD, 2, 8)
    assert play.delivered == [0, 1, 2, 3]
    again = play.leg(MD, Kind.DECODE)
    assert again.output_tokens == 4 and not play.has(RLD)
    play.tokens(MD, 4, 5)
    assert play.delivered == [0, 1, 2, 3, 4, 5] and play.machine.record.diverged == 1
