"""What live objects say: readiness of roles, troubles of pods, addresses, networks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from pdd.api.conditions import Reason
from pdd.api.deployment import ServiceType
from pdd.api.render_config import GATEWAY_LINE_PORT
from pdd.api.v1alpha1 import PDDLink, Role
from pdd.controller.kube.resources import Object, labels_of


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why pods do not become ready, and what to do."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """Replicas of one StatefulSet or Deployment. ready and updated None: unknown, which is not zero."""

    desired: int
    ready: int | None
    updated: int | None
    trouble: Trouble | None = None

    @property
    def available(self) -> bool | None:
        return None if self.ready is None else self.ready >= self.desired

    @property
    def rolled_out(self) -> bool:
        return self.ready is not None and self.ready >= self.desired and (self.updated or 0) >= self.desired


@dataclass(frozen=True, slots=True)
class RoleView:
    role: Role
    site: str
    workload: WorkloadView


def view_workload(live: Object | None, pods: Sequence[Object], desired: int, *, known: bool) -> WorkloadView:
    """`known` False: the cluster does not answer, nothing can be said about readiness."""
    if not known:
        return WorkloadView(desired, None, None)
    if live is None:
        return WorkloadView(desired, 0, 0)
    status = live.get("status") or {}
    current = int(status.get("observedGeneration", 0)) >= int(live["metadata"].get("generation", 0))
    ready = int(status.get("readyReplicas", 0))
    updated = int(status.get("updatedReplicas", 0)) if current else 0
    short = ready < desired or updated < desired
    return WorkloadView(desired, ready, updated, trouble_of(pods) if short else None)


def pods_of(objects: Iterable[Object], component: str) -> list[Object]:
    return [o for o in objects if o["kind"] == "Pod" and labels_of(o).get("app.kubernetes.io/component") == component]


def is_ready(pod: Object) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def trouble_of(pods: Sequence[Object]) -> Trouble | None:
    """The first pod that is stuck, and why; None if all are merely on their way."""
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        found = _pod_trouble(pod)
        if found is not None:
            return found
    return None


def _pod_trouble(pod: Object) -> Trouble | None:
    name, namespace = pod["metadata"]["name"], pod["metadata"].get("namespace", "")
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return Trouble(
                Reason.UNSCHEDULABLE,
                f"pod {name} fits on no node: {str(condition.get('message', ''))[:300]}; add nodes, or lower "
                f"resources of the role",
            )
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        where = f"pod {name}, container {container['name']}"
        if reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"):
            return Trouble(
                Reason.IMAGE_PULL,
                f"{where}: image {container.get('image')} cannot be pulled ({reason}); check its name and "
                f"imagePullSecrets",
            )
        if reason in ("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            last = (container.get("lastState") or {}).get("terminated") or {}
            code = f", last exit code {last['exitCode']}" if "exitCode" in last else ""
            hint = f"kubectl logs -n {namespace} {name} -c {container['name']} --previous"
            detail = (
                str(waiting.get("message", ""))[:200] if reason != "CrashLoopBackOff" else "it ends again and again"
            )
            return Trouble(Reason.CRASH_LOOP, f"{where}: {detail}{code}; see: {hint}")
    return None


def gateway_address(
    link: PDDLink, line_service: Object | None, nodes: Sequence[Object] | None, current: str
) -> tuple[str, str]:
    """(`host:port` that B dials, '') or ('', what is missing). Sticky: `current` is kept while it is still right.

    line_service: the live exposure Service; nodes: A's nodes, None if they may not be read.
    """
    exposure = link.spec.gateway_or_default.exposure
    advertise = exposure.advertise
    if exposure.type is ServiceType.CLUSTER_IP:
        if advertise is None:
            return (
                "",
                "exposure type ClusterIP needs spec.gateway.exposure.advertise: the address where B finds the gateway",
            )
        return join(advertise.host, advertise.port or GATEWAY_LINE_PORT), ""
    if line_service is None:
        return "", "the exposure Service is not there yet"
    if exposure.type is ServiceType.LOAD_BALANCER:
        if advertise is not None:
            return join(advertise.host, advertise.port or GATEWAY_LINE_PORT), ""
        ingress = ((line_service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        if not ingress:
            return "", "the load balancer has no address yet; without one in cluster A use NodePort"
        return join(ingress[0].get("ip") or ingress[0].get("hostname") or "", GATEWAY_LINE_PORT), ""
    port = int(line_service["spec"]["ports"][0].get("nodePort") or 0)
    if advertise is not None:
        return join(advertise.host, advertise.port or port), ""
    if not port:
        return "", "the node port is not allocated yet"
    if nodes is None:
        return "", "the operator may not list nodes; set spec.gateway.exposure.advertise.host"
    hosts = [address for node in sorted(nodes, key=_node_order) if (address := _node_address(node))]
    if not hosts:
        return "", "no node of A has an address"
    kept = [host for host in hosts if join(host, port) == current]
    return join((kept or hosts)[0], port), ""


def pod_cidrs(nodes: Sequence[Object]) -> tuple[str, ...]:
    """The networks of A's pods, as far as nodes tell (spec.podCIDRs)."""
    found = {str(cidr) for node in nodes for cidr in (node.get("spec") or {}).get("podCIDRs") or () if "." in str(cidr)}
    return tuple(sorted(found))


def join(host: str, port: int) -> str:
    try:
        return f"[{host}]:{port}" if ip_address(host).version == 6 else f"{host}:{port}"
    except ValueError:
        return f"{host}:{port}"


def _node_order(node: Object) -> tuple[bool, str]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return not ready, str(node["metadata"]["name"])


def _node_address(node: Object) -> str:
    addresses = {a.get("type"): a.get("address") for a in (node.get("status") or {}).get("addresses") or ()}
    return str(addresses.get("InternalIP") or addresses.get("ExternalIP") or "")
