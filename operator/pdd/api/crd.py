"""From the models to CustomResourceDefinitions. Pure.

pydantic's JSON schema is no structural schema: it has $ref, anyOf with null, const, numeric exclusiveMinimum, title
and additionalProperties: false. `to_structural` turns one into the other and refuses what it does not know.

Empty defaults ("", [], {}) are left out: readers put them in, and stored objects stay short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from pdd.api.rules import Rule, rules_of
from pdd.api.v1alpha1 import GROUP, PLURALS, VERSION, PDDDeployment, PDDLink, Resource

Json = dict[str, Any]

KEPT = ("type", "format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "minimum", "maximum", "enum")  # fmt: skip
DROPPED = {"title", "additionalProperties", "default", "description", "$defs", "propertyNames"}
"""Known, and either handled apart or without a counterpart (bounds of a map's keys)."""
INT32_MAX = 2**31 - 1

READY = '.status.conditions[?(@.type=="Ready")]'
DEPLOYMENT_COLUMNS = (
    ("Ready", "string", f"{READY}.status", 0, "whether requests are answered"),
    ("P", "string", ".status.summary.prefill", 0, "prefill engines in cluster A, ready/desired"),
    ("RLD", "string", ".status.summary.relayDecode", 0, "relay decode engines in cluster A, ready/desired"),
    ("MD", "string", ".status.summary.mainDecode", 0, "main decode engines in cluster B, ready/desired"),
    ("Link", "string", ".spec.linkRef.name", 0, "the PDDLink"),
    ("Mode", "string", ".status.mode", 0, "Normal, or Local while the line or cluster B is lost"),
    ("Reason", "string", f"{READY}.reason", 0, "why Ready is what it is"),
    ("Age", "date", ".metadata.creationTimestamp", 0, ""),
    ("Model", "string", ".spec.model.name", 1, "the model"),
    ("URL", "string", ".status.url", 1, "the router in cluster A"),
    ("Message", "string", f"{READY}.message", 1, "what to do"),
)
LINK_COLUMNS = (
    ("Ready", "string", f"{READY}.status", 0, "whether the line can be used"),
    ("Member", "string", ".status.member.state", 0, "the connection to cluster B"),
    ("Address", "string", ".status.gateway.address", 0, "what cluster B dials"),
    ("Streams", "integer", ".status.line.streams", 0, "live streams"),
    ("RTT ms", "integer", ".status.line.rttMs", 0, "measured round trip"),
    ("Reason", "string", f"{READY}.reason", 0, "why Ready is what it is"),
    ("Age", "date", ".metadata.creationTimestamp", 0, ""),
    ("Mbps", "integer", ".status.line.goodputMbps", 1, "measured goodput"),
    ("Message", "string", f"{READY}.message", 1, "what to do"),
)
KINDS: Mapping[str, tuple[type[Resource], str, tuple[tuple[str, str, str, int, str], ...], str]] = {
    "PDDDeployment": (
        PDDDeployment,
        "pdd",
        DEPLOYMENT_COLUMNS,
        "One large language model served from two clusters: prefill and relay decode in A, main decode in B.",
    ),
    "PDDLink": (
        PDDLink,
        "pddlink",
        LINK_COLUMNS,
        "The line from this cluster (A) to another one (B): B's credentials, the line's figures, how it is used.",
    ),
}


def build_crd(kind: str) -> Json:
    """The CustomResourceDefinition of PDDDeployment or PDDLink."""
    model, short, columns, description = KINDS[kind]
    schema = to_structural(model.model_json_schema(by_alias=True))
    properties = schema["properties"]
    root: Json = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": properties["spec"],
            "status": properties["status"],
        },
    }
    for rule in rules_of(kind):
        _place(root, rule)
    plural = PLURALS[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "pdd"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in columns],
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def render_crd(kind: str) -> str:
    """The CRD as YAML, with a header that says how it was made."""
    body = yaml.dump(build_crd(kind), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return f"# Generated by hack/gen_crds.py from pdd.api.v1alpha1. Do not edit.\n{body}"


def to_structural(schema: Json) -> Json:
    """A pydantic JSON schema as a structural one. Raises ValueError for a construct that has no counterpart."""
    return _convert(schema, schema.get("$defs", {}), "")


def _convert(node: Json, defs: Json, where: str) -> Json:
    description = node.get("description")
    default = node.get("default")
    node = _resolve(node, defs, where)
    extensions = {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if "const" in node:
        node = {**node, "enum": [node["const"]]}
    unknown = set(node) - set(KEPT) - DROPPED - set(extensions) - {
        "properties", "required", "items", "const", "exclusiveMinimum", "exclusiveMaximum",
    }  # fmt: skip
    if unknown:
        raise ValueError(f"{where or 'schema'}: no structural counterpart of {', '.join(sorted(unknown))}")
    out: Json = {}
    text = description or node.get("description")
    if text:
        out["description"] = " ".join(text.split())
    out |= {key: node[key] for key in KEPT if key in node}
    if "exclusiveMinimum" in node:
        out["minimum"] = _whole(node["exclusiveMinimum"], where) + 1
    if "exclusiveMaximum" in node:
        out["maximum"] = _whole(node["exclusiveMaximum"], where) - 1
    if out.get("type") == "integer":
        out.setdefault("format", "int32" if out.get("maximum", INT32_MAX + 1) <= INT32_MAX else "int64")
    if out.get("type") == "number":
        raise ValueError(f"{where}: floats are not allowed; use an integer with its unit in the name")
    if "properties" in node:
        out["properties"] = {key: _convert(value, defs, f"{where}.{key}") for key, value in node["properties"].items()}
        if node.get("required"):
            out["required"] = list(node["required"])
        default = _defaults(out) if isinstance(default, dict) else None
    elif isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs, f"{where}.*")
    if "items" in node:
        out["items"] = _convert(node["items"], defs, f"{where}[]")
    if default not in (None, "", [], {}):
        out["default"] = default
    return out | extensions


def _resolve(node: Json, defs: Json, where: str) -> Json:
    """Without $ref, allOf of one and anyOf with null; the keys that stand beside a $ref win."""
    while True:
        if "$ref" in node:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**defs[node["$ref"].rsplit("/", 1)[1]], **rest}
        elif "allOf" in node and len(node["allOf"]) == 1:
            rest = {key: value for key, value in node.items() if key != "allOf"}
            node = {**node["allOf"][0], **rest}
        elif "anyOf" in node:
            options = [option for option in node["anyOf"] if option.get("type") != "null"]
            if len(options) != 1:
                raise ValueError(f"{where}: a choice of {len(options)} types has no structural counterpart")
            rest = {key: value for key, value in node.items() if key != "anyOf"}
            node = {**options[0], **rest}
        else:
            return node


def _defaults(schema: Json) -> Json:
    """What an empty object becomes; written out, since an API server holds CEL rules against a default as it stands."""
    if schema.get("required"):
        return {}
    return {key: child["default"] for key, child in schema["properties"].items() if "default" in child}


def _whole(number: float, where: str) -> int:
    if int(number) != number:
        raise ValueError(f"{where}: bound {number} is not a whole number")
    return int(number)


def _place(root: Json, rule: Rule) -> None:
    node = root
    for key in rule.path:
        node = node["properties"][key]
    entry = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        entry["fieldPath"] = rule.field
    node.setdefault("x-kubernetes-validations", []).append(entry)


def _column(name: str, type_: str, path: str, priority: int, description: str) -> Json:
    column: Json = {"name": name, "type": type_, "jsonPath": path}
    if description:
        column["description"] = description
    if priority:
        column["priority"] = priority
    return column


class _Dumper(yaml.SafeDumper):
    """Indented sequences, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)
