"""One part after another is killed while streams are in flight.

Each time: every stream ends, no token is lost or doubled, the ids are those of one engine, and all is well again
without a human, within a bound. The lengths of the outages (20 s, 60 s) are the faults themselves; all else waits for
conditions.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e import install
from e2e.client import Answer
from e2e.faults import api_server_down, kill_pod
from e2e.kind import ClusterRef
from e2e.oracle import Oracle
from e2e.shell import wait_for
from e2e.streams import Flight, Request, build_body, build_requests, check_answer, has_tokens, in_flight
from e2e.system import LINK, MEMBER_NAMESPACE, MODEL, NAME, NAMESPACE, System
from e2e.wan.client import Wan

STREAMS = 6
FINISH_S = 180
WHOLE_S = 150
LINK_OUTAGE_S = 20
OUTAGE_S = 60


class Storm:
    """Requests with known answers, sent whenever a test wants some."""

    def __init__(self, system: System, oracle: Oracle, count: int, prompt_tokens: int, max_tokens: int) -> None:
        self.system = system
        self.requests = build_requests(secrets.token_hex(8), count, prompt_tokens, max_tokens)
        self.expected = oracle.many(self.requests)

    @contextmanager
    def flying(self, override: str = "") -> Iterator[Flight]:
        """All of them at once."""
        with in_flight(self.system.client, [build_body(one, MODEL) for one in self.requests], override) as flight:
            yield flight

    def check(self, answers: list[Answer]) -> None:
        for index, (answer, ids) in enumerate(zip(answers, self.expected, strict=True)):
            check_answer(answer, ids, f"stream {index} ({answer.pipeline}, retries {answer.trace.get('retries')})")

    def run(self) -> list[Answer]:
        """Sends all, checks all."""
        with self.flying() as flight:
            answers = flight.finish(FINISH_S)
        self.check(answers)
        return answers


class Killed:
    """A pod that was killed: it must come back as another one."""

    def __init__(self, system: System, site: ClusterRef, namespace: str, pod: str) -> None:
        self.system, self.site, self.namespace, self.pod = system, site, namespace, pod
        self.uid = system.pod_uid(site, namespace, pod)
        self.at = time.monotonic()
        kill_pod(site, namespace, pod)

    def wait_whole(self) -> None:
        self.system.wait_replaced(self.site, self.namespace, self.pod, self.uid)
        self.system.wait_whole(WHOLE_S)
        self.system.note(f"{self.pod}: replaced and all whole {time.monotonic() - self.at:.0f} s after the kill")


def longest_gap_ms(answers: list[Answer]) -> float:
    return max(b - a for answer in answers for a, b in zip(answer.at_ms, answer.at_ms[1:], strict=False))


def roles_that_failed(answers: list[Answer]) -> set[str]:
    return {retry["role"] for answer in answers for retry in answer.trace["retries"]}


def wait_main_decode_used(system: System, oracle: Oracle, timeout_s: float = 60) -> None:
    """Requests are decoded by MD, rightly and all of them: after a loss they come back to the line bit by bit."""
    deadline = time.monotonic() + timeout_s
    request: Request = build_requests(secrets.token_hex(8), 1, 100, 30)[0]
    expected = oracle.ids(request)
    in_a_row = 0
    while in_a_row < 4:
        answer = system.client.stream("/v1/completions", build_body(request, MODEL))
        check_answer(answer, expected, "a request while nothing is broken")
        in_a_row = in_a_row + 1 if answer.trace["producers"].get("MD") else 0
        assert time.monotonic() < deadline, f"requests do not return to MD: {answer.pipeline} {answer.headers}"


def test_an_rld_pod_is_killed_while_it_decodes(system: System, oracle: Oracle, wan: Wan) -> None:
    storm = Storm(system, oracle, STREAMS, prompt_tokens=500, max_tokens=250)
    wan.set(mbps=10)  # the KV of one prompt takes 1.6 s, that of all 10 s: RLD decodes for long
    with storm.flying("P-RLD-MD") as flight:
        flight.wait_each("five tokens", has_tokens(5), timeout_s=60)
        sessions = {pod: system.engine_state("RLD", pod)["running"] for pod in system.pods("RLD")}
        victim = max(sessions, key=lambda pod: sessions[pod])
        assert sessions[victim] >= 1, f"no stream is at an RLD: {sessions}"
        killed = Killed(system, system.clusters.a, NAMESPACE, victim)
        answers = flight.finish(FINISH_S)
    system.note(f"{victim} killed with {sessions[victim]} sessions; longest gap {longest_gap_ms(answers):.0f} ms")
    storm.check(answers)
    assert "relay-decode" in roles_that_failed(answers), "the kill hit no stream"
    wan.set(mbps=100)
    killed.wait_whole()


def test_the_md_pod_is_killed_while_it_decodes(system: System, oracle: Oracle) -> None:
    wait_main_decode_used(system, oracle)
    storm = Storm(system, oracle, STREAMS, prompt_tokens=300, max_tokens=300)
    with storm.flying("P-MD") as flight:
        flight.wait_each("decoding at MD", has_tokens(10, last="MD"), timeout_s=60)
        (victim,) = system.pods("MD")
        killed = Killed(system, system.clusters.b, MEMBER_NAMESPACE, victim)
        answers = flight.finish(FINISH_S)
    system.note(f"{victim} killed; longest gap {longest_gap_ms(answers):.0f} ms")
    storm.check(answers)
    assert "main-decode" in roles_that_failed(answers), "the kill hit no stream"
    killed.wait_whole()
    wait_main_decode_used(system, oracle)


def test_the_link_is_cut_for_twenty_seconds(system: System, oracle: Oracle, wan: Wan) -> None:
    wait_main_decode_used(system, oracle)
    storm = Storm(system, oracle, STREAMS, prompt_tokens=300, max_tokens=300)
    during = Storm(system, oracle, 2, prompt_tokens=100, max_tokens=30)
    with storm.flying("P-MD") as flight:
        flight.wait_each("decoding at MD", has_tokens(10, last="MD"), timeout_s=60)
        with wan.partitioned():
            cut = time.monotonic()
            meanwhile = during.run()
            time.sleep(max(0.0, cut + LINK_OUTAGE_S - time.monotonic()))
            lasted_s = time.monotonic() - cut
        answers = flight.finish(FINISH_S)
    system.note(
        f"the line was cut for {lasted_s:.1f} s; longest gap {longest_gap_ms(answers):.0f} ms; "
        f"new requests meanwhile: {[(one.pipeline, one.headers.get('x-pdd-reason')) for one in meanwhile]}"
    )
    storm.check(answers)
    system.note(f"whole again after {system.wait_whole(WHOLE_S):.0f} s")
    wait_main_decode_used(system, oracle)


def test_the_gateway_pod_is_killed_while_tokens_cross(system: System, oracle: Oracle) -> None:
    wait_main_decode_used(system, oracle)
    storm = Storm(system, oracle, STREAMS, prompt_tokens=300, max_tokens=300)
    with storm.flying("P-MD") as flight:
        flight.wait_each("decoding at MD", has_tokens(10, last="MD"), timeout_s=60)
        killed = Killed(system, system.clusters.a, NAMESPACE, f"{LINK}-gateway-0")
        answers = flight.finish(FINISH_S)
    system.note(f"the gateway killed; longest gap {longest_gap_ms(answers):.0f} ms")
    storm.check(answers)
    killed.wait_whole()
    wait_main_decode_used(system, oracle)


@pytest.mark.timeout(600, func_only=True)
def test_the_operator_is_gone_for_a_minute(system: System, oracle: Oracle) -> None:
    storm = Storm(system, oracle, 3, prompt_tokens=300, max_tokens=100)
    a, b = system.clusters.a, system.clusters.b
    batches = 0
    with operator_gone(system):
        gone = time.monotonic()
        # Somebody changes things that the operator looks after, in both clusters.
        a.kubectl("-n", NAMESPACE, "scale", "statefulset", f"{NAME}-relay-decode", "--replicas=1")
        b.kubectl("-n", MEMBER_NAMESPACE, "delete", "configmap", f"{NAME}-endpoint-config")
        while time.monotonic() < gone + OUTAGE_S:
            storm.run()
            batches += 1
        assert system.get("statefulset", f"{NAME}-relay-decode")["spec"]["replicas"] == 1, "who repaired it?"
    system.note(f"{batches} batches of {len(storm.requests)} streams while the operator was away")
    assert batches >= 3
    wait_for(
        "RLD has its replicas again",
        lambda: system.get("statefulset", f"{NAME}-relay-decode")["spec"]["replicas"] == 2,
        timeout_s=60,
    )
    wait_for(
        "B has its ConfigMap again",
        lambda: system.get("configmap", f"{NAME}-endpoint-config", MEMBER_NAMESPACE, b),
        timeout_s=60,
    )
    system.note(f"whole again after {system.wait_whole(WHOLE_S):.0f} s")


@pytest.mark.timeout(600, func_only=True)
def test_the_api_server_of_b_is_gone_for_a_minute(system: System, oracle: Oracle) -> None:
    storm = Storm(system, oracle, 3, prompt_tokens=300, max_tokens=100)
    main_decoded = 0
    try:
        with api_server_down(system.clusters.b):
            gone = time.monotonic()
            # A's half still converges: a change of the spec that needs A alone is carried out.
            system.patch("pdd", NAME, {"spec": {"roles": {"relayDecode": {"replicas": 1}}}})
            wait_for(
                "A follows its spec without B",
                lambda: system.get("statefulset", f"{NAME}-relay-decode")["spec"]["replicas"] == 1,
                timeout_s=30,
            )
            told = system.wait_condition("MembersReachable", "False", timeout_s=OUTAGE_S)
            system.note(f"status after {time.monotonic() - gone:.0f} s: {told['reason']}: {told['message']}")
            assert told["reason"] in ("Unreachable", "MemberLost"), told
            while time.monotonic() < gone + OUTAGE_S:
                answers = storm.run()
                main_decoded += sum(answer.trace["producers"].get("MD", 0) for answer in answers)
    finally:
        system.patch("pdd", NAME, {"spec": {"roles": {"relayDecode": {"replicas": 2}}}})
    assert main_decoded > 0, "MD runs without its API server, and nobody used it"
    system.note(f"whole again after {system.wait_whole(WHOLE_S):.0f} s")
    system.wait_condition("MembersReachable", "True", timeout_s=30)


@contextmanager
def operator_gone(system: System) -> Iterator[None]:
    """The operator's pod is killed and held away inside the block."""
    a, deployment = system.clusters.a, f"deployment/{install.OPERATOR}"
    words = ("-n", install.OPERATOR_NAMESPACE)

    def pods() -> list[str]:
        listing = json.loads(
            a.kubectl(*words, "get", "pods", "-l", f"app.kubernetes.io/name={install.OPERATOR}", "-o", "json")
        )
        return [pod["metadata"]["name"] for pod in listing["items"]]

    before = pods()
    assert before, "no operator runs that could be killed"
    a.kubectl(*words, "scale", deployment, "--replicas=0")
    try:
        for pod in before:
            a.kubectl(*words, "delete", "pod", pod, "--grace-period=0", "--force", "--ignore-not-found")
        wait_for("the operator gone", lambda: not pods(), timeout_s=30)
        yield
    finally:
        a.kubectl(*words, "scale", deployment, "--replicas=1")
        a.kubectl(*words, "rollout", "status", deployment, "--timeout=120s", timeout_s=130)
