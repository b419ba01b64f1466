"""Asks the link gateway which main decode engines are connected, every few seconds, by its pod's address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import orjson

from pdd.common.tasks import cancel, spawn

_log = logging.getLogger("pdd.controller.gateway")
TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """One MD as the gateway sees it."""

    name: str
    namespace: str
    deployment: str
    state: str
    streams: int
    rtt_ms: float | None = None
    goodput_bps: float | None = None
    limited_by: str = ""

    @property
    def connected(self) -> bool:
        return self.state == "connected"


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """The newest answer. members None: there is none, `error` says why."""

    members: tuple[MemberEntry, ...] | None = None
    error: str = ""

    def of(self, namespace: str, deployment: str) -> tuple[MemberEntry, ...] | None:
        if self.members is None:
            return None
        return tuple(m for m in self.members if (m.namespace, m.deployment) == (namespace, deployment))


@dataclass(slots=True)
class GatewayWatch:
    """Polls `GET /members`. `on_change` is called when an engine came, went or changed state, not on new numbers."""

    period_s: float
    on_change: Callable[[], None]
    report: GatewayReport = GatewayReport()
    url: str = ""
    _task: asyncio.Task[None] | None = None
    _kick: asyncio.Event = field(default_factory=asyncio.Event)
    _misses: int = 0

    def start(self) -> None:
        self._task = spawn(self._poll(), name="gateway-watch")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel(self._task)

    def point_at(self, url: str) -> None:
        """Where the gateway is now (`http://ip:port`), or empty while it has no ready pod."""
        if url != self.url:
            self.url = url
            self._kick.set()

    async def _poll(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            while True:
                self._kick.clear()
                before = _shape(self.report)
                self.report = await self._ask(session)
                if _shape(self.report) != before:
                    self.on_change()
                try:
                    async with asyncio.timeout(self.period_s):
                        await self._kick.wait()
                except TimeoutError:
                    continue

    async def _ask(self, session: aiohttp.ClientSession) -> GatewayReport:
        if not self.url:
            return GatewayReport(error="the gateway has no ready pod")
        try:
            async with session.get(f"{self.url}/members") as response:
                if response.status != 200:
                    raise ValueError(f"HTTP {response.status}")
                answer = orjson.loads(await response.read())
            self._misses = 0
            return GatewayReport(parse_members(answer))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self._misses += 1
            text = f"{self.url}/members: {type(error).__name__} {error}".strip()
            # One lost answer is not news: the last one stays until three in a row are missing.
            return replace(self.report, error=text) if self._misses < 3 else GatewayReport(error=text)


def parse_members(answer: dict[str, Any]) -> tuple[MemberEntry, ...]:
    """The gateway's answer as values. Raises KeyError, TypeError or ValueError if it is something else."""
    return tuple(
        MemberEntry(
            name=str(m["name"]),
            namespace=str(m["namespace"]),
            deployment=str(m["deployment"]),
            state=str(m["state"]),
            streams=int(m.get("streams", 0)),
            rtt_ms=m.get("rtt_ms"),
            goodput_bps=m.get("goodput_bps"),
            limited_by=str(m.get("limited_by") or ""),
        )
        for m in answer["members"]
    )


def measured(members: Sequence[MemberEntry]) -> tuple[float | None, float | None]:
    """(mean round trip in ms, sum of goodput in bit/s) over the members that tell them; None where none does."""
    rtts = [m.rtt_ms for m in members if m.rtt_ms is not None]
    goodputs = [m.goodput_bps for m in members if m.goodput_bps is not None]
    return (sum(rtts) / len(rtts) if rtts else None), (sum(goodputs) if goodputs else None)


def _shape(report: GatewayReport) -> object:
    if report.members is None:
        return None
    return tuple(sorted((m.namespace, m.deployment, m.name, m.state, m.streams) for m in report.members))
