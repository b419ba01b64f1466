"""Chart pdd-operator, branch by branch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.chart.rendering import CHARTS, Helm, Refused, find, kinds

from pdd.controller.kube import resources as kube
from pdd.controller.runtime import SITE_A_KINDS, SITE_A_SOURCES
from pdd.controller.settings import settings_from

CHART = "pdd-operator"


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return made


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container(objects)["env"]}


def grants(rules: list[dict[str, Any]], resource: str, verb: str) -> bool:
    group, _, plural = resource.rpartition("/")
    return any(group in r["apiGroups"] and plural in r["resources"] and verb in r["verbs"] for r in rules)


def test_one_operator_at_a_time_without_root_and_with_a_read_only_root(helm: Helm) -> None:
    objects = helm.objects(CHART)
    spec = find(objects, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"]) == (True, 65532)
    security = container(objects)["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_environment_is_what_the_controller_reads(helm: Helm) -> None:
    values = {"watchNamespaces": ["a", "b"], "resyncSeconds": 7, "concurrency": 3, "metrics": {"port": 9191}}
    values |= {"deletionDeadlineSeconds": 60, "imagePullPolicy": "Never"}
    settings = settings_from(environment(helm.objects(CHART, values)))
    assert settings.namespaces == ("a", "b") and settings.metrics_port == 9191
    assert (settings.resync_s, settings.concurrency, settings.deletion_deadline_s) == (7.0, 3, 60.0)
    assert settings.images.router == "pdd/router:0.1.0" and settings.images.pull_policy == "Never"


def test_a_tag_replaces_the_apps_version_for_that_image_only(helm: Helm) -> None:
    env = environment(helm.objects(CHART, {"images": {"link": {"repository": "r.example/link", "tag": "v9"}}}))
    assert (env["PDD_IMAGE_LINK"], env["PDD_IMAGE_ENGINE"]) == ("r.example/link:v9", "pdd/engine:0.1.0")


def test_without_crds_none_are_rendered_and_without_keep_they_die_with_the_release(helm: Helm) -> None:
    assert "CustomResourceDefinition" not in kinds(helm.objects(CHART, {"crds": {"enabled": False}}))
    crd = find(helm.objects(CHART, {"crds": {"keep": False}}), "CustomResourceDefinition", "pddlinks.pdd.dev")
    assert "annotations" not in crd["metadata"]


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["chat"]}], ids=["all-namespaces", "one-namespace"])
def test_rights_cover_what_the_controller_reads_and_applies(helm: Helm, values: dict[str, Any]) -> None:
    objects = helm.objects(CHART, values)
    cluster = find(objects, "ClusterRole", "pdd")["rules"]
    rules = cluster if not values else find(objects, "Role")["rules"]
    for resource in SITE_A_KINDS:
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            assert grants(rules, f"{resource.group}/{resource.plural}".lstrip("/"), verb), (resource.plural, verb)
    for resource in (kube.PDDDEPLOYMENTS, kube.PDDLINKS):
        for verb in ("get", "list", "watch", "patch"):
            assert grants(rules, f"pdd.dev/{resource.plural}", verb)
        assert any(f"{resource.plural}/status" in r["resources"] and "patch" in r["verbs"] for r in rules)
    for source in SITE_A_SOURCES:
        for verb in ("list", "watch"):
            assert grants(rules, f"{source.resource.group}/{source.resource.plural}".lstrip("/"), verb), source
    assert grants(cluster, "nodes", "list")
    assert grants(rules, "events.k8s.io/events", "create")


def test_no_right_is_a_wildcard_or_lets_the_operator_raise_itself(helm: Helm) -> None:
    for values in ({}, {"watchNamespaces": ["chat"]}):
        for role in (o for o in helm.objects(CHART, values) if o["kind"] in ("ClusterRole", "Role")):
            for rule in role["rules"]:
                for part in (rule["apiGroups"], rule["resources"], rule["verbs"]):
                    assert "*" not in part
                assert not set(rule["resources"]) & {"roles", "clusterroles", "rolebindings", "clusterrolebindings"}
                assert not set(rule["verbs"]) & {"escalate", "bind", "impersonate"}


def test_with_a_list_of_namespaces_rights_end_at_their_borders(helm: Helm) -> None:
    objects = helm.objects(CHART, {"watchNamespaces": ["chat", "code"]})
    roles = [o["metadata"]["namespace"] for o in objects if o["kind"] == "Role"]
    bindings = [o for o in objects if o["kind"] == "RoleBinding"]
    assert roles == [b["metadata"]["namespace"] for b in bindings] == ["chat", "code"]
    assert all(b["subjects"][0]["namespace"] == "pdd-system" for b in bindings)
    assert [r["resources"] for r in find(objects, "ClusterRole", "pdd")["rules"]] == [["nodes"]]


def test_model_owners_may_edit_deployments_but_only_admins_links(helm: Helm) -> None:
    objects = helm.objects(CHART)
    edit, admin = find(objects, "ClusterRole", "pdd-edit"), find(objects, "ClusterRole", "pdd-admin")
    assert [r["resources"] for r in edit["rules"]] == [["pdddeployments"]]
    assert [r["resources"] for r in admin["rules"]] == [["pddlinks"]]
    assert "rbac.authorization.k8s.io/aggregate-to-edit" not in admin["metadata"]["labels"]


def test_an_own_service_account_and_own_rights(helm: Helm) -> None:
    values = {"serviceAccount": {"create": False, "name": "mine"}, "rbac": {"create": False}}
    objects = helm.objects(CHART, values)
    assert not {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} & set(kinds(objects))
    assert find(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_no_metrics_service_when_it_is_not_wanted(helm: Helm) -> None:
    assert "Service" not in kinds(helm.objects(CHART, {"metrics": {"service": False}}))


def test_where_and_how_the_pod_runs(helm: Helm) -> None:
    values = {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "imagePullSecrets": ["registry"],
        "podLabels": {"team": "x"},
        "podAnnotations": {"note": "y"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://p"}],
        "terminationGracePeriodSeconds": 0,
    }
    objects = helm.objects(CHART, values)
    template = find(objects, "Deployment")["spec"]["template"]
    pod = template["spec"]
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"zone": "a"}, "high")
    assert pod["tolerations"] == values["tolerations"] and pod["affinity"] == {"nodeAffinity": {}}
    assert pod["imagePullSecrets"] == [{"name": "registry"}] and pod["terminationGracePeriodSeconds"] == 0
    assert template["metadata"]["labels"]["team"] == "x" and template["metadata"]["annotations"] == {"note": "y"}
    assert environment(objects)["HTTPS_PROXY"] == "http://p"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"serviceAccount": {"create": False}}, r"serviceAccount\.name: empty: name an existing"),
        ({"extraEnv": [{"name": "PDD_LOG_LEVEL", "value": "debug"}]}, "use its own value"),
        ({"watchNamespaces": ["a"], "rbac": {"create": False}}, "rbac.create=false with watchNamespaces"),
        ({"imagePullPolicy": "Sometimes"}, "imagePullPolicy"),
        ({"watchNamespaces": ["Not_A_Name"]}, "watchNamespaces"),
        ({"metrics": {"port": 0}}, "metrics/port"),
    ],
)
def test_a_wrong_value_fails_with_its_name_and_the_fix(helm: Helm, values: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        helm.text(CHART, values)


def notes(helm: Helm, chart: str, values: dict[str, Any], folder: Path) -> str:
    """NOTES.txt, rendered inside a ConfigMap of a copy of the chart."""
    copied = folder / chart
    shutil.copytree(CHARTS / chart, copied)
    text = (copied / "templates" / "NOTES.txt").read_text()
    (copied / "templates" / "notes.yaml").write_text(
        f'{{{{- define "notes" }}}}{text}{{{{ end -}}}}\n'
        'kind: Notes\nmetadata: {name: notes}\ndata:\n  text: {{ include "notes" . | toJson }}\n'
    )
    rendered = helm.text(copied, values)
    import yaml

    return str(next(o for o in yaml.safe_load_all(rendered) if o and o["kind"] == "Notes")["data"]["text"])


def test_notes_name_the_next_commands(helm: Helm, tmp_path: Path) -> None:
    text = notes(helm, CHART, {"watchNamespaces": ["chat"]}, tmp_path)
    for command in (
        "kubectl -n pdd-system rollout status deployment/pdd",
        "helm install pdd-member",
        "pdd link create site-b",
        "-n chat",
        "kubectl apply -f crds/samples/minimal.yaml",
    ):
        assert command in text
    assert "!" not in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"crds": {"enabled": False}}, "kubectl apply --server-side -f crds/"),
        ({"crds": {"keep": False}}, "will delete the CRDs"),
    ],
)
def test_notes_warn_first(helm: Helm, tmp_path: Path, values: dict[str, Any], words: str) -> None:
    text = notes(helm, CHART, values, tmp_path)
    assert words in text.partition("1. It runs")[0]


def test_member_notes_name_the_pairing_command(helm: Helm, tmp_path: Path) -> None:
    text = notes(helm, "pdd-member", {"serviceAccount": {"name": "ops"}, "token": {"longLived": True}}, tmp_path)
    assert "--member-namespace pdd-system --member-service-account ops" in text and "never expires" in text
