"""The autoscaler's shell: parsing, publishing without churn, drains told before anything is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from tests.unit.controller.samples import NOW, deployment

from pdd.api.status import ScalingStatus
from pdd.controller import autoscaler as module
from pdd.controller.autoscaler import Autoscaler, ordinals, parse_load, publish
from pdd.policy.scaling import Decision, ScaleReason

LOAD: dict[str, Any] = {
    "replica": "r-1", "uptime_s": 10.0,
    "relay": {"arrivals_total": 5, "sessions": 3, "holding_s_sum": 7.5, "holding_s_count": 4, "refused_total": 1},
    "engines": [
        {"role": "relay-decode", "url": "http://10.0.0.1:8000", "host": "10.0.0.1", "sessions": 2},
        {"role": "prefill", "url": "http://10.0.0.9:8000", "host": "10.0.0.9", "sessions": 9},
    ],
    "link": {"members": [{"bulk_queue_bytes": 1_000_000, "goodput_bps": 8_000_000, "rate_bps": 95_000_000}]},
    "mode": "normal",
}  # fmt: skip


def test_load_is_parsed() -> None:
    load = parse_load(LOAD)
    assert load.sessions == 3 and load.by_host == (("10.0.0.1", 2),) and load.line_wait_s == 1.0
    assert parse_load({**LOAD, "link": None}).line_wait_s == 0.0


def test_steady_numbers_do_not_write() -> None:
    first = publish(None, Decision(2, ScaleReason.STEADY, "m", sessions=3, holding_ms=100), 2, NOW)
    again = publish(first, Decision(2, ScaleReason.STEADY, "m2", sessions=5, holding_ms=900), 2, "later")
    assert again is first


def test_change_is_put_into_a_bounded_history_newest_first() -> None:
    status: ScalingStatus | None = None
    for count in range(1, 30):
        status = publish(status, Decision(count + 1, ScaleReason.LOAD_UP, f"need {count + 1}"), count, NOW)
    assert status is not None and len(status.history) == 20
    assert (status.history[0].from_, status.history[0].to, status.history[0].reason) == (29, 30, "LoadUp")


def test_ordinals_of_pods() -> None:
    pods = [
        {"metadata": {"name": "tiny-relay-decode-0"}, "status": {"podIP": "10.0.0.1"}},
        {"metadata": {"name": "tiny-relay-decode-10"}, "status": {"podIP": "10.0.0.2"}},
        {"metadata": {"name": "tiny-relay-decode-1"}, "status": {}},
    ]
    assert ordinals(pods) == {0: "10.0.0.1", 10: "10.0.0.2"}


class Store:
    """Objects as the autoscaler reads them."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas

    def get(self, kind: str, namespace: str, name: str) -> Any:
        return {"spec": {"replicas": self.replicas}} if kind == "StatefulSet" else None

    def indexed(self, value: str) -> list[Any]:
        ready = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        made = []
        for component, count in (("router", 1), ("relay-decode", self.replicas)):
            for n in range(count):
                meta = {"name": f"tiny-{component}-{n}", "labels": {"app.kubernetes.io/component": component}}
                made.append(
                    {
                        "kind": "Pod",
                        "metadata": meta,
                        "status": {**ready, "podIP": "127.0.0.1" if n == 0 else f"127.0.0.{n + 1}"},
                    }
                )
        return made


async def run_looks(
    looks: int, load: Callable[[], Any], monkeypatch: Any, drain_status: int = 200
) -> tuple[Autoscaler, list[Any]]:
    """So many looks of 2 s virtual time at one fake router."""
    drains: list[Any] = []

    async def give(_: web.Request) -> web.Response:
        body = load()
        return web.Response(status=500) if body is None else web.Response(body=orjson.dumps(body))

    async def drain(request: web.Request) -> web.Response:
        drains.append(await request.json())
        return web.json_response({}, status=drain_status)

    app = web.Application()
    app.router.add_get("/internal/load", give)
    app.router.add_put("/internal/drain", drain)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    monkeypatch.setattr(module, "PORT", port)
    monkeypatch.setattr(module, "HTTP_PORT", port)
    now = [0.0]
    spec = {"spec": {"roles": {"relayDecode": {"replicas": 2, "autoscaling": {
        "minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationS": 10}}}}}}}  # fmt: skip
    scaler = Autoscaler(
        deployment(**spec),
        Store(2),
        period_s=2,
        clock=lambda: now[0],
        on_change=lambda: None,  # type: ignore[arg-type]
    )
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
        for _ in range(looks):
            await scaler.look(session)
            now[0] += 2.0
    await runner.cleanup()
    return scaler, drains


def idle(sessions: int = 0) -> dict[str, Any]:
    relay = {"arrivals_total": 0, "sessions": sessions, "holding_s_sum": 0, "holding_s_count": 0, "refused_total": 0}
    engine = {"role": "relay-decode", "url": "", "host": "127.0.0.2", "sessions": sessions}
    return {"replica": "r", "uptime_s": 1, "relay": relay, "engines": [engine], "link": None, "mode": "normal"}


async def test_idle_engine_is_drained_then_removed(monkeypatch: Any) -> None:
    scaler, drains = await run_looks(12, idle, monkeypatch)
    assert scaler.target is not None and scaler.target.replicas == 1
    assert drains[0]["hosts"] == ["127.0.0.2"] and drains[0]["ttl_s"] == 30


async def test_engine_with_sessions_is_drained_and_kept(monkeypatch: Any) -> None:
    scaler, drains = await run_looks(12, lambda: idle(3), monkeypatch)
    assert scaler.target is not None and scaler.target.replicas == 2 and drains


async def test_routers_that_do_not_answer_hold_the_number(monkeypatch: Any) -> None:
    scaler, drains = await run_looks(30, lambda: None, monkeypatch)
    assert scaler.target is not None and scaler.target.replicas == 2 and not drains
    assert scaler.target.status.reason == "NoData"


async def test_router_that_refuses_the_drain_keeps_the_engine(monkeypatch: Any) -> None:
    scaler, drains = await run_looks(20, idle, monkeypatch, drain_status=403)
    assert drains and scaler.target is not None and scaler.target.replicas == 2
