"""The resources: strict for people, tolerant for clusters, frozen, camelCase."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.unit.api.samples import deployment, deployment_object, link, link_object

from pdd.api.deployment import Role
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.errors import InvalidInput


def test_a_minimal_deployment_gets_its_defaults() -> None:
    spec = deployment().spec
    assert spec.model.max_context_tokens == 16384
    assert (spec.router.relay_threshold_ms, spec.router.one_shot_limit_tokens) == (200, 64)
    assert spec.roles.relay_decode.autoscaling is None
    assert link().spec.rate_cap_mbps == 100


def test_writing_and_reading_again_gives_the_same_object() -> None:
    original = deployment({"roles": {"relayDecode": {"autoscaling": {}}}, "model": {"weightMiB": 5}}, namespace="x")
    assert PDDDeployment.from_object(original.to_object()) == original
    one = link({"member": {"identity": {"kubeSystemUID": "7d0a0d5e-5d7e-4a42-9a53-8f0c0f6a2b11"}}})
    assert PDDLink.from_object(one.to_object()) == one
    assert one.to_object()["spec"]["member"]["identity"] == {"kubeSystemUID": "7d0a0d5e-5d7e-4a42-9a53-8f0c0f6a2b11"}


def test_an_unknown_key_is_an_error_for_people_and_ignored_from_clusters() -> None:
    obj = deployment_object({"router": {"newKnob": 1}})
    with pytest.raises(InvalidInput, match=r"spec\.router\.newKnob"):
        PDDDeployment.from_object(obj)
    assert PDDDeployment.from_cluster(obj).spec.router.replicas == 1


def test_values_are_frozen() -> None:
    with pytest.raises(ValidationError):
        deployment().spec.router.replicas = 5  # type: ignore[misc]


def test_a_role_knows_its_site_and_its_names() -> None:
    assert [(role.slug, role.site) for role in Role] == [("prefill", "A"), ("relay-decode", "A"), ("main-decode", "B")]
    assert {role.value for role in Role} == set(
        PDDDeployment.from_object(deployment_object()).to_object()["spec"]["roles"]
    )


def test_the_link_is_looked_for_in_the_deployments_own_namespace_unless_named() -> None:
    assert deployment(namespace="chat").link_key == ("chat", "b")
    assert deployment({"linkRef": {"namespace": "links"}}, namespace="chat").link_key == ("links", "b")


@pytest.mark.parametrize(
    ("allowed", "namespace", "expected"),
    [
        ([], "default", True),
        ([], "chat", False),
        (["chat"], "chat", True),
        (["*"], "any", True),
        (["chat"], "x", False),
    ],
)
def test_a_link_is_used_by_its_own_namespace_and_those_it_allows(
    allowed: list[str], namespace: str, expected: bool
) -> None:
    assert link({"allowedNamespaces": allowed}).allows(namespace) is expected


@pytest.mark.parametrize("quantity", [1, "500m", "1.5", "16Gi", "2T"])
def test_quantities_of_kubernetes_are_taken(quantity: int | str) -> None:
    made = deployment({"roles": {"prefill": {"resources": {"limits": {"cpu": quantity}}}}})
    assert made.role(Role.PREFILL).resources.limits["cpu"] == quantity


@pytest.mark.parametrize("quantity", [1.5, "3Gb", "", "-1", "1e3"])
def test_other_quantities_are_refused(quantity: float | str) -> None:
    obj = deployment_object({"roles": {"prefill": {"resources": {"limits": {"cpu": quantity}}}}})
    with pytest.raises(InvalidInput):
        PDDDeployment.from_object(obj)


def test_the_status_of_a_newer_operator_can_be_read() -> None:
    obj = link_object() | {
        "status": {
            "observedGeneration": 2,
            "novelty": True,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "extra": 1}],
            "member": {"state": "Connected", "kubeSystemUID": "x"},
        }
    }
    status = PDDLink.from_cluster(obj).status
    assert status is not None and status.member.kube_system_uid == "x" and status.conditions[0].reason == "Ready"
