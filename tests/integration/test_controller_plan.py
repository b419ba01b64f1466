"""status.plan through the whole controller: a router's report becomes a status and a condition, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.integration.controller_api import until
from tests.integration.test_controller_reconcile import NS, World, world  # noqa: F401  the fixture
from tests.unit.controller.test_advisor import CALIBRATION, report

from pdd.controller import advisor as module
from pdd.controller.labels import OWNER_UID, SELECTOR


async def test_load_becomes_a_plan_and_a_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    body: dict[str, Any] = report(60)

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(body))

    app = web.Application()
    app.router.add_get("/internal/workload", give)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setattr(module, "PORT", site._server.sockets[0].getsockname()[1])  # type: ignore[union-attr]
    world.rt.settings = replace(world.rt.settings, advice_poll_s=0.1)
    key, _, value = SELECTOR.partition("=")
    pod = {
        "metadata": {
            "name": "tiny-router-0",
            "namespace": NS,
            "labels": {OWNER_UID: "22222222-bbbb", key: value, "app.kubernetes.io/component": "router"},
        },
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    try:
        await world.both()
        world.a.add("pods", pod)
        # Nobody has measured these engines, and no data sheet knows them.
        await until(lambda: plan_of(world).get("reason") == "NotModelled")
        assert "feasible" not in plan_of(world) and "pdd.dev/calibration" in plan_of(world)["message"]
        assert world.condition("pdddeployments", "tiny", "Planned")[:2] == ("True", "Planned")

        deployment = world.a.get("pdddeployments", NS, "tiny")
        assert deployment is not None
        deployment["metadata"]["annotations"] = {"pdd.dev/calibration": CALIBRATION}
        world.a.add("pdddeployments", deployment)
        await until(lambda: plan_of(world).get("feasible") is True)
        assert plan_of(world)["load"]["requestsPerMinute"] == 36 and plan_of(world)["basis"] == "Calibration"

        sets = {name: world.a.get("statefulsets", NS, name) for name in world.a.names("statefulsets")}
        body = report(500)
        await until(lambda: world.condition("pdddeployments", "tiny", "Planned")[:2] == ("False", "StageShort"))
        assert plan_of(world)["advice"]["prefill"] == 3 and plan_of(world)["bindingStage"] == "prefill"
        assert {name: world.a.get("statefulsets", NS, name) for name in sets} == sets, "shown, not acted upon"
        assert world.condition("pdddeployments", "tiny", "Ready")[1] != "StageShort"

        body = report(60)
        await until(lambda: world.condition("pdddeployments", "tiny", "Planned")[0] == "True")
    finally:
        await runner.cleanup()


def plan_of(world: World) -> dict[str, Any]:  # noqa: F811
    status = (world.a.get("pdddeployments", NS, "tiny") or {}).get("status") or {}
    return dict(status.get("plan") or {})
