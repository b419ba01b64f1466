"""Each rule's CEL and its Python predicate say the same, on examples that keep and that break it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from tests.unit.api.samples import deployment_object, link_object, merged

from pdd.api.config import EngineType
from pdd.api.crd import build_crd
from pdd.api.rules import REFERENCE_MAX_CONTEXT_TOKENS, RULES, Rule, rules_of
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.engine.reference import model_info

Json = dict[str, Any]
OVER = {"minReplicas": 4, "maxReplicas": 2}

# What breaks each rule, alone; the part after '|' tells rules of one message prefix apart.
BREAKS: dict[str, tuple[Json, Json | None]] = {
    "metadata.name": (deployment_object(name="9lives"), None),
    "spec.linkRef.name cannot": (deployment_object({"linkRef": {"name": "c"}}), deployment_object()),
    "spec.linkRef.namespace cannot be changed": (
        deployment_object({"linkRef": {"namespace": "x"}}),
        deployment_object({"linkRef": {"namespace": "y"}}),
    ),
    "spec.linkRef.namespace cannot be added": (
        deployment_object({"linkRef": {"namespace": "x"}}),
        deployment_object(),
    ),
    "spec.engine.type cannot": (
        deployment_object({"engine": {"type": "vllm"}, "model": {"kv": {"bytesPerToken": 1}}}),
        deployment_object(),
    ),
    "spec.model.kv.bytesPerToken": (deployment_object({"engine": {"type": "sglang"}}), None),
    "spec.model.maxContextTokens": (deployment_object({"model": {"maxContextTokens": 32769}}), None),
    "spec.model.kv.blockSize must be a multiple": (
        deployment_object({"engine": {"type": "vllm"}, "model": {"kv": {"bytesPerToken": 1, "blockSize": 24}}}),
        None,
    ),
    "spec.model.kv.blockSize must not": (
        deployment_object({"model": {"maxContextTokens": 16, "kv": {"blockSize": 17}}}),
        None,
    ),
    "spec.model.source": (
        deployment_object({"model": {"source": {"uri": "hf://a/b", "hostPath": {"path": "/m"}}}}),
        None,
    ),
    "spec.engine.kvBlocks": (deployment_object({"engine": {"kvBlocks": 1023}}), None),
    "spec.engine.env": (
        deployment_object({"engine": {"env": [{"name": "A", "value": "x", "valueFrom": _ref}]}})
        if (_ref := {"secretKeyRef": {"name": "s", "key": "k"}})
        else {},
        None,
    ),
    "spec.roles.relayDecode.autoscaling.minReplicas": (
        deployment_object({"roles": {"relayDecode": {"replicas": 3, "autoscaling": OVER}}}),
        None,
    ),
    "spec.roles.relayDecode.replicas": (
        deployment_object({"roles": {"relayDecode": {"replicas": 5, "autoscaling": {"maxReplicas": 4}}}}),
        None,
    ),
    "spec.router.service.nodePort": (deployment_object({"router": {"service": {"nodePort": 30000}}}), None),
    "spec.router.limits.firstTokenTimeoutS": (
        deployment_object({"router": {"limits": {"firstTokenTimeoutS": 601}}}),
        None,
    ),
    "spec.sla.ttftP90Ms": (deployment_object({"sla": {"ttftP90Ms": 2, "ttftP99Ms": 1}}), None),
    "spec.member needs": (link_object({"member": {"kubeconfigSecretRef": None}}), None),
    "spec.member.namespace cannot": (link_object({"member": {"namespace": "other"}}), link_object()),
    "spec.transport cannot": (link_object({"transport": "Direct"}), link_object()),
    "spec.gateway has": (link_object({"transport": "Direct", "gateway": {}}), None),
    "spec.endpoint has": (link_object({"transport": "Direct", "endpoint": {}}), None),
    "spec.lanes.bulk.rateCapMbps": (link_object({"lanes": {"bulk": {"rateCapMbps": 101}}}), None),
    "spec.tls.renewBeforeDays": (link_object({"tls": {"certificateDays": 30}}), None),
    "spec.gateway.exposure.nodePort": (
        link_object({"gateway": {"exposure": {"type": "ClusterIP", "nodePort": 31000, "advertise": {"host": "a"}}}}),
        None,
    ),
    "spec.gateway.exposure.advertise": (link_object({"gateway": {"exposure": {"type": "ClusterIP"}}}), None),
    "spec.gateway.exposure.loadBalancerClass": (
        link_object({"gateway": {"exposure": {"loadBalancerClass": "metal"}}}),
        None,
    ),
}
for _role in ("prefill", "relayDecode", "mainDecode"):
    _role_path = f"spec.roles.{_role}"
    BREAKS[f"{_role_path}.engine.kvBlocks"] = (
        deployment_object({"roles": {_role: {"engine": {"kvBlocks": 1023}}}}),
        None,
    )
    BREAKS[f"{_role_path}.engine.env"] = (
        deployment_object({"roles": {_role: {"engine": {"env": [{"name": "A", "value": "x", "valueFrom": _ref}]}}}}),
        None,
    )
    BREAKS[f"{_role_path}.accelerator.count"] = (
        deployment_object({"roles": {_role: {"accelerator": {"type": "H20"}}}}),
        None,
    )

# Valid objects that come near the edge of rules.
KEEPS: tuple[Json, ...] = (
    deployment_object(),
    deployment_object(name="a" * 63),
    deployment_object({"linkRef": {"namespace": "links"}}),
    deployment_object({"engine": {"kvBlocks": 1024}, "model": {"source": {"uri": "hf://a/b"}}}),
    deployment_object({"engine": {"env": [{"name": "A", "valueFrom": _ref}, {"name": "B", "value": "x"}]}}),
    deployment_object({"engine": {"env": [{"name": "A", "value": "", "valueFrom": _ref}]}}),
    deployment_object(
        {"roles": {"prefill": {"accelerator": {"type": "H20", "count": 1}, "engine": {"kvBlocks": 2000}}}}
    ),
    deployment_object({"roles": {"relayDecode": {"replicas": 2, "autoscaling": {"minReplicas": 2, "maxReplicas": 2}}}}),
    deployment_object({"router": {"service": {"type": "NodePort", "nodePort": 30000}}, "sla": {"ttftP90Ms": 5}}),
    deployment_object({"sla": {"ttftP90Ms": 5, "ttftP99Ms": 5}, "model": {"maxContextTokens": 32768}}),
    deployment_object({"engine": {"type": "vllm"}, "model": {"kv": {"bytesPerToken": 1, "blockSize": 32}}}),
    link_object(),
    link_object({"transport": "Direct"}),
    link_object({"lanes": {"bulk": {"rateCapMbps": 100}}, "gateway": {}, "endpoint": {}}),
    link_object({"gateway": {"exposure": {"type": "LoadBalancer", "loadBalancerClass": "metal", "nodePort": 31000}}}),
    link_object({"gateway": {"exposure": {"type": "ClusterIP", "advertise": {"host": "a"}}}}),
    link_object({"member": {"kubeconfigSecretRef": None, "exec": {"command": "x", "server": "https://b"}}}),
)


@cache
def program(cel: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(cel))


def cel_holds(rule: Rule, node: Any, old: Any) -> bool:
    values = {"self": json_to_cel(node)} | ({"oldSelf": json_to_cel(old)} if old is not None else {})
    return bool(program(rule.cel).evaluate(values))


def stored(obj: Json) -> Iterator[Json]:
    """An object as an API server holds it: schema defaults filled in; and as readers see it: empty defaults too."""
    yield fill(copy.deepcopy(obj), schema_of(obj["kind"]))
    model = PDDDeployment if obj["kind"] == "PDDDeployment" else PDDLink
    yield model.from_object(obj).to_object()


@cache
def schema_of(kind: str) -> Json:
    return build_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fill(node: Any, schema: Json) -> Any:
    """Structural defaulting: absent properties with a default are set, then filled themselves."""
    if isinstance(node, dict):
        for key, child in schema.get("properties", {}).items():
            if key not in node and "default" in child:
                node[key] = copy.deepcopy(child["default"])
            if key in node:
                fill(node[key], child)
    elif isinstance(node, list):
        for item in node:
            fill(item, schema.get("items", {}))
    return node


def at(obj: Json | None, path: tuple[str, ...]) -> Any:
    node: Any = obj
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def broken_rules(obj: Json, old: Json | None) -> set[str]:
    """Messages of the rules that obj breaks; fails if CEL and predicate disagree."""
    broken = set()
    for rule in rules_of(obj["kind"]):
        node, before = at(obj, rule.path), at(old, rule.path)
        if node is None or (rule.transition and before is None):
            continue
        by_cel = cel_holds(rule, node, before if rule.transition else None)
        assert by_cel == rule.holds(node, before), (rule.cel, node)
        if not by_cel:
            broken.add(rule.message)
    return broken


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.message[:50]}")
def test_each_rule_is_broken_by_an_example_that_breaks_no_other(rule: Rule) -> None:
    if rule.kind == "PDDLink" and not rule.path:
        new, old = link_object(name="Upper"), None
    else:
        prefix = max((key for key in BREAKS if rule.message.startswith(key)), key=len)
        new, old = BREAKS[prefix]
    for form, before in zip(stored(new), stored(old) if old else (None, None), strict=True):
        assert broken_rules(form, before) == {rule.message}


@pytest.mark.parametrize("obj", KEEPS, ids=range(len(KEEPS)))
def test_valid_objects_keep_all_rules_and_may_be_written_again(obj: Json) -> None:
    for form in stored(obj):
        assert broken_rules(form, copy.deepcopy(form)) == set()


def test_an_unchanged_object_may_be_applied_with_and_without_empty_defaults() -> None:
    bare, full = stored(deployment_object())
    assert broken_rules(bare, full) == set()
    assert broken_rules(full, bare) == set()


def test_messages_name_a_field_and_fit_into_the_schema() -> None:
    for rule in RULES:
        assert rule.message.startswith(("spec.", "metadata."))
        assert "\n" not in rule.message and len(rule.message) < 2048


def test_the_longest_context_of_the_reference_engine_is_the_engines_own() -> None:
    assert model_info()["max_context"] == REFERENCE_MAX_CONTEXT_TOKENS
    assert merged({"engine": {"type": "reference"}}, {})["engine"]["type"] == EngineType.REFERENCE.value
