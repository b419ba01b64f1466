"""The sample's objects with changes, for tests that need other ones beside the shared system."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import yaml

from e2e.kind import ClusterRef
from e2e.system import NAMESPACE, SAMPLE, Object

OWNER_NAME = "pdd.dev/owner-name"
OWNER_NAMESPACE = "pdd.dev/owner-namespace"
OURS = "statefulsets,deployments,services,configmaps,secrets,pods,serviceaccounts"


def build_deployment(name: str, spec: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> Object:
    """The sample's PDDDeployment under another name, its spec merged with `spec`; None takes a key away."""
    return _changed("PDDDeployment", name, spec or {}, namespace)


def build_link(name: str, spec: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> Object:
    """The same for its PDDLink."""
    return _changed("PDDLink", name, spec or {}, namespace)


def build_small(name: str, namespace: str = NAMESPACE, spec: Mapping[str, Any] | None = None) -> Object:
    """A PDDDeployment with one engine of each role and the least that it can do with."""
    small: Object = {
        "model": {"maxContextTokens": 1024},
        "engine": {"kvBlocks": 256},
        "roles": {
            "prefill": {"engine": {"kvBlocks": 256}},
            "relayDecode": {"replicas": 1},
            "mainDecode": {"engine": {"kvBlocks": 256}},
        },
        "router": {"service": {"type": "ClusterIP"}},
    }
    return build_deployment(name, merge(small, spec or {}), namespace)


def _changed(kind: str, name: str, spec: Mapping[str, Any], namespace: str) -> Object:
    documents = list(yaml.safe_load_all(SAMPLE.read_text()))
    found: Object = next(one for one in documents if one["kind"] == kind)
    found["metadata"] = {"name": name, "namespace": namespace}
    found["spec"] = merge(found["spec"], spec)
    return found


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A deep merge of mappings, as JSON merge patch does it."""
    out = copy.deepcopy(dict(base))
    for key, value in change.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(out.get(key), Mapping):
            out[key] = merge(out[key], value)
        else:
            out[key] = copy.deepcopy(value)
    return out


def apply(cluster: ClusterRef, *objects: Object) -> None:
    """kubectl apply. Raises CommandFailed with the API server's words."""
    listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listing).encode())


def delete(cluster: ClusterRef, item: Object, wait: bool = True, timeout_s: float = 90) -> None:
    """kubectl delete of one object, gone or not."""
    meta = item["metadata"]
    words = ("-n", meta["namespace"], "delete", item["kind"].lower(), meta["name"], "--ignore-not-found")
    cluster.kubectl(*words, f"--wait={str(wait).lower()}", timeout_s=timeout_s)


def owned(cluster: ClusterRef, name: str, namespace: str = NAMESPACE) -> list[str]:
    """All that the operator made in a cluster for one custom resource, in any namespace, as kind/namespace/name."""
    labels = f"{OWNER_NAME}={name},{OWNER_NAMESPACE}={namespace}"
    listing = json.loads(cluster.kubectl("get", OURS, "-A", "-l", labels, "-o", "json"))
    return sorted(
        f"{item['kind']}/{item['metadata']['namespace']}/{item['metadata']['name']}" for item in listing["items"]
    )
