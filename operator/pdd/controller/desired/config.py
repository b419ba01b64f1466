"""ConfigMaps and Secrets: configurations, certificates, the anchor in B. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from pdd.api.base import Model
from pdd.common.certs import Pair
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner, anchor_name, metadata


def dump(config: Model) -> str:
    """A wire configuration as JSON, stable, for people to read."""
    return config.model_dump_json(by_alias=True, indent=2, exclude_none=True)


def build_configmap(
    owner: Owner, owner_ref: Object | None, *, name: str, namespace: str, component: str, data: Mapping[str, str]
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(owner, name, namespace, component, owner_ref=owner_ref),
        "data": dict(data),
    }


def build_secret(
    owner: Owner,
    owner_ref: Object,
    *,
    name: str,
    namespace: str,
    component: str,
    data: Mapping[str, bytes],
    type_: str = "Opaque",
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(owner, name, namespace, component, owner_ref=owner_ref),
        "type": type_,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def build_tls_secret(
    owner: Owner, owner_ref: Object, *, name: str, namespace: str, component: str, pair: Pair, ca_cert: bytes
) -> Object:
    """Certificate, key and the CA that the peer is checked against. Never the CA's key."""
    data = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": ca_cert}
    return build_secret(
        owner, owner_ref, name=name, namespace=namespace, component=component, data=data, type_="kubernetes.io/tls"
    )


def build_anchor(owner: Owner, namespace: str) -> Object:
    """The object in B that owns all else of one custom resource there: deleting it lets B's own collector clean up."""
    text = (
        f"This object owns what the PDD operator of another cluster made here for {owner.kind} "
        f"{owner.namespace}/{owner.name}. "
        "Deleting it deletes all of that."
    )
    return build_configmap(
        owner, None, name=anchor_name(owner.uid), namespace=namespace, component="anchor", data={"README": text}
    )


def secret_data(secret: Object, key: str) -> bytes:
    """One key of a live Secret, decoded; empty if it is not there."""
    return base64.b64decode((secret.get("data") or {}).get(key, ""))
