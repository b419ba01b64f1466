"""One pass over a PDDLink: gateway and certificates in A, certificate and anchor in B, orphans in B, status."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime

from pdd.api.conditions import Reason
from pdd.api.linkspec import Transport
from pdd.api.render_config import GATEWAY_HTTP_PORT, endpoint_tls_name, gateway_tls_name
from pdd.api.v1alpha1 import PDDLink
from pdd.common.certs import Pair, make_ca
from pdd.common.clock import rfc3339
from pdd.common.errors import InvalidInput, PDDError
from pdd.controller import metrics
from pdd.controller.apply import Outcome, apply_changes
from pdd.controller.desired import endpoint as endpoint_builder
from pdd.controller.desired.config import build_anchor, build_tls_secret
from pdd.controller.desired.gateway import ca_secret_name, gateway_line_name, gateway_name, gateway_tls_secret_name
from pdd.controller.desired.link import build_link_a, build_link_b, owner_of
from pdd.controller.diff import diff, with_hash
from pdd.controller.gateway_watch import measured
from pdd.controller.kube.access import plugin_of
from pdd.controller.kube.errors import ApiConflict
from pdd.controller.kube.resources import PDDLINKS, SECRETS, Object, ref_of
from pdd.controller.labels import anchor_name
from pdd.controller.material import Leaf, leaf_for, pair_of
from pdd.controller.member import MemberTarget
from pdd.controller.observe import gateway_address, is_ready, pod_cidrs, pods_of, view_workload
from pdd.controller.runtime import LinkState, Runtime
from pdd.controller.status_deployment import LineView, SiteOutcome
from pdd.controller.status_link import LinkObservation, build_link_status
from pdd.controller.status_write import Written, write_status
from pdd.controller.sweep import sweep
from pdd.controller.verdict import Problem, as_reason

_log = logging.getLogger("pdd.controller.link")

ACCEPT_IDENTITY = "pdd.dev/accept-identity"


async def reconcile_link(rt: Runtime, live: Object) -> Written:
    """Make the clusters like the link. Raises only what is a fault of ours; everything else is in the status."""
    link = PDDLink.from_cluster(live)
    state = rt.link_state(link)
    now = datetime.now(UTC)
    using = rt.deployments_of(link)
    problem = problem_of(link)
    site_a = site_b = SiteOutcome()
    leaf_end = ""
    address, note = state.gateway_address, ""
    if problem is None:
        state.member.configure(target_of(link))
        state.capture_cidrs, problem = await _capture_cidrs(rt, link)
    if problem is None:
        try:
            ca = await _ca(rt, link)
            if ca is None:
                site_a = SiteOutcome(held="the CA's Secret has just been made and is not visible yet")
            else:
                site_a, leaf = await _site_a(rt, link, state, ca, now)
                leaf_end = rfc3339(leaf.not_after)
                site_b = await _site_b(rt, link, state, ca, now)
        except InvalidInput as error:
            problem = Problem(as_reason(error.reason), error.message)
        except PDDError as error:
            site_a = SiteOutcome(error=error, failed_object="certificates")
        address, note = await _address(rt, link)
        state.gateway_address = address
    objects = rt.store.indexed(link.uid)
    pods = pods_of(objects, "gateway")
    gateway = view_workload(
        rt.store.get("StatefulSet", link.namespace, gateway_name(link.name)), pods, 1, known=rt.store.synced
    )
    ready_ip = next((str(p["status"]["podIP"]) for p in pods if is_ready(p) and p["status"].get("podIP")), "")
    state.gateway_watch.point_at(f"http://{ready_ip}:{GATEWAY_HTTP_PORT}" if ready_ip else "")
    if state.reconciled is not True or site_a.changes or site_b.changes:
        state.reconciled = True
        rt.wake_deployments_of(link.namespace, link.name)
    members = state.report.members
    connected = None if members is None else [m for m in members if m.connected]
    rtt_ms, goodput_bps = measured(connected or ())
    seen = LinkObservation(
        problem=problem,
        member=state.view if problem is None else None,
        gateway=gateway,
        address=address,
        address_note=note,
        certificate_not_after=leaf_end or _old_end(link),
        line=LineView(
            gateway_ready=bool(gateway.ready),
            connected=None if connected is None else len(connected),
            rtt_ms=rtt_ms,
            goodput_bps=goodput_bps,
            limited_by=connected[0].limited_by if connected else "",
            error=state.report.error,
        ),
        streams=sum(m.streams for m in connected or ()),
        deployments=tuple(f"{d.namespace}/{d.name}" for d in using),
        site_a=site_a,
        site_b=site_b,
    )
    status = build_link_status(link, seen, now=rfc3339(now))
    written, answer = await write_status(rt.client, PDDLINKS, live, status)
    if answer is not None:
        rt.store.put(answer)
    return written


def problem_of(link: PDDLink) -> Problem | None:
    """What in the spec cannot be carried out."""
    if link.spec.transport is Transport.DIRECT:
        return Problem(
            Reason.TRANSPORT_NOT_BUILT,
            "spec.transport: Direct is not built yet; use Gateway, which carries the KV of all engines",
        )
    member = link.spec.member
    if (member.kubeconfig_secret_ref is None) == (member.exec_ is None):
        return Problem(Reason.INVALID_SPEC, "spec.member: give exactly one of kubeconfigSecretRef and exec")
    return None


def target_of(link: PDDLink) -> MemberTarget:
    """Where the member is. The identity is the spec's, or the one accepted by annotation, or the one pinned in
    status."""
    member = link.spec.member
    accepted = str((link.metadata.get("annotations") or {}).get(ACCEPT_IDENTITY, ""))
    recorded = link.status.member.kube_system_uid if link.status else ""
    pinned = member.identity.kube_system_uid or accepted or recorded
    if member.kubeconfig_secret_ref is not None:
        ref = member.kubeconfig_secret_ref
        return MemberTarget(
            member.namespace,
            secret_namespace=link.namespace,
            secret_name=ref.name,
            secret_key=ref.key,
            pinned_identity=pinned,
        )
    given = member.exec_
    assert given is not None
    plugin = plugin_of(
        {
            "command": given.command,
            "args": list(given.args),
            "env": [{"name": e.name, "value": e.value} for e in given.env],
        }
    )
    ca_pem = base64.b64decode(given.ca_data).decode() if given.ca_data else ""
    return MemberTarget(member.namespace, server=given.server, ca_pem=ca_pem, plugin=plugin, pinned_identity=pinned)


async def _capture_cidrs(rt: Runtime, link: PDDLink) -> tuple[tuple[str, ...], Problem | None]:
    """The networks in A whose connections the endpoints carry: as given, else the nodes' pod networks."""
    given = link.spec.endpoint_or_default.capture_cidrs
    if given:
        return given, None
    found = pod_cidrs(await rt.nodes() or [])
    if found:
        return found, None
    return (), Problem(
        Reason.INVALID_SPEC,
        "spec.endpoint.captureCIDRs: A's nodes do not tell their pod networks; give the networks of A's pods, "
        "for example "
        '["10.244.0.0/16"]',
    )


