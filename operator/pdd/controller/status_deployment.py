"""Status of a PDDDeployment from what was observed. Pure: the same observation gives the very same status."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.api.conditions import ConditionType, Reason
from pdd.api.deployment import Role
from pdd.api.linkspec import Transport
from pdd.api.status import (
    LinkSummary,
    Mode,
    PDDDeploymentStatus,
    PlanStatus,
    RoleStatus,
    RoleSummary,
    RouterStatus,
    ScalingStatus,
    Site,
)
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.errors import PDDError
from pdd.controller.desired.deployment import router_url
from pdd.controller.member import MemberView
from pdd.controller.observe import RoleView, WorkloadView
from pdd.controller.verdict import ConditionBook, Problem, Verdict, as_reason, member_status, member_verdict, steady


@dataclass(frozen=True, slots=True)
class LineView:
    """The line as the link's gateway tells it, for one deployment. `connected` None: the gateway could not be asked."""

    gateway_ready: bool | None
    connected: int | None = None
    rtt_ms: float | None = None
    goodput_bps: float | None = None
    limited_by: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class SiteOutcome:
    """What was done at one site in this pass. `held`: why nothing was tried."""

    changes: int = 0
    error: PDDError | None = None
    failed_object: str = ""
    held: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that the status says, gathered."""

    link: PDDLink | None
    problem: Problem | None
    member: MemberView | None
    roles: tuple[RoleView, ...]
    router: WorkloadView
    line: LineView
    site_a: SiteOutcome
    site_b: SiteOutcome
    scaling: ScalingStatus | None = None
    plan: PlanStatus | None = None


def build_status(deployment: PDDDeployment, seen: Observation, *, now: str) -> PDDDeploymentStatus:
    """The complete status. `now` (RFC 3339) is used only where something flips."""
    old = deployment.status or PDDDeploymentStatus()
    book = ConditionBook(old.conditions, generation=deployment.generation, now=now)
    planned = (
        Verdict(False, seen.problem.reason, seen.problem.message) if seen.problem else Verdict(True, Reason.PLANNED, "")
    )
    members = _members(seen)
    line = _line(seen)
    roles = _roles(seen)
    mode = _mode(old.mode, seen, line)
    ready = _ready(seen, planned, roles, line, mode)
    book.put(ConditionType.READY, ready)
    book.put(ConditionType.PLANNED, _feasible(planned, seen.plan))
    book.put(ConditionType.MEMBERS_REACHABLE, members)
    book.put(ConditionType.LINK_HEALTHY, line)
    book.put(ConditionType.ROLES_AVAILABLE, roles)
    book.put(ConditionType.PROGRESSING, _progressing(seen))
    book.put(ConditionType.DEGRADED, _degraded(seen, ready, roles, line, mode))
    return PDDDeploymentStatus(
        observed_generation=deployment.generation,
        conditions=book.conditions,
        mode=mode,
        url=router_url(deployment),
        summary=_summary(seen),
        roles=tuple(_role_status(view, old, now) for view in seen.roles),
        router=RouterStatus(
            desired=seen.router.desired,
            ready=seen.router.ready or 0,
            updated=seen.router.updated or 0,
            reason=seen.router.trouble.reason.value if seen.router.trouble else "",
        ),
        member=member_status(seen.member, old.member, now) if seen.link else None,
        link=_link_summary(seen, line, old.link) if seen.link else None,
        scaling=seen.scaling,
        plan=seen.plan,
    )


def _feasible(planned: Verdict, plan: PlanStatus | None) -> Verdict:
    """Planned: the spec makes sense, and the load is not predicted to be too much. Ready looks at the spec alone: a
    prediction takes nothing out of service."""
    if not planned.ok or plan is None:
        return planned
    if plan.feasible is False:
        return Verdict(False, as_reason(plan.reason), plan.message)
    if plan.feasible is None:
        return Verdict(True, Reason.PLANNED, f"the load is not judged: {plan.message}")
    return Verdict(True, Reason.PLANNED, plan.message)


def _members(seen: Observation) -> Verdict:
    if seen.link is None:
        return Verdict(None, Reason.LINK_NOT_FOUND, "there is no link, so there is no cluster B")
    verdict = member_verdict(seen.member)
    if verdict.ok and seen.site_b.error is not None and as_reason(seen.site_b.error.reason) is Reason.FORBIDDEN:
        return Verdict(
            False,
            Reason.FORBIDDEN,
            f"cluster B refused {seen.site_b.failed_object}: {seen.site_b.error.message}; upgrade the chart "
            f"pdd-member in B",
        )
    return verdict


def _line(seen: Observation) -> Verdict:
    if seen.link is None:
        return Verdict(None, Reason.LINK_NOT_FOUND, "")
    if seen.link.spec.transport is Transport.DIRECT:
        return Verdict(True, Reason.NOT_USED, "transport Direct")
    view = seen.line
    if view.gateway_ready is False:
        return Verdict(
            False, Reason.GATEWAY_NOT_READY, "the link gateway has no ready pod; see the PDDLink's conditions"
        )
    if view.connected is None:
        return Verdict(
            None, Reason.UNREACHABLE, f"the operator cannot ask the gateway: {view.error or 'not tried yet'}"
        )
    if view.connected > 0:
        return Verdict(True, Reason.STREAMS_UP, f"{view.connected} main decode engines are connected")
    was_up = seen_before(seen)
    if was_up:
        return Verdict(
            False, Reason.LINE_LOST, "no main decode engine has streams to the gateway; requests are served in A alone"
        )
    return Verdict(
        False,
        Reason.WAITING_FOR_STREAMS,
        "no main decode engine has dialled the gateway yet; if this lasts, check that B reaches the address in "
        "the PDDLink's status",
    )


def seen_before(seen: Observation) -> bool:
    """Whether main decode has engines now, so that missing streams are a loss and not a beginning."""
    view = next((r.workload for r in seen.roles if r.role is Role.MAIN_DECODE), None)
    return view is None or view.ready is None or view.ready > 0


def _roles(seen: Observation) -> Verdict:
    short = [view for view in seen.roles if view.workload.available is False]
    for view in short:
        if view.workload.trouble is not None:
            return Verdict(False, view.workload.trouble.reason, f"{view.role.slug}: {view.workload.trouble.message}")
    if short:
        text = ", ".join(f"{v.role.slug} {v.workload.ready}/{v.workload.desired}" for v in short)
        return Verdict(False, Reason.WAITING_FOR_ENGINES, f"engines ready: {text}")
    unknown = [view.role.slug for view in seen.roles if view.workload.available is None]
    if unknown or not seen.roles:
        return Verdict(None, Reason.UNREACHABLE, f"unknown while its cluster gives no answer: {', '.join(unknown)}")
    return Verdict(True, Reason.AVAILABLE, "")


def _mode(old: Mode, seen: Observation, line: Verdict) -> Mode:
    local = [v.workload for v in seen.roles if v.role is not Role.MAIN_DECODE]
    serving = bool(seen.router.ready) and bool(local) and all((w.ready or 0) > 0 for w in local)
    if not serving:
        return Mode.UNKNOWN
    if line.ok:
        return Mode.NORMAL
    if line.ok is None:
        return old
    return Mode.LOCAL if old is not Mode.UNKNOWN else Mode.UNKNOWN


def _ready(seen: Observation, planned: Verdict, roles: Verdict, line: Verdict, mode: Mode) -> Verdict:
    if mode is Mode.NORMAL:
        return Verdict(True, Reason.READY, "")
    if mode is Mode.LOCAL:
        return Verdict(True, Reason.LINE_LOST, "served by cluster A alone until cluster B is back")
    if planned.ok is False:
        return Verdict(False, planned.reason, planned.message)
    if seen.site_a.error is not None:
        return Verdict(
            False, as_reason(seen.site_a.error.reason), f"{seen.site_a.failed_object}: {seen.site_a.error.message}"
        )
    if not seen.router.ready:
        trouble = seen.router.trouble
        if trouble is not None:
            return Verdict(False, trouble.reason, f"router: {trouble.message}")
    for view in seen.roles:
        if view.workload.ready == 0:
            return Verdict(False, roles.reason, roles.message)
    if not seen.router.ready:
        return Verdict(False, Reason.ROUTER_NOT_READY, "the router has no ready pod yet")
    if seen.site_b.held and line.ok is not True:
        return Verdict(False, Reason.NOT_READY, seen.site_b.held)
    return Verdict(False, line.reason, line.message)


def _progressing(seen: Observation) -> Verdict:
    if seen.problem is not None:
        return Verdict(False, seen.problem.reason, "nothing is changed until the spec can be carried out")
    for site, outcome in (("A", seen.site_a), ("B", seen.site_b)):
        if outcome.error is not None:
            return Verdict(
                True,
                as_reason(outcome.error.reason),
                f"cluster {site}: {outcome.failed_object}: {outcome.error.message}",
            )
    if seen.site_a.held or seen.site_b.held:
        return Verdict(True, Reason.APPLYING, seen.site_a.held or seen.site_b.held)
    workloads = [(v.role.slug, v.workload) for v in seen.roles] + [("router", seen.router)]
    rolling = [name for name, w in workloads if w.ready is not None and not w.rolled_out]
    if rolling:
        return Verdict(True, Reason.ROLLING_OUT, f"on the way: {', '.join(rolling)}")
    return Verdict(False, Reason.COMPLETE, "")


def _degraded(seen: Observation, ready: Verdict, roles: Verdict, line: Verdict, mode: Mode) -> Verdict:
    if mode is Mode.LOCAL:
        return Verdict(True, Reason.LINE_LOST, line.message)
    if ready.ok and roles.ok is False:
        return Verdict(True, Reason.ROLE_SHORT, roles.message)
    if ready.ok and seen.problem is not None:
        return Verdict(True, seen.problem.reason, f"the previous state is kept: {seen.problem.message}")
    members = _members(seen)
    if ready.ok and members.ok is False:
        return Verdict(True, members.reason, f"cluster B's API server is not managed now: {members.message}")
    return Verdict(False, Reason.NORMAL, "")


def _summary(seen: Observation) -> RoleSummary:
    def text(role: Role) -> str:
        for view in seen.roles:
            if view.role is role:
                ready = "?" if view.workload.ready is None else str(view.workload.ready)
                return f"{ready}/{view.workload.desired}"
        return ""

    return RoleSummary(
        prefill=text(Role.PREFILL), relay_decode=text(Role.RELAY_DECODE), main_decode=text(Role.MAIN_DECODE)
    )


def _role_status(view: RoleView, old: PDDDeploymentStatus, now: str) -> RoleStatus:
    before = next((r for r in old.roles if r.role is view.role), None)
    made = RoleStatus(
        role=view.role,
        site=Site(view.site.upper()),
        desired=view.workload.desired,
        ready=view.workload.ready,
        updated=view.workload.updated,
        reason=view.workload.trouble.reason.value if view.workload.trouble else "",
        message=view.workload.trouble.message[:1024] if view.workload.trouble else "",
        observed_at=before.observed_at if before else now,
    )
    # The time tells when this was first seen so; a clock that ticks in the status would be a write on every pass.
    return made if made == before else made.model_copy(update={"observed_at": now})


def _link_summary(seen: Observation, line: Verdict, old: LinkSummary | None) -> LinkSummary:
    link = seen.link
    assert link is not None
    goodput_mbps = None if seen.line.goodput_bps is None else seen.line.goodput_bps / 1e6
    return LinkSummary(
        name=link.name,
        namespace=link.namespace,
        state=line.reason.value,
        connected_engines=seen.line.connected or 0,
        rtt_ms=steady(old.rtt_ms if old else None, seen.line.rtt_ms),
        goodput_mbps=steady(old.goodput_mbps if old else None, goodput_mbps),
        capacity_mbps=link.spec.rate_cap_mbps,
        limited_by=seen.line.limited_by,
    )
