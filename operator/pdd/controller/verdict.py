"""Small values from which conditions are made, and the judgements that both kinds share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pdd.api.conditions import Conditions, ConditionType, Reason, set_condition
from pdd.api.status import MemberState, MemberStatus
from pdd.controller.health import Failure
from pdd.controller.member import MemberView

EXPIRE_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition's content. `ok` None: unknown."""

    ok: bool | None
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a spec cannot be carried out. The message says what to do."""

    reason: Reason
    message: str


def as_reason(text: str) -> Reason:
    """The closed enum's member for an error's reason; InternalError for one that is not in it."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.INTERNAL_ERROR


def member_verdict(view: MemberView | None) -> Verdict:
    """MembersReachable of a link's member."""
    if view is None:
        return Verdict(None, Reason.CONNECTING, "the connection to cluster B has not been tried yet")
    health = view.health
    if health.state is MemberState.CONNECTED:
        note = f"{view.server}, cluster {view.identity}" if view.identity else f"{view.server}; {view.identity_note}"
        return Verdict(True, Reason.CONNECTED, note)
    if health.state is MemberState.SUSPECT:
        return Verdict(True, Reason.SUSPECT, f"no answer since a moment: {_words(health.failure)}")
    if health.failure is None:
        return Verdict(None, Reason.CONNECTING, "connecting to cluster B")
    reason = as_reason(health.failure.reason)
    if health.state is MemberState.LOST and health.ok_since_s is not None:
        return Verdict(False, reason, "cluster B answers again and is watched for a moment before it is used")
    return Verdict(False, reason, health.failure.message)


def credentials_verdict(view: MemberView | None, now: str) -> Verdict:
    """CredentialsValid: what the newest credentials are worth, apart from whether the network works.

    now: RFC 3339. Credentials that end within EXPIRE_SOON are still valid, under a reason that alerts can watch.
    """
    if view is None:
        return Verdict(None, Reason.CONNECTING, "not tried yet")
    if view.credentials_failure is not None:
        failure = view.credentials_failure
        return Verdict(
            False, as_reason(failure.reason), f"older credentials still work, the newest do not: {failure.message}"
        )
    failure_now = view.health.failure
    if failure_now is not None and failure_now.definite:
        return Verdict(False, as_reason(failure_now.reason), failure_now.message)
    if view.health.usable:
        end = _parse_time(view.credentials_expire)
        if end is None:
            return Verdict(True, Reason.CONNECTED, "")
        words = f"they end on {view.credentials_expire}; renew them before: pdd link create"
        soon = end - _parse_time_or_now(now) <= EXPIRE_SOON
        return Verdict(True, Reason.CREDENTIALS_EXPIRE_SOON if soon else Reason.CONNECTED, words)
    return Verdict(None, Reason.UNREACHABLE if failure_now else Reason.CONNECTING, "cluster B gives no answer")


def _parse_time(text: str) -> datetime | None:
    """The time of an RFC 3339 text; None for one that is empty or broken (a person may have written it)."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _parse_time_or_now(text: str) -> datetime:
    return _parse_time(text) or datetime.now(UTC)


def member_status(view: MemberView | None, old: MemberStatus | None, now: str) -> MemberStatus:
    """The member's part of a status. `since` moves only with the state, so that nothing is written without news."""
    if view is None:
        return MemberStatus()
    health = view.health
    same = old is not None and old.state is health.state and bool(old.since)
    failure = health.failure
    return MemberStatus(
        state=health.state,
        reason=failure.reason if failure else "",
        message=failure.message[:1024] if failure else "",
        since=old.since if same and old else now,
        # When B was connected last for the first time: a clock that ticks here would be a write on every pass.
        last_contact=(old.last_contact if same and old else now)
        if health.usable
        else (old.last_contact if old else ""),
        kube_system_uid=view.identity or (old.kube_system_uid if old else ""),
    )


class ConditionBook:
    """Collects verdicts over the conditions that are there; times flip only when a status flips."""

    def __init__(self, old: Conditions, *, generation: int, now: str) -> None:
        self.conditions = old
        self._generation = generation
        self._now = now

    def put(self, type_: ConditionType | str, verdict: Verdict) -> None:
        self.conditions = set_condition(
            self.conditions,
            type_,
            verdict.ok,
            verdict.reason,
            verdict.message,
            generation=self._generation,
            now=self._now,
        )


def steady(old: int | None, new: float | None) -> int | None:
    """A measured number for a status: the old one while the new one is near it, so that noise writes nothing."""
    if new is None:
        return None
    rounded = max(0, round(new))
    if old is not None and abs(rounded - old) <= max(2, old // 4):
        return old
    return rounded


def _words(failure: Failure | None) -> str:
    return failure.message if failure else "unknown"
