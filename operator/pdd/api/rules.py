"""Rules that join several fields, once: each has its CEL expression (for the API server), the same as a Python
predicate (for `pdd validate`), and a message that names the field and the remedy.

A test evaluates both on the same examples. `path` is the place in the schema; `self` is the JSON object there, with
defaults applied; `field` is the culprit relative to it. Fields whose default is empty may be absent: hence `has`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Predicate = Callable[[Any, Any], bool]
"""(self, oldSelf) -> holds. oldSelf is None for rules that are no transition rules."""

DEPLOYMENT = "PDDDeployment"
LINK = "PDDLink"
REFERENCE_MAX_CONTEXT_TOKENS = 32768
LEFT_ENGINES = "engines would be left behind in the old cluster; create another PDDDeployment"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a kind. transition: holds between the old and the new object; skipped on create."""

    kind: str
    path: tuple[str, ...]
    field: str
    cel: str
    holds: Predicate
    message: str
    transition: bool = False


def _root_name(kind: str) -> Rule:
    def holds(self: Any, _: Any) -> bool:
        name = str(self.get("metadata", {}).get("name", ""))
        edges = name[:1].isalpha() and name[-1:] != "-"
        return 0 < len(name) <= 63 and edges and all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in name)

    return Rule(
        kind,
        (),
        "",
        "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        holds,
        "metadata.name must be at most 63 characters of a-z, 0-9 and '-', beginning with a letter: "
        "Services bear this name",
    )


def _immutable(kind: str, path: tuple[str, ...], why: str) -> Rule:
    """Stands at the field itself: comparing two texts that are reached through objects exceeds CEL's cost budget."""
    return Rule(
        kind,
        path,
        "",
        "self == oldSelf",
        lambda self, old: bool(self == old),
        f"{'.'.join(path)} cannot be changed: {why}",
        transition=True,
    )


def _kv_blocks(where: tuple[str, ...]) -> Rule:
    dotted = ".".join(("self", *where))
    shown = ".".join(("spec", *where, "kvBlocks"))

    def holds(self: Any, _: Any) -> bool:
        node: Any = self
        for key in where:
            node = node.get(key, {})
        blocks = node.get("kvBlocks")
        return blocks is None or blocks * self["model"]["kv"]["blockSize"] >= self["model"]["maxContextTokens"]

    guards = [f"!has({'.'.join(('self', *where[:n]))})" for n in range(2, len(where) + 1)]
    return Rule(
        DEPLOYMENT,
        ("spec",),
        "." + ".".join((*where, "kvBlocks")),
        " || ".join(
            [
                *guards,
                f"!has({dotted}.kvBlocks)",
                f"{dotted}.kvBlocks * self.model.kv.blockSize >= self.model.maxContextTokens",
            ]
        ),
        holds,
        f"{shown} x spec.model.kv.blockSize must hold at least spec.model.maxContextTokens; raise {shown}",
    )


def _env(path: tuple[str, ...]) -> Rule:
    def holds(self: Any, _: Any) -> bool:
        return all("valueFrom" not in e or not e.get("value") for e in self.get("env", ()))

    return Rule(
        DEPLOYMENT,
        path,
        ".env",
        "!has(self.env) || self.env.all(e, !has(e.valueFrom) || !has(e.value) || e.value == '')",
        holds,
        f"{'.'.join(path)}.env: give either value or valueFrom for a variable, not both",
    )


def _accelerator(role: str) -> Rule:
    path = ("spec", "roles", role, "accelerator")
    return Rule(
        DEPLOYMENT,
        path,
        ".count",
        "!has(self.type) || self.type == '' || self.count > 0",
        lambda self, _: not self.get("type") or self["count"] > 0,
        f"{'.'.join(path)}.count must be at least 1 when a type is given",
    )


def _only_gateway(field: str) -> Rule:
    return Rule(
        LINK,
        ("spec",),
        f".{field}",
        f"self.transport == 'Gateway' || !has(self.{field})",
        lambda self, _: self["transport"] == "Gateway" or field not in self,
        f"spec.{field} has a meaning only with spec.transport Gateway; remove it or change the transport",
    )


