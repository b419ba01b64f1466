"""Values that the controller's tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.controller.desired.pod import Images

IMAGES = Images(router="pdd/router:1", link="pdd/link:1", engine="pdd/engine:1")
NOW = "2026-12-01T00:00:00Z"

LINK: dict[str, Any] = {
    "apiVersion": "pdd.dev/v1alpha1",
    "kind": "PDDLink",
    "metadata": {"name": "site-b", "namespace": "models", "uid": "11111111-aaaa", "generation": 1},
    "spec": {
        "member": {"kubeconfigSecretRef": {"name": "site-b"}, "namespace": "pdd"},
        "line": {"capacityMbps": 100, "rttMs": 20},
        "endpoint": {"captureCIDRs": ["10.244.0.0/16"]},
    },
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "pdd.dev/v1alpha1",
    "kind": "PDDDeployment",
    "metadata": {"name": "tiny", "namespace": "models", "uid": "22222222-bbbb", "generation": 3},
    "spec": {"linkRef": {"name": "site-b"}, "model": {"name": "tiny"}},
}
ANCHOR: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "pdd-anchor-22222222", "namespace": "pdd", "uid": "anchor-uid"},
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    made = dict(base)
    for key, value in over.items():
        made[key] = merged(made[key], value) if isinstance(value, dict) and isinstance(made.get(key), dict) else value
    return made


def link(**over: Any) -> PDDLink:
    return PDDLink.from_cluster(merged(LINK, over))


def deployment(**over: Any) -> PDDDeployment:
    return PDDDeployment.from_cluster(merged(DEPLOYMENT, over))


def load_all(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))
