"""The advisor's shell: reports are checked, noise writes nothing, silence keeps the last word, it only asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from tests.unit.controller.samples import NOW, deployment, link
from tests.unit.controller.test_status import GOOD, conditions

from pdd.api.status import PlanStage, PlanStatus
from pdd.controller import advisor as module
from pdd.controller.advisor import AdviceInputs, Advisor, build_plan, keep, parse_seen

CALIBRATION = orjson.dumps(
    {
        "kind": "EngineCalibration",
        "kv_bytes_per_token": 1000,
        "times": {
            "prefill": {"per_token_s": 1e-3, "chunk_tokens": 512},
            "decode": {"fixed_s": 0.02},
            "extend": {"fixed_s": 0.02, "per_token_s": 1e-4},
            "max_sequences": 16,
        },
    }
).decode()
REACH = {"reach_s": 1}
INPUTS = AdviceInputs(deployment(), link(), 1, CALIBRATION)


def report(requests: int = 60, span_s: float = 100.0) -> dict[str, Any]:
    """Requests at even distance, 500 tokens of which 50 are cached, 20 out."""
    rows = [[round(span_s * (i + 0.5) / requests, 3), 500, 50, 20] for i in range(requests)]
    return {"replica": "r", "reach_s": span_s, "unserved": 0, "rows": rows}


def plan(requests: int = 60, old: PlanStatus | None = None, now: str = NOW) -> PlanStatus:
    return build_plan(INPUTS, [parse_seen(report(requests))], old, now)


def test_easy_load() -> None:
    got = plan()
    assert got.feasible and got.reason == "Planned" and got.basis == "Calibration" and got.observed_at == NOW
    assert got.load is not None and got.load.requests_per_minute == 36 and got.load.hit_percent == 10
    assert got.load.input_tokens == 500 and got.load.uncached_tokens == 450 and got.load.hit_buckets[0] == 100
    assert got.advice is not None and (got.advice.prefill, got.advice.main_decode) == (1, 1) and got.advice.meets_sla
    assert {s.name for s in got.stages} >= {"prefill", "line", "main decode"} and got.ttft_p99_ms


def test_short_stage() -> None:
    got = plan(requests=500)
    assert got.feasible is False and got.reason == "StageShort" and got.binding_stage == "prefill"
    assert got.ttft_p99_ms is None, "no bound is no number"
    assert got.advice is not None and got.advice.prefill == 3 and "3 prefill engines instead of 1" in got.message


def test_refused_and_open_requests_are_load_too() -> None:
    body = {**report(190), "unserved": 300}
    got = build_plan(INPUTS, [parse_seen(body)], None, NOW)
    assert plan(190).feasible and got.reason == "StageShort"
    assert got.load is not None and (got.load.requests, got.load.requests_per_minute) == (190, 294)


def test_status_survives_the_api() -> None:
    got = plan(requests=500)
    assert PlanStatus.model_validate_json(got.model_dump_json(by_alias=True, exclude_none=True)) == got


def test_noise_writes_nothing_and_news_does() -> None:
    first = plan(60)
    assert plan(62, first, "later") is first
    assert plan(160, first, "later") is not first, "a stage's use moved by more than ten points"
    few = plan(3)
    assert few.feasible is None and few.reason == "TooFewRequests" and plan(5, few, "later") is few
    assert keep(few, first) is first and keep(first, few) is few


def test_unknown_engines_are_said() -> None:
    got = build_plan(AdviceInputs(deployment(), link(), 1, ""), [parse_seen(report())], None, NOW)
    assert got.feasible is None and got.reason == "NotModelled" and "pdd.dev/calibration" in got.message
    broken = build_plan(AdviceInputs(deployment(), link(), 1, "{"), [parse_seen(report())], got, NOW)
    assert broken is not got and "JSON" in broken.message


@pytest.mark.parametrize(
    "body",
    [{}, {"rows": []}, [], None, {"rows": []} | REACH, {"unserved": -1, "rows": []} | REACH,
     *({"unserved": 0, "rows": [row]} | REACH for row in ([1, 2, 3], [1, 2, 3, -4], [1, 2, float("nan"), 4], None)),
     {"reach_s": float("inf"), "unserved": 0, "rows": []}],
)  # fmt: skip
def test_broken_reports_are_refused(body: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_seen(body)


def test_planned_follows_the_plan_and_ready_does_not() -> None:
    short = PlanStatus(feasible=False, reason="StageShort", message="prefill is short by 31 %")
    got = conditions(replace(GOOD, plan=short))
    assert got["Planned"] == ("False", "StageShort", "prefill is short by 31 %")
    assert got["Ready"][0] == "True" and got["Degraded"][0] == "False"
    good = PlanStatus(feasible=True, reason="Planned", message="uses", stages=(PlanStage(name="prefill"),))
    assert conditions(replace(GOOD, plan=good))["Planned"] == ("True", "Planned", "uses")
    unknown = PlanStatus(reason="TooFewRequests", message="3 requests")
    assert conditions(replace(GOOD, plan=unknown))["Planned"][:2] == ("True", "Planned")


class Store:
    """Pods of `count` routers, all on loopback."""

    def __init__(self, count: int) -> None:
        self.count = count

    def indexed(self, value: str) -> list[Any]:
        status = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"app.kubernetes.io/component": "router"}
        return [
            {"kind": "Pod", "metadata": {"name": f"r-{n}", "labels": labels}, "status": status}
            for n in range(self.count)
        ]


async def run_looks(bodies: list[Any], monkeypatch: Any, routers: int = 1) -> tuple[Advisor, list[PlanStatus | None]]:
    """One look for each body (None: the router answers 500); the plans at each change."""
    given = iter([body for body in bodies for _ in range(routers)])
    changes: list[PlanStatus | None] = []
    methods: list[str] = []

    async def give(request: web.Request) -> web.Response:
        methods.append(request.method)
        body = next(given)
        return web.Response(status=500) if body is None else web.Response(body=orjson.dumps(body))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", give)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setattr(module, "PORT", site._server.sockets[0].getsockname()[1])  # type: ignore[union-attr]
    note: Callable[[], None] = lambda: changes.append(advisor.plan)  # noqa: E731
    advisor = Advisor(INPUTS, Store(routers), period_s=60, on_change=note)  # type: ignore[arg-type]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        for _ in bodies:
            await advisor.look(session)
    await runner.cleanup()
    assert set(methods) <= {"GET"}, "the advisor only asks"
    return advisor, changes


async def test_looks_change_the_plan_only_when_it_says_something_new(monkeypatch: Any) -> None:
    advisor, changes = await run_looks([report(60), report(62), report(500), None, {"rows": 3}], monkeypatch)
    assert [c.feasible for c in changes if c] == [True, False]
    assert advisor.plan is changes[-1], "silence and nonsense keep the last word"


async def test_all_routers_must_answer(monkeypatch: Any) -> None:
    advisor, changes = await run_looks([report(300), report(300)], monkeypatch, routers=2)
    assert advisor.plan is not None and advisor.plan.load is not None
    assert advisor.plan.load.requests_per_minute == 360 and len(changes) == 1
