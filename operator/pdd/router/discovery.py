"""Keeps the fleet current: fixed URLs, DNS names of headless Services, the gateway's members, health checks."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any

import orjson

from pdd.api.config import Endpoints
from pdd.common.errors import PDDError, Unreachable
from pdd.common.tasks import cancel, spawn
from pdd.router.events import Failure, Role
from pdd.router.fleet import Address, Engine, LineReport
from pdd.router.services import Run, Services
from pdd.router.target import Target, parse_host_port, parse_url

_log = logging.getLogger("pdd.router.discovery")
DNS_EVERY_S = 1.0
MEMBERS_EVERY_S = 0.5
HEALTH_EVERY_S = 1.0
HEALTH_TIMEOUT_S = 3.0
MEMBERS_TIMEOUT_S = 2.0
MEMBERS_LOST_AFTER = 4
"""Failed polls of /members in a row after which the gateway, and with it every MD, counts as lost."""
LINE_GRACE_S = 1.5
"""How long a call at an MD whose link is suspect or gone may go on before the request is moved."""


def fixed_addresses(field: str, urls: Sequence[str]) -> list[Address]:
    """Fixed engines. Raises InvalidInput for a URL that is none."""
    targets = [(url.rstrip("/"), parse_url(field, url)) for url in urls]
    return [Address(url, target, target.host) for url, target in targets]


class Discovery:
    """Tasks from `start` to `stop`. `members`: the last answer of the gateway, for /internal/load."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []
        self._since_s: dict[str, tuple[float, float]] = {}
        self._restarts: dict[str, int] = {}
        self.members: dict[str, Any] = {}

    def start(self) -> None:
        """Apply what is fixed, poll the rest. Raises InvalidInput for a wrong address."""
        config = self._services.config
        for role, field, endpoints in (
            (Role.PREFILL, "prefill", config.prefill),
            (Role.RELAY, "relayDecode", config.relay_decode),
            (Role.MAIN, "mainDecode", config.main_decode),
        ):
            self._begin(role, field, endpoints)
        if config.gateway:
            gateway = parse_url("gateway", config.gateway)
            self._tasks.append(spawn(self._poll_members(gateway), name="members"))
        self._tasks.append(spawn(self._check_health(), name="health"))

    async def stop(self) -> None:
        await cancel(*self._tasks)

    def _begin(self, role: Role, field: str, endpoints: Endpoints) -> None:
        if endpoints.urls:
            self._services.fleet.update(role, fixed_addresses(f"{field}.urls", endpoints.urls), self._services.clock())
        elif endpoints.dns:
            host, port = parse_host_port(f"{field}.dns", endpoints.dns)
            self._tasks.append(spawn(self._poll_dns(role, host, port), name=f"dns-{role.value}"))

    # ---- DNS ------------------------------------------------------------------------------------------------------

    async def _poll_dns(self, role: Role, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        failing = False
        while True:
            try:
                async with asyncio.timeout(5):
                    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                hosts: list[str] | None = sorted({str(entry[4][0]) for entry in found})
                failing = False
            except socket.gaierror as error:
                hosts = (
                    [] if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)) else None
                )
                failing = self._warn(failing, f"DNS: {host}: {error.strerror}")
            except (OSError, TimeoutError) as error:
                hosts = None  # no answer is not the answer "none"
                failing = self._warn(failing, f"DNS: {host}: {error or 'no answer within 5 s'}")
            if hosts is not None:
                self._update(role, [Address(f"http://{one}:{port}", Target(one, port), one) for one in hosts])
            await asyncio.sleep(DNS_EVERY_S)

    def _warn(self, failing: bool, message: str) -> bool:
        if not failing:
            _log.warning(message)
        return True

    def _update(self, role: Role, addresses: list[Address]) -> None:
        now_s = self._services.clock()
        for engine in self._services.fleet.update(role, addresses, now_s):
            _log.info("engine gone", extra={"fields": {"role": role.value, "engine": engine.id}})
            self._services.client.forget(engine.target)

    # ---- the gateway's members ------------------------------------------------------------------------------------

    async def _poll_members(self, gateway: Target) -> None:
        services = self._services
        failures = 0
        while True:
            try:
                reply = await services.client.request(gateway, "GET", b"/members", timeout_s=MEMBERS_TIMEOUT_S)
                async with reply:
                    body = await reply.read_all(MEMBERS_TIMEOUT_S)
                    if reply.status != 200:
                        raise Unreachable(f"the gateway answered {reply.status} to /members")
                self._apply_members(gateway, orjson.loads(body))
                failures = 0
            except (PDDError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                failures += 1
                if failures == 1:
                    _log.warning("the link gateway does not answer", extra={"fields": {"error": str(error)}})
                if failures >= MEMBERS_LOST_AFTER:
                    self._lose_all()
            services.planner.observe_line(services.clock())
            self._move_lost()
            await asyncio.sleep(MEMBERS_EVERY_S)

    def _apply_members(self, gateway: Target, answer: dict[str, Any]) -> None:
        now_s = self._services.clock()
        deployment, namespace = self._services.config.deployment, self._services.config.namespace
        ours = [
            member
            for member in answer["members"]
            if member.get("deployment", deployment) == deployment and member.get("namespace", namespace) == namespace
        ]
        addresses = [
            Address(
                id=member["name"],
                target=Target(gateway.host, gateway.port, tunnel=member["name"]),
                host=member["name"],
                instance=self._instance(member, now_s),
                connected=member.get("state") == "connected",
            )
            for member in ours
        ]
        self._update(Role.MAIN, addresses)
        for member in ours:
            engine = self._services.fleet.find(Role.MAIN, member["name"])
            if engine is not None:
                engine.line = LineReport(
                    rate_bps=float(member.get("rate_bps") or 0),
                    goodput_bps=float(member.get("goodput_bps") or 0),
                    rtt_ms=float(member.get("rtt_ms") or 0),
                    queue_bytes=float(member.get("bulk_queue_bytes") or 0),
                    limited_by=str(member.get("limited_by") or "idle"),
                )
        self.members = answer

    def _instance(self, member: dict[str, Any], now_s: float) -> str:
        """What changes when the endpoint (and with it the pod) is another one: its `instance` if the gateway tells;
        else how often the time since it connected fell back."""
        if member.get("instance"):
            return str(member["instance"])
        name, since_s = member["name"], float(member.get("since_s") or 0.0)
        before = self._since_s.get(name)
        self._since_s[name] = (since_s, now_s)
        if before is not None and member.get("state") == "connected" and since_s + 1.0 < before[0]:
            self._restarts[name] = self._restarts.get(name, 0) + 1
        return str(self._restarts.get(name, 0))

    def _lose_all(self) -> None:
        engines = self._services.fleet.engines[Role.MAIN]
        gone = [Address(e.id, e.target, e.host, e.instance, connected=False) for e in engines.values()]
        self._services.fleet.update(Role.MAIN, gone, self._services.clock())

    def _move_lost(self) -> None:
        """Requests at an MD whose link has been down for longer than the grace go on elsewhere."""
        now_s = self._services.clock()
        lost: list[Run] = []
        for engine, runs in self._services.runs.items():
            since_s = engine.suspect_since_s
            if engine.role is Role.MAIN and since_s is not None and now_s - since_s >= LINE_GRACE_S:
                lost.extend(runs)
        for run in lost:
            run.conductor.lose(run, Failure("LineLost", f"the link to {run.engine.id} is down"))

    # ---- health ---------------------------------------------------------------------------------------------------

    async def _check_health(self) -> None:
        """Ask every engine in turn, all at once each round; a round never overlaps the next."""
        fleet = self._services.fleet
        while True:
            engines = [
                engine
                for engines in fleet.engines.values()
                for engine in engines.values()
                if engine.connected or engine.role is not Role.MAIN
            ]
            if engines:
                await asyncio.gather(*(self._probe(engine) for engine in engines))
            self._services.planner.observe_line(self._services.clock())
            await asyncio.sleep(HEALTH_EVERY_S)

    async def _probe(self, engine: Engine) -> None:
        services = self._services
        ok = unreachable = False
        process = ""
        try:
            reply = await services.client.request(engine.target, "GET", b"/health", timeout_s=HEALTH_TIMEOUT_S)
            async with reply:
                await reply.read_all(HEALTH_TIMEOUT_S)
                ok, process = reply.status == 200, reply.engine_id
        except PDDError as error:
            unreachable = error.reason in ("ConnectionRefused", "NotConnected")
        services.fleet.probed(engine, services.clock(), ok=ok, unreachable=unreachable, process=process)
