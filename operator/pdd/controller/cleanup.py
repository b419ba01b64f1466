"""What happens when a custom resource goes: both clusters are cleaned, within a deadline, and nothing of others is
hit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pdd.common.errors import InvalidInput, PDDError
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.resources import Object, Resource, labels_of, ref_of, resource_of, uid_of
from pdd.controller.labels import LINK_UID, OWNER_UID
from pdd.controller.runtime import SITE_A_KINDS, SITE_B_KINDS, LinkState, Runtime, parse_time

_log = logging.getLogger("pdd.controller.cleanup")

DEADLINE = "pdd.dev/deletion-deadline-s"


@dataclass(frozen=True, slots=True)
class Left:
    """What could not be removed yet. Empty `objects` and `error`: all clean."""

    objects: tuple[str, ...] = ()
    error: str = ""

    @property
    def clean(self) -> bool:
        return not self.objects and not self.error


def deadline_s(obj: Object, default_s: float) -> float:
    """Seconds that deletion waits for an unreachable B: the object's annotation, else the operator's setting."""
    text = str((obj["metadata"].get("annotations") or {}).get(DEADLINE, ""))
    try:
        return max(0.0, float(text)) if text else default_s
    except ValueError:
        return default_s


def expired(obj: Object, default_s: float, now: datetime | None = None) -> bool:
    """Whether the deletion has waited long enough."""
    since = obj["metadata"].get("deletionTimestamp")
    if not since:
        return False
    return ((now or datetime.now(UTC)) - parse_time(since)).total_seconds() >= deadline_s(obj, default_s)


async def clean_site_a(rt: Runtime, namespace: str, uid: str) -> Left:
    """Delete everything of this owner in A."""
    return await _clean(rt.client, SITE_A_KINDS, namespace, uid, link_uid="")


async def clean_site_b(state: LinkState | None, namespace: str, uid: str) -> Left:
    """Delete everything of this owner in B. `namespace` is the member's. Not connected: an error that says why."""
    if state is None:
        return Left(error="there is no link, so cluster B cannot be reached")
    client = state.member.client
    if client is None:
        failure = state.view.health.failure
        return Left(error=failure.message if failure else "cluster B is not connected yet")
    left = await _clean(client, SITE_B_KINDS, namespace, uid, link_uid=state.uid)
    if left.error:
        state.member.recheck()
    return left


async def _clean(client: KubeClient, kinds: Sequence[Resource], namespace: str, uid: str, *, link_uid: str) -> Left:
    """List by label at the server itself, not in a cache: what a pass wrote a moment ago must be seen."""
    try:
        lists = await asyncio.gather(*(client.list(kind, namespace, labels=f"{OWNER_UID}={uid}") for kind in kinds))
    except PDDError as error:
        return Left(error=error.message)
    found = [o for items, _ in lists for o in items if not link_uid or labels_of(o).get(LINK_UID) == link_uid]
    results = await asyncio.gather(*(_delete(client, obj) for obj in found))
    left = tuple(str(ref_of(obj)) for obj, gone in zip(found, results, strict=True) if gone is False)
    errors = [str(gone) for gone in results if isinstance(gone, PDDError)]
    if found:
        _log.info("deleted", extra={"fields": {"owner": uid, "objects": len(found), "left": len(left) + len(errors)}})
    return Left(left, errors[0] if errors else "")


async def _delete(client: KubeClient, obj: Object) -> bool | PDDError:
    ref = ref_of(obj)
    try:
        return await client.delete(resource_of(obj), ref.namespace, ref.name, uid=uid_of(obj))
    except PDDError as error:
        return error


def member_namespace(rt: Runtime, state: LinkState | None) -> str:
    """The namespace in B that the link works in; empty without a readable link."""
    from pdd.api.v1alpha1 import PDDLink

    live = rt.find_link(state.namespace, state.name) if state is not None else None
    if live is None:
        return ""
    try:
        return PDDLink.from_cluster(live).spec.member.namespace
    except InvalidInput:
        return ""
