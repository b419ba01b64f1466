"""Objects that come, change, drift and go: both clusters always end up as the specs say, and nothing is left behind."""

from __future__ import annotations

import functools
import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.client import Answer, Client
from e2e.objects import apply, build_small, delete, owned
from e2e.oracle import Oracle
from e2e.shell import wait_for
from e2e.streams import build_body, build_requests, check_answer, in_flight
from e2e.system import MEMBER_NAMESPACE, MODEL, NAME, NAMESPACE, READY_S, System
from e2e.wan.client import Wan

REPAIR_S = 30
GONE_S = 60


def test_drift_is_repaired_in_both_clusters_while_requests_run(system: System, oracle: Oracle) -> None:
    a, b = system.clusters.a, system.clusters.b
    requests = build_requests(secrets.token_hex(8), 3, 300, 150)
    expected = oracle.many(requests)
    service = f"{NAME}-router"
    port_before = system.get("service", service)["spec"]["ports"]
    with in_flight(system.client, [build_body(request, MODEL) for request in requests]) as flight:
        system.patch("statefulset", f"{NAME}-relay-decode", {"spec": {"replicas": 3}})
        system.patch("configmap", "site-b-gateway-config", {"data": {"gateway.json": "{}"}})
        a.kubectl("-n", NAMESPACE, "delete", "service", f"{NAME}-prefill")
        b.kubectl("-n", MEMBER_NAMESPACE, "delete", "configmap", f"{NAME}-endpoint-config")
        b.kubectl("-n", MEMBER_NAMESPACE, "scale", "statefulset", f"{NAME}-main-decode", "--replicas=2")
        answers = flight.finish(120)
    for index, (answer, ids) in enumerate(zip(answers, expected, strict=True)):
        check_answer(answer, ids, f"stream {index}")

    def repaired() -> bool:
        gateway = system.get("configmap", "site-b-gateway-config")["data"]["gateway.json"]
        return (
            system.get("statefulset", f"{NAME}-relay-decode")["spec"]["replicas"] == 2
            and system.get("statefulset", f"{NAME}-main-decode", MEMBER_NAMESPACE, b)["spec"]["replicas"] == 1
            and bool(system.get("service", f"{NAME}-prefill"))
            and bool(system.get("configmap", f"{NAME}-endpoint-config", MEMBER_NAMESPACE, b))
            and len(gateway) > 2
        )

    started = time.monotonic()
    wait_for("the drift repaired", repaired, timeout_s=REPAIR_S)
    system.note(f"five changes repaired within {time.monotonic() - started:.1f} s after the streams had ended")
    assert system.get("service", service)["spec"]["ports"] == port_before
    system.wait_whole()


@pytest.mark.timeout(400, func_only=True)
def test_a_second_deployment_shares_the_link_and_leaves_nothing_when_deleted(system: System, oracle: Oracle) -> None:
    a, b = system.clusters.a, system.clusters.b
    second = build_small("second", spec={"router": {"service": {"type": "NodePort"}}})
    apply(a, second)
    try:
        system.wait_condition("Ready", "True", READY_S, name="second")
        before = owned(b, "second")
        assert any(name.startswith("StatefulSet/") for name in before), before
        port = system.get("service", "second-router")["spec"]["ports"][0]["nodePort"]
        request = build_requests(secrets.token_hex(8), 1, 100, 20)[0]
        answer = Client(f"http://{a.node_ip}:{port}").stream("/v1/completions", build_body(request, MODEL))
        check_answer(answer, oracle.ids(request))
        assert answer.trace["engines"]["MD"].startswith(f"{NAMESPACE}/second/"), answer.trace["engines"]
    finally:
        started = time.monotonic()
        delete(a, second)
    wait_for("nothing left in A", lambda: not owned(a, "second"), timeout_s=GONE_S)
    wait_for("nothing left in B", lambda: not owned(b, "second"), timeout_s=GONE_S)
    system.note(f"{len(before)} objects in B and all in A gone {time.monotonic() - started:.1f} s after kubectl delete")
    assert system.missing() == [], "the neighbour on the same link was hurt"


def test_create_followed_at_once_by_delete_leaves_nothing(system: System) -> None:
    """The operator hears of objects that are already going; whatever it has made by then must go too."""
    a, b = system.clusters.a, system.clusters.b
    names = [f"blink-{index}" for index in range(4)]
    for index, name in enumerate(names):
        item = build_small(name)
        apply(a, item)
        if index % 2:  # the other half is deleted before the operator can have done anything
            wait_for(f"{name}: something made", functools.partial(owned, a, name), REPAIR_S, every_s=0.1)
        delete(a, item, wait=False)
    for name in names:
        delete(a, build_small(name))  # waits until it is gone, finalizer included

    def left() -> list[str]:
        return [one for cluster in (a, b) for name in names for one in owned(cluster, name)]

    wait_for("nothing left in either cluster", lambda: not left(), timeout_s=GONE_S)
    # Nothing may come after: a late apply of the operator would show within one resync.
    late = time.monotonic() + 5
    while time.monotonic() < late:
        assert not left(), f"came back after the deletion: {left()}"
        time.sleep(1)
    assert system.missing() == []


@pytest.mark.timeout(500, func_only=True)
def test_rld_grows_with_handoff_load_and_shrinks_after_it(system: System, oracle: Oracle, wan: Wan) -> None:
    scaling = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "sessionsPerReplica": 2,
        "targetUtilizationPercent": 70,
        "behavior": {"scaleUp": {"stabilizationS": 0}, "scaleDown": {"stabilizationS": 15, "drainTimeoutS": 30}},
    }
    replicas = "spec.roles.relayDecode"
    roles = {"relayDecode": {"replicas": 1, "autoscaling": scaling}}
    system.patch("pdd", NAME, {"spec": {"roles": roles}})

    def wanted() -> int:
        return int(system.get("statefulset", f"{NAME}-relay-decode")["spec"]["replicas"])

    try:
        wait_for(f"{replicas} follows the spec", lambda: wanted() == 1, timeout_s=90)
        system.wait_whole()
        requests = build_requests(secrets.token_hex(8), 24, 200, 60)
        expected = oracle.many(requests)
        wan.set(mbps=10)  # the KV takes long, so each relayed request holds its RLD for long
        with ThreadPoolExecutor(8) as pool:
            futures = [
                pool.submit(system.client.stream, "/v1/completions", build_body(request, MODEL), "P-RLD-MD")
                for request in requests
            ]
            grown = wait_for("more RLD", lambda: wanted() > 1 and wanted(), timeout_s=90)
            answers: list[Answer] = [future.result(180) for future in futures]
        for index, (answer, ids) in enumerate(zip(answers, expected, strict=True)):
            check_answer(answer, ids, f"stream {index}")
        wait_for("fewer RLD", lambda: wanted() == 1, timeout_s=120)
        history = system.get("pdd", NAME)["status"]["scaling"]["history"]
        system.note(f"RLD 1 -> {grown} -> 1; {[(one['from'], one['to'], one['reason']) for one in history]}")
        assert any(one["to"] > one["from"] for one in history), history
        assert any(one["to"] < one["from"] for one in history), history
        assert all(one["reason"] and one["message"] for one in history), history
    finally:
        system.patch("pdd", NAME, {"spec": {"roles": {"relayDecode": {"replicas": 2, "autoscaling": None}}}})
    wan.set(mbps=100)
    system.wait_whole()
