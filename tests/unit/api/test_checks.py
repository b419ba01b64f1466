"""Sense checks: each finding names the field, what is wrong and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.samples import deployment, link

from pdd.api.accelerators import memory_mib
from pdd.api.checks import (
    Severity,
    check_deployment,
    check_engine,
    check_link,
    check_link_spec,
    check_memory,
    parse_quantity,
    weight_mib,
)
from pdd.api.conditions import Reason
from pdd.api.v1alpha1 import PDDDeployment

BIG = {
    "model": {"name": "big", "parametersMillions": 70_000, "kv": {"bytesPerToken": 327_680}},
    "engine": {"type": "vllm"},
}


def with_accelerators(type_: str, count: int, **more: object) -> dict[str, Any]:
    roles = {
        role: {"accelerator": {"type": type_, "count": count, **more}}
        for role in ("prefill", "relayDecode", "mainDecode")
    }
    return {**BIG, "roles": roles}


def test_a_sound_deployment_has_no_findings() -> None:
    assert check_deployment(deployment(), link()) == ()
    assert check_deployment(deployment(with_accelerators("H20", 4)), link()) == ()


def test_a_link_that_does_not_exist_is_named_with_what_to_do() -> None:
    (found,) = check_link(deployment(namespace="chat"), None)
    assert found.reason is Reason.LINK_NOT_FOUND
    assert "PDDLink b in namespace chat" in found.message and "kubectl get pddlink" in found.message
    assert check_deployment(deployment(), None)[0].reason is Reason.LINK_NOT_FOUND


def test_a_link_of_another_namespace_must_allow_ours() -> None:
    made = deployment({"linkRef": {"namespace": "links"}}, namespace="chat")
    (found,) = check_link(made, link(namespace="links"))
    assert found.reason is Reason.NAMESPACE_NOT_ALLOWED and "allowedNamespaces" in found.message
    assert check_link(made, link({"allowedNamespaces": ["chat"]}, namespace="links")) == ()


def test_a_model_larger_than_the_accelerators_says_how_many_it_needs() -> None:
    found = check_memory(deployment(with_accelerators("L4", 1)))
    assert [f.reason for f in found] == [Reason.MODEL_TOO_LARGE] * 3
    assert found[0].field == "spec.roles.prefill.accelerator.count" and found[0].value == "1"
    assert "130.4 GiB" in found[0].problem and "1 x L4" in found[0].problem
    assert "at least 7" in found[0].remedy
    assert check_memory(deployment(with_accelerators("L4", 7))) == ()


def test_a_context_that_fits_beside_the_weights_is_named() -> None:
    def with_context(tokens: int) -> PDDDeployment:
        spec = with_accelerators("L4", 7)
        return deployment({**spec, "model": {**spec["model"], "maxContextTokens": tokens}})

    (found, *_) = check_memory(with_context(65536))
    assert (found.reason, found.field) == (Reason.CONTEXT_TOO_LARGE, "spec.model.maxContextTokens")
    most = int(found.remedy.split("at most ")[1].split(",")[0])
    assert check_memory(with_context(most)) == ()
    assert check_memory(with_context(most + 4)) != ()


def test_only_the_role_that_is_too_small_is_named() -> None:
    spec = with_accelerators("H20", 4)
    spec["roles"]["relayDecode"]["accelerator"] = {"type": "T4", "count": 1}
    (found,) = check_memory(deployment(spec))
    assert found.field.startswith("spec.roles.relayDecode.")


def test_an_unlisted_accelerator_is_a_warning_until_its_memory_is_given() -> None:
    found = check_memory(deployment(with_accelerators("XPU-9", 4)))
    assert {f.severity for f in found} == {Severity.WARNING}
    assert "memoryMiB" in found[0].remedy
    assert check_memory(deployment(with_accelerators("XPU-9", 4, memoryMiB=100_000))) == ()
    tight = check_memory(deployment(with_accelerators("XPU-9", 1, memoryMiB=100_000)))
    assert tight[0].reason is Reason.MODEL_TOO_LARGE


def test_a_cpu_engine_is_held_against_its_memory_limit() -> None:
    roles = {"mainDecode": {"resources": {"limits": {"memory": "64Mi"}}}}
    (found,) = check_memory(deployment({"model": {"weightMiB": 65}, "roles": roles}))
    assert (found.reason, found.field) == (Reason.MODEL_TOO_LARGE, "spec.roles.mainDecode.resources.limits.memory")
    assert check_memory(deployment({"model": {"weightMiB": 64}, "roles": roles})) == ()
    assert check_memory(deployment({"model": {"weightMiB": 65}})) == ()


def test_sglang_is_refused_and_vllm_behind_a_proxy_too() -> None:
    sglang = deployment({"engine": {"type": "sglang"}, "model": {"kv": {"bytesPerToken": 1}}})
    assert check_engine(sglang, link())[0].reason is Reason.ENGINE_NOT_BUILT
    connect = link({"endpoint": {"capture": "Connect"}})
    assert "Redirect" in check_engine(deployment(BIG), connect)[0].message
    assert check_engine(deployment(), connect) == () and check_engine(deployment(BIG), None) == ()


def test_transport_direct_is_said_to_be_missing() -> None:
    assert check_link_spec(link()) == ()
    assert check_link_spec(link({"transport": "Direct"}))[0].reason is Reason.TRANSPORT_NOT_BUILT


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, None),
        ({"parametersMillions": 8192}, 15625),
        ({"parametersMillions": 1, "bitsPerWeight": 4}, 1),
        ({"parametersMillions": 70_000, "weightMiB": 40_000}, 40_000),
    ],
)
def test_the_size_of_the_weights(model: dict[str, int], expected: int | None) -> None:
    assert weight_mib(deployment({"model": model}).spec.model) == expected


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (3, 3),
        ("2", 2),
        ("1.5", 1),
        ("1500m", 1),
        ("1.5k", 1500),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("2T", 2 * 10**12),
    ],
)
def test_quantities(quantity: int | str, expected: int) -> None:
    assert parse_quantity(quantity) == expected


def test_what_is_no_quantity_is_refused() -> None:
    for text in ("", "Gi", "1e3", "-1", "1 Gi"):
        with pytest.raises(ValueError, match="quantity"):
            parse_quantity(text)


def test_names_of_accelerators_are_found_as_people_write_them() -> None:
    assert memory_mib("h20", None) == memory_mib("NVIDIA-H20", None) == 97871
    assert memory_mib("Ascend 910B", None) == 65536
    assert memory_mib("H20", 5) == 5 and memory_mib("", None) is None
