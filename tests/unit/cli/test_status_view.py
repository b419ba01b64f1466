"""What a person reads: verdict first, ages, unknown is not zero, problems last."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pdd.api.v1alpha1 import PDDDeployment
from pdd.cli.status_view import age, deployment_lines, is_ready, router_lines

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def condition(type_: str, status: str, reason: str, message: str = "", since: str = "2026-12-01T11:57:49Z") -> Any:
    return {
        "type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
        "lastTransitionTime": since,
    }  # fmt: skip


def deployment(**status: Any) -> PDDDeployment:
    obj = {
        "metadata": {"name": "chat", "namespace": "default", "generation": 2},
        "spec": {"linkRef": {"name": "b"}, "model": {"name": "tiny"}},
        "status": {
            "observedGeneration": 2,
            "mode": "Normal",
            "url": "http://chat-router.default.svc",
            "conditions": [condition("Ready", "True", "Ready"), condition("Degraded", "False", "Normal")],
            "roles": [
                {"role": "prefill", "site": "A", "desired": 2, "ready": 2},
                {"role": "mainDecode", "site": "B", "desired": 2, "ready": 2, "observedAt": "2026-12-01T11:59:56Z"},
            ],
            "router": {"desired": 1, "ready": 1},
            "link": {
                "name": "b", "state": "Healthy", "connectedEngines": 2, "rttMs": 20, "goodputMbps": 41,
                "capacityMbps": 200,
            },
            "member": {"state": "Connected", "since": "2026-12-01T11:57:49Z"},
            **status,
        },
    }  # fmt: skip
    return PDDDeployment.from_cluster(obj)


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ("2026-12-01T11:59:56Z", "4 s"),
        ("2026-12-01T11:57:49Z", "2m11s"),
        ("2026-12-01T08:55:00Z", "3h05m"),
        ("2026-11-28T12:00:00Z", "3d"),
        ("2026-12-01T12:00:09Z", "0 s"),
        ("", "?"),
    ],
)
def test_ages(then: str, text: str) -> None:
    assert age(then, NOW) == text


def test_a_healthy_deployment_is_a_verdict_and_few_lines() -> None:
    lines = deployment_lines(deployment(), NOW)
    assert lines[0] == "chat  Ready since 2m11s  mode Normal  model tiny"
    assert "  B  MD  2/2  unchanged for 4 s" in lines
    assert "  line b  Healthy  2 engines  41 of 200 Mbit/s  RTT 20 ms" in lines
    assert "  cluster B  Connected since 2m11s" in lines
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines)
    assert not any("!!" in line for line in lines)
    assert is_ready(deployment())


def test_the_plan_is_the_use_of_each_stage() -> None:
    names = ("prefill", "local transfer", "line", "relay decode", "main decode")
    stages = [{"name": name, "utilizationPercent": 101} for name in names]
    (line,) = [each for each in deployment_lines(deployment(plan={"stages": stages}), NOW) if "predicted" in each]
    assert line == "  predicted use  prefill 101 %, line 101 %, relay decode 101 %, main decode 101 %"
    nothing = deployment(plan={"reason": "TooFewRequests", "message": "3 requests"})
    assert not any("predicted" in each for each in deployment_lines(nothing, NOW))


def test_a_lost_b_is_unknown_and_stale_not_zero() -> None:
    roles = [
        {"role": "mainDecode", "site": "B", "desired": 2, "reason": "MemberLost", "observedAt": "2026-12-01T11:58:00Z"}
    ]
    lost = deployment(
        mode="Local",
        member={"state": "Lost", "since": "2026-12-01T11:58:00Z", "reason": "Unreachable", "message": "no route"},
        roles=roles,
        conditions=[
            condition("Ready", "True", "Ready"),
            condition("Degraded", "True", "LineLost", "requests run whole on RLD"),
            condition("MembersReachable", "Unknown", "MemberLost", "no answer for 2 min"),
        ],
    )
    lines = deployment_lines(lost, NOW)
    assert "  B  MD  ?/2  MemberLost  STALE: B does not answer; so since 2m00s" in lines
    assert "  !! Degraded True: LineLost, 2m11s: requests run whole on RLD" in lines
    assert any(line.startswith("  !! MembersReachable Unknown") for line in lines)
    assert "  cluster B  Lost since 2m00s  Unreachable  no route" in lines
    assert "mode Local" in lines[0]


def test_a_generation_that_was_not_seen_yet_is_not_ready() -> None:
    behind = deployment(
        observedGeneration=1, conditions=[{**condition("Ready", "True", "Ready"), "observedGeneration": 1}]
    )
    assert not is_ready(behind)
    assert "has not seen the last change" in deployment_lines(behind, NOW)[0]


def test_without_a_status_the_operator_is_suspected() -> None:
    fresh = deployment().model_copy(update={"status": None})
    assert "is the operator running" in deployment_lines(fresh, NOW)[0]
    assert not is_ready(fresh)


def test_a_router_shows_engines_and_the_line() -> None:
    load = {
        "mode": "normal",
        "relay": {"arrivals_total": 4, "sessions": 1, "holding_s_sum": 6.0, "holding_s_count": 3, "refused_total": 0},
        "engines": [
            {"role": "prefill", "url": "http://127.0.0.1:1", "healthy": True, "sessions": 0, "draining": False},
            {"role": "relay_decode", "url": "http://127.0.0.1:2", "healthy": False, "sessions": 1, "draining": False},
        ],
        "link": {"members": [{"name": "default/tiny/md-0", "state": "connected", "streams": 4, "goodput_bps": 4e7,
                              "rate_bps": 95_000_000, "rtt_ms": 20.4}]},
    }  # fmt: skip
    lines = router_lines("http://r", load)
    assert lines[0] == "router http://r  mode normal  1/2 engines healthy"
    assert any("NOT HEALTHY" in line and "1 sessions" in line for line in lines)
    assert "  relayed 4 requests, 1 now, held 2000 ms on average, refused 0" in lines
    assert lines[-1] == "  line default/tiny/md-0  connected  4 streams  40.0 of 95 Mbit/s  RTT 20 ms"
    assert router_lines("http://r", {})[0].endswith("0/0 engines healthy")
