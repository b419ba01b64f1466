"""How well a member cluster is reached: a pure state machine with hysteresis in both directions.

    Connecting --ok--> Connected --failure--> Suspect --ok--> Connected
         \\                                      | failing for lost_after_s
          \\--failing for lost_after_s--> Lost <-+
                                          Lost --ok for recover_after_s--> Connected

A refused credential (401) or another cluster behind the address is an answer, not silence: it makes the member Lost at
once. While Suspect the last known state is believed and writes are still tried; while Lost nobody calls the cluster but
the probe (the circuit breaker), so that a dead cluster costs the others nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdd.api.status import MemberState


@dataclass(frozen=True, slots=True)
class HealthLaw:
    """Times in seconds. A silence shorter than `lost_after_s` never makes a member Lost."""

    lost_after_s: float = 15.0
    recover_after_s: float = 5.0
    probe_every_s: float = 5.0
    probe_suspect_every_s: float = 2.0
    probe_lost_max_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a probe or call failed. `definite`: the other side answered and refuses; waiting does not help."""

    reason: str
    message: str
    definite: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """State of one member. Times are seconds of the caller's clock."""

    state: MemberState = MemberState.CONNECTING
    since_s: float = 0.0
    failing_since_s: float | None = None
    ok_since_s: float | None = None
    failures: int = 0
    failure: Failure | None = None

    @property
    def usable(self) -> bool:
        """Whether calls may be made (the breaker is closed)."""
        return self.state in (MemberState.CONNECTED, MemberState.SUSPECT)


def after_success(health: Health, now_s: float, law: HealthLaw) -> Health:
    """The state after an answer that proves reachability, credentials and identity."""
    ok_since_s = now_s if health.ok_since_s is None else health.ok_since_s
    fresh = replace(health, failing_since_s=None, ok_since_s=ok_since_s, failures=0)
    if health.state is MemberState.LOST and now_s - ok_since_s < law.recover_after_s:
        return fresh
    fresh = replace(fresh, failure=None)
    return (
        fresh if health.state is MemberState.CONNECTED else replace(fresh, state=MemberState.CONNECTED, since_s=now_s)
    )


def after_failure(health: Health, failure: Failure, now_s: float, law: HealthLaw) -> Health:
    """The state after a failed probe or call."""
    failing_since_s = now_s if health.failing_since_s is None else health.failing_since_s
    worse = replace(
        health, failing_since_s=failing_since_s, ok_since_s=None, failures=health.failures + 1, failure=failure
    )
    if health.state is MemberState.LOST:
        return worse
    if failure.definite or now_s - failing_since_s >= law.lost_after_s:
        return replace(worse, state=MemberState.LOST, since_s=now_s)
    if health.state is MemberState.CONNECTED:
        return replace(worse, state=MemberState.SUSPECT, since_s=now_s)
    return worse


def next_probe_s(health: Health, law: HealthLaw) -> float:
    """Seconds until the next probe: quick while in doubt, backing off while lost, so that a dead address is not
    hammered."""
    if health.state is MemberState.CONNECTED:
        return law.probe_every_s
    if health.state is MemberState.LOST and health.ok_since_s is None:
        return min(law.probe_lost_max_s, law.probe_suspect_every_s * 2.0 ** min(health.failures - 1, 6))
    return law.probe_suspect_every_s


__all__ = ["Failure", "Health", "HealthLaw", "MemberState", "after_failure", "after_success", "next_probe_s"]
