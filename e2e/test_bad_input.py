"""Wrong specs: refused at admission with the field's name, or a condition that says what to do."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.objects import apply, build_deployment, build_link, delete
from e2e.shell import CommandFailed
from e2e.system import NAMESPACE, OTHER_NAMESPACE, Object, System

CONDITION_S = 10
UNREACHABLE = "https://127.0.0.1:1"

BAD_DEPLOYMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "no link": ({"linkRef": None}, 'missing required field "linkRef"'),
    "negative context": ({"model": {"maxContextTokens": -1}}, "spec.model.maxContextTokens"),
    "context as text": ({"model": {"maxContextTokens": "many"}}, "spec.model.maxContextTokens"),
    "fraction of tokens": ({"model": {"maxContextTokens": 100.5}}, "spec.model.maxContextTokens"),
    "unknown engine": ({"engine": {"type": "tensorrt"}}, "spec.engine.type"),
    "no replicas": ({"roles": {"prefill": {"replicas": 0}}}, "spec.roles.prefill.replicas"),
    "unknown handoff": ({"router": {"handoffMode": "Later"}}, "spec.router.handoffMode"),
    "unknown field": ({"roles": {"prefil": {"replicas": 1}}}, 'unknown field "prefil"'),
    "least above most": (
        {"roles": {"relayDecode": {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}}},
        "spec.roles.relayDecode",
    ),
    "a node port without its type": ({"router": {"service": {"type": "ClusterIP", "nodePort": 31000}}}, "nodePort"),
    "KV law unknown": ({"engine": {"type": "vllm", "args": []}}, "spec.model.kv.bytesPerToken"),
    "cache below one context": ({"engine": {"kvBlocks": 8}}, "spec.engine.kvBlocks"),
    "goals crossed": ({"sla": {"ttftP90Ms": 900, "ttftP99Ms": 100}}, "spec.sla.ttftP90Ms"),
}

BAD_LINKS: dict[str, tuple[dict[str, Any], str]] = {
    "no credentials": ({"member": {"kubeconfigSecretRef": None}}, "spec.member"),
    "too many streams": ({"streams": 99}, "spec.streams"),
    "no capacity": ({"line": {"capacityMbps": 0}}, "spec.line.capacityMbps"),
    "unknown transport": ({"transport": "Pigeon"}, "spec.transport"),
    "not a namespace": ({"member": {"namespace": "Not A Name"}}, "spec.member.namespace"),
}


@pytest.mark.parametrize("case", BAD_DEPLOYMENTS)
def test_a_wrong_deployment_is_refused_and_its_field_named(system: System, case: str) -> None:
    change, field = BAD_DEPLOYMENTS[case]
    with pytest.raises(CommandFailed) as refusal:
        apply(system.clusters.a, build_deployment("wrong", change))
    assert field in str(refusal.value), str(refusal.value)
    assert not exists(system, "pdd", "wrong")


@pytest.mark.parametrize("case", BAD_LINKS)
def test_a_wrong_link_is_refused_and_its_field_named(system: System, case: str) -> None:
    change, field = BAD_LINKS[case]
    with pytest.raises(CommandFailed) as refusal:
        apply(system.clusters.a, build_link("wrong", change))
    assert field in str(refusal.value), str(refusal.value)
    assert not exists(system, "pddlink", "wrong")


def test_the_link_of_a_running_deployment_cannot_be_changed(system: System) -> None:
    with pytest.raises(CommandFailed, match=r"spec\.linkRef\.name cannot be changed"):
        system.patch("pdd", "tiny", {"spec": {"linkRef": {"name": "another"}}})


def test_a_model_larger_than_the_accelerators_says_how_many_it_needs(system: System) -> None:
    change = {
        "model": {"parametersMillions": 70_000, "kv": {"bytesPerToken": 327_680}},
        "roles": {"prefill": {"accelerator": {"type": "H20", "count": 1}}},
    }
    with applied(system, build_deployment("too-large", change)):
        planned = system.wait_condition("Planned", "False", CONDITION_S, name="too-large")
        assert planned["reason"] == "ModelTooLarge", planned
        assert "spec.roles.prefill.accelerator.count" in planned["message"]
        assert "at least 2" in planned["message"], planned
        system.wait_condition("Ready", "False", CONDITION_S, name="too-large")
        assert not exists(system, "statefulset", "too-large-prefill"), "engines were made that cannot hold the model"


def test_a_link_that_does_not_exist_is_named_and_waited_for(system: System) -> None:
    deployment = build_deployment("no-link", {"linkRef": {"name": "nowhere"}})
    link = build_link("nowhere", {"member": {"kubeconfigSecretRef": {"name": "not-there-yet"}}})
    try:
        apply(system.clusters.a, deployment)
        planned = system.wait_condition("Planned", "False", CONDITION_S, name="no-link")
        assert planned["reason"] == "LinkNotFound", planned
        assert "spec.linkRef.name" in planned["message"]
        assert "nowhere" in planned["message"]
        assert "kubectl get pddlink" in planned["message"], "it does not say what to do"
        apply(system.clusters.a, link)  # comes later: the deployment notices without being touched
        system.wait_condition("Planned", "True", CONDITION_S, name="no-link")
    finally:
        delete(system.clusters.a, deployment)
        delete(system.clusters.a, link)


def test_a_link_that_does_not_allow_the_namespace_says_whom_to_ask(system: System) -> None:
    link = build_link("private", {"member": {"kubeconfigSecretRef": {"name": "not-there"}}, "allowedNamespaces": []})
    change = {"linkRef": {"name": "private", "namespace": NAMESPACE}}
    with applied(system, link), applied(system, build_deployment("outsider", change, OTHER_NAMESPACE)):
        planned = system.wait_condition("Planned", "False", CONDITION_S, name="outsider", namespace=OTHER_NAMESPACE)
        assert planned["reason"] == "NamespaceNotAllowed", planned
        assert "spec.allowedNamespaces" in planned["message"]


def test_a_link_without_its_secret_says_how_to_make_it(system: System) -> None:
    with applied(system, build_link("no-secret", {"member": {"kubeconfigSecretRef": {"name": "missing-secret"}}})):
        condition = wait_not_ready(system, "no-secret")
        assert condition["reason"] == "SecretNotFound", condition
        assert "missing-secret" in condition["message"]
        assert "pdd link create" in condition["message"], "it does not say what to do"


def test_wrong_credentials_for_b_say_what_to_renew(system: System) -> None:
    kubeconfig = build_kubeconfig(f"https://{system.clusters.b.node_ip}:6443", member_ca(system), "not-a-token")
    link = build_link("wrong-token", {"member": {"kubeconfigSecretRef": {"name": "wrong-token"}}})
    with applied(system, build_secret("wrong-token", kubeconfig)), applied(system, link):
        condition = wait_not_ready(system, "wrong-token")
        assert condition["reason"] == "CredentialsInvalid", condition
        assert "pdd link create" in condition["message"], "it does not say what to do"


def test_a_server_that_nobody_listens_on_is_named(system: System) -> None:
    link = build_link("wrong-server", {"member": {"kubeconfigSecretRef": {"name": "wrong-server"}}})
    secret = build_secret("wrong-server", build_kubeconfig(UNREACHABLE, member_ca(system), "a-token"))
    with applied(system, secret), applied(system, link):
        condition = wait_not_ready(system, "wrong-server")
        assert condition["reason"] in ("Unreachable", "Connecting"), condition
        assert UNREACHABLE in condition["message"] or "127.0.0.1" in condition["message"], condition


def test_bad_neighbours_leave_the_system_alone(system: System) -> None:
    """After all of the above the shared deployment has not changed its generation, nor lost a pod."""
    assert system.missing() == []


def wait_not_ready(system: System, name: str) -> Object:
    """The link's Ready condition once it says False with a reason of its own, within the bound."""
    started = time.monotonic()
    system.wait_condition("Ready", "False", CONDITION_S, kind="pddlink", name=name)
    while True:
        found = system.condition("Ready", "pddlink", name)
        busy = found["reason"] in ("FirstObservation", "Connecting", "Applying")
        if not busy or time.monotonic() - started > CONDITION_S:
            return found
        time.sleep(0.3)


def exists(system: System, kind: str, name: str) -> bool:
    return bool(system.clusters.a.kubectl("-n", NAMESPACE, "get", kind, name, "--ignore-not-found", "-o", "name"))


@contextmanager
def applied(system: System, item: Object) -> Iterator[None]:
    """The object exists inside the block; afterwards it is gone, finalizers included."""
    apply(system.clusters.a, item)
    try:
        yield
    finally:
        delete(system.clusters.a, item)


def member_ca(system: System) -> str:
    """B's CA as its kubeconfig has it, base64."""
    raw = system.clusters.b.kubectl("config", "view", "--raw", "-o", "json")
    return str(json.loads(raw)["clusters"][0]["cluster"]["certificate-authority-data"])


def build_kubeconfig(server: str, ca_data: str, token: str) -> str:
    cluster = {"name": "b", "cluster": {"server": server, "certificate-authority-data": ca_data}}
    user = {"name": "u", "user": {"token": token}}
    context = {"name": "c", "context": {"cluster": "b", "user": "u"}}
    document: Object = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
    return json.dumps({**document, "clusters": [cluster], "users": [user], "contexts": [context]})


def build_secret(name: str, kubeconfig: str) -> Object:
    data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": "Opaque",
        "data": data,
    }
