"""The member connection against an API server of B: credentials, rotation, silence, identity, watches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml
from tests.integration.controller_api import FakeApi, until

from pdd.controller import member as module
from pdd.controller.health import HealthLaw, MemberState
from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.client import KubeClient
from pdd.controller.labels import OWNER_UID
from pdd.controller.member import Member, MemberTarget
from pdd.controller.runtime import SITE_B_SOURCES

LAW = HealthLaw(
    lost_after_s=0.4, recover_after_s=0.1, probe_every_s=0.05, probe_suspect_every_s=0.05, probe_lost_max_s=0.1
)
TARGET = MemberTarget("pdd", secret_namespace="models", secret_name="site-b")


@dataclass
class Setup:
    a: FakeApi
    b: FakeApi
    member: Member
    events: list[Any]

    def credentials(self, token: str, server: str | None = None) -> None:
        """Write the Secret as `pdd link create` does."""
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server or self.b.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        data = {"kubeconfig": base64.b64encode(yaml.safe_dump(config).encode()).decode()}
        self.a.add("secrets", {"metadata": {"name": "site-b", "namespace": "models"}, "data": data})

    @property
    def state(self) -> MemberState:
        return self.member.view.health.state

    @property
    def reason(self) -> str:
        failure = self.member.view.health.failure
        return failure.reason if failure else ""


@pytest.fixture
async def setup(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(module, "CREDENTIALS_REREAD_S", 0.05)
    monkeypatch.setattr(module, "PROBE_TIMEOUT_S", 0.2)
    real = module.parse_kubeconfig  # the fake servers speak plain http
    monkeypatch.setattr(
        module, "parse_kubeconfig", lambda text, *, where, allow_files: real(text, where=where, allow_files=True)
    )
    async with contextlib.AsyncExitStack() as stack:
        a, b = (
            await stack.enter_async_context(FakeApi().serving()),
            await stack.enter_async_context(FakeApi().serving()),
        )
        home = KubeClient(ClusterAccess(a.url, token="t1"))
        events: list[Any] = []
        member = Member(
            "models/site-b", home, SITE_B_SOURCES, index_label=OWNER_UID, on_change=lambda: events.append("view"),
            on_object=lambda kind, obj: events.append((kind, obj["metadata"]["name"])), law=LAW,
        )  # fmt: skip
        made = Setup(a, b, member, events)
        member.start()
        try:
            yield made
        finally:
            await member.stop()
            await home.aclose()


async def test_connects_and_knows_the_clusters_identity(setup: Setup) -> None:
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    kube_system = setup.b.get("namespaces", "", "kube-system")
    assert kube_system and setup.member.view.identity == kube_system["metadata"]["uid"]
    assert setup.member.store is not None and setup.member.store.synced


async def test_missing_secret_says_how_to_make_it(setup: Setup) -> None:
    setup.member.configure(TARGET)
    await until(lambda: setup.reason == "SecretNotFound")
    failure = setup.member.view.health.failure
    assert failure and "pdd link create" in failure.message and setup.member.client is None
    setup.credentials("t1")
    await until(lambda: setup.state is MemberState.CONNECTED)


async def test_wrong_credentials_are_told_at_once_and_healed_by_right_ones(setup: Setup) -> None:
    setup.credentials("wrong")
    setup.member.configure(TARGET)
    await until(lambda: setup.reason == "CredentialsInvalid")
    assert setup.state is MemberState.LOST
    setup.credentials("t1")
    await until(lambda: setup.state is MemberState.CONNECTED)


async def test_drift_is_seen_after_the_old_token_was_revoked(setup: Setup) -> None:
    """karmada#7562: health was green, the watches were dead."""
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    setup.b.tokens = {"t2"}
    setup.b.break_watches()
    setup.credentials("t2")
    await until(lambda: setup.member.client is not None and setup.member.client.access.token == "t2")
    labels = {"app.kubernetes.io/managed-by": "pdd-operator", "pdd.dev/owner-uid": "u"}
    setup.b.add("statefulsets", {"metadata": {"name": "md", "namespace": "pdd", "labels": labels}})
    await until(lambda: ("MODIFIED", "md") in setup.events or ("ADDED", "md") in setup.events)


async def test_rotation_leaves_no_gap(setup: Setup) -> None:
    """Both tokens are valid for a while: the client is never None and the store never unsynced."""
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    setup.b.tokens = {"t1", "t2"}
    setup.credentials("t2")
    seen = []

    def swapped() -> bool:
        seen.append(setup.member.client is not None and setup.member.store is not None and setup.member.store.synced)
        return setup.member.client is not None and setup.member.client.access.token == "t2"

    await until(swapped)
    assert all(seen)


async def test_a_stop_in_the_middle_of_a_swap_leaves_no_connection(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    old = setup.member.client
    assert old is not None
    stop, stopping = module.ObjectStore.stop, asyncio.Event()

    async def slow(store: module.ObjectStore) -> None:
        stopping.set()
        await asyncio.sleep(0.3)
        await stop(store)

    monkeypatch.setattr(module.ObjectStore, "stop", slow)
    setup.b.tokens = {"t1", "t2"}
    setup.credentials("t2")
    await asyncio.wait_for(stopping.wait(), 5)
    await setup.member.stop()
    assert old.closed


async def test_broken_new_credentials_keep_the_old_connection(setup: Setup) -> None:
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    setup.credentials("nonsense")
    await until(lambda: setup.member.view.credentials_failure is not None)
    assert setup.state is MemberState.CONNECTED
    assert setup.member.client is not None and setup.member.client.access.token == "t1"


async def test_deleted_secret_does_not_end_a_working_connection(setup: Setup) -> None:
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    before = len(setup.b.calls)
    setup.a.remove("secrets", "models", "site-b")
    await until(lambda: len(setup.b.calls) > before + 4)
    assert setup.state is MemberState.CONNECTED


async def test_silent_server_is_suspect_then_lost_then_back(setup: Setup) -> None:
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    setup.b.silent = True
    await until(lambda: setup.state is MemberState.SUSPECT)
    assert setup.member.client is not None, "a blip is no reason to stop"
    await until(lambda: setup.state is MemberState.LOST)
    assert setup.member.client is None and setup.reason == "Unreachable"
    assert setup.member.store is not None, "what was known stays known"
    setup.b.silent = False
    await until(lambda: setup.state is MemberState.CONNECTED)


async def test_black_hole_at_the_first_connection_has_a_reason_in_time(setup: Setup) -> None:
    setup.b.silent = True
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.reason == "Unreachable", 2.0)
    assert setup.member.client is None


async def test_another_cluster_behind_the_address_is_not_written_to(setup: Setup) -> None:
    setup.credentials("t1")
    setup.member.configure(replace(TARGET, pinned_identity="the one we knew"))
    await until(lambda: setup.reason == "IdentityChanged")
    failure = setup.member.view.health.failure
    assert failure and "pdd.dev/accept-identity=" in failure.message and setup.member.client is None
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)


async def test_missing_right_names_the_chart(setup: Setup) -> None:
    setup.b.forbidden = {("GET", "configmaps")}
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.reason == "Forbidden")
    failure = setup.member.view.health.failure
    assert failure and "pdd-member" in failure.message


async def test_identity_that_may_not_be_read_is_noted_and_no_obstacle(setup: Setup) -> None:
    setup.b.forbidden = {("GET", "namespaces")}
    setup.credentials("t1")
    setup.member.configure(TARGET)
    await until(lambda: setup.state is MemberState.CONNECTED)
    assert "kube-system" in setup.member.view.identity_note
