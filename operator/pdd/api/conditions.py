"""Conditions: types and reasons as closed enums, and the pure function that changes them.

A type is an adjective or a state; `reason` is always set; `lastTransitionTime` changes only when `status` flips, so
that an unchanged state gives an unchanged object and no write.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from pdd.api.base import Model

MAX_MESSAGE_CHARS = 1024


class ConditionType(StrEnum):
    READY = "Ready"
    """Requests are answered. The summary of all others."""
    PLANNED = "Planned"
    """The spec makes sense (link found, model fits, engine type is built) and, as far as that can be predicted, every
    stage keeps up with the load that the routers see, within the SLA."""
    MEMBERS_REACHABLE = "MembersReachable"
    """Cluster B answers, and lets us do what we must."""
    LINK_HEALTHY = "LinkHealthy"
    """The gateway has live streams from B."""
    GATEWAY_READY = "GatewayReady"
    """PDDLink: the gateway runs and has an address that B can dial."""
    CREDENTIALS_VALID = "CredentialsValid"
    """PDDLink: cluster B accepts our credentials, and is the cluster that was pinned."""
    ROLES_AVAILABLE = "RolesAvailable"
    """Every role has as many ready engines as desired."""
    PROGRESSING = "Progressing"
    """The operator or a rollout is at work."""
    DEGRADED = "Degraded"
    """Served, but not as planned (mode local, a role short of engines)."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Every reason that a condition of ours may carry. Bounded: reasons are metric labels too."""

    # good
    READY = "Ready"
    PLANNED = "Planned"
    CONNECTED = "Connected"
    STREAMS_UP = "StreamsUp"
    AVAILABLE = "Available"
    COMPLETE = "Complete"
    NORMAL = "Normal"
    NOT_USED = "NotUsed"
    # at work
    FIRST_OBSERVATION = "FirstObservation"
    CONNECTING = "Connecting"
    APPLYING = "Applying"
    ROLLING_OUT = "RollingOut"
    SCALING = "Scaling"
    WAITING_FOR_ENGINES = "WaitingForEngines"
    WAITING_FOR_STREAMS = "WaitingForStreams"
    WAITING_FOR_ADDRESS = "WaitingForAddress"
    DELETING = "Deleting"
    CLEANUP_BLOCKED = "CleanupBlocked"
    # the user must act
    INVALID_SPEC = "InvalidSpec"
    LINK_NOT_FOUND = "LinkNotFound"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    MODEL_TOO_LARGE = "ModelTooLarge"
    CONTEXT_TOO_LARGE = "ContextTooLarge"
    STAGE_SHORT = "StageShort"
    SLA_NOT_MET = "SLANotMet"
    ENGINE_NOT_BUILT = "EngineNotBuilt"
    TRANSPORT_NOT_BUILT = "TransportNotBuilt"
    IMAGE_PULL = "ImagePull"
    UNSCHEDULABLE = "Unschedulable"
    CRASH_LOOP = "CrashLoop"
    # the platform team must act
    SECRET_NOT_FOUND = "SecretNotFound"
    CREDENTIALS_INVALID = "CredentialsInvalid"
    CREDENTIALS_EXPIRE_SOON = "CredentialsExpireSoon"
    FORBIDDEN = "Forbidden"
    IDENTITY_CHANGED = "IdentityChanged"
    UNREACHABLE = "Unreachable"
    SUSPECT = "Suspect"
    MEMBER_LOST = "MemberLost"
    LINE_LOST = "LineLost"
    IN_USE = "InUse"
    # others
    NOT_READY = "NotReady"
    ROUTER_NOT_READY = "RouterNotReady"
    GATEWAY_NOT_READY = "GatewayNotReady"
    ROLE_SHORT = "RoleShort"
    APPLY_FAILED = "ApplyFailed"
    CONFLICT = "Conflict"
    TIMED_OUT = "TimedOut"
    INTERNAL_ERROR = "InternalError"


class Condition(Model):
    """One condition as Kubernetes defines it. Times are RFC 3339 in UTC, to the second."""

    type: str = Field(min_length=1, max_length=64)
    status: ConditionStatus
    reason: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$")
    message: str = Field(default="", max_length=MAX_MESSAGE_CHARS)
    observed_generation: int = Field(default=0, ge=0)
    last_transition_time: str = Field(default="", max_length=32)


Conditions = tuple[Condition, ...]


def set_condition(
    conditions: Conditions,
    type_: ConditionType | str,
    status: ConditionStatus | bool | None,
    reason: Reason | str,
    message: str,
    *,
    generation: int,
    now: str,
) -> Conditions:
    """Return the conditions with one of them set; the very same tuple if nothing changed.

    status: True, False or None (Unknown). now: RFC 3339; used only when the status flips or the type is new.
    A message beyond 1 KiB is cut.
    """
    new_status = _as_status(status)
    old = get_condition(conditions, type_)
    flipped = old is None or old.status != new_status
    new = Condition(
        type=str(type_),
        status=new_status,
        reason=str(reason),
        message=message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 3] + "...",
        observed_generation=generation,
        last_transition_time=now if flipped or old is None else old.last_transition_time,
    )
    if old is None:
        return (*conditions, new)
    if old == new:
        return conditions
    return tuple(new if c.type == new.type else c for c in conditions)


def get_condition(conditions: Iterable[Condition], type_: ConditionType | str) -> Condition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == str(type_)), None)


def is_true(conditions: Iterable[Condition], type_: ConditionType | str, *, generation: int = 0) -> bool:
    """Whether the condition is True and was observed at `generation` or later."""
    found = get_condition(conditions, type_)
    return found is not None and found.status is ConditionStatus.TRUE and found.observed_generation >= generation


def _as_status(status: ConditionStatus | bool | None) -> ConditionStatus:
    if isinstance(status, ConditionStatus):
        return status
    if status is None:
        return ConditionStatus.UNKNOWN
    return ConditionStatus.TRUE if status else ConditionStatus.FALSE
