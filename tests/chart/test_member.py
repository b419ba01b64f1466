"""Chart pdd-member: what cluster B grants, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from tests.chart.rendering import Helm, Refused, find, kinds

from pdd.controller.runtime import SITE_B_KINDS, SITE_B_SOURCES

CHART = "pdd-member"


def test_by_default_an_account_and_rights_in_the_releases_namespace(helm: Helm) -> None:
    objects = helm.objects(CHART, namespace="engines")
    assert sorted(kinds(objects)) == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"]
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert find(objects, kind)["metadata"]["namespace"] == "engines"
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = find(objects, kind)["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "pdd-member", "namespace": "engines"}
    assert find(objects, "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_role_covers_what_the_operator_applies_in_b(helm: Helm) -> None:
    rules = find(helm.objects(CHART), "Role")["rules"]
    verbs = {(group, name): set(r["verbs"]) for r in rules for group in r["apiGroups"] for name in r["resources"]}
    applied = {(r.group, r.plural) for r in SITE_B_KINDS}
    watched = {(s.resource.group, s.resource.plural) for s in SITE_B_SOURCES}
    assert set(verbs) == applied | watched, "a right that nothing uses, or one that is missing"
    for resource in applied:
        assert verbs[resource] == {"get", "list", "watch", "create", "patch", "delete"}, resource
    for resource in watched - applied:
        assert verbs[resource] == {"get", "list", "watch"}, resource


def test_outside_its_namespace_only_one_name_may_be_read(helm: Helm) -> None:
    role = find(helm.objects(CHART, namespace="engines"), "ClusterRole")
    assert role["metadata"]["name"] == "pdd-member-engines"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
    ]


def test_two_releases_in_one_cluster_do_not_clash(helm: Helm) -> None:
    names = [
        {o["metadata"]["name"] for o in helm.objects(CHART, namespace=n) if o["kind"].startswith("Cluster")}
        for n in "ab"
    ]
    assert names[0].isdisjoint(names[1])


def test_the_chart_can_make_the_namespace(helm: Helm) -> None:
    values = {"namespace": {"create": True, "name": "engines"}}
    objects = helm.objects(CHART, values)
    namespace = find(objects, "Namespace")["metadata"]
    assert namespace["name"] == "engines"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert namespace["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert find(objects, "Role")["metadata"]["namespace"] == "engines"
    loose = helm.objects(CHART, {"namespace": {"create": True, "name": "engines", "keep": False}})
    assert "annotations" not in find(loose, "Namespace")["metadata"]


def test_a_token_that_never_expires_only_when_asked_for(helm: Helm) -> None:
    secret = find(helm.objects(CHART, {"token": {"longLived": True}, "serviceAccount": {"name": "ops"}}), "Secret")
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "ops"}


def test_a_quota_only_when_asked_for(helm: Helm) -> None:
    made = helm.objects(CHART, {"quota": {"enabled": True, "hard": {"pods": 8, "requests.cpu": "100"}}})
    assert find(made, "ResourceQuota")["spec"]["hard"] == {"pods": 8, "requests.cpu": "100"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"namespace": {"create": True}}, r"namespace\.name: empty"),
        ({"namespace": {"create": True, "name": "pdd-system"}}, "exists already"),
        ({"namespace": {"podSecurity": "lax"}}, "podSecurity"),
        ({"serviceAccount": {"name": ""}}, "serviceAccount/name"),
    ],
)
def test_a_wrong_value_fails_with_its_name_and_the_fix(helm: Helm, values: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        helm.text(CHART, values)
