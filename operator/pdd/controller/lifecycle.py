"""The life of one custom resource: the loop of its daemon, and its end. Knows nothing of kopf.

The loop is level-based: look, make it so, wait for a wake-up or the slow resync. It writes nothing before our
finalizer is
on the object, ends when the object is gone, and cleans up when its own write finds it gone: else an object that is
deleted at once after its creation would leave everything behind.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pdd.api.conditions import ConditionType, Reason
from pdd.api.status import PDDDeploymentStatus
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.clock import rfc3339
from pdd.common.errors import InvalidInput, PDDError
from pdd.controller import metrics
from pdd.controller.cleanup import Left, clean_site_a, clean_site_b, deadline_s, expired, member_namespace
from pdd.controller.kube.resources import PDDDEPLOYMENTS, Object, Resource, uid_of
from pdd.controller.reconcile_deployment import reconcile_deployment
from pdd.controller.reconcile_link import reconcile_link, target_of
from pdd.controller.runtime import Emit, LinkState, Runtime, parse_time
from pdd.controller.status_write import Written, write_status
from pdd.controller.verdict import ConditionBook, Verdict

_log = logging.getLogger("pdd.controller.lifecycle")

FINALIZER = "pdd.dev/finalizer"
FINALIZER_WAIT_S = 0.5
RETRY_S = 1.0
MAX_BACKOFF_S = 30.0
BURST, BURST_S, BURST_PAUSE_S = 20, 5.0, 1.0
"""More passes than BURST within BURST_S: somebody fights with us, or churns; slow down to one a BURST_PAUSE_S."""

Reconcile = Callable[[Runtime, Object], Awaitable[Written]]


@dataclass(frozen=True, slots=True)
class Wait:
    """Deletion is not through: come back after `delay_s` seconds. `message` says what it waits for."""

    delay_s: float
    message: str


Stopped = Callable[[], bool]
Sleeper = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits until the event is set, the daemon must stop, or so many seconds have passed."""


async def live_loop(
    rt: Runtime, resource: Resource, reconcile: Reconcile, obj: Object, *, stopped: Stopped, sleep: Sleeper
) -> None:
    """Run one object's daemon until it is stopped, the object is being deleted, or it is gone."""
    namespace, name, uid = obj["metadata"]["namespace"], obj["metadata"]["name"], uid_of(obj)
    seat = rt.seat(uid)
    backoff_s, passes = RETRY_S, deque[float](maxlen=BURST)
    try:
        while not stopped():
            seat.wake.clear()
            wait_s = rt.settings.resync_s * random.uniform(0.9, 1.1)
            try:
                live = await _fresh(rt, resource, namespace, name, uid)
                if live is None:
                    await clean_gone(rt, obj)
                    return
                if live["metadata"].get("deletionTimestamp"):
                    return
                if FINALIZER not in (live["metadata"].get("finalizers") or ()):
                    await sleep(seat.wake, FINALIZER_WAIT_S)
                    continue
                obj = live
                written = await _one_pass(rt, resource, reconcile, live)
                if written is Written.GONE:
                    await clean_gone(rt, obj)
                    return
                backoff_s = RETRY_S
            except PDDError as error:
                _log.warning("pass failed", extra={"fields": {"object": f"{namespace}/{name}", "error": error.message}})
                wait_s, backoff_s = backoff_s, min(MAX_BACKOFF_S, backoff_s * 2)
            except Exception:
                _log.exception("pass broke", extra={"fields": {"object": f"{namespace}/{name}"}})
                wait_s, backoff_s = backoff_s, min(MAX_BACKOFF_S, backoff_s * 2)
            now = time.monotonic()
            if len(passes) == BURST and now - passes[0] < BURST_S:
                await sleep(asyncio.Event(), BURST_PAUSE_S)
            passes.append(now)
            await sleep(seat.wake, wait_s)
    finally:
        await rt.drop_scaler(uid)
        await rt.drop_advisor(uid)


async def _one_pass(rt: Runtime, resource: Resource, reconcile: Reconcile, live: Object) -> Written:
    seat = rt.seat(uid_of(live))
    async with seat.lock, rt.gate:
        with metrics.RECONCILE_S.labels(resource.kind).time():
            try:
                written = await reconcile(rt, live)
            except BaseException:
                metrics.RECONCILES.labels(resource.kind, "error").inc()
                raise
    metrics.RECONCILES.labels(resource.kind, "ok").inc()
    return written


async def _fresh(rt: Runtime, resource: Resource, namespace: str, name: str, uid: str) -> Object | None:
    """The object of that UID as last known; asks the server when the store has none or another one."""
    live = rt.store.get(resource.kind, namespace, name)
    if live is None or uid_of(live) != uid:
        live = await rt.client.get_or_none(resource, namespace, name)
    return live if live is not None and uid_of(live) == uid else None


async def clean_gone(rt: Runtime, obj: Object) -> None:
    """The object vanished without waiting for us. Remove what we made for it; B for as long as a deletion would
    wait."""
    namespace, uid = obj["metadata"]["namespace"], uid_of(obj)
    until_s = rt.clock() + deadline_s(obj, rt.settings.deletion_deadline_s)
    while True:
        left = await clean_both(rt, obj)
        if all(part.clean for part in left) or rt.clock() > until_s:
            break
        await asyncio.sleep(RETRY_S)
    _log.info("cleaned up after an object that is gone", extra={"fields": {"namespace": namespace, "uid": uid}})
    rt.seats.pop(uid, None)


