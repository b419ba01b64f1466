"""Strategic merge of a user's pod overrides over the pod that we make. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = ("name", "mountPath", "containerPort", "key", "ip", "topologyKey")
_BY_FIELD = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, as Kubernetes' strategic merge does for pods.

    Objects merge by key, null removes a key, lists of named things merge by their name (new ones are appended), all
    other
    lists replace.
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            result[key] = merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and key in _BY_FIELD:
            result[key] = _merge_named(old, value, _BY_FIELD[key])
        else:
            result[key] = value
    return result


def _merge_named(base: list[Any], over: list[Any], key: str) -> list[Any]:
    if not all(isinstance(item, Mapping) and key in item for item in (*base, *over)):
        return over
    merged = {item[key]: item for item in base}
    for item in over:
        merged[item[key]] = merge(merged[item[key]], item) if item[key] in merged else item
    return list(merged.values())
