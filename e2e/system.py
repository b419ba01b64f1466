"""The system under test: PDD on both clusters, installed once for the session and shared by the tests.

With clusters that stay up (`python -m e2e.clusters up`) the installation stays too, and the next session upgrades it.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e import install, paths
from e2e.client import Client
from e2e.clusters import Clusters
from e2e.dump import build_dump
from e2e.kind import ClusterRef
from e2e.oracle import Oracle, running_oracle
from e2e.shell import CommandFailed, say, wait_for

SAMPLE = paths.REPOSITORY / "e2e" / "samples" / "system.yaml"
NAMESPACE = "pdd-e2e"
MEMBER_NAMESPACE = "pdd-e2e"
OTHER_NAMESPACE = "pdd-e2e-other"
NAME = "tiny"
LINK = "site-b"
MODEL = "tiny"
LINE_MBPS = 100
ROLES = {"P": "prefill", "RLD": "relay-decode", "MD": "main-decode"}
READY_S = 180
Object = dict[str, Any]
NOTES = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class System:
    """The PDDDeployment `tiny` behind `url`, and the two clusters that it runs on."""

    clusters: Clusters
    url: str
    notes: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return Client(self.url)

    def site(self, role: str) -> ClusterRef:
        """The cluster where engines of P, RLD or MD run."""
        return self.clusters.b if role == "MD" else self.clusters.a

    def namespace(self, role: str) -> str:
        return MEMBER_NAMESPACE if role == "MD" else NAMESPACE

    def get(self, kind: str, name: str, namespace: str = NAMESPACE, site: ClusterRef | None = None) -> Object:
        """One object. Raises CommandFailed if it is not there."""
        found: Object = json.loads(
            (site or self.clusters.a).kubectl("-n", namespace, "get", kind, name, "-o", "json", timeout_s=15)
        )
        return found

    def patch(self, kind: str, name: str, change: Mapping[str, Any], namespace: str = NAMESPACE) -> None:
        """Merges `change` into an object of cluster A."""
        self.clusters.a.kubectl("-n", namespace, "patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def condition(self, type_: str, kind: str = "pdd", name: str = NAME, namespace: str = NAMESPACE) -> Object:
        """One condition; {} while it is not there."""
        status = self.get(kind, name, namespace).get("status") or {}
        return next((one for one in status.get("conditions") or [] if one["type"] == type_), {})

    def wait_condition(
        self, type_: str, status: str, timeout_s: float, *, reason: str = "", kind: str = "pdd", name: str = NAME,
        namespace: str = NAMESPACE,
    ) -> Object:  # fmt: skip
        """Waits until the condition has this status (and reason) for the object's newest generation."""
        seen: list[str] = []

        def reached() -> Object | None:
            found = self.get(kind, name, namespace)
            conditions = (found.get("status") or {}).get("conditions") or []
            one = next((each for each in conditions if each["type"] == type_), None)
            seen[:] = [json.dumps(one)]
            if one is None or one["status"] != status or (reason and one["reason"] != reason):
                return None
            return one if one.get("observedGeneration", 0) >= found["metadata"]["generation"] else None

        try:
            return wait_for(f"{kind}/{name}: {type_}={status} {reason}".rstrip(), reached, timeout_s)
        except CommandFailed as error:
            raise CommandFailed(f"{error}; it is {seen[0] if seen else 'absent'}") from error

    def wait_whole(self, timeout_s: float = READY_S) -> float:
        """Waits until nothing is missing: Ready, mode Normal, all engines ready, the MD connected, the router ready.

        Returns the seconds that it took. Raises CommandFailed with what is still missing.
        """
        started = time.monotonic()
        missing: list[str] = []

        def whole() -> bool:
            missing[:] = self.missing()
            return not missing

        try:
            wait_for("the system whole", whole, timeout_s, every_s=0.5)
        except CommandFailed as error:
            raise CommandFailed(f"{error}; missing: {'; '.join(missing)}") from error
        return time.monotonic() - started

    def missing(self) -> list[str]:
        """What is not as it should be, in words; empty when all is well."""
        found = self.get("pdd", NAME)
        status = found.get("status") or {}
        out = []
        ready: Object = next((one for one in status.get("conditions") or [] if one["type"] == "Ready"), {})
        if ready.get("status") != "True" or ready.get("observedGeneration", 0) < found["metadata"]["generation"]:
            out.append(f"Ready is {json.dumps(ready)}")
        if status.get("mode") != "Normal":
            out.append(f"mode is {status.get('mode')}")
        roles = status.get("roles") or []
        if len(roles) != len(ROLES):
            out.append(f"status names {len(roles)} roles")
        out += [
            f"{role['role']} has {role.get('ready')} of {role['desired']}: {role.get('message', '')}"
            for role in roles
            if role.get("ready") != role["desired"] or role.get("updated") != role["desired"]
        ]
        states = [(member["name"], member["state"]) for member in self.members()]
        if not states or any(state != "connected" for _, state in states):
            out.append(f"members of the gateway: {states}")
        try:
            router = self.client.request("GET", "/ready")
            if router.status != 200:
                out.append(f"the router is not ready: {router.status} {router.text[:200]}")
        except OSError as error:
            out.append(f"the router does not answer: {error}")
        return out

    def pods(self, role: str) -> list[str]:
        """Names of the role's pods that are ready."""
        listing = json.loads(
            self.site(role).kubectl(
                "-n", self.namespace(role), "get", "pods", "-o", "json", "-l",
                f"app.kubernetes.io/component={ROLES[role]},app.kubernetes.io/instance={NAME}",
            )
        )  # fmt: skip
        return sorted(pod["metadata"]["name"] for pod in listing["items"] if is_ready(pod))

    def pod_uid(self, site: ClusterRef, namespace: str, pod: str) -> str:
        return str(self.get("pod", pod, namespace, site)["metadata"]["uid"])

    def wait_replaced(self, site: ClusterRef, namespace: str, pod: str, uid: str, timeout_s: float = 120) -> None:
        """Waits until the pod of that name is another one than `uid`, and ready."""

        def replaced() -> bool:
            found = self.get("pod", pod, namespace, site)
            return found["metadata"]["uid"] != uid and is_ready(found)

        wait_for(f"{pod}: a new pod, ready", replaced, timeout_s)

    def engine_state(self, role: str, pod: str) -> Object:
        """The engine's /pdd/state, by way of the API server."""
        path = f"/api/v1/namespaces/{self.namespace(role)}/pods/{pod}:8000/proxy/pdd/state"
        found: Object = json.loads(self.site(role).kubectl("get", "--raw", path, timeout_s=15))
        return found

    def members(self) -> list[Object]:
        """The gateway's view of the MDs; [] while it does not answer."""
        path = f"/api/v1/namespaces/{NAMESPACE}/services/{LINK}-gateway:8081/proxy/members"
        try:
            found: list[Object] = json.loads(self.clusters.a.kubectl("get", "--raw", path, timeout_s=15))["members"]
        except CommandFailed:
            return []
        return [member for member in found if member["deployment"] == NAME and member["namespace"] == NAMESPACE]

    def bulk_bytes(self) -> int:
        """Bytes of KV that the gateway has sent to the MDs: TCP payload of the engines' connections, each byte once."""
        members = self.members()
        if not members:
            raise CommandFailed("the gateway names no member: nothing counts the line's bytes")
        return sum(int(member["bulk_bytes_total"]) for member in members)

    def line_port(self) -> int:
        """The node port of A that B's endpoints dial."""
        service = self.get("service", f"{LINK}-gateway-line")
        return int(service["spec"]["ports"][0]["nodePort"])

    def note(self, line: str) -> None:
        """A figure worth seeing although the test passed: it stands in pytest's summary, with the test's name."""
        print(line)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].removesuffix(" (call)")
        self.notes.append(f"{test}: {line}")

    def dump(self) -> str:
        """The whole picture, for a failed test."""
        in_a = (install.OPERATOR_NAMESPACE, NAMESPACE, OTHER_NAMESPACE)
        return build_dump(self.clusters, in_a, (MEMBER_NAMESPACE,))


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def install_system(clusters: Clusters) -> System:
    """Both charts, the member Secret, the sample; waits until all is up. Raises CommandFailed."""
    started = time.monotonic()
    if os.environ.get("PDD_E2E_AS_IS") != "1":
        _install(clusters)
    service = wait_for("the router's Service", functools.partial(_router_service, clusters), timeout_s=60)
    system = System(clusters, f"http://{clusters.a.node_ip}:{service['spec']['ports'][0]['nodePort']}")
    system.wait_whole()
    say(f"PDD is up at {system.url} after {time.monotonic() - started:.0f} s")
    return system


