"""status.plan on real clusters: the load that the router saw, judged by a calibration; shown, never acted upon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.client import Client
from e2e.shell import wait_for
from e2e.system import MODEL, NAME, System

REQUESTS = 24
MIN_REQUESTS = 20  # the first look that sees so many makes the plan
PLAN_S = 60.0
ANNOTATION = "pdd.dev/calibration"


def calibration(prefill_s_per_token: float) -> str:
    times = {
        "prefill": {"per_token_s": prefill_s_per_token, "chunk_tokens": 512},
        "decode": {"fixed_s": 0.02},
        "extend": {"fixed_s": 0.02, "per_token_s": 1e-6},
        "max_sequences": 64,
    }
    return json.dumps({"kind": "EngineCalibration", "kv_bytes_per_token": 100, "times": times})


def annotate(system: System, value: str | None) -> None:
    system.patch("pdd", NAME, {"metadata": {"annotations": {ANNOTATION: value}}})


def wait_plan(system: System, reason: str) -> dict[str, Any]:
    """Waits until status.plan has this reason."""

    def reached() -> dict[str, Any] | None:
        plan = dict((system.get("pdd", NAME).get("status") or {}).get("plan") or {})
        return plan if plan.get("reason") == reason else None

    return wait_for(f"status.plan with reason {reason}", reached, PLAN_S)


def send(client: Client, requests: int) -> None:
    for n in range(requests):
        prompt = [(7 * n + i) % 90 + 33 for i in range(200)]
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        client.complete("/v1/completions", body)


@pytest.fixture
def annotated(system: System) -> Iterator[System]:
    try:
        yield system
    finally:
        annotate(system, None)


def test_the_load_is_judged_and_nothing_is_done_about_it(annotated: System) -> None:
    system = annotated
    annotate(system, calibration(1e-6))
    send(system.client, REQUESTS)
    plan = wait_plan(system, "Planned")
    assert plan["feasible"] is True and plan["basis"] == "Calibration"
    assert plan["load"]["requests"] >= MIN_REQUESTS and sum(plan["load"]["hitBuckets"]) in range(97, 104)
    assert {stage["name"] for stage in plan["stages"]} >= {"prefill", "line", "relay decode", "main decode"}
    system.wait_condition("Planned", "True", PLAN_S, reason="Planned")

    def replicas() -> list[int]:
        return [system.get("statefulset", f"{NAME}-{role}")["spec"]["replicas"] for role in ("prefill", "relay-decode")]

    before = replicas()
    annotate(system, calibration(1.0))  # an engine that takes minutes for such a prompt
    plan = wait_plan(system, "StageShort")
    assert plan["feasible"] is False and plan["bindingStage"] == "prefill"
    assert plan["advice"]["prefill"] > 1
    condition = system.wait_condition("Planned", "False", PLAN_S, reason="StageShort")
    assert "prefill is short by" in condition["message"]
    assert system.condition("Ready")["status"] == "True" and replicas() == before
    system.note(f"plan: {condition['message'][:160]}")