async def _ca(rt: Runtime, link: PDDLink) -> Pair | None:
    """The CA that signs this link's certificates; None while one that was just made is not visible yet.

    Made once, by a create that fails if there is one, and only after the look into A has succeeded.
    """
    if link.spec.tls.ca_secret_ref:
        secret = await rt.client.get_or_none(SECRETS, link.namespace, link.spec.tls.ca_secret_ref)
        if secret is None:
            raise InvalidInput(
                "spec.tls.caSecretRef",
                link.spec.tls.ca_secret_ref,
                f"no such Secret in {link.namespace}; make it with tls.crt and tls.key, or leave the field out",
                reason=Reason.SECRET_NOT_FOUND.value,
            )
        return pair_of(secret)
    name = ca_secret_name(link.name)
    live = rt.store.get("Secret", link.namespace, name)
    if live is not None:
        return pair_of(live)
    if not rt.store.synced:
        return None
    made = make_ca(f"pdd-link {link.namespace}/{link.name}"[:64])
    owner = owner_of(link, "a")
    secret = build_tls_secret(
        owner, link.to_object(), name=name, namespace=link.namespace, component="ca", pair=made, ca_cert=made.cert
    )
    try:
        answer = await rt.client.create(SECRETS, with_hash(secret))
    except ApiConflict:
        return None
    rt.store.put(answer)
    _log.info("made a CA", extra={"fields": {"link": f"{link.namespace}/{link.name}"}})
    return made