async def clean_both(rt: Runtime, obj: Object) -> tuple[Left, Left]:
    """Delete in A and B at once what belongs to the object."""
    namespace, uid = obj["metadata"]["namespace"], uid_of(obj)
    state = state_for(rt, obj)
    in_b = clean_site_b(state, member_namespace(rt, state), uid) if state is not None else _nothing()
    left_a, left_b = await asyncio.gather(clean_site_a(rt, namespace, uid), in_b)
    return left_a, left_b


async def _nothing() -> Left:
    return Left()


def state_for(rt: Runtime, obj: Object) -> LinkState | None:
    """The link entry that reaches the object's B, started if it must be. None: there is no such link (any more)."""
    try:
        if obj["kind"] == "PDDLink":
            link = PDDLink.from_cluster(obj)
        else:
            live = rt.find_link(*PDDDeployment.from_cluster(obj).link_key)
            if live is None:
                return None
            link = PDDLink.from_cluster(live)
        state = rt.link_state(link)
        state.member.configure(target_of(link))
        return state
    except InvalidInput:
        return None


async def end_deployment(rt: Runtime, obj: Object, emit: Emit) -> Wait | None:
    """One step of a PDDDeployment's deletion. None: done, the finalizer may go."""
    seat = rt.seat(uid_of(obj))
    seat.wake.set()
    async with seat.lock:
        state = state_for(rt, obj)
        left_a, left_b = await clean_both(rt, obj)
        wait = judge(rt, obj, state, left_a, left_b, emit)
        if wait is None:
            rt.seats.pop(uid_of(obj), None)
            return None
        await _tell(rt, obj, wait)
        return wait


async def end_link(rt: Runtime, obj: Object, emit: Emit) -> Wait | None:
    """One step of a PDDLink's deletion: it waits for its users, then goes like any other."""
    link = PDDLink.from_cluster(obj)
    seat = rt.seat(link.uid)
    async with seat.lock:
        using = rt.deployments_of(link)
        if using:
            await reconcile_link(rt, obj)
            return Wait(2.0, f"used by {', '.join(f'{d.namespace}/{d.name}' for d in using[:5])}")
        state = state_for(rt, obj)
        left_a, left_b = await clean_both(rt, obj)
        wait = judge(rt, obj, state, left_a, left_b, emit)
        if wait is None:
            await rt.drop_link(link.uid)
            rt.seats.pop(link.uid, None)
        return wait


def judge(rt: Runtime, obj: Object, state: LinkState | None, left_a: Left, left_b: Left, emit: Emit) -> Wait | None:
    """Whether the deletion is through, or what it waits for."""
    if left_a.clean and left_b.clean and state is not None:
        return None
    ever = ((obj.get("status") or {}).get("member") or {}).get("lastContact", "")
    if left_a.clean and state is None:
        if ever:
            emit(
                "Warning",
                "LeftInB",
                "the link is gone: objects in B labelled pdd.dev/owner-uid=" + uid_of(obj) + " may remain",
            )
        return None
    if not left_a.clean:
        return Wait(RETRY_S, f"cluster A: {left_a.error or 'deleting ' + ', '.join(left_a.objects[:5])}")
    if left_b.objects:
        return Wait(RETRY_S, f"cluster B: deleting {', '.join(left_b.objects[:5])}")
    if state is not None and not ever and not state.view.health.usable and state.view.health.failure is not None:
        return None  # B was never connected for this object: there is nothing of it there
    if expired(obj, rt.settings.deletion_deadline_s):
        emit(
            "Warning",
            "LeftInB",
            f"cluster B was not reached in time ({left_b.error}); left there: {_last_known(state, obj)}",
        )
        return None
    end = parse_time(obj["metadata"]["deletionTimestamp"]) + timedelta(
        seconds=deadline_s(obj, rt.settings.deletion_deadline_s)
    )
    return Wait(
        2.0,
        f"cluster B cannot be cleaned: {left_b.error}. Waiting until {rfc3339(end)}, then it is swept when B is back",
    )


def _last_known(state: LinkState | None, obj: Object) -> str:
    store = state.member.store if state is not None else None
    known = (
        [f"{o['kind']}/{o['metadata']['name']}" for o in store.indexed(uid_of(obj)) if o["kind"] != "Pod"]
        if store
        else []
    )
    return ", ".join(known[:10]) or f"anything labelled pdd.dev/owner-uid={uid_of(obj)}"


async def _tell(rt: Runtime, obj: Object, wait: Wait) -> None:
    """Say in the status what the deletion waits for. A failed write is not worth stopping for."""
    try:
        live = await rt.client.get_or_none(PDDDEPLOYMENTS, obj["metadata"]["namespace"], obj["metadata"]["name"])
        if live is None or uid_of(live) != uid_of(obj):
            return
        deployment = PDDDeployment.from_cluster(live)
        old = deployment.status or PDDDeploymentStatus()
        blocked = wait.message.startswith("cluster B cannot")
        reason = Reason.CLEANUP_BLOCKED if blocked else Reason.DELETING
        book = ConditionBook(old.conditions, generation=deployment.generation, now=rfc3339(datetime.now(UTC)))
        book.put(ConditionType.PROGRESSING, Verdict(True, reason, wait.message))
        book.put(ConditionType.READY, Verdict(False, Reason.DELETING, "it is being deleted"))
        await write_status(rt.client, PDDDEPLOYMENTS, live, old.model_copy(update={"conditions": book.conditions}))
    except PDDError as error:
        _log.info("status of a deletion not written", extra={"fields": {"error": error.message}})


async def deployment_pass(rt: Runtime, live: Object) -> Written:
    return await reconcile_deployment(rt, live)


async def link_pass(rt: Runtime, live: Object) -> Written:
    return await reconcile_link(rt, live)