def _replicas_within(replicas: int, autoscaling: Any) -> bool:
    """An upside-down range is another rule's business."""
    if autoscaling is None:
        return True
    low, high = autoscaling["minReplicas"], autoscaling["maxReplicas"]
    return bool(low > high or low <= replicas <= high)


SOURCES = ("image", "persistentVolumeClaim", "hostPath", "uri")

RULES: tuple[Rule, ...] = (
    _root_name(DEPLOYMENT),
    _immutable(DEPLOYMENT, ("spec", "linkRef", "name"), LEFT_ENGINES),
    _immutable(DEPLOYMENT, ("spec", "linkRef", "namespace"), LEFT_ENGINES),
    Rule(
        DEPLOYMENT,
        ("spec", "linkRef"),
        ".namespace",
        "has(self.namespace) == has(oldSelf.namespace)",
        lambda self, old: ("namespace" in self) == ("namespace" in old),
        f"spec.linkRef.namespace cannot be added or removed: {LEFT_ENGINES}",
        transition=True,
    ),
    _immutable(
        DEPLOYMENT,
        ("spec", "engine", "type"),
        "engines of two types cannot exchange KV; create another PDDDeployment",
    ),
    Rule(
        DEPLOYMENT,
        ("spec",),
        ".model.kv.bytesPerToken",
        "self.engine.type == 'reference' || has(self.model.kv.bytesPerToken)",
        lambda self, _: self["engine"]["type"] == "reference" or "bytesPerToken" in self["model"]["kv"],
        "spec.model.kv.bytesPerToken is needed unless spec.engine.type is reference: "
        "2 x layers x KV heads x head size x bytes of a value",
    ),
    Rule(
        DEPLOYMENT,
        ("spec",),
        ".model.maxContextTokens",
        f"self.engine.type != 'reference' || self.model.maxContextTokens <= {REFERENCE_MAX_CONTEXT_TOKENS}",
        lambda self, _: (
            self["engine"]["type"] != "reference" or self["model"]["maxContextTokens"] <= REFERENCE_MAX_CONTEXT_TOKENS
        ),
        f"spec.model.maxContextTokens must be at most {REFERENCE_MAX_CONTEXT_TOKENS} with spec.engine.type reference",
    ),
    Rule(
        DEPLOYMENT,
        ("spec",),
        ".model.kv.blockSize",
        "self.engine.type != 'vllm' || self.model.kv.blockSize % 16 == 0",
        lambda self, _: self["engine"]["type"] != "vllm" or self["model"]["kv"]["blockSize"] % 16 == 0,
        "spec.model.kv.blockSize must be a multiple of 16 with spec.engine.type vllm (32 on CPUs)",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "model"),
        ".kv.blockSize",
        "self.kv.blockSize <= self.maxContextTokens",
        lambda self, _: self["kv"]["blockSize"] <= self["maxContextTokens"],
        "spec.model.kv.blockSize must not exceed spec.model.maxContextTokens",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "model"),
        ".source",
        "!has(self.source) || ["
        + ", ".join(f"has(self.source.{name})" for name in SOURCES)
        + "].filter(given, given).size() <= 1",
        lambda self, _: sum(name in self.get("source", {}) for name in SOURCES) <= 1,
        "spec.model.source: give at most one of " + ", ".join(SOURCES),
    ),
    _kv_blocks(("engine",)),
    *(_kv_blocks(("roles", role, "engine")) for role in ("prefill", "relayDecode", "mainDecode")),
    _env(("spec", "engine")),
    *(_env(("spec", "roles", role, "engine")) for role in ("prefill", "relayDecode", "mainDecode")),
    *(_accelerator(role) for role in ("prefill", "relayDecode", "mainDecode")),
    Rule(
        DEPLOYMENT,
        ("spec", "roles", "relayDecode", "autoscaling"),
        ".minReplicas",
        "self.minReplicas <= self.maxReplicas",
        lambda self, _: self["minReplicas"] <= self["maxReplicas"],
        "spec.roles.relayDecode.autoscaling.minReplicas must not exceed maxReplicas",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "roles", "relayDecode"),
        ".replicas",
        "!has(self.autoscaling) || self.autoscaling.minReplicas > self.autoscaling.maxReplicas "
        "|| (self.autoscaling.minReplicas <= self.replicas && self.replicas <= self.autoscaling.maxReplicas)",
        lambda self, _: _replicas_within(self["replicas"], self.get("autoscaling")),
        "spec.roles.relayDecode.replicas (where scaling starts) must lie within "
        "autoscaling.minReplicas and autoscaling.maxReplicas",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "router", "service"),
        ".nodePort",
        "!has(self.nodePort) || self.type != 'ClusterIP'",
        lambda self, _: "nodePort" not in self or self["type"] != "ClusterIP",
        "spec.router.service.nodePort needs spec.router.service.type NodePort or LoadBalancer",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "router", "limits"),
        ".firstTokenTimeoutS",
        "self.firstTokenTimeoutS <= self.requestTimeoutS",
        lambda self, _: self["firstTokenTimeoutS"] <= self["requestTimeoutS"],
        "spec.router.limits.firstTokenTimeoutS must not exceed requestTimeoutS",
    ),
    Rule(
        DEPLOYMENT,
        ("spec", "sla"),
        ".ttftP90Ms",
        "!has(self.ttftP90Ms) || !has(self.ttftP99Ms) || self.ttftP90Ms <= self.ttftP99Ms",
        lambda self, _: "ttftP90Ms" not in self or "ttftP99Ms" not in self or self["ttftP90Ms"] <= self["ttftP99Ms"],
        "spec.sla.ttftP90Ms must not exceed spec.sla.ttftP99Ms",
    ),
    _root_name(LINK),
    Rule(
        LINK,
        ("spec", "member"),
        "",
        "has(self.kubeconfigSecretRef) != has(self.exec)",
        lambda self, _: ("kubeconfigSecretRef" in self) != ("exec" in self),
        "spec.member needs exactly one of kubeconfigSecretRef and exec; `pdd link create` makes the Secret",
    ),
    _immutable(
        LINK,
        ("spec", "member", "namespace"),
        "objects would be left behind in cluster B; create another PDDLink",
    ),
    _immutable(LINK, ("spec", "transport"), "engines use it; create another PDDLink"),
    _only_gateway("gateway"),
    _only_gateway("endpoint"),
    Rule(
        LINK,
        ("spec",),
        ".lanes.bulk.rateCapMbps",
        "!has(self.lanes.bulk) || !has(self.lanes.bulk.rateCapMbps) "
        "|| self.lanes.bulk.rateCapMbps <= self.line.capacityMbps",
        lambda self, _: self["lanes"].get("bulk", {}).get("rateCapMbps", 0) <= self["line"]["capacityMbps"],
        "spec.lanes.bulk.rateCapMbps must not exceed spec.line.capacityMbps",
    ),
    Rule(
        LINK,
        ("spec", "tls"),
        ".renewBeforeDays",
        "self.renewBeforeDays < self.certificateDays",
        lambda self, _: self["renewBeforeDays"] < self["certificateDays"],
        "spec.tls.renewBeforeDays must be smaller than spec.tls.certificateDays",
    ),
    Rule(
        LINK,
        ("spec", "gateway", "exposure"),
        ".nodePort",
        "!has(self.nodePort) || self.type != 'ClusterIP'",
        lambda self, _: "nodePort" not in self or self["type"] != "ClusterIP",
        "spec.gateway.exposure.nodePort needs spec.gateway.exposure.type NodePort or LoadBalancer",
    ),
    Rule(
        LINK,
        ("spec", "gateway", "exposure"),
        ".advertise",
        "self.type != 'ClusterIP' || has(self.advertise)",
        lambda self, _: self["type"] != "ClusterIP" or "advertise" in self,
        "spec.gateway.exposure.advertise is needed with type ClusterIP: say which address cluster B dials",
    ),
    Rule(
        LINK,
        ("spec", "gateway", "exposure"),
        ".loadBalancerClass",
        "!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",
        lambda self, _: "loadBalancerClass" not in self or self["type"] == "LoadBalancer",
        "spec.gateway.exposure.loadBalancerClass needs spec.gateway.exposure.type LoadBalancer",
    ),
)


def rules_of(kind: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if rule.kind == kind)
