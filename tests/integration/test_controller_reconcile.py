"""The whole controller without kopf, an API server for each cluster: convergence, drift, deletion, races, faults."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from tests.integration.controller_api import FakeApi, until
from tests.unit.controller.samples import DEPLOYMENT, IMAGES, LINK, merged

from pdd.common.clock import rfc3339
from pdd.common.tasks import cancel, spawn
from pdd.controller import member as member_module
from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.resources import PDDDEPLOYMENTS, PDDLINKS
from pdd.controller.lifecycle import FINALIZER, Wait, deployment_pass, end_deployment, end_link, link_pass, live_loop
from pdd.controller.metrics import Heartbeat
from pdd.controller.runtime import Runtime
from pdd.controller.settings import Settings

NS = "models"
SETTINGS = Settings(IMAGES, resync_s=5.0, deletion_deadline_s=300.0, gateway_poll_s=0.2)
NODE = {
    "metadata": {"name": "node-a"},
    "spec": {"podCIDRs": ["10.244.0.0/16"]},
    "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.3"}], "conditions": []},
}
IN_B = ["pdd-anchor-11111111", "pdd-anchor-22222222", "tiny-endpoint-config"]


@dataclass
class World:
    """Two clusters and the operator's runtime. `start` runs a daemon as kopf would."""

    a: FakeApi
    b: FakeApi
    rt: Runtime
    events: list[tuple[str, str, str]] = field(default_factory=list)
    tasks: dict[str, Any] = field(default_factory=dict)
    stop: bool = False

    def emit(self, type_: str, reason: str, message: str) -> None:
        self.events.append((type_, reason, message))

    def credentials(self, token: str = "t1") -> None:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.b.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        data = {"kubeconfig": base64.b64encode(yaml.safe_dump(config).encode()).decode()}
        self.a.add("secrets", {"metadata": {"name": "site-b", "namespace": NS}, "data": data})

    def create(self, plural: str, base: dict[str, Any], *, finalizer: bool = True, **over: Any) -> dict[str, Any]:
        obj = merged(base, over)
        obj["metadata"] = {**obj["metadata"], "finalizers": [FINALIZER] if finalizer else []}
        return self.a.add(plural, obj)

    def start(self, plural: str, obj: dict[str, Any]) -> None:
        resource, one_pass = (PDDLINKS, link_pass) if plural == "pddlinks" else (PDDDEPLOYMENTS, deployment_pass)
        name = obj["metadata"]["name"]
        self.tasks[name] = spawn(
            live_loop(self.rt, resource, one_pass, obj, stopped=lambda: self.stop, sleep=self._sleep), name=name
        )

    async def _sleep(self, event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def link(self, **over: Any) -> dict[str, Any]:
        obj = self.create("pddlinks", LINK, **over)
        self.start("pddlinks", obj)
        return obj

    def deployment(self, **over: Any) -> dict[str, Any]:
        obj = self.create("pdddeployments", DEPLOYMENT, **over)
        self.start("pdddeployments", obj)
        return obj

    def condition(self, plural: str, name: str, type_: str) -> tuple[str, str, str]:
        obj = self.a.get(plural, NS, name) or {}
        for c in (obj.get("status") or {}).get("conditions") or ():
            if c["type"] == type_:
                return c["status"], c["reason"], c["message"]
        return "", "", ""

    def node_port(self) -> None:
        """What Kubernetes does with a Service of type NodePort."""
        service = self.a.get("services", NS, "site-b-gateway-line")
        assert service is not None
        service["spec"]["ports"][0]["nodePort"] = 31443
        self.a.add("services", service)

    async def both(self) -> None:
        """Everything of one link and one deployment is in both clusters."""
        self.credentials()
        self.link()
        self.deployment()
        await until(lambda: self.a.get("services", NS, "site-b-gateway-line"))
        self.node_port()
        await until(lambda: "tiny-main-decode" in self.b.names("statefulsets"))
        await until(lambda: "tiny-router" in self.a.names("deployments"))

    async def end(self, plural: str, name: str, timeout_s: float = 20.0) -> None:
        """Delete as kopf would: mark it, stop the daemon, call the handler until it is done, drop the finalizer."""
        step: Callable[..., Awaitable[Wait | None]] = end_link if plural == "pddlinks" else end_deployment
        obj = self.a.get(plural, NS, name)
        assert obj is not None
        obj["metadata"].setdefault("deletionTimestamp", "2026-12-01T00:00:00Z")
        self.a.add(plural, obj)
        await asyncio.wait([self.tasks[name]], timeout=timeout_s)
        async with asyncio.timeout(timeout_s):
            while await step(self.rt, self.a.get(plural, NS, name), self.emit) is not None:  # noqa: ASYNC110  as kopf does
                await asyncio.sleep(0.02)
        self.a.remove(plural, NS, name)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(member_module, "CREDENTIALS_REREAD_S", 0.1)
    monkeypatch.setattr(member_module, "PROBE_TIMEOUT_S", 0.3)
    real = member_module.parse_kubeconfig  # the fake servers speak plain http
    monkeypatch.setattr(
        member_module, "parse_kubeconfig", lambda text, *, where, allow_files: real(text, where=where, allow_files=True)
    )
    async with FakeApi().serving() as a, FakeApi().serving() as b:
        a.add("nodes", dict(NODE))
        rt = Runtime(ClusterAccess(a.url, token="t1"), SETTINGS, Heartbeat())
        rt.start()
        made = World(a, b, rt)
        await until(lambda: rt.store.synced)
        try:
            yield made
        finally:
            made.stop = True
            await cancel(*made.tasks.values())
            await made.rt.stop()


async def test_all_objects_come_into_both_clusters(world: World) -> None:
    await world.both()
    assert world.a.names("statefulsets") == ["site-b-gateway", "tiny-prefill", "tiny-relay-decode"]
    assert world.a.names("secrets") == ["site-b", "site-b-ca", "site-b-gateway-tls", "tiny-router-config"]
    assert world.b.names("configmaps") == IN_B and world.b.names("secrets") == ["site-b-endpoint-tls"]
    gateway = world.a.get("pddlinks", NS, "site-b")
    assert gateway and gateway["status"]["gateway"]["address"] == "172.18.0.3:31443"


async def test_rest_is_quiet(world: World) -> None:
    """Converged objects cause no write, and the status is written once and then left alone."""
    await world.both()
    await until(lambda: world.condition("pdddeployments", "tiny", "Planned")[0] == "True")
    await asyncio.sleep(0.3)  # what is on its way may arrive
    for api in (world.a, world.b):
        api.calls.clear()
    for _ in range(5):
        world.rt.wake_all()
        await asyncio.sleep(0.05)
    writes = [c for api in (world.a, world.b) for c in api.calls if not c.startswith("GET")]
    assert writes == []


async def test_drift_is_repaired_in_both_clusters(world: World) -> None:
    await world.both()
    world.a.remove("services", NS, "tiny-prefill")
    scaled = world.b.get("statefulsets", "pdd", "tiny-main-decode")
    assert scaled is not None
    world.b.add("statefulsets", merged(scaled, {"spec": {"replicas": 0}}))
    await until(lambda: "tiny-prefill" in world.a.names("services"))
    await until(lambda: world.b.objects[("statefulsets", "pdd", "tiny-main-decode")]["spec"]["replicas"] == 1)


async def test_no_longer_wanted_objects_go(world: World) -> None:
    await world.both()
    link = world.a.get("pddlinks", NS, "site-b")
    assert link is not None
    exposure = {"type": "ClusterIP", "advertise": {"host": "gw.example"}}
    world.a.add("pddlinks", merged(link, {"spec": {"gateway": {"exposure": exposure}}}))
    await until(lambda: "site-b-gateway-line" not in world.a.names("services"))


async def test_cluster_a_converges_while_b_is_silent(world: World) -> None:
    world.b.silent = True
    world.credentials()
    world.link()
    world.deployment()
    await until(lambda: "tiny-router" in world.a.names("deployments"))
    await until(lambda: world.condition("pdddeployments", "tiny", "MembersReachable")[:2] == ("False", "Unreachable"))
    world.b.silent = False
    await until(lambda: world.a.get("services", NS, "site-b-gateway-line"))
    world.node_port()
    await until(lambda: "tiny-main-decode" in world.b.names("statefulsets"))


async def test_link_that_does_not_exist_is_told_and_healed(world: World) -> None:
    world.deployment()
    await until(lambda: world.condition("pdddeployments", "tiny", "Planned")[1] == "LinkNotFound")
    assert world.a.names("statefulsets") == []
    world.credentials()
    world.link()
    await until(lambda: "tiny-prefill" in world.a.names("statefulsets"))


async def test_wrong_credentials_are_a_condition_that_says_what_to_do(world: World) -> None:
    world.credentials("wrong")
    world.link()
    world.deployment()
    await until(lambda: world.condition("pddlinks", "site-b", "MembersReachable")[1] == "CredentialsInvalid")
    await until(lambda: world.condition("pdddeployments", "tiny", "MembersReachable")[1] == "CredentialsInvalid")
    assert "pdd link create" in world.condition("pddlinks", "site-b", "MembersReachable")[2]


async def test_a_problem_in_the_spec_keeps_what_runs(world: World) -> None:
    await world.both()
    live = world.a.get("pdddeployments", NS, "tiny")
    assert live is not None
    world.a.add("pdddeployments", merged(live, {"spec": {"linkRef": {"name": "typo"}}}))
    await until(lambda: world.condition("pdddeployments", "tiny", "Planned")[1] == "LinkNotFound")
    assert "tiny-prefill" in world.a.names("statefulsets")


async def test_deletion_cleans_both_clusters(world: World) -> None:
    await world.both()
    await world.end("pdddeployments", "tiny")
    await world.end("pddlinks", "site-b")
    assert world.a.names("statefulsets") == world.b.names("statefulsets") == []
    assert world.b.names("configmaps") == world.b.names("secrets") == []
    assert world.a.names("secrets") == ["site-b"], "the user's own Secret stays"
    assert world.rt.links == {} and world.rt.seats == {}


async def test_foreign_objects_survive_a_deletion(world: World) -> None:
    await world.both()
    labels = {
        "app.kubernetes.io/managed-by": "pdd-operator",
        "pdd.dev/owner-uid": "22222222-bbbb",
        "pdd.dev/link-uid": "other",
    }
    world.b.add("configmaps", {"metadata": {"name": "of-another-link", "namespace": "pdd", "labels": labels}})
    world.b.add("configmaps", {"metadata": {"name": "not-ours", "namespace": "pdd"}})
    await world.end("pdddeployments", "tiny")
    assert {"of-another-link", "not-ours"} <= set(world.b.names("configmaps"))


async def test_object_of_our_name_that_is_not_ours_is_left_alone(world: World) -> None:
    world.a.add("services", {"metadata": {"name": "tiny-router", "namespace": NS}, "spec": {"mine": True}})
    world.credentials()
    world.link()
    world.deployment()
    await until(lambda: world.condition("pdddeployments", "tiny", "Progressing")[1] == "Conflict")
    assert world.a.objects[("services", NS, "tiny-router")]["spec"] == {"mine": True}
    assert "tiny-prefill" in world.a.names("statefulsets"), "the rest goes on"


async def test_delete_with_b_gone_waits_then_lets_go_and_is_swept(world: World) -> None:
    """karmada#3740, kubefed#603: bounded, with an Event that lists what is left; exactly that is swept later."""
    await world.both()
    world.b.add("configmaps", {"metadata": {"name": "not-ours", "namespace": "pdd"}})
    world.b.silent = True
    state = world.rt.links[LINK["metadata"]["uid"]]
    state.member._law = member_module.HealthLaw(lost_after_s=0.3, probe_suspect_every_s=0.1, probe_lost_max_s=0.1)
    state.member.recheck()
    await until(lambda: state.member.client is None)
    obj = world.a.get("pdddeployments", NS, "tiny")
    assert obj is not None
    obj["metadata"]["deletionTimestamp"] = rfc3339(datetime.now(UTC))
    world.a.add("pdddeployments", obj)
    await until(lambda: world.tasks["tiny"].done())
    wait = await end_deployment(world.rt, world.a.objects[("pdddeployments", NS, "tiny")], world.emit)
    assert wait is not None and "cannot be cleaned" in wait.message and world.a.names("deployments") == []
    assert world.condition("pdddeployments", "tiny", "Progressing")[1] == "CleanupBlocked"
    late = merged(obj, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert await end_deployment(world.rt, late, world.emit) is None
    assert world.events[-1][1] == "LeftInB" and "StatefulSet/tiny-main-decode" in world.events[-1][2]
    world.a.remove("pdddeployments", NS, "tiny")
    assert "tiny-main-decode" in world.b.names("statefulsets")
    world.b.silent = False
    await until(lambda: "tiny-main-decode" not in world.b.names("statefulsets"))
    await until(lambda: world.b.names("configmaps") == ["not-ours", "pdd-anchor-11111111"])


async def test_never_connected_b_does_not_hold_up_a_deletion(world: World) -> None:
    world.credentials("wrong")
    world.link()
    world.deployment()
    await until(lambda: world.condition("pdddeployments", "tiny", "MembersReachable")[1] == "CredentialsInvalid")
    await world.end("pdddeployments", "tiny")
    assert world.a.names("deployments") == [] and world.events == []


async def test_refused_delete_in_b_keeps_the_finalizer(world: World) -> None:
    """kopf#932: the finalizer must not go while B still has objects."""
    await world.both()
    world.b.forbidden = {("DELETE", "statefulsets")}
    obj = world.a.get("pdddeployments", NS, "tiny")
    assert obj is not None
    obj["metadata"]["deletionTimestamp"] = "2999-12-01T00:00:00Z"
    world.a.add("pdddeployments", obj)
    await until(lambda: world.tasks["tiny"].done())
    for _ in range(3):
        assert await end_deployment(world.rt, obj, world.emit) is not None
    world.b.forbidden = set()
    assert await end_deployment(world.rt, obj, world.emit) is None
    assert world.b.names("statefulsets") == []


async def test_link_in_use_is_not_deleted(world: World) -> None:
    await world.both()
    obj = world.a.get("pddlinks", NS, "site-b")
    assert obj is not None
    obj["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    world.a.add("pddlinks", obj)
    await until(lambda: world.tasks["site-b"].done())
    wait = await end_link(world.rt, obj, world.emit)
    assert wait is not None and "models/tiny" in wait.message
    assert world.condition("pddlinks", "site-b", "Progressing")[1] == "InUse"
    assert "site-b-gateway" in world.a.names("statefulsets")


async def test_nothing_is_made_before_the_finalizer_is_there(world: World) -> None:
    world.credentials()
    world.link()
    obj = world.deployment(finalizer=False)
    await asyncio.sleep(0.3)  # time in which a hasty controller would have written
    assert world.a.names("deployments") == []
    world.a.add("pdddeployments", merged(obj, {"metadata": {"finalizers": [FINALIZER]}}))
    await until(lambda: "tiny-router" in world.a.names("deployments"))


@pytest.mark.parametrize("after_calls", [1, 3, 6, 9])
async def test_object_that_vanishes_while_it_is_made_leaves_nothing(world: World, after_calls: int) -> None:
    """Create followed at once by delete, with the finalizer lost: the status write meets 404, everything goes again."""
    world.credentials()
    world.link()
    await until(lambda: world.a.get("services", NS, "site-b-gateway-line"))
    world.node_port()
    await until(lambda: "site-b-endpoint-tls" in world.b.names("secrets"))
    world.a.calls.clear()
    world.deployment()
    await until(lambda: len([c for c in world.a.calls if "tiny" in c]) >= after_calls)
    world.a.remove("pdddeployments", NS, "tiny")
    await until(lambda: world.tasks["tiny"].done())
    assert world.a.names("deployments") == [] and "tiny-prefill" not in world.a.names("statefulsets")
    assert world.b.names("statefulsets") == [] and world.b.names("configmaps") == ["pdd-anchor-11111111"]


async def test_certificates_survive_a_cluster_that_cannot_be_read(world: World) -> None:
    await world.both()
    before = {name: world.a.objects[("secrets", NS, name)]["data"] for name in ("site-b-ca", "site-b-gateway-tls")}
    world.a.forbidden = {("GET", "secrets")}
    world.a.break_watches()
    for _ in range(5):
        world.rt.wake_all()
        await asyncio.sleep(0.05)
    world.a.forbidden = set()
    assert before == {name: world.a.objects[("secrets", NS, name)]["data"] for name in before}


async def test_fresh_operator_takes_over_without_a_write(world: World) -> None:
    """The operator was away: the new one finds everything as it should be."""
    await world.both()
    await until(lambda: world.condition("pdddeployments", "tiny", "Progressing")[1] == "RollingOut")
    await asyncio.sleep(0.3)  # what is on its way may arrive
    world.stop = True
    world.rt.wake_all()
    await asyncio.wait(list(world.tasks.values()), timeout=3)
    await world.rt.stop()
    for api in (world.a, world.b):
        api.calls.clear()
    world.stop, world.tasks = False, {}
    world.rt = Runtime(ClusterAccess(world.a.url, token="t1"), SETTINGS, Heartbeat())
    world.rt.start()
    for plural, name in (("pddlinks", "site-b"), ("pdddeployments", "tiny")):
        world.start(plural, world.a.objects[(plural, NS, name)])
    await until(lambda: any("GET statefulsets" in c for c in world.b.calls))
    await asyncio.sleep(0.5)  # time in which it would repeat its writes
    writes = [c for api in (world.a, world.b) for c in api.calls if not c.startswith("GET") and "/status" not in c]
    assert writes == []
