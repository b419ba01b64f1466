"""Small valid objects for tests."""

from __future__ import annotations

from typing import Any

from pdd.api.v1alpha1 import PDDDeployment, PDDLink


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """base with over merged in; None removes a key."""
    out = dict(base)
    for key, value in over.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = value
    return out


def deployment_object(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    base = {"linkRef": {"name": "b"}, "model": {"name": "tiny"}}
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDDeployment",
        "metadata": {"name": "tiny", **metadata},
        "spec": merged(base, spec or {}),
    }


def link_object(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    base = {"member": {"kubeconfigSecretRef": {"name": "b"}}, "line": {"capacityMbps": 100, "rttMs": 20}}
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDLink",
        "metadata": {"name": "b", **metadata},
        "spec": merged(base, spec or {}),
    }


def deployment(spec: dict[str, Any] | None = None, **metadata: Any) -> PDDDeployment:
    return PDDDeployment.from_object(deployment_object(spec, **metadata))


def link(spec: dict[str, Any] | None = None, **metadata: Any) -> PDDLink:
    return PDDLink.from_object(link_object(spec, **metadata))
