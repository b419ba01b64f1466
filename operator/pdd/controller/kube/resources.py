"""The kinds of objects that the controller touches, and their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path below the server; without `namespace` all namespaces, without `name` the collection."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/" + "/".join(parts)


GROUP = "pdd.dev"
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
SERVICES = Resource("", "v1", "services", "Service")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
PDDDEPLOYMENTS = Resource(GROUP, "v1alpha1", "pdddeployments", "PDDDeployment")
PDDLINKS = Resource(GROUP, "v1alpha1", "pddlinks", "PDDLink")

_BY_KIND: dict[tuple[str, str], Resource] = {
    (r.api_version, r.kind): r
    for r in (
        DEPLOYMENTS,
        STATEFULSETS,
        SERVICES,
        CONFIGMAPS,
        SECRETS,
        PODS,
        NODES,
        NAMESPACES,
        EVENTS,
        PDDDEPLOYMENTS,
        PDDLINKS,
    )
}


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """Address of one object in one cluster."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


def resource_of(obj: Mapping[str, Any]) -> Resource:
    """The kind of a complete object. KeyError if the controller does not know it."""
    return _BY_KIND[obj["apiVersion"], obj["kind"]]


def ref_of(obj: Mapping[str, Any]) -> Ref:
    meta = obj["metadata"]
    return Ref(obj["kind"], meta.get("namespace", ""), meta["name"])


def uid_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("uid", ""))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})
