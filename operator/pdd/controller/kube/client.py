"""One cluster's API server: typed calls over a pooled aiohttp session, JSON by orjson, every wait bounded.

Server-side apply always names one field manager. Deletes may carry a UID precondition, so that an object that was made
anew under the same name is never hit.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from pdd.common.errors import TimedOut, Unreachable
from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.credentials import TokenSource
from pdd.controller.kube.errors import ApiError, Expired, NotFound, Throttled, Unauthorized, error_of
from pdd.controller.kube.resources import Object, Resource

FIELD_MANAGER = "pdd-operator"
MAX_CONNECTIONS = 32
THROTTLE_TRIES = 3
MAX_THROTTLE_WAIT_S = 10.0
LIST_PAGE = 500
WATCH_TIMEOUT_S = 290
INACTIVITY_S = 75.0
"""A watch without an event or bookmark for so long is dead: API servers send a bookmark about once a minute."""

Observer = Callable[[str, str, int], None]
"""Told (verb, plural, HTTP status or 0) of every call."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """type: ADDED, MODIFIED, DELETED or BOOKMARK (then `object` has only a resourceVersion)."""

    type: str
    object: Object


class KubeClient:
    """Calls to one API server. Build it inside a running loop; close it with `aclose`."""

    def __init__(self, access: ClusterAccess, *, timeout_s: float = 10.0, observer: Observer | None = None) -> None:
        self.access = access
        self.timeout_s = timeout_s
        self._observer = observer
        self._tokens = TokenSource(access)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl_context(access), limit=MAX_CONNECTIONS + 16, keepalive_timeout=60),
            headers={"User-Agent": FIELD_MANAGER, "Accept": "application/json"},
        )
        self._gate = asyncio.Semaphore(MAX_CONNECTIONS)
        self.server_time_skew_s: float | None = None

    async def aclose(self) -> None:
        await self._session.close()

    @property
    def closed(self) -> bool:
        """No connection is left."""
        return self._session.closed

    # -- calls -----------------------------------------------------------------------------------------------------

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> Object:
        result: Object = await self._call("get", resource, "GET", resource.path(namespace, name), timeout_s=timeout_s)
        return result

    async def get_or_none(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The object, or None if the server says that it does not exist. Any other failure raises."""
        try:
            return await self.get(resource, namespace, name)
        except NotFound:
            return None

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = LIST_PAGE,
        timeout_s: float | None = None,
    ) -> tuple[list[Object], str]:
        """All objects (paged) and the resourceVersion to watch from. Items get apiVersion and kind filled in."""
        items: list[Object] = []
        params = {"limit": str(limit)}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        while True:
            page = await self._call(
                "list", resource, "GET", resource.path(namespace), params=params, timeout_s=timeout_s
            )
            for item in page.get("items") or ():
                item["apiVersion"], item["kind"] = resource.api_version, resource.kind
                items.append(item)
            more = page["metadata"].get("continue")
            if not more:
                return items, str(page["metadata"].get("resourceVersion", ""))
            params = {**params, "continue": more}

    async def list_some(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        labels: str = "",
        limit: int = 1,
        timeout_s: float | None = None,
    ) -> int:
        """Read at most `limit` objects and tell how many came; a probe that proves credentials and rights."""
        params = {"limit": str(limit)} | ({"labelSelector": labels} if labels else {})
        page = await self._call("list", resource, "GET", resource.path(namespace), params=params, timeout_s=timeout_s)
        return len(page.get("items") or ())

    async def apply(
        self, resource: Resource, obj: Object, *, force: bool = True, subresource: str | None = None
    ) -> Object:
        """Server-side apply of the complete set of fields that we own. Creates the object if it does not exist."""
        meta = obj["metadata"]
        params = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        path = resource.path(meta.get("namespace"), meta["name"], subresource)
        verb = "apply" if subresource is None else f"apply/{subresource}"
        result: Object = await self._call(
            verb, resource, "PATCH", path, body=obj, params=params, content_type="application/apply-patch+yaml"
        )
        return result

    async def create(self, resource: Resource, obj: Object) -> Object:
        """POST: raises ApiConflict if an object of that name exists."""
        path = resource.path(obj["metadata"].get("namespace"))
        result: Object = await self._call(
            "create", resource, "POST", path, body=obj, params={"fieldManager": FIELD_MANAGER}
        )
        return result

    async def merge_patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        result: Object = await self._call(
            "patch",
            resource,
            "PATCH",
            resource.path(namespace, name),
            body=patch,
            content_type="application/merge-patch+json",
        )
        return result

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", propagation: str = "Background"
    ) -> bool:
        """Delete; with `uid` only that very object. True if it exists no more (or is another one), False while it
        goes."""
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            answer = await self._call("delete", resource, "DELETE", resource.path(namespace, name), body=body)
        except NotFound:
            return True
        except ApiError as error:
            if error.status == 409 and uid:
                return True
            raise
        return not (isinstance(answer, dict) and answer.get("metadata", {}).get("deletionTimestamp"))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str,
    ) -> AsyncIterator[WatchEvent]:
        """Events from `resource_version` on. Ends when the server closes the stream.

        Raises Expired (list again), Unreachable or TimedOut (nothing, not even a bookmark, for INACTIVITY_S).
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        what = f"watch {resource.plural}"
        timeout = aiohttp.ClientTimeout(total=WATCH_TIMEOUT_S + 30, connect=self.timeout_s, sock_read=INACTIVITY_S)
        try:
            async with self._session.get(
                self.access.server + resource.path(namespace),
                params=params,
                headers=await self._headers(),
                timeout=timeout,
                read_bufsize=1 << 20,
            ) as response:
                self._observe("watch", resource, response.status)
                if response.status >= 400:
                    raise error_of(response.status, decode(await response.read()), what)
                async for line in response.content:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise error_of(int(event["object"].get("code") or 500), event["object"], what)
                    event["object"].setdefault("apiVersion", resource.api_version)
                    event["object"].setdefault("kind", resource.kind)
                    yield WatchEvent(event["type"], event["object"])
        except Unauthorized:
            self._tokens.invalidate()
            raise
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            raise TimedOut(f"{what}: nothing heard for {INACTIVITY_S:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"{what}: {describe(error)}") from error

    # -- the one call -----------------------------------------------------------------------------------------------

    async def _call(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> Any:
        """One request; a rejected rotating token is refreshed once, a throttled call waits as told, a few times."""
        refreshed = False
        for attempt in range(THROTTLE_TRIES):
            try:
                return await self._once(
                    verb, resource, method, path, body, params, content_type, timeout_s or self.timeout_s
                )
            except Unauthorized:
                if refreshed or not self._tokens.invalidate():
                    raise
                refreshed = True
            except Throttled as error:
                if attempt == THROTTLE_TRIES - 1:
                    raise
                await asyncio.sleep(min(MAX_THROTTLE_WAIT_S, error.retry_after_s or 1.0))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, str] | None,
        content_type: str,
        timeout_s: float,
    ) -> Any:
        what = f"{verb} {path}"
        headers = await self._headers()
        data = None
        if body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), content_type
        try:
            async with (
                self._gate,
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, self.access.server + path, params=params, data=data, headers=headers
                ) as response,
            ):
                raw = await response.read()
                self._observe(verb, resource, response.status)
                if response.status >= 400:
                    raise error_of(response.status, decode(raw), what, response.headers.get("Retry-After"))
                return decode(raw)
        except TimeoutError as error:
            self._observe(verb, resource, 0)
            raise TimedOut(f"{what}: no answer from {self.access.server} within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            self._observe(verb, resource, 0)
            raise Unreachable(f"{what}: {self.access.server}: {describe(error)}") from error

    async def _headers(self) -> dict[str, str]:
        token = await self._tokens.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _observe(self, verb: str, resource: Resource, status: int) -> None:
        if self._observer is not None:
            self._observer(verb, resource.plural, status)


def ssl_context(access: ClusterAccess) -> ssl.SSLContext:
    """TLS towards one API server: its CA (the system's if none is given) and, if there is one, our client
    certificate."""
    context = ssl.create_default_context(cadata=access.ca_pem or None)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.client_cert_pem:
        # ssl can only load a key from a file: it lives for one call in a file that nobody else may read.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
            pem.write(access.client_cert_pem + "\n" + access.client_key_pem)
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def decode(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw.decode(errors="replace")


def describe(error: BaseException) -> str:
    """A short cause for people: certificate problems by their own text, else the class and message."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate not trusted: {error.certificate_error}"
    return f"{type(error).__name__}: {error}"[:300]


__all__ = ["FIELD_MANAGER", "Expired", "KubeClient", "Observer", "WatchEvent", "describe", "ssl_context"]
