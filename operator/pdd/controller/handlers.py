"""The only file that knows kopf: a daemon and a delete handler for each of the two kinds, events that wake them,
settings."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import kopf

from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.credentials import TokenSource
from pdd.controller.kube.resources import PDDDEPLOYMENTS, PDDLINKS, Object, uid_of
from pdd.controller.lifecycle import (
    FINALIZER,
    Wait,
    deployment_pass,
    end_deployment,
    end_link,
    link_pass,
    live_loop,
)
from pdd.controller.metrics import Heartbeat
from pdd.controller.runtime import Runtime
from pdd.controller.settings import Settings

_log = logging.getLogger("pdd.controller.handlers")

GROUP, VERSION = PDDLINKS.group, PDDLINKS.version
POLL_S = 0.5
STOP_POLL_S = 1.0


def build_registry(
    access: ClusterAccess, own: Settings, holder: dict[str, Runtime], heartbeat: Heartbeat
) -> kopf.OperatorRegistry:
    """All handlers of the operator. The runtime is made at start-up, in kopf's loop, and put into `holder`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        # Rights in some namespaces only do not include a look at all CRDs and namespaces.
        settings.scanning.disabled = bool(own.namespaces)
        rt = Runtime(access, own, heartbeat)
        holder["rt"] = rt
        rt.start()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(access)

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        rt = holder.pop("rt", None)
        if rt is not None:
            await rt.stop()

    for resource, one_pass, end in (
        (PDDDEPLOYMENTS, deployment_pass, end_deployment),
        (PDDLINKS, link_pass, end_link),
    ):
        _register(registry, holder, resource, one_pass, end)
    return registry


def _register(
    registry: kopf.OperatorRegistry, holder: dict[str, Runtime], resource: Any, one_pass: Any, end: Any
) -> None:
    where = (GROUP, VERSION, resource.plural)

    @kopf.on.event(*where, registry=registry, id=f"wake-{resource.plural}")
    async def wake(uid: str, **_: Any) -> None:
        holder["rt"].wake(uid)

    @kopf.daemon(
        *where,
        registry=registry,
        id=f"reconcile-{resource.plural}",
        cancellation_backoff=5.0,
        cancellation_timeout=30.0,
        cancellation_polling=POLL_S,
    )
    async def daemon(body: kopf.Body, stopped: kopf.DaemonStopped, **_: Any) -> None:
        async def sleep(event: asyncio.Event, seconds: float) -> None:
            await sleep_until(event, stopped, seconds)

        await live_loop(
            holder["rt"], resource, one_pass, plain(body, resource), stopped=lambda: bool(stopped), sleep=sleep
        )

    @kopf.on.delete(*where, registry=registry, id=f"delete-{resource.plural}")
    async def delete(body: kopf.Body, **_: Any) -> None:
        rt, obj = holder["rt"], plain(body, resource)

        def emit(type_: str, reason: str, message: str) -> None:
            kopf.event(cast(kopf.Body, obj), type=type_, reason=reason, message=message[:1000])

        try:
            wait = await end(rt, obj, emit)
        except Exception as error:
            # Anything else than TemporaryError could end the handler, drop the finalizer and orphan cluster B.
            _log.exception("deletion step broke", extra={"fields": {"uid": uid_of(obj)}})
            wait = Wait(5.0, repr(error))
        if wait is not None:
            raise kopf.TemporaryError(wait.message, delay=wait.delay_s)


def plain(body: kopf.Body, resource: Any) -> Object:
    """A copy of kopf's live view as a plain dict with apiVersion and kind."""
    made = {key: _copy(value) for key, value in body.items()}
    made["apiVersion"], made["kind"] = resource.api_version, resource.kind
    return made


def _copy(value: Any) -> Any:
    if hasattr(value, "items"):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value


async def sleep_until(event: asyncio.Event, stopped: kopf.DaemonStopped, seconds: float) -> None:
    """Wait for the event or the stop, at most `seconds`. The stop is looked at once a second: it needs no task of its
    own."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not stopped and not event.is_set():
        left_s = end - loop.time()
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(min(STOP_POLL_S, left_s)):
                await event.wait()
        except TimeoutError:
            continue


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf's settings, each for a measured or documented reason (docs/operations.md)."""
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    settings.posting.level = logging.WARNING
    settings.posting.loggers = False
    settings.posting.reporting_component = "pdd-operator"
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.background.cancellation_polling = POLL_S
    settings.execution.default_backoff = 5


async def connection_info(access: ClusterAccess) -> kopf.ConnectionInfo:
    """The same access for kopf as for our own client."""
    token = await TokenSource(access).token()
    return kopf.ConnectionInfo(
        server=access.server,
        ca_data=access.ca_pem.encode() if access.ca_pem else None,
        insecure=access.insecure or None,
        token=token or None,
        certificate_data=access.client_cert_pem.encode() if access.client_cert_pem else None,
        private_key_data=access.client_key_pem.encode() if access.client_key_pem else None,
        default_namespace=access.namespace or "default",
    )


__all__ = ["build_registry", "configure", "sleep_until"]
