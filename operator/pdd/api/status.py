"""Status of both resources, as the controller writes it and `pdd status` reads it. Times are RFC 3339 in UTC."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from pdd.api.base import Model
from pdd.api.conditions import Condition
from pdd.api.deployment import Role

LIST_MAP_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
ConditionList = Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=LIST_MAP_BY_TYPE)]
Time = Annotated[str, Field(max_length=32)]
Text = Annotated[str, Field(max_length=1024)]
Short = Annotated[str, Field(max_length=253)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]

MAX_SCALING_EVENTS = 20


class Site(StrEnum):
    """The two clusters."""

    A = "A"
    B = "B"


class Mode(StrEnum):
    """Normal: requests cross to MD. Local: the line or B is lost, RLD serves to the end."""

    NORMAL = "Normal"
    LOCAL = "Local"
    UNKNOWN = "Unknown"


class MemberState(StrEnum):
    """State of the connection to cluster B, with hysteresis."""

    CONNECTING = "Connecting"
    CONNECTED = "Connected"
    SUSPECT = "Suspect"
    LOST = "Lost"


class RoleStatus(Model):
    """Engines of one role in one cluster. ready and updated are absent when the cluster does not answer (unknown is
    not 0)."""

    role: Role
    site: Site
    desired: Count = 0
    ready: Count | None = None
    updated: Count | None = None
    reason: Short = ""
    message: Text = ""
    observed_at: Time = ""


class RoleSummary(Model):
    """`ready/desired` of each role, for `kubectl get`; `?/2` when unknown."""

    prefill: Short = ""
    relay_decode: Short = ""
    main_decode: Short = ""


class MemberStatus(Model):
    """The connection to cluster B. last_contact: the last answered call."""

    state: MemberState = MemberState.CONNECTING
    reason: Short = ""
    message: Text = ""
    since: Time = ""
    last_contact: Time = ""
    kube_system_uid: str = Field(default="", max_length=36, alias="kubeSystemUID")
    version: Short = ""


class LinkSummary(Model):
    """The line as this deployment sees it."""

    name: Short = ""
    namespace: Short = ""
    state: Short = ""
    connected_engines: Count = 0
    rtt_ms: Count | None = None
    goodput_mbps: Count | None = None
    capacity_mbps: Count | None = None
    limited_by: Short = ""


class RouterStatus(Model):
    """Routers in cluster A."""

    desired: Count = 0
    ready: Count = 0
    updated: Count = 0
    reason: Short = ""


class ScalingEvent(Model):
    """One change of the number of RLD engines, and why."""

    time: Time
    from_: Count = Field(alias="from")
    to: Count
    reason: Short
    message: Text = ""


class ScalingStatus(Model):
    """Scaling of relay decode. history: newest first, at most 20."""

    desired: Count = 0
    sessions: Count = 0
    holding_ms: Count = 0
    reason: Short = ""
    history: tuple[ScalingEvent, ...] = Field(default=(), max_length=MAX_SCALING_EVENTS)


class PlanBasis(StrEnum):
    """Where the engines' times are from. Calibration: annotation `pdd.dev/calibration`. None: nothing is known."""

    DATA_SHEETS = "DataSheets"
    CALIBRATION = "Calibration"
    NONE = "None"


Percent = Annotated[int, Field(ge=0, le=100_000)]


class PlanStage(Model):
    """One stage under the observed load. capacityPerMinute: requests at which it is full."""

    name: Short
    utilization_percent: Percent = 0
    capacity_per_minute: Count = 0


class PlanLoad(Model):
    """The load that the routers saw. hitBuckets: percent of requests whose prompt was cached to 0-90, 90-95, 95-97,
    97-98, 98-99 and 99-100 %."""

    requests: Count = 0
    requests_per_minute: Count = 0
    input_tokens: Count = Field(default=0, description="median")
    uncached_tokens: Count = Field(default=0, description="mean")
    output_tokens: Count = Field(default=0, description="mean")
    hit_percent: Percent = Field(default=0, description="mean over requests")
    hit_buckets: Annotated[tuple[Percent, ...], Field(max_length=6)] = Field(default=())


class PlanAdvice(Model):
    """Engines and line that would carry the load at 80 % of their capacity and keep the SLA. Only shown."""

    prefill: Count = 0
    relay_decode: Count = 0
    main_decode: Count = 0
    line_mbps: Count = 0
    meets_sla: bool = Field(default=True, alias="meetsSLA", description="false: no larger fleet that was tried does")


class PlanStatus(Model):
    """The planner's view of the running load: predicted, not measured. Written when it changes, not at each look."""

    feasible: bool | None = Field(default=None, description="absent while nothing can be said")
    reason: Short = ""
    message: Text = ""
    basis: PlanBasis = PlanBasis.NONE
    binding_stage: Short = Field(default="", description="the stage nearest to its capacity")
    ttft_p90_ms: Count | None = None
    ttft_p99_ms: Count | None = None
    tpot_p99_ms: Count | None = None
    stages: Annotated[tuple[PlanStage, ...], Field(max_length=8)] = Field(default=())
    load: PlanLoad | None = None
    advice: PlanAdvice | None = None
    observed_at: Time = ""


ROLE_LIST = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["role", "site"]}


class PDDDeploymentStatus(Model):
    """What the operator last saw and decided."""

    observed_generation: int = Field(default=0, ge=0)
    conditions: ConditionList = Field(default=())
    mode: Mode = Mode.UNKNOWN
    url: Short = ""
    summary: RoleSummary = RoleSummary()
    roles: Annotated[tuple[RoleStatus, ...], Field(max_length=8, json_schema_extra=ROLE_LIST)] = Field(default=())
    router: RouterStatus = RouterStatus()
    member: MemberStatus | None = None
    link: LinkSummary | None = None
    scaling: ScalingStatus | None = None
    plan: PlanStatus | None = None


class GatewayStatus(Model):
    """address: `host:port` that endpoints dial."""

    address: Short = ""
    ready: Count = 0
    desired: Count = 0
    certificate_not_after: Time = ""


class LineStatus(Model):
    """Sums over the endpoints that are connected."""

    endpoints: Count = 0
    streams: Count = 0
    rtt_ms: Count | None = None
    goodput_mbps: Count | None = None
    limited_by: Short = ""
    observed_at: Time = ""


class PDDLinkStatus(Model):
    """What the operator last saw of the line and of cluster B."""

    observed_generation: int = Field(default=0, ge=0)
    conditions: ConditionList = Field(default=())
    member: MemberStatus = MemberStatus()
    gateway: GatewayStatus | None = None
    line: LineStatus | None = None
    deployments: tuple[Short, ...] = Field(
        default=(), max_length=256, description="`namespace/name` of the PDDDeployments that use this link"
    )
