"""The charts grant what the controller's code uses in each cluster, and no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from pdd.controller.kube.resources import PODS, Resource
from pdd.controller.runtime import SITE_A_KINDS, SITE_A_SOURCES, SITE_B_KINDS, SITE_B_SOURCES

CHARTS = Path(__file__).parents[3] / "charts"
READ = {"get", "list", "watch"}
WRITE = READ | {"create", "patch", "delete"}
Rights = dict[tuple[str, str], set[str]]


def rights(rules: list[dict[str, Any]]) -> Rights:
    return {(group, plural): set(r["verbs"]) for r in rules for group in r["apiGroups"] for plural in r["resources"]}


def key(resource: Resource) -> tuple[str, str]:
    return resource.group, resource.plural


def test_rights_in_cluster_a() -> None:
    text = (CHARTS / "pdd-operator/templates/_helpers.tpl").read_text()
    body = re.search(r'define "pdd-operator.rules" -}}\n(.*?){{- end', text, re.DOTALL)
    assert body is not None
    expected: Rights = {key(kind): WRITE for kind in SITE_A_KINDS}
    expected |= {key(PODS): READ}
    for plural in ("pdddeployments", "pddlinks"):
        expected[("pdd.dev", plural)] = READ | {"patch"}
        expected[("pdd.dev", f"{plural}/status")] = {"get", "patch"}
    for group in ("", "events.k8s.io"):
        expected[(group, "events")] = {"create", "patch"}
    assert rights(yaml.safe_load(body[1])) == expected


def test_rights_in_cluster_b() -> None:
    text = (CHARTS / "pdd-member/templates/rbac.yaml").read_text()
    body = re.search(r"kind: Role\n.*?\nrules:\n(.*?)\n---", text, re.DOTALL)
    assert body is not None
    expected: Rights = {key(kind): WRITE for kind in SITE_B_KINDS}
    expected |= {key(PODS): READ}
    assert rights(yaml.safe_load(body[1])) == expected


def test_everything_that_is_watched_may_be_read() -> None:
    """A kind that is watched without the right to would keep the store from ever being complete."""
    for sources, kinds in ((SITE_A_SOURCES, SITE_A_KINDS), (SITE_B_SOURCES, SITE_B_KINDS)):
        watched = {key(s.resource) for s in sources} - {("pdd.dev", "pdddeployments"), ("pdd.dev", "pddlinks")}
        assert watched == {key(kind) for kind in kinds} | {key(PODS)}