async def _site_a(rt: Runtime, link: PDDLink, state: LinkState, ca: Pair, now: datetime) -> tuple[SiteOutcome, Leaf]:
    tls = link.spec.tls
    secret = rt.store.get("Secret", link.namespace, gateway_tls_secret_name(link.name))
    leaf = leaf_for(
        secret,
        ca,
        [gateway_tls_name(link.name, link.namespace)],
        days=tls.certificate_days,
        renew_before_days=tls.renew_before_days,
        now=now,
    )
    if not rt.store.synced:
        return SiteOutcome(held="the look at cluster A is not complete yet"), leaf
    desired = build_link_a(
        link,
        images=rt.settings.images,
        capture_cidrs=state.capture_cidrs,
        leaf=leaf.pair,
        ca_cert=ca.cert,
    )
    kept = {ca_secret_name(link.name)}
    live = [o for o in rt.store.indexed(link.uid) if o["kind"] != "Pod" and o["metadata"]["name"] not in kept]
    changes = diff(desired, live, prune=True)
    return outcome_of("a", await apply_changes(rt.client, rt.store, changes)), leaf


async def _site_b(rt: Runtime, link: PDDLink, state: LinkState, ca: Pair, now: datetime) -> SiteOutcome:
    client, store = state.member.client, state.member.store
    if client is None or store is None or not store.synced:
        return SiteOutcome(held="cluster B is not connected")
    namespace, tls = link.spec.member.namespace, link.spec.tls
    owner = owner_of(link, "b")
    anchor = with_hash(build_anchor(owner, namespace))
    live = [o for o in store.indexed(link.uid) if o["kind"] != "Pod"]
    first = await apply_changes(client, store, diff([anchor], live, prune=False), on_error=state.member.failed)
    anchor_live = store.get("ConfigMap", namespace, anchor_name(link.uid))
    if first.failed or anchor_live is None:
        return outcome_of("b", first)
    secret = store.get("Secret", namespace, endpoint_builder.endpoint_tls_name(link.name))
    leaf = leaf_for(
        secret,
        ca,
        [endpoint_tls_name(link.name, link.namespace)],
        days=tls.certificate_days,
        renew_before_days=tls.renew_before_days,
        now=now,
    )
    desired = build_link_b(link, anchor=anchor_live, leaf=leaf.pair, ca_cert=ca.cert)
    live = [o for o in store.indexed(link.uid) if o["kind"] != "Pod" and ref_of(o) != ref_of(anchor)]
    second = await apply_changes(client, store, diff(desired, live, prune=True), on_error=state.member.failed)
    state.endpoint_certificate = not second.failed
    swept = await sweep(rt, link, client, store)
    if swept:
        _log.warning("swept orphans in B", extra={"fields": {"link": state.name, "objects": ", ".join(swept)}})
    return outcome_of("b", first, second)


async def _address(rt: Runtime, link: PDDLink) -> tuple[str, str]:
    exposure = link.spec.gateway_or_default.exposure
    service = rt.store.get("Service", link.namespace, gateway_line_name(link.name))
    nodes = await rt.nodes() if exposure.advertise is None else None
    current = link.status.gateway.address if link.status and link.status.gateway else ""
    return gateway_address(link, service, nodes, current)


def outcome_of(site: str, *outcomes: Outcome) -> SiteOutcome:
    """The sum of several rounds of writes, counted and logged."""
    for outcome in outcomes:
        for change in outcome.done:
            metrics.CHANGES.labels(site, change.ref.kind, change.action.value).inc()
            _log.info("applied", extra={"fields": {"site": site, "change": str(change)}})
        for change, error in outcome.failed:
            _log.warning("not applied", extra={"fields": {"site": site, "change": str(change), "error": error.message}})
    failed = [item for outcome in outcomes for item in outcome.failed]
    return SiteOutcome(
        changes=sum(len(o.done) for o in outcomes),
        error=failed[0][1] if failed else None,
        failed_object=str(failed[0][0].ref) if failed else "",
    )


def _old_end(link: PDDLink) -> str:
    return link.status.gateway.certificate_not_after if link.status and link.status.gateway else ""
