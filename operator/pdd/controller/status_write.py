"""Writes a status, and only if it differs in meaning from the one that is there."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pdd.api.base import Model
from pdd.controller import metrics
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.errors import ApiConflict, NotFound
from pdd.controller.kube.resources import Object, Resource, uid_of


class Written(StrEnum):
    SAME = "Same"
    WRITTEN = "Written"
    GONE = "Gone"
    """The object does not exist any more, or another one has its name."""


def as_status(status: Model) -> dict[str, Any]:
    """The status as JSON without absent fields."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


async def write_status(
    client: KubeClient, resource: Resource, live: Object, status: Model
) -> tuple[Written, Object | None]:
    """Server-side apply of the complete status, tied to the object's UID. Returns what the server answered."""
    wanted = as_status(status)
    if live.get("status") == wanted:
        return Written.SAME, None
    meta = live["metadata"]
    body: Object = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": uid_of(live)},
        "status": wanted,
    }
    try:
        answer = await client.apply(resource, body, subresource="status")
    except NotFound:
        return Written.GONE, None
    except ApiConflict as error:
        # With force there is only one conflict left: the UID is another one's.
        there = await client.get_or_none(resource, meta["namespace"], meta["name"])
        if there is None or uid_of(there) != uid_of(live):
            return Written.GONE, None
        raise error
    metrics.STATUS_WRITES.labels(resource.kind).inc()
    return Written.WRITTEN, answer
