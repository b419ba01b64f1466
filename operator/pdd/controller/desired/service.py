"""Services: headless ones of the engines, the router's, the gateway's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdd.api.deployment import ServiceType
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner, metadata


def service_port(name: str, port: int, target: int | str, node_port: int | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
    if node_port is not None:
        made["nodePort"] = node_port
    return made


def build_service(
    owner: Owner,
    owner_ref: Object,
    *,
    name: str,
    namespace: str,
    component: str,
    ports: Sequence[Mapping[str, Any]],
    headless: bool = False,
    type_: ServiceType = ServiceType.CLUSTER_IP,
    annotations: Mapping[str, str] | None = None,
    load_balancer_class: str | None = None,
) -> Object:
    """A Service on the pods of `component`. Headless: DNS gives every ready pod."""
    spec: dict[str, Any] = {"type": type_.value, "selector": owner.selector(component), "ports": list(ports)}
    if headless:
        spec["clusterIP"] = "None"
    if load_balancer_class is not None and type_ is ServiceType.LOAD_BALANCER:
        spec["loadBalancerClass"] = load_balancer_class
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, name, namespace, component, owner_ref=owner_ref, annotations=annotations),
        "spec": spec,
    }
