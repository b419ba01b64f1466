"""What all our pods share: security, probes, environment, overrides. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pdd.api.fields import EnvVar, PodTemplate, Resources
from pdd.controller.desired.merge import merge
from pdd.controller.labels import CHECKSUM

RUN_AS = 65532
"""User and group of engines, routers and gateways."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of our own parts, from the operator's environment."""

    router: str
    link: str
    engine: str
    pull_policy: str = "IfNotPresent"


def checksum(value: Any) -> str:
    """16 hex digits of a configuration: as a pod annotation it makes pods roll when the configuration changes."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": RUN_AS,
        "runAsGroup": RUN_AS,
        "fsGroup": RUN_AS,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security(*, user: int | None = None, read_only: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": read_only,
        "capabilities": {"drop": ["ALL"]},
    }
    if user is not None:
        made["runAsUser"] = user
        made["runAsGroup"] = user
    return made


def http_probe(path: str, port: str, *, period_s: int, failures: int, timeout_s: int = 2) -> dict[str, Any]:
    """A GET; the container is given up after `failures` x `period_s` seconds."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }


def field_env(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def env_list(variables: Sequence[EnvVar]) -> list[dict[str, Any]]:
    return [
        {
            "name": v.name,
            "valueFrom": {
                "secretKeyRef": {"name": v.value_from.secret_key_ref.name, "key": v.value_from.secret_key_ref.key}
            },
        }
        if v.value_from is not None
        else {"name": v.name, "value": v.value}
        for v in variables
    ]


def resources_of(given: Resources, default_requests: Mapping[str, str]) -> dict[str, Any]:
    """Requests and limits; our small default requests only for what the user did not name at all."""
    requests: dict[str, Any] = {k: v for k, v in default_requests.items() if k not in given.limits}
    requests.update(given.requests)
    made: dict[str, Any] = {"requests": {k: str(v) for k, v in requests.items()}}
    if given.limits:
        made["limits"] = {k: str(v) for k, v in given.limits.items()}
    return made


def pod_template(
    *, labels: Mapping[str, str], config_checksum: str, spec: Mapping[str, Any], override: PodTemplate
) -> dict[str, Any]:
    """A pod template with the user's overrides merged over it. Our own labels stay, since selectors need them."""
    base_spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        **spec,
    }
    return {
        "metadata": {
            "labels": {**override.metadata.labels, **labels},
            "annotations": {**override.metadata.annotations, CHECKSUM: config_checksum},
        },
        "spec": merge(base_spec, override.spec),
    }


def scratch_volume() -> dict[str, Any]:
    return {"name": "tmp", "emptyDir": {}}


def scratch_mount() -> dict[str, Any]:
    return {"name": "tmp", "mountPath": "/tmp"}
