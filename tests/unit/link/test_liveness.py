"""Connected, suspect, lost: with a clock of our own."""

from __future__ import annotations

from pdd.link.liveness import Liveness, MemberState


def connected(now: float = 0.0) -> Liveness:
    live = Liveness(keepalive_s=1.0, retention_s=60.0, now_s=now)
    live.note_streams(fast=True, bulk=4, now_s=now)
    assert live.state is MemberState.CONNECTED
    return live


def test_a_member_is_offered_only_with_both_lanes() -> None:
    live = Liveness(keepalive_s=1.0, retention_s=60.0, now_s=0.0)
    live.note_streams(fast=True, bulk=0, now_s=0.1)
    live.update(0.1)
    assert live.state is MemberState.CONNECTING
    live.note_streams(fast=True, bulk=1, now_s=0.2)
    assert live.state is MemberState.CONNECTED
    assert live.since_s == 0.2


def test_three_missed_keepalives_make_it_suspect_and_a_sign_of_life_brings_it_back() -> None:
    live = connected()
    assert not live.update(2.9)
    assert live.update(3.1)
    assert live.state is MemberState.SUSPECT
    live.note_heard(3.5)
    assert live.update(3.5)
    assert live.state is MemberState.CONNECTED
    assert live.since_s == 3.5


def test_a_reconnect_within_a_keepalive_flips_nothing() -> None:
    live = connected()
    live.note_streams(fast=False, bulk=4, now_s=1.0)
    assert not live.update(1.5)
    live.note_streams(fast=True, bulk=4, now_s=1.6)
    assert live.state is MemberState.CONNECTED
    assert live.since_s == 0.0


def test_a_lane_without_streams_is_suspect_although_the_other_is_heard() -> None:
    live = connected()
    live.note_streams(fast=True, bulk=0, now_s=1.0)
    live.note_heard(2.5)
    assert live.update(2.5)
    assert live.state is MemberState.SUSPECT


def test_the_session_is_lost_after_the_retention_and_not_before() -> None:
    live = connected()
    live.note_heard(10.0)
    live.note_streams(fast=False, bulk=0, now_s=10.0)
    assert not live.expired(69.0)
    assert live.expired(71.0)


def test_silent_streams_do_not_keep_a_session_for_ever() -> None:
    live = connected()
    live.update(61.0)
    assert live.expired(61.0)
