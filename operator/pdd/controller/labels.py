"""Names and labels of everything that the controller makes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdd.controller.kube.resources import Object

MANAGER = "pdd-operator"
OWNER_UID = "pdd.dev/owner-uid"
OWNER_NAME = "pdd.dev/owner-name"
OWNER_NAMESPACE = "pdd.dev/owner-namespace"
OWNER_KIND = "pdd.dev/owner-kind"
LINK_UID = "pdd.dev/link-uid"
SITE = "pdd.dev/site"
MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY}={MANAGER}"
CHECKSUM = "pdd.dev/config-checksum"
OWNER_ANNOTATION = "pdd.dev/owner"

MAX_CHILD = 52
"""StatefulSet names stay so short that the pods' controller-revision-hash label (name + 11) fits in 63."""
MAX_LABEL = 63


def cut(text: str, limit: int) -> str:
    """`text` if it fits, else its head with 8 hex digits of its hash: stable, and distinct for distinct texts."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: limit - 9].rstrip('-.')}-{digest}"


def child_name(owner: str, suffix: str) -> str:
    """`<owner>-<suffix>`, at most 52 characters, without dots (a Service's name is a DNS label)."""
    plain = owner.replace(".", "-")
    if plain != owner:
        plain = f"{plain}-{hashlib.sha256(owner.encode()).hexdigest()[:4]}"
    return f"{cut(plain, MAX_CHILD - len(suffix) - 1)}-{suffix}"


def anchor_name(uid: str) -> str:
    return f"pdd-anchor-{uid[:8]}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The custom resource in A that an object belongs to, and the site where the object lives ('a' or 'b')."""

    kind: str
    namespace: str
    name: str
    uid: str
    site: str
    link_uid: str = ""

    def labels(self, component: str) -> dict[str, str]:
        made = {
            "app.kubernetes.io/name": "pdd",
            "app.kubernetes.io/instance": cut(self.name, MAX_LABEL),
            "app.kubernetes.io/component": component,
            MANAGED_BY: MANAGER,
            "app.kubernetes.io/part-of": "pdd",
            OWNER_UID: self.uid,
            OWNER_KIND: self.kind,
            OWNER_NAME: cut(self.name, MAX_LABEL),
            OWNER_NAMESPACE: self.namespace,
            SITE: self.site,
        }
        if self.link_uid:
            made[LINK_UID] = self.link_uid
        return made

    def selector(self, component: str) -> dict[str, str]:
        """Never changes during an object's life: selectors are immutable."""
        return {OWNER_UID: self.uid, "app.kubernetes.io/component": component}


def metadata(
    owner: Owner,
    name: str,
    namespace: str,
    component: str,
    *,
    owner_ref: Object | None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of a child. `owner_ref` is the custom resource in A, the anchor in B, None for the anchor itself."""
    made: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": owner.labels(component),
        "annotations": {OWNER_ANNOTATION: f"{owner.namespace}/{owner.name}", **(annotations or {})},
    }
    if owner_ref is not None:
        made["ownerReferences"] = [
            {
                "apiVersion": owner_ref["apiVersion"],
                "kind": owner_ref["kind"],
                "name": owner_ref["metadata"]["name"],
                "uid": owner_ref["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
    return made
