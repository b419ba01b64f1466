"""One pass over a PDDDeployment: gather, plan, desired objects, diff, apply at both sites at once, status."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from pdd.api.conditions import Reason
from pdd.api.deployment import Role
from pdd.api.linkspec import Transport
from pdd.api.status import ScalingStatus
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.clock import rfc3339
from pdd.common.errors import InvalidInput
from pdd.controller.advisor import CALIBRATION, AdviceInputs
from pdd.controller.apply import apply_changes
from pdd.controller.autoscaler import RelayTarget
from pdd.controller.desired.config import build_anchor
from pdd.controller.desired.deployment import build_site_a, build_site_b, owner_of
from pdd.controller.desired.engine import engine_name
from pdd.controller.desired.gateway import gateway_name
from pdd.controller.desired.router import CONFIG_FILE, router_config_name, router_name
from pdd.controller.diff import diff, with_hash
from pdd.controller.gateway_watch import measured
from pdd.controller.kube.resources import PDDDEPLOYMENTS, Object, labels_of, ref_of
from pdd.controller.labels import LINK_UID, anchor_name
from pdd.controller.material import drain_token_of
from pdd.controller.observe import RoleView, is_ready, pods_of, view_workload
from pdd.controller.plan import plan_problem, relay_replicas
from pdd.controller.reconcile_link import outcome_of
from pdd.controller.runtime import LinkState, Runtime
from pdd.controller.status_deployment import LineView, Observation, SiteOutcome, build_status
from pdd.controller.status_write import Written, write_status
from pdd.controller.verdict import Problem, as_reason

_log = logging.getLogger("pdd.controller.deployment")


async def reconcile_deployment(rt: Runtime, live: Object) -> Written:
    """Make both clusters like the deployment. Raises only what is a fault of ours; everything else is in the status."""
    deployment = PDDDeployment.from_cluster(live)
    link, problem = _link_of(rt, deployment)
    state = rt.link_state(link) if link is not None else None
    problem = problem or plan_problem(deployment, link)
    scaler = await rt.scaler(deployment)
    target = scaler.target if scaler is not None else None
    relay = _relay_now(rt, deployment, target)
    line = _line(rt, deployment, link, state)
    inputs = None
    if link is not None and problem is None:
        calibration = str((live["metadata"].get("annotations") or {}).get(CALIBRATION, ""))
        inputs = AdviceInputs(deployment, link, relay, calibration, (line.rtt_ms or 0.0) / 1e3)
    advisor = await rt.advisor(deployment.uid, inputs)
    site_a = site_b = SiteOutcome()
    if problem is None and link is not None and state is not None:
        try:
            site_a, site_b = await asyncio.gather(
                _site_a(rt, deployment, link, relay), _site_b(rt, deployment, link, state)
            )
        except InvalidInput as error:
            problem = Problem(as_reason(error.reason), error.message)
    seen = Observation(
        link=link,
        problem=problem,
        member=state.view if state is not None else None,
        roles=_roles(rt, deployment, link, state, relay),
        router=view_workload(
            rt.store.get("Deployment", deployment.namespace, router_name(deployment.name)),
            pods_of(rt.store.indexed(deployment.uid), "router"),
            deployment.spec.router.replicas,
            known=rt.store.synced,
        ),
        line=line,
        site_a=site_a,
        site_b=site_b,
        scaling=target.status if target is not None else _old_scaling(deployment),
        plan=advisor.plan if advisor is not None else None,
    )
    status = build_status(deployment, seen, now=rfc3339(datetime.now(UTC)))
    written, answer = await write_status(rt.client, PDDDEPLOYMENTS, live, status)
    if answer is not None:
        rt.store.put(answer)
    return written


def _link_of(rt: Runtime, deployment: PDDDeployment) -> tuple[PDDLink | None, Problem | None]:
    namespace, name = deployment.link_key
    live = rt.find_link(namespace, name)
    if live is None:
        return None, None
    try:
        return PDDLink.from_cluster(live), None
    except InvalidInput as error:
        return None, Problem(Reason.INVALID_SPEC, f"PDDLink {namespace}/{name}: {error.message}")


def _relay_now(rt: Runtime, deployment: PDDDeployment, target: RelayTarget | None) -> int:
    live = rt.store.get("StatefulSet", deployment.namespace, engine_name(deployment.name, Role.RELAY_DECODE))
    return relay_replicas(deployment, live, target.replicas if target is not None else None)


async def _site_a(rt: Runtime, deployment: PDDDeployment, link: PDDLink, relay: int) -> SiteOutcome:
    if not rt.store.synced:
        return SiteOutcome(held="the look at cluster A is not complete yet")
    live = [o for o in rt.store.indexed(deployment.uid) if o["kind"] != "Pod"]
    secret = rt.store.get("Secret", deployment.namespace, router_config_name(deployment.name))
    desired = build_site_a(
        deployment,
        link,
        images=rt.settings.images,
        drain_token=drain_token_of(secret, CONFIG_FILE),
        relay_replicas=relay,
    )
    return outcome_of("a", await apply_changes(rt.client, rt.store, diff(desired, live, prune=True)))


async def _site_b(rt: Runtime, deployment: PDDDeployment, link: PDDLink, state: LinkState) -> SiteOutcome:
    """B's half. Held, and nothing there touched, while B is not connected or the link's part is not there yet."""
    client, store = state.member.client, state.member.store
    if client is None or store is None or not store.synced:
        return SiteOutcome(held="cluster B is not connected")
    gateway = link.spec.transport is Transport.GATEWAY
    if gateway and not (state.gateway_address and state.endpoint_certificate):
        missing = "the gateway's address" if not state.gateway_address else "the endpoints' certificate in B"
        return SiteOutcome(held=f"waiting for {missing}; see the PDDLink's conditions")
    namespace = link.spec.member.namespace
    owner = owner_of(deployment, "b", link.uid)
    anchor = with_hash(build_anchor(owner, namespace))
    live = _in_b(store.indexed(deployment.uid), link)
    first = await apply_changes(client, store, diff([anchor], live, prune=False), on_error=state.member.failed)
    anchor_live = store.get("ConfigMap", namespace, anchor_name(deployment.uid))
    if first.failed or anchor_live is None:
        return outcome_of("b", first)
    desired = build_site_b(
        deployment,
        link,
        images=rt.settings.images,
        anchor=anchor_live,
        gateway_address=state.gateway_address,
        capture_cidrs=state.capture_cidrs,
    )
    live = [o for o in _in_b(store.indexed(deployment.uid), link) if ref_of(o) != ref_of(anchor)]
    second = await apply_changes(client, store, diff(desired, live, prune=True), on_error=state.member.failed)
    return outcome_of("b", first, second)


def _in_b(objects: list[Object], link: PDDLink) -> list[Object]:
    """Our objects of this link; two links may share a namespace of B, and each has its own view of it."""
    return [o for o in objects if o["kind"] != "Pod" and labels_of(o).get(LINK_UID) == link.uid]


def _roles(
    rt: Runtime, deployment: PDDDeployment, link: PDDLink | None, state: LinkState | None, relay: int
) -> tuple[RoleView, ...]:
    name, in_a = deployment.name, rt.store.indexed(deployment.uid)
    views = []
    for role, desired in ((Role.PREFILL, deployment.role(Role.PREFILL).replicas), (Role.RELAY_DECODE, relay)):
        live = rt.store.get("StatefulSet", deployment.namespace, engine_name(name, role))
        views.append(RoleView(role, "a", view_workload(live, pods_of(in_a, role.slug), desired, known=rt.store.synced)))
    store = state.member.store if state is not None else None
    known = store is not None and store.synced and state is not None and state.view.health.usable
    live, pods = None, []
    if store is not None and link is not None and known:
        live = store.get("StatefulSet", link.spec.member.namespace, engine_name(name, Role.MAIN_DECODE))
        pods = pods_of(store.indexed(deployment.uid), Role.MAIN_DECODE.slug)
    wanted = deployment.role(Role.MAIN_DECODE).replicas
    views.append(RoleView(Role.MAIN_DECODE, "b", view_workload(live, pods, wanted, known=known)))
    return tuple(views)


def _line(rt: Runtime, deployment: PDDDeployment, link: PDDLink | None, state: LinkState | None) -> LineView:
    if link is None or state is None:
        return LineView(gateway_ready=None)
    pods = pods_of(rt.store.indexed(link.uid), "gateway")
    report = state.report
    members = report.of(deployment.namespace, deployment.name)
    connected = None if members is None else [m for m in members if m.connected]
    rtt_ms, goodput_bps = measured(connected or ())
    there = rt.store.get("StatefulSet", link.namespace, gateway_name(link.name)) is not None
    return LineView(
        gateway_ready=any(is_ready(p) for p in pods) if there else False,
        connected=None if connected is None else len(connected),
        rtt_ms=rtt_ms,
        goodput_bps=goodput_bps,
        limited_by=connected[0].limited_by if connected else "",
        error=report.error,
    )


def _old_scaling(deployment: PDDDeployment) -> ScalingStatus | None:
    autoscaled = deployment.spec.roles.relay_decode.autoscaling is not None
    return deployment.status.scaling if autoscaled and deployment.status else None
