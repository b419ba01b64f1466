"""The samples: valid, and the full one really holds every field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdd.api.crd import build_crd
from pdd.api.validate import validate_texts

SAMPLES = Path(__file__).parents[3] / "crds" / "samples"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_samples_are_valid_without_a_warning(path: Path) -> None:
    report = validate_texts([(path.name, path.read_text())])
    assert report.problems == ()
    assert {d.kind for d in report.documents} == {"PDDLink", "PDDDeployment"}
    assert all(d.checked for d in report.documents)


def test_the_promised_samples_are_there() -> None:
    assert {"minimal.yaml", "full.yaml", "vllm.yaml", "demo.yaml"} <= {path.name for path in SAMPLES.glob("*.yaml")}


def leaves(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """Paths of schema fields that `value` does not give."""
    for name, child in schema.get("properties", {}).items():
        if not isinstance(value, dict) or name not in value:
            yield f"{path}.{name}"
        else:
            yield from leaves(child, value[name], f"{path}.{name}")


def test_the_full_sample_shows_every_field_somewhere() -> None:
    documents = {d["kind"]: d for d in yaml.safe_load_all((SAMPLES / "full.yaml").read_text())}
    for kind, document in documents.items():
        spec = build_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        missing = set(leaves(spec, document["spec"], "spec"))
        # One of several sources, one of two ways to B; roles show different overrides; these two need other values.
        excused = ("spec.model.source.", "spec.model.weightMiB", "spec.member.exec", "spec.roles.")
        excused += ("spec.engine.image", "spec.gateway.exposure.loadBalancerClass")
        assert {path for path in missing if not path.startswith(excused)} == set()
        shown = yaml.safe_dump(document.get("spec", {}).get("roles", {}))
        for field in ("replicas", "accelerator", "resources", "podTemplate", "engine", "autoscaling", "behavior"):
            assert kind == "PDDLink" or f"{field}:" in shown, field