def _install(clusters: Clusters) -> None:
    work = install.Installer(clusters)
    tag = install.pin_images(clusters)
    for namespace in (NAMESPACE, OTHER_NAMESPACE):
        work.namespace(clusters.a, namespace)
    work.member(MEMBER_NAMESPACE)
    work.operator(tag)
    work.link_secret(LINK, NAMESPACE, MEMBER_NAMESPACE)
    work.apply(clusters.a, NAMESPACE, SAMPLE)


def _router_service(clusters: Clusters) -> Object | None:
    found: Object = json.loads(clusters.a.kubectl("-n", NAMESPACE, "get", "service", f"{NAME}-router", "-o", "json"))
    return found if found["spec"]["ports"][0].get("nodePort") else None


@pytest.fixture(scope="session")
def system(request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[System]:
    """PDD on both clusters, whole. The line has the rate that the sample states."""
    clusters.wan.heal()
    clusters.wan.set(mbps=LINE_MBPS)
    try:
        made = install_system(clusters)
    except CommandFailed as error:
        dump = build_dump(clusters, (install.OPERATOR_NAMESPACE, NAMESPACE), (MEMBER_NAMESPACE,))
        pytest.fail(f"{error}\n{dump}", pytrace=False)
    request.config.stash[NOTES] = made.notes
    yield made


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One engine alone, on this host."""
    with running_oracle() as engine:
        yield engine


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> None:
    """A test that uses the system starts when all of it is well, whatever the test before did."""
    if "system" in request.fixturenames:
        request.getfixturevalue("system").wait_whole()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test of the system shows both clusters as they were."""
    report = yield
    made = getattr(item, "funcargs", {}).get("system")
    if report.when == "call" and report.failed and isinstance(made, System):
        file = _write_dump(item.name, made.dump)
        report.sections.append(("both clusters", f"{file.read_text()[-20000:]}\n(all of it: {file})"))
    return report


def _write_dump(name: str, build: Callable[[], str]) -> Path:
    folder = paths.state() / "dumps"
    folder.mkdir(exist_ok=True)
    file = folder / f"{''.join(c if c.isalnum() or c in '-_' else '-' for c in name)}.txt"
    file.write_text(build())
    return file
