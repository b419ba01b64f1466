"""The shell around the scaling law: asks the routers, tells them to drain, publishes the number of RLD engines.

Its word is a target that the next reconcile applies. It never writes to a cluster itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import orjson

from pdd.api.deployment import RelayAutoscaling, Role
from pdd.api.engines import HTTP_PORT
from pdd.api.status import MAX_SCALING_EVENTS, ScalingEvent, ScalingStatus
from pdd.api.v1alpha1 import PDDDeployment
from pdd.common.clock import Clock, rfc3339
from pdd.common.errors import PDDError
from pdd.common.tasks import cancel, spawn
from pdd.controller import metrics
from pdd.controller.desired.engine import engine_name
from pdd.controller.desired.router import CONFIG_FILE, PORT, router_config_name
from pdd.controller.kube.resources import Object
from pdd.controller.kube.store import ObjectStore
from pdd.controller.material import drain_token_of
from pdd.controller.observe import is_ready, pods_of
from pdd.policy.scaling import (
    Counters,
    Decision,
    Sample,
    ScaleReason,
    ScalingLaw,
    ScalingState,
    add_counters,
    begin,
    step,
)

_log = logging.getLogger("pdd.controller.autoscaler")

TIMEOUT_S = 1.5
DRAIN_TTL_S = 30
MAX_ROUTERS = 64


@dataclass(frozen=True, slots=True)
class RelayTarget:
    """The autoscaler's word on one deployment: how many RLD engines, and what status says about it."""

    replicas: int
    status: ScalingStatus


@dataclass(frozen=True, slots=True)
class RouterLoad:
    """One router's answer: its counters, RLD sessions by host, the predicted wait on the line in seconds."""

    replica: str
    counters: Counters
    sessions: int
    by_host: tuple[tuple[str, int], ...]
    line_wait_s: float


def parse_load(body: dict[str, Any]) -> RouterLoad:
    """`GET /internal/load`. Raises KeyError, TypeError or ValueError if it is something else."""
    relay = body["relay"]
    waits = [
        8.0 * float(m.get("bulk_queue_bytes") or 0) / rate
        for m in _members(body.get("link"))
        if (rate := float(m.get("goodput_bps") or 0) or float(m.get("rate_bps") or 0)) > 0
    ]
    return RouterLoad(
        replica=str(body["replica"]),
        counters=Counters(
            float(relay["arrivals_total"]),
            float(relay["holding_s_sum"]),
            float(relay["holding_s_count"]),
            float(relay["refused_total"]),
            float(body["uptime_s"]),
        ),
        sessions=int(relay["sessions"]),
        by_host=tuple(
            (str(e["host"]), int(e["sessions"])) for e in body["engines"] if e["role"] == Role.RELAY_DECODE.slug
        ),
        line_wait_s=max(waits, default=0.0),
    )


def _members(link: Any) -> list[dict[str, Any]]:
    found = link.get("members") if isinstance(link, dict) else link
    return [m for m in found if isinstance(m, dict)] if isinstance(found, list) else []


def law_of(spec: RelayAutoscaling) -> ScalingLaw:
    up, down = spec.behavior.scale_up, spec.behavior.scale_down
    return ScalingLaw(
        min_replicas=spec.min_replicas,
        max_replicas=max(spec.min_replicas, spec.max_replicas),
        sessions_per_replica=spec.sessions_per_replica,
        target=spec.target_utilization_percent / 100,
        up_stabilization_s=up.stabilization_s,
        up_max_step=up.max_step,
        down_stabilization_s=down.stabilization_s,
        down_max_step=down.max_step,
        drain_timeout_s=down.drain_timeout_s,
    )


