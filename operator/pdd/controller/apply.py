"""Makes the changes: server-side apply and delete with a UID precondition, in parallel, errors collected and not
raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pdd.common.errors import PDDError
from pdd.controller.diff import Action, Change
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.errors import ApiConflict, ApiError
from pdd.controller.kube.resources import Object, labels_of, resource_of, uid_of
from pdd.controller.kube.store import ObjectStore
from pdd.controller.labels import OWNER_UID


class ForeignObject(PDDError):
    """An object of the name that we need belongs to somebody else. It is left alone."""

    reason = "Conflict"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the changes of one cluster."""

    done: tuple[Change, ...] = ()
    failed: tuple[tuple[Change, PDDError], ...] = ()
    written: tuple[Object, ...] = field(default=(), repr=False)

    @property
    def first_error(self) -> PDDError | None:
        return self.failed[0][1] if self.failed else None


async def apply_changes(
    client: KubeClient,
    store: ObjectStore,
    changes: Sequence[Change],
    *,
    on_error: Callable[[PDDError], None] | None = None,
) -> Outcome:
    """Write all changes at once. The store learns the server's answers, so that the next look sees them."""
    results = await asyncio.gather(*(_write(client, change) for change in changes))
    done: list[Change] = []
    failed: list[tuple[Change, PDDError]] = []
    written: list[Object] = []
    for change, result in zip(changes, results, strict=True):
        if isinstance(result, PDDError):
            failed.append((change, result))
            if on_error is not None:
                on_error(result)
            continue
        done.append(change)
        if result is not None:
            store.put(result)
            written.append(result)
    return Outcome(tuple(done), tuple(failed), tuple(written))


async def _write(client: KubeClient, change: Change) -> Object | PDDError | None:
    resource = resource_of(change.obj)
    try:
        if change.action is Action.DELETE:
            await client.delete(resource, change.ref.namespace, change.ref.name, uid=uid_of(change.obj))
            return None
        if change.action is Action.UPDATE:
            return await client.apply(resource, change.obj)
        return await _create(client, change)
    except PDDError as error:
        return error


async def _create(client: KubeClient, change: Change) -> Object:
    """Apply an object that we have not seen. Without force a foreign object of that name shows up as a conflict."""
    resource = resource_of(change.obj)
    try:
        made = await client.apply(resource, change.obj, force=False)
    except ApiConflict:
        there = await client.get_or_none(resource, change.ref.namespace, change.ref.name)
        if there is not None and labels_of(there).get(OWNER_UID) != labels_of(change.obj).get(OWNER_UID):
            owner = labels_of(there).get("app.kubernetes.io/managed-by") or "somebody else"
            raise ForeignObject(
                f"{change.ref} exists and is managed by {owner}; delete or rename it, or choose another name for "
                f"the PDDDeployment "
                "or PDDLink"
            ) from None
        made = await client.apply(resource, change.obj)
    return made


def is_missing_owner(error: PDDError | None) -> bool:
    """Whether a write failed since the namespace is being deleted or is gone: nothing to repair there."""
    return (
        isinstance(error, ApiError)
        and error.status in (403, 404)
        and ("being terminated" in error.message or "namespaces" in error.message)
    )
