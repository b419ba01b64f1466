"""A cluster's live objects of ours, kept current by list and watch.

The store never says "there is nothing" before a list has succeeded: `synced` tells, per kind. A broken watch leaves the
last known objects in place, and `fresh` false.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import PDDError
from pdd.common.tasks import cancel, spawn
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.errors import Expired
from pdd.controller.kube.resources import Object, Ref, Resource, labels_of, ref_of, uid_of

_log = logging.getLogger("pdd.controller.store")

Changed = Callable[[str, Object], None]
"""Told (event type, object) after the store has changed."""

MIN_BACKOFF_S, MAX_BACKOFF_S = 0.5, 15.0


@dataclass(frozen=True, slots=True)
class Source:
    """One watched kind. `labels` is the selector."""

    resource: Resource
    labels: str = ""


@dataclass(slots=True)
class _Kind:
    source: Source
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    watching: bool = False
    last_error: PDDError | None = None
    version: str = ""


class ObjectStore:
    """Reflects `sources` of one cluster (in `namespaces`, or all). Start it, wait for `wait_synced`, read; stop it."""

    def __init__(
        self,
        client: KubeClient,
        sources: Sequence[Source],
        *,
        namespaces: Sequence[str] = (),
        index_label: str = "",
        on_change: Changed | None = None,
        clock: Clock = monotonic_s,
        on_error: Callable[[PDDError], None] | None = None,
        on_synced: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._kinds = {(s.resource.kind, ns): _Kind(s) for s in sources for ns in (namespaces or ("",))}
        self._index_label = index_label
        self._index: dict[str, set[Ref]] = {}
        self._on_change = on_change
        self._on_error = on_error
        self._on_synced = on_synced
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for (kind, namespace), state in self._kinds.items():
            self._tasks.append(
                spawn(self._reflect(state, namespace or None), name=f"watch-{kind}-{namespace or 'all'}")
            )

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        await cancel(*tasks)

    async def wait_synced(self, timeout_s: float) -> None:
        """Return when every kind has been listed once. Raises the last error (or TimeoutError) when that takes too
        long."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(state.synced.wait() for state in self._kinds.values()))
        except TimeoutError:
            errors = [s.last_error for s in self._kinds.values() if s.last_error is not None]
            if errors:
                raise errors[0] from None
            raise

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        return all(state.synced.is_set() for state in self._kinds.values())

    @property
    def fresh(self) -> bool:
        """Every kind listed, and every watch open now."""
        return self.synced and all(state.watching for state in self._kinds.values())

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        for space in (namespace, ""):
            state = self._kinds.get((kind, space))
            if state is not None:
                return state.objects.get((namespace, name))
        raise KeyError(f"{kind} is not watched in {namespace!r}")

    def of(self, kind: str) -> Iterator[Object]:
        """All objects of a kind."""
        for (of_kind, _), state in self._kinds.items():
            if of_kind == kind:
                yield from list(state.objects.values())

    def indexed(self, value: str) -> list[Object]:
        """Objects whose index label has `value`, in a stable order."""
        found = []
        for ref in sorted(self._index.get(value, ())):
            obj = self.get(ref.kind, ref.namespace, ref.name)
            if obj is not None:
                found.append(obj)
        return found

    # -- writing ----------------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """Take over what the server answered to our own write, so that the next look does not see the past."""
        state = self._state_of(obj)
        old = state.objects.get(_key(obj)) if state else None
        if state is None:
            return
        if old is None:
            # Older than what the watch has told: it was seen and deleted since, and must not come back as a ghost.
            if state.version and not _later(_version(obj), state.version):
                return
        elif uid_of(old) == uid_of(obj) and not _later(_version(obj), _version(old)):
            return
        self._set(state, obj)

    def _state_of(self, obj: Object) -> _Kind | None:
        namespace = obj["metadata"].get("namespace", "")
        return self._kinds.get((obj["kind"], namespace)) or self._kinds.get((obj["kind"], ""))

    def _set(self, state: _Kind, obj: Object) -> None:
        obj["metadata"].pop("managedFields", None)
        old = state.objects.get(_key(obj))
        state.objects[_key(obj)] = obj
        if self._index_label:
            was = labels_of(old).get(self._index_label) if old else None
            now = labels_of(obj).get(self._index_label)
            if was is not None and was != now:
                self._index[was].discard(ref_of(obj))
            if now is not None:
                self._index.setdefault(now, set()).add(ref_of(obj))

    def _drop(self, state: _Kind, obj: Object) -> None:
        old = state.objects.pop(_key(obj), None)
        value = labels_of(old or obj).get(self._index_label)
        if value is not None and value in self._index:
            self._index[value].discard(ref_of(obj))
            if not self._index[value]:
                del self._index[value]

    # -- list and watch ---------------------------------------------------------------------------------------------

    async def _reflect(self, state: _Kind, namespace: str | None) -> None:
        backoff_s = MIN_BACKOFF_S
        listed = False
        while True:
            try:
                if not listed:
                    await self._list(state, namespace)
                    listed = True
                state.watching, state.last_error = True, None
                async for event in self._client.watch(
                    state.source.resource, namespace, labels=state.source.labels, resource_version=state.version
                ):
                    state.version = _version(event.object) or state.version
                    backoff_s = MIN_BACKOFF_S
                    if event.type != "BOOKMARK":
                        self._take(state, event.type, event.object)
                continue
            except Expired:
                listed = False
                continue
            except PDDError as error:
                state.last_error = error
                _log.info(
                    "watch broke off", extra={"fields": {"kind": state.source.resource.kind, "error": error.message}}
                )
                if self._on_error is not None:
                    self._on_error(error)
            finally:
                state.watching = False
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
            listed = False

    async def _list(self, state: _Kind, namespace: str | None) -> None:
        items, version = await self._client.list(
            state.source.resource, namespace, labels=state.source.labels, timeout_s=30.0
        )
        seen = {_key(item): item for item in items}
        for gone in [obj for key, obj in state.objects.items() if key not in seen]:
            self._take(state, "DELETED", gone)
        for item in items:
            old = state.objects.get(_key(item))
            if old is None or old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self._take(state, "ADDED" if old is None else "MODIFIED", item)
        state.version = version
        was_synced = self.synced
        state.synced.set()
        if self.synced and not was_synced and self._on_synced is not None:
            self._on_synced()

    def _take(self, state: _Kind, kind_of_event: str, obj: Object) -> None:
        if kind_of_event == "DELETED":
            self._drop(state, obj)
        else:
            old = state.objects.get(_key(obj))
            if old is not None and uid_of(old) == uid_of(obj) and not _later(_version(obj), _version(old)):
                return
            self._set(state, obj)
        if self._on_change is not None:
            self._on_change(kind_of_event, obj)


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))


def _later(a: str, b: str) -> bool:
    """Whether resourceVersion `a` comes after `b`. They are decimal numbers in every known API server."""
    return int(a) > int(b) if a.isdigit() and b.isdigit() else a != b
