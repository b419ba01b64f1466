"""Both charts: lint, the golden rendering of their defaults, and that every value has an effect."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.rendering import CHARTS, NAMES, ROOT, Helm, Refused, default_values

GOLDEN = Path(__file__).parent / "golden"

# Another valid value for every key of values.yaml, and what must be set beside it to see an effect.
OTHER: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {
    "pdd-operator": {
        "crds.enabled": (False, {}),
        "crds.keep": (False, {}),
        **{f"images.{image}.repository": ("r.example/x", {}) for image in ("operator", "router", "link", "engine")},
        **{f"images.{image}.tag": ("v9", {}) for image in ("operator", "router", "link", "engine")},
        "imagePullPolicy": ("Always", {}),
        "imagePullSecrets": (["registry"], {}),
        "nameOverride": ("other", {}),
        "serviceAccount.create": (False, {"serviceAccount": {"name": "mine"}}),
        "serviceAccount.name": ("mine", {}),
        "serviceAccount.annotations": ({"a": "b"}, {}),
        "rbac.create": (False, {}),
        "watchNamespaces": (["chat"], {}),
        "logLevel": ("debug", {}),
        "logFormat": ("text", {}),
        "resyncSeconds": (60, {}),
        "concurrency": (5, {}),
        "deletionDeadlineSeconds": (60, {}),
        "execPluginDir": ("/plugins", {}),
        "extraEnv": ([{"name": "HTTPS_PROXY", "value": "x"}], {}),
        "metrics.service": (False, {}),
        "metrics.port": (9191, {}),
        "resources.requests.cpu": ("1", {}),
        "resources.requests.memory": ("1Gi", {}),
        "resources.limits.memory": ("1Gi", {}),
        "podLabels": ({"a": "b"}, {}),
        "podAnnotations": ({"a": "b"}, {}),
        "nodeSelector": ({"a": "b"}, {}),
        "tolerations": ([{"operator": "Exists"}], {}),
        "affinity": ({"podAntiAffinity": {}}, {}),
        "priorityClassName": ("system-cluster-critical", {}),
        "terminationGracePeriodSeconds": (30, {}),
    },
    "pdd-member": {
        "namespace.create": (True, {"namespace": {"name": "engines"}}),
        "namespace.name": ("engines", {}),
        "namespace.podSecurity": ("restricted", {"namespace": {"create": True, "name": "engines"}}),
        "namespace.keep": (False, {"namespace": {"create": True, "name": "engines"}}),
        "serviceAccount.name": ("other", {}),
        "serviceAccount.annotations": ({"a": "b"}, {}),
        "token.longLived": (True, {}),
        "quota.enabled": (True, {}),
        "quota.hard.pods": ("8", {"quota": {"enabled": True}}),
    },
}


# Groups, whose members are explained, and keys that every chart has.
GROUPS_AND_WELL_KNOWN = (
    *("podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity", "priorityClassName", "resources"),
    *("requests", "limits", "cpu", "memory", "pods", "name", "port", "repository", "tag", "annotations", "hard"),
    *("router", "link", "engine", "operator", "images", "crds", "metrics", "namespace", "serviceAccount", "rbac"),
    *("token", "quota", "concurrency"),
)


def leaves(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values:
        for key, child in values.items():
            yield from leaves(child, f"{path}.{key}" if path else key)
    else:
        yield path


def with_value(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(base)
    node = made
    *parents, last = path.split(".")
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return made


@pytest.mark.parametrize("chart", NAMES)
def test_lint_finds_nothing(helm: Helm, chart: str) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHARTS / chart))


@pytest.mark.parametrize("chart", NAMES)
def test_the_defaults_render_as_recorded(helm: Helm, chart: str) -> None:
    """Set PDD_UPDATE_GOLDEN=1 to record anew, and read the difference before committing it."""
    values = {"crds": {"enabled": False}} if chart == "pdd-operator" else {}
    text = helm.text(chart, values)
    path = GOLDEN / f"{chart}.yaml"
    if os.environ.get("PDD_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("chart", NAMES)
def test_every_value_is_listed_here(chart: str) -> None:
    assert set(leaves(default_values(chart))) == set(OTHER[chart])


@pytest.mark.parametrize(("chart", "path"), [(chart, path) for chart in NAMES for path in OTHER[chart]])
def test_every_value_changes_what_is_rendered(helm: Helm, chart: str, path: str) -> None:
    value, beside = OTHER[chart][path]
    assert helm.text(chart, with_value(beside, path, value)) != helm.text(chart, beside)


@pytest.mark.parametrize("chart", NAMES)
def test_every_value_has_a_comment(chart: str) -> None:
    """A key, or the group that it is the first of, is explained above it."""
    lines = (CHARTS / chart / "values.yaml").read_text().splitlines()
    explained = set(GROUPS_AND_WELL_KNOWN)
    for index, line in enumerate(lines):
        key = line.strip().partition(":")[0]
        if line.strip() and not line.strip().startswith("#") and key not in explained:
            assert lines[index - 1].strip().startswith("#"), f"{chart}: {line.strip()}"


@pytest.mark.parametrize("chart", NAMES)
@pytest.mark.parametrize("path", ["crd.enabled", "serviceAccount.nam", "unknown", "namespace.foo", "images.routr.tag"])
def test_a_misspelt_value_is_refused(helm: Helm, chart: str, path: str) -> None:
    with pytest.raises(Refused, match="not allowed"):
        helm.text(chart, with_value({}, path, "x"))


@pytest.mark.parametrize("chart", NAMES)
def test_objects_carry_the_standard_labels(helm: Helm, chart: str) -> None:
    for made in helm.objects(chart, {}):
        labels = made["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "pdd"
        if made["kind"] != "CustomResourceDefinition":
            assert labels["app.kubernetes.io/instance"] == "pdd"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_the_charts_crds_are_the_committed_ones(helm: Helm) -> None:
    made = {o["metadata"]["name"]: o for o in helm.objects("pdd-operator") if o["kind"] == "CustomResourceDefinition"}
    assert set(made) == {"pdddeployments.pdd.dev", "pddlinks.pdd.dev"}
    for name, crd in made.items():
        committed = yaml.safe_load((ROOT / "crds" / f"{name.partition('.')[0]}.yaml").read_text())
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert crd == committed


def test_versions_of_chart_and_package_move_together() -> None:
    from pdd import __version__

    for chart in NAMES:
        about = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())
        assert about["appVersion"] == about["version"] == __version__
