"""The member's state machine: hysteresis both ways, definite answers at once."""

from __future__ import annotations

from pdd.controller.health import (
    Failure,
    Health,
    HealthLaw,
    MemberState,
    after_failure,
    after_success,
    next_probe_s,
)

LAW = HealthLaw(lost_after_s=15, recover_after_s=5)
SILENCE = Failure("Unreachable", "no answer")
REFUSED = Failure("CredentialsInvalid", "401", definite=True)


def test_first_answer_connects() -> None:
    health = after_success(Health(), 1.0, LAW)
    assert health.state is MemberState.CONNECTED and health.usable


def test_blip_makes_it_suspect_and_still_usable() -> None:
    health = after_failure(after_success(Health(), 0, LAW), SILENCE, 1.0, LAW)
    assert health.state is MemberState.SUSPECT and health.usable
    assert after_success(health, 3.0, LAW).state is MemberState.CONNECTED


def test_ten_seconds_of_silence_do_not_lose_it_fifteen_do() -> None:
    health = after_success(Health(), 0, LAW)
    for at_s in (1.0, 5.0, 11.0):
        health = after_failure(health, SILENCE, at_s, LAW)
    assert health.state is MemberState.SUSPECT
    health = after_failure(health, SILENCE, 16.0, LAW)
    assert health.state is MemberState.LOST and not health.usable and health.since_s == 16.0


def test_lost_comes_back_only_after_a_streak() -> None:
    health = after_failure(after_success(Health(), 0, LAW), REFUSED, 1.0, LAW)
    health = after_success(health, 10.0, LAW)
    assert health.state is MemberState.LOST
    interrupted = after_success(after_failure(health, SILENCE, 12.0, LAW), 14.0, LAW)
    assert after_success(interrupted, 16.0, LAW).state is MemberState.LOST
    assert after_success(health, 15.0, LAW).state is MemberState.CONNECTED


def test_refused_credentials_lose_it_at_once() -> None:
    health = after_failure(after_success(Health(), 0, LAW), REFUSED, 1.0, LAW)
    assert health.state is MemberState.LOST and health.failure is REFUSED


def test_never_connected_keeps_its_reason_and_is_lost_in_time() -> None:
    health = after_failure(Health(), SILENCE, 1.0, LAW)
    assert health.state is MemberState.CONNECTING and health.failure is SILENCE
    assert after_failure(health, SILENCE, 17.0, LAW).state is MemberState.LOST


def test_recovery_forgets_the_failure() -> None:
    health = after_success(after_failure(after_success(Health(), 0, LAW), SILENCE, 1, LAW), 2, LAW)
    assert health.failure is None and health.failures == 0


def test_probes_quicken_in_doubt_and_back_off_when_lost() -> None:
    connected = after_success(Health(), 0, LAW)
    suspect = after_failure(connected, SILENCE, 1, LAW)
    lost = suspect
    waits = []
    for at_s in range(20, 60, 5):
        lost = after_failure(lost, SILENCE, float(at_s), LAW)
        waits.append(next_probe_s(lost, LAW))
    assert next_probe_s(connected, LAW) > next_probe_s(suspect, LAW)
    assert max(waits) == LAW.probe_lost_max_s