def publish(old: ScalingStatus | None, decision: Decision, replicas: int, now: str) -> ScalingStatus:
    """The status after a decision. Numbers move only with the desired count or the reason: else each poll would write.

    A change of the count is put into the history, newest first.
    """
    before = old or ScalingStatus()
    history = before.history
    if decision.replicas != replicas:
        event = ScalingEvent(
            time=now,
            from_=replicas,
            to=decision.replicas,
            reason=decision.reason.value,
            message=decision.message[:1024],
        )
        history = (event, *history)[:MAX_SCALING_EVENTS]
    elif old is not None and (before.desired, before.reason) == (decision.replicas, decision.reason.value):
        return before
    return ScalingStatus(
        desired=decision.replicas,
        sessions=decision.sessions,
        holding_ms=decision.holding_ms,
        reason=decision.reason.value,
        history=history,
    )


class Autoscaler:
    """One per deployment with `relayDecode.autoscaling`. `configure` with each pass, `start`, `stop`."""

    def __init__(
        self,
        deployment: PDDDeployment,
        store: ObjectStore,
        *,
        period_s: float,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._deployment = deployment
        self._store = store
        self._period_s = period_s
        self._clock = clock
        self._on_change = on_change
        self._state: ScalingState | None = None
        self._total = Counters(0, 0, 0, 0, 0)
        self._last: dict[str, Counters] = {}
        self._status = deployment.status.scaling if deployment.status else None
        self._task: asyncio.Task[None] | None = None
        self.target: RelayTarget | None = None

    def start(self) -> None:
        self._task = spawn(self._run(), name=f"autoscaler-{self._deployment.namespace}/{self._deployment.name}")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel(self._task)

    def configure(self, deployment: PDDDeployment) -> None:
        self._deployment = deployment

    async def _run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            while True:
                try:
                    await self.look(session)
                except PDDError as error:
                    _log.info("no look at the load", extra={"fields": {"error": error.message}})
                except Exception:
                    _log.exception("autoscaler broke; the number of engines is held")
                await asyncio.sleep(self._period_s)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """One poll of all routers, one decision, drains told."""
        deployment = self._deployment
        spec = deployment.spec.roles.relay_decode.autoscaling
        live = self._store.get("StatefulSet", deployment.namespace, engine_name(deployment.name, Role.RELAY_DECODE))
        if spec is None or live is None:
            return
        replicas = int((live.get("spec") or {}).get("replicas", 1))
        if self._state is None:
            self._state = begin(replicas, self._clock())
        objects = self._store.indexed(deployment.uid)
        routers = _addresses(pods_of(objects, "router"))[:MAX_ROUTERS]
        hosts = ordinals(pods_of(objects, Role.RELAY_DECODE.slug))
        loads = await asyncio.gather(*(self._ask(session, ip) for ip in routers))
        complete = bool(loads) and all(load is not None for load in loads)
        answers = [load for load in loads if load is not None]
        sample = self._sample(answers) if complete else None
        busy = await self._busy(session, answers, hosts, replicas) if complete else {}
        self._state, decision = step(self._state, law_of(spec), sample, replicas, busy, self._clock())
        if decision.drain_from is not None:
            told = await self._drain(session, routers, [ip for n, ip in hosts.items() if n >= decision.drain_from])
            if not told:
                # A router that was not told may send a session to the engine at any moment.
                decision = replace(decision, replicas=replicas, reason=ScaleReason.DRAINING)
        self._publish(decision, replicas)

    def _sample(self, answers: Sequence[RouterLoad]) -> Sample:
        now = {load.replica: load.counters for load in answers}
        self._total = add_counters(self._total, self._last, now)
        self._last = now
        total = self._total
        return Sample(
            at_s=self._clock(),
            arrivals=total.arrivals,
            holding_s_sum=total.holding_s_sum,
            holding_count=total.holding_count,
            refused=total.refused,
            sessions=sum(load.sessions for load in answers),
            line_wait_s=max((load.line_wait_s for load in answers), default=0.0),
        )

    async def _busy(
        self, session: aiohttp.ClientSession, answers: Sequence[RouterLoad], hosts: dict[int, str], replicas: int
    ) -> dict[int, int]:
        """Sessions and leases by ordinal. An ordinal without a pod holds nothing; one that gives no answer is left
        out."""
        sessions: dict[str, int] = {}
        for load in answers:
            for host, count in load.by_host:
                sessions[host] = sessions.get(host, 0) + count
        busy = {}
        first = self._state.drain_from if self._state is not None else None
        for ordinal in range(replicas):
            address = hosts.get(ordinal)
            count = 0 if address is None else sessions.get(address, 0)
            if address is not None and first is not None and ordinal >= first and count == 0:
                count += await self._leases(session, address)
            busy[ordinal] = count
        return busy

    async def _leases(self, session: aiohttp.ClientSession, host: str) -> int:
        """What the engine itself still holds, where it can tell (the reference engine); else 0."""
        try:
            async with session.get(f"http://{host}:{HTTP_PORT}/pdd/state") as response:
                if response.status != 200:
                    return 0
                state = orjson.loads(await response.read())
            return sum(_count(state.get(key)) for key in ("running", "waiting", "leases"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return 0

    async def _ask(self, session: aiohttp.ClientSession, ip: str) -> RouterLoad | None:
        try:
            async with session.get(f"http://{ip}:{PORT}/internal/load") as response:
                if response.status != 200:
                    return None
                return parse_load(orjson.loads(await response.read()))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            _log.info("a router gives no load", extra={"fields": {"router": ip, "error": repr(error)}})
            return None

    async def _drain(self, session: aiohttp.ClientSession, routers: Sequence[str], hosts: Sequence[str]) -> bool:
        """Tell every router. True if all took it."""
        secret = self._store.get("Secret", self._deployment.namespace, router_config_name(self._deployment.name))
        headers = {"Authorization": f"Bearer {drain_token_of(secret, CONFIG_FILE)}", "Content-Type": "application/json"}
        body = orjson.dumps({"hosts": list(hosts), "ttl_s": DRAIN_TTL_S})

        async def tell(ip: str) -> bool:
            try:
                async with session.put(f"http://{ip}:{PORT}/internal/drain", data=body, headers=headers) as response:
                    return response.status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False

        return all(await asyncio.gather(*(tell(ip) for ip in routers)))

    def _publish(self, decision: Decision, replicas: int) -> None:
        status = publish(self._status, decision, replicas, rfc3339())
        target = RelayTarget(decision.replicas, status)
        if decision.replicas != replicas and (self.target is None or self.target.replicas != decision.replicas):
            direction = "up" if decision.replicas > replicas else "down"
            metrics.SCALINGS.labels(direction, decision.reason.value).inc()
            _log.info(
                "scale",
                extra={
                    "fields": {
                        "deployment": f"{self._deployment.namespace}/{self._deployment.name}",
                        "from": replicas,
                        "to": decision.replicas,
                        "reason": decision.reason.value,
                        "why": decision.message,
                    }
                },
            )
        elif decision.replicas != replicas and self._status is not None:
            # Decided before and not applied yet: one event in the history is enough.
            target = RelayTarget(decision.replicas, replace_history(status, self._status))
        changed = target != self.target
        self.target, self._status = target, target.status
        if changed:
            self._on_change()


def replace_history(status: ScalingStatus, old: ScalingStatus) -> ScalingStatus:
    return status.model_copy(update={"history": old.history})


def ordinals(pods: Sequence[Object]) -> dict[int, str]:
    """Address of each StatefulSet pod by its ordinal, those with an address."""
    found = {}
    for pod in pods:
        tail = str(pod["metadata"]["name"]).rpartition("-")[2]
        ip = (pod.get("status") or {}).get("podIP")
        if tail.isdigit() and ip:
            found[int(tail)] = str(ip)
    return found


def _addresses(pods: Sequence[Object]) -> list[str]:
    return sorted(str(p["status"]["podIP"]) for p in pods if is_ready(p) and p["status"].get("podIP"))


def _count(value: Any) -> int:
    if isinstance(value, int | float):
        return int(value)
    return len(value) if isinstance(value, list | dict) else 0
