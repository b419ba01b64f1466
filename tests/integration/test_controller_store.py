"""The client and the store of live objects, against an API server: what a write, a delete and a broken watch leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.controller_api import FakeApi, until

from pdd.common.errors import TimedOut
from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.errors import AccessDenied, Unauthorized
from pdd.controller.kube.resources import CONFIGMAPS, SERVICES
from pdd.controller.kube.store import ObjectStore, Source


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi().serving() as made:
        yield made


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[KubeClient]:
    made = KubeClient(ClusterAccess(api.url, token="t1"), timeout_s=1.0)
    yield made
    await made.aclose()


@pytest.fixture
async def store(client: KubeClient) -> AsyncIterator[ObjectStore]:
    made = ObjectStore(client, [Source(CONFIGMAPS, "ours=yes")], index_label="owner")
    yield made
    await made.stop()


def cm(name: str, owner: str = "o1") -> dict[str, Any]:
    meta = {"name": name, "namespace": "n", "labels": {"ours": "yes", "owner": owner}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def test_store_is_not_synced_before_a_list_has_succeeded(api: FakeApi, store: ObjectStore) -> None:
    api.forbidden = {("GET", "configmaps")}
    store.start()
    with pytest.raises(AccessDenied):
        await store.wait_synced(0.3)
    assert not store.synced and not store.fresh


async def test_broken_watch_keeps_what_was_known_and_catches_up(api: FakeApi, store: ObjectStore) -> None:
    api.add("configmaps", cm("a"))
    store.start()
    await store.wait_synced(5)
    api.tokens = set()
    api.break_watches()
    await until(lambda: not store.fresh)
    assert store.get("ConfigMap", "n", "a") is not None and store.synced
    api.remove("configmaps", "n", "a")
    api.add("configmaps", cm("b"))
    api.tokens = {"t1"}
    await until(lambda: store.fresh and [o["metadata"]["name"] for o in store.indexed("o1")] == ["b"])


async def test_late_answer_of_a_write_does_not_bring_a_deleted_object_back(api: FakeApi, store: ObjectStore) -> None:
    store.start()
    await store.wait_synced(5)
    answer = dict(api.add("configmaps", cm("a")))
    answer["metadata"] = dict(answer["metadata"])
    await until(lambda: store.get("ConfigMap", "n", "a") is not None)
    api.remove("configmaps", "n", "a")
    await until(lambda: store.get("ConfigMap", "n", "a") is None)
    store.put(answer)
    assert store.get("ConfigMap", "n", "a") is None


async def test_index_follows_a_changed_owner(api: FakeApi, store: ObjectStore) -> None:
    store.start()
    await store.wait_synced(5)
    api.add("configmaps", cm("a"))
    await until(lambda: len(store.indexed("o1")) == 1)
    api.add("configmaps", cm("a", owner="o2"))
    await until(lambda: len(store.indexed("o2")) == 1)
    assert store.indexed("o1") == []


async def test_delete_spares_an_object_that_was_made_anew(api: FakeApi, client: KubeClient) -> None:
    api.add("configmaps", cm("a"))
    assert await client.delete(CONFIGMAPS, "n", "a", uid="of an earlier one") is True
    assert api.names("configmaps") == ["a"]
    assert await client.delete(CONFIGMAPS, "n", "a") is True and api.names("configmaps") == []
    assert await client.delete(CONFIGMAPS, "n", "a") is True, "gone is done"


async def test_delete_that_waits_for_a_finalizer_is_not_done(api: FakeApi, client: KubeClient) -> None:
    obj = cm("a")
    obj["metadata"]["finalizers"] = ["someone/else"]
    api.add("configmaps", obj)
    assert await client.delete(CONFIGMAPS, "n", "a") is False


async def test_silent_server_is_given_up_in_time(api: FakeApi, client: KubeClient) -> None:
    api.silent = True
    with pytest.raises(TimedOut, match=r"within 0\.2 s"):
        await client.get(SERVICES, "n", "x", timeout_s=0.2)


async def test_refused_fixed_token_is_told_after_one_call(api: FakeApi, client: KubeClient) -> None:
    api.tokens = set()
    with pytest.raises(Unauthorized):
        await client.get(SERVICES, "n", "x")


async def test_rotated_token_file_heals_within_the_call(api: FakeApi, tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("t1")
    client = KubeClient(ClusterAccess(api.url, token_file=str(file)), timeout_s=1.0)
    try:
        assert await client.get_or_none(SERVICES, "n", "x") is None
        api.tokens = {"t2"}
        file.write_text("t2")
        assert await client.get_or_none(SERVICES, "n", "x") is None
    finally:
        await client.aclose()
