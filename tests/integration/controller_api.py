"""A small Kubernetes API server in this process, for controller tests: apply, list, watch, delete, tokens, faults.

It keeps what the tests lean on: create on apply, resource versions that grow, UIDs, field owner conflicts by labels,
preconditions, deletion through finalizers, bookmarks, the status subresource. It does not collect garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Key = tuple[str, str, str]
"""(plural, namespace, name)"""

KINDS = {
    "configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "pods": "Pod", "nodes": "Node",
    "namespaces": "Namespace", "statefulsets": "StatefulSet", "deployments": "Deployment",
    "pdddeployments": "PDDDeployment", "pddlinks": "PDDLink",
}  # fmt: skip
CLUSTER_SCOPED = ("nodes", "namespaces")


@dataclass
class FakeApi:
    """State of one cluster. Change `tokens`, `forbidden`, `silent` at any time."""

    tokens: set[str] = field(default_factory=lambda: {"t1"})
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """(method, plural) that answer 403."""
    silent: bool = False
    """Accept connections and never answer."""
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self._versions = itertools.count(1)
        self._watchers: list[tuple[str, str, dict[str, str], asyncio.Queue[dict[str, Any] | None]]] = []
        self.add("namespaces", {"metadata": {"name": "kube-system"}})

    # -- for tests --------------------------------------------------------------------------------------------------

    def add(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Put an object there as somebody else would."""
        meta = obj.setdefault("metadata", {})
        meta.setdefault("uid", str(uuid.uuid4()))
        key = (plural, meta.get("namespace", ""), meta["name"])
        new = key not in self.objects
        obj.setdefault("kind", KINDS[plural])
        self._store(key, obj)
        self._tell("ADDED" if new else "MODIFIED", plural, obj)
        return obj

    def remove(self, plural: str, namespace: str, name: str) -> None:
        obj = self.objects.pop((plural, namespace, name))
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell("DELETED", plural, obj)

    def names(self, plural: str) -> list[str]:
        return sorted(name for kind, _, name in self.objects if kind == plural)

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((plural, namespace, name))

    def break_watches(self) -> None:
        for *_, queue in self._watchers:
            queue.put_nowait(None)

    # -- the server -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeApi]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            self.break_watches()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.silent:
            await asyncio.sleep(3600)
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _status(401, "Unauthorized")
        plural, namespace, name, sub = _parse(request.path)
        self.calls.append(f"{request.method} {plural} {name}{'/' + sub if sub else ''}".strip())
        if (request.method, plural) in self.forbidden:
            return _status(403, "Forbidden", f"cannot {request.method} {plural}")
        if request.method == "GET" and name:
            obj = self.objects.get((plural, namespace, name))
            return web.json_response(obj) if obj else _status(404, "NotFound")
        if request.method == "GET":
            selector = _selector(request.query.get("labelSelector", ""))
            if request.query.get("watch") == "true":
                return await self._watch(request, plural, namespace, selector)
            items = [o for (p, ns, _), o in self.objects.items() if p == plural and _match(o, ns, namespace, selector)]
            return web.json_response({"items": items, "metadata": {"resourceVersion": str(next(self._versions))}})
        body = json.loads(await request.read() or b"{}")
        if request.method == "POST":
            name = body["metadata"]["name"]
            if (plural, namespace, name) in self.objects:
                return _status(409, "AlreadyExists")
            return web.json_response(self.add(plural, body), status=201)
        if request.method == "PATCH":
            return self._apply((plural, namespace, name), sub, body, request.query.get("force") == "true")
        return self._delete((plural, namespace, name), body)

    def _apply(self, key: Key, sub: str, body: dict[str, Any], force: bool) -> web.Response:
        old = self.objects.get(key)
        wanted = body["metadata"].get("uid")
        if sub == "status":
            if old is None:
                return _status(404, "NotFound")
            if wanted and wanted != old["metadata"]["uid"]:
                return _status(409, "Conflict", "uid mismatch")
            new = {**old, "status": body["status"]}
        elif old is None:
            return web.json_response(self.add(key[0], body), status=201)
        else:
            if not force and old["metadata"].get("labels") != body["metadata"].get("labels"):
                return _status(409, "Conflict", "conflict with kubectl: .metadata.labels")
            new = {**old, **body, "metadata": {**old["metadata"], **body["metadata"]}}
        if {k: v for k, v in new.items() if k != "metadata"} == {k: v for k, v in old.items() if k != "metadata"} and (
            _plain(new["metadata"]) == _plain(old["metadata"])
        ):
            return web.json_response(old)
        self._store(key, new)
        self._tell("MODIFIED", key[0], new)
        return web.json_response(new)

    def _delete(self, key: Key, body: dict[str, Any]) -> web.Response:
        obj = self.objects.get(key)
        if obj is None:
            return _status(404, "NotFound")
        uid = (body.get("preconditions") or {}).get("uid")
        if uid and uid != obj["metadata"]["uid"]:
            return _status(409, "Conflict", "uid precondition")
        if obj["metadata"].get("finalizers"):
            obj["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
            self._store(key, obj)
            self._tell("MODIFIED", key[0], obj)
            return web.json_response(obj)
        self.remove(*key)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(
        self, request: web.Request, plural: str, namespace: str, selector: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        entry = (plural, namespace, selector, queue)
        since = int(request.query["resourceVersion"])
        for (p, ns, _), obj in list(self.objects.items()):
            if p == plural and _match(obj, ns, namespace, selector) and int(obj["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": obj})
        self._watchers.append(entry)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watchers.remove(entry)
        return response

    def _store(self, key: Key, obj: dict[str, Any]) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = obj

    def _tell(self, kind: str, plural: str, obj: dict[str, Any]) -> None:
        for p, namespace, selector, queue in self._watchers:
            if p == plural and _match(obj, obj["metadata"].get("namespace", ""), namespace, selector):
                queue.put_nowait({"type": kind, "object": json.loads(json.dumps(obj))})


def _parse(path: str) -> tuple[str, str, str, str]:
    """(plural, namespace, name, subresource) of an API path."""
    parts = path.strip("/").split("/")[2:] if path.startswith("/api/") else path.strip("/").split("/")[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    parts += [""] * 3
    return parts[0], namespace, parts[1], parts[2]


def _selector(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _match(obj: dict[str, Any], own: str, namespace: str, selector: dict[str, str]) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return (not namespace or own == namespace) and selector.items() <= labels.items()


def _plain(meta: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in meta.items() if k != "resourceVersion"}


def _status(code: int, reason: str, message: str = "") -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message or reason}
    return web.json_response(body, status=code)


async def until(condition: Any, timeout_s: float = 20.0) -> None:
    """Wait for a condition with a bound; looks every few milliseconds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  the condition is any expression
            await asyncio.sleep(0.01)
