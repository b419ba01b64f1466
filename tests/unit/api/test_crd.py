"""The CRDs: structural, bounded, the same bytes as the committed ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel
from pydantic import Field

from pdd.api import crd
from pdd.api.base import Model
from pdd.api.crd import KINDS, to_structural

ROOT = Path(__file__).parents[3]
build_crd = cache(crd.build_crd)
render_crd = cache(crd.render_crd)
ALLOWED = {
    *("type", "description", "properties", "required", "items", "additionalProperties", "default", "enum", "format"),
    *(
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
    ),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
}
"""Keywords of a structural schema that we use."""


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a structural schema, with its path."""
    yield path, schema
    for key, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def schema_of(kind: str) -> dict[str, Any]:
    return build_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_committed_files_are_what_the_models_give() -> None:
    for kind in KINDS:
        assert (ROOT / "crds" / f"{kind.lower()}s.yaml").read_text() == render_crd(kind), "run hack/gen_crds.py"


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural_and_bounded(kind: str) -> None:
    for path, node in nodes(schema_of(kind)):
        assert set(node) <= ALLOWED, (path, set(node) - ALLOWED)
        assert node.get("additionalProperties") is not False, path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert node.get("type") != "number", f"{path}: a float"
        if node.get("type") == "string" and path.startswith((".spec", ".status")) and "enum" not in node:
            assert "maxLength" in node, f"{path}: unbounded text"
        if node.get("type") == "array":
            assert "maxItems" in node, f"{path}: unbounded list"
        if node.get("type") == "object" and "additionalProperties" in node:
            assert "maxProperties" in node, f"{path}: unbounded map"
        if node.get("x-kubernetes-list-type") == "map":
            keys = node["x-kubernetes-list-map-keys"]
            assert set(keys) <= set(node["items"]["required"]), f"{path}: a map key that may be absent"


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_is_valid_where_it_stands(kind: str) -> None:
    for path, node in nodes(schema_of(kind)):
        if "default" not in node:
            continue
        default = node["default"]
        if node["type"] == "object":
            given = {key: child["default"] for key, child in node["properties"].items() if "default" in child}
            assert default == given != {} and not node.get("required"), path
        elif "enum" in node:
            assert default in node["enum"], path
        elif node["type"] == "integer":
            assert node.get("minimum", default) <= default <= node.get("maximum", default), path
        elif node["type"] == "boolean":
            assert isinstance(default, bool), path
        else:
            assert isinstance(default, str) and default, path


@pytest.mark.parametrize("kind", KINDS)
def test_spec_has_a_description_for_every_object(kind: str) -> None:
    schema = schema_of(kind)
    assert schema["properties"]["spec"]["description"]
    for path, node in nodes(schema["properties"]["spec"]):
        for name, child in node.get("properties", {}).items():
            if "properties" in child:
                assert child.get("description"), f"{path}.{name}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_keeps_the_rules_where_it_stands(kind: str) -> None:
    """An API server refuses a CRD whose default breaks a CEL rule, before nested defaults are filled in."""
    for path, node in nodes(schema_of(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            if "default" in node and "oldSelf" not in rule["rule"]:
                program = celpy.Environment().program(celpy.Environment().compile(rule["rule"]))
                assert program.evaluate({"self": json_to_cel(node["default"])}), (path, rule)


def test_kubectl_get_shows_the_promised_columns() -> None:
    columns = build_crd("PDDDeployment")["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"].upper() for column in columns if not column.get("priority")]
    assert shown == ["READY", "P", "RLD", "MD", "LINK", "MODE", "REASON", "AGE"]
    assert build_crd("PDDDeployment")["spec"]["names"]["shortNames"] == ["pdd"]
    assert build_crd("PDDLink")["spec"]["names"]["shortNames"] == ["pddlink"]


@pytest.mark.parametrize("kind", KINDS)
def test_printer_columns_point_at_fields_that_exist(kind: str) -> None:
    schema = schema_of(kind)
    for column in build_crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        node = schema
        for part in column["jsonPath"].replace('[?(@.type=="Ready")]', "").strip(".").split("."):
            if part == "creationTimestamp":
                break
            node = node.get("items", node)
            node = node["properties"][part] if part != "metadata" else node


def test_a_crd_is_small_enough_for_a_helm_release_and_client_side_apply() -> None:
    for kind in KINDS:
        assert len(render_crd(kind)) < 200_000


def test_the_yaml_says_what_the_crd_says() -> None:
    assert yaml.load(render_crd("PDDLink"), Loader=yaml.CSafeLoader) == build_crd("PDDLink")


class _Inner(Model):
    """Inner text."""

    count: int = Field(default=2, gt=0, le=9)


class _Odd(Model):
    maybe: _Inner | None = None
    inner: _Inner = Field(default=_Inner(), description="outer text")
    labels: dict[str, str] = Field(default={}, max_length=3)
    empty: str = ""


def test_pydantics_schema_becomes_structural() -> None:
    inner = {"type": "integer", "minimum": 1, "maximum": 9, "format": "int32", "default": 2}
    made = to_structural(_Odd.model_json_schema(by_alias=True))
    assert made == {
        "type": "object",
        "properties": {
            "maybe": {"description": "Inner text.", "type": "object", "properties": {"count": inner}},
            "inner": {
                "description": "outer text",
                "type": "object",
                "properties": {"count": inner},
                "default": {"count": 2},
            },
            "labels": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string"}},
            "empty": {"type": "string"},
        },
    }


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "choice of 2 types"),
        ({"type": "number"}, "floats"),
        ({"type": "string", "contentEncoding": "base64"}, "contentEncoding"),
        ({"type": "integer", "exclusiveMinimum": 0.5}, "whole number"),
    ],
)
def test_what_has_no_structural_counterpart_is_refused(field: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        to_structural({"type": "object", "properties": {"x": field}})
