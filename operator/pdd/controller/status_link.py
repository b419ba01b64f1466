"""Status of a PDDLink from what was observed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.api.conditions import ConditionType, Reason
from pdd.api.status import GatewayStatus, LineStatus, PDDLinkStatus
from pdd.api.v1alpha1 import PDDLink
from pdd.controller.member import MemberView
from pdd.controller.observe import WorkloadView
from pdd.controller.status_deployment import LineView, SiteOutcome
from pdd.controller.verdict import (
    ConditionBook,
    Problem,
    Verdict,
    as_reason,
    credentials_verdict,
    member_status,
    member_verdict,
    steady,
)

GATEWAY_READY = "GatewayReady"
CREDENTIALS_VALID = "CredentialsValid"
MAX_DEPLOYMENTS = 256


@dataclass(frozen=True, slots=True)
class LinkObservation:
    problem: Problem | None
    member: MemberView | None
    gateway: WorkloadView
    address: str
    address_note: str
    certificate_not_after: str
    line: LineView
    streams: int
    deployments: tuple[str, ...]
    site_a: SiteOutcome
    site_b: SiteOutcome


def build_link_status(link: PDDLink, seen: LinkObservation, *, now: str) -> PDDLinkStatus:
    """The complete status. `now` (RFC 3339) is used where something flips, and for what is soon to end."""
    old = link.status or PDDLinkStatus()
    book = ConditionBook(old.conditions, generation=link.generation, now=now)
    members, gateway, line = member_verdict(seen.member), _gateway(seen), _line(seen)
    book.put(ConditionType.READY, _ready(seen, members, gateway))
    planned = (
        Verdict(False, seen.problem.reason, seen.problem.message) if seen.problem else Verdict(True, Reason.PLANNED)
    )
    book.put(ConditionType.PLANNED, planned)
    book.put(ConditionType.MEMBERS_REACHABLE, members)
    book.put(CREDENTIALS_VALID, credentials_verdict(seen.member, now))
    book.put(GATEWAY_READY, gateway)
    book.put(ConditionType.LINK_HEALTHY, line)
    book.put(ConditionType.PROGRESSING, _progressing(link, seen))
    return PDDLinkStatus(
        observed_generation=link.generation,
        conditions=book.conditions,
        member=member_status(seen.member, old.member, now),
        gateway=GatewayStatus(
            address=seen.address,
            ready=seen.gateway.ready or 0,
            desired=seen.gateway.desired,
            certificate_not_after=seen.certificate_not_after,
        ),
        line=_line_status(seen, old, now),
        deployments=seen.deployments[:MAX_DEPLOYMENTS],
    )


def _ready(seen: LinkObservation, members: Verdict, gateway: Verdict) -> Verdict:
    if seen.problem is not None:
        return Verdict(False, seen.problem.reason, seen.problem.message)
    for verdict in (members, gateway):
        if verdict.ok is not True:
            return verdict
    return Verdict(True, Reason.READY, f"B dials {seen.address}")


def _gateway(seen: LinkObservation) -> Verdict:
    if seen.site_a.error is not None:
        return Verdict(
            False, as_reason(seen.site_a.error.reason), f"{seen.site_a.failed_object}: {seen.site_a.error.message}"
        )
    if not seen.gateway.ready:
        trouble = seen.gateway.trouble
        if trouble is not None:
            return Verdict(False, trouble.reason, trouble.message)
        return Verdict(False, Reason.GATEWAY_NOT_READY, seen.site_a.held or "the gateway's pod is not ready yet")
    if not seen.address:
        return Verdict(False, Reason.WAITING_FOR_ADDRESS, seen.address_note)
    return Verdict(True, Reason.READY, "")


def _line(seen: LinkObservation) -> Verdict:
    if not seen.deployments:
        return Verdict(None, Reason.NOT_USED, "no PDDDeployment uses this link yet")
    if not seen.gateway.ready:
        return Verdict(False, Reason.GATEWAY_NOT_READY, "the gateway has no ready pod")
    if seen.line.connected is None:
        return Verdict(
            None, Reason.UNREACHABLE, f"the operator cannot ask the gateway: {seen.line.error or 'not tried yet'}"
        )
    if seen.line.connected == 0:
        return Verdict(
            False,
            Reason.WAITING_FOR_STREAMS,
            f"no endpoint of B is connected; B must reach {seen.address or 'the gateway'}",
        )
    return Verdict(True, Reason.STREAMS_UP, f"{seen.line.connected} endpoints, {seen.streams} streams")


def _progressing(link: PDDLink, seen: LinkObservation) -> Verdict:
    if link.deleting and seen.deployments:
        users = ", ".join(seen.deployments[:5]) + (" ..." if len(seen.deployments) > 5 else "")
        return Verdict(
            True,
            Reason.IN_USE,
            f"deletion waits: used by {users}; delete these PDDDeployments or give them another linkRef",
        )
    if link.deleting:
        return Verdict(True, Reason.DELETING if not seen.site_b.held else Reason.CLEANUP_BLOCKED, seen.site_b.held)
    for site, outcome in (("A", seen.site_a), ("B", seen.site_b)):
        if outcome.error is not None:
            return Verdict(
                True,
                as_reason(outcome.error.reason),
                f"cluster {site}: {outcome.failed_object}: {outcome.error.message}",
            )
    held = seen.site_a.held or seen.site_b.held
    if held:
        return Verdict(True, Reason.APPLYING, held)
    if seen.gateway.ready is not None and not seen.gateway.rolled_out:
        return Verdict(True, Reason.ROLLING_OUT, "the gateway's pod is on its way")
    return Verdict(False, Reason.COMPLETE, "")


def _line_status(seen: LinkObservation, old: PDDLinkStatus, now: str) -> LineStatus | None:
    if seen.line.connected is None:
        return old.line
    goodput_mbps = None if seen.line.goodput_bps is None else seen.line.goodput_bps / 1e6
    made = LineStatus(
        endpoints=seen.line.connected,
        streams=seen.streams,
        rtt_ms=steady(old.line.rtt_ms if old.line else None, seen.line.rtt_ms),
        goodput_mbps=steady(old.line.goodput_mbps if old.line else None, goodput_mbps),
        limited_by=seen.line.limited_by,
        observed_at=old.line.observed_at if old.line else now,
    )
    return made if made == old.line else made.model_copy(update={"observed_at": now})
