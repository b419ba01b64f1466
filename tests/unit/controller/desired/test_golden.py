"""One YAML in, all objects of both clusters out. A change of what is made shows here as a changed file.

`PDD_GOLDEN=write` writes the files anew.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.controller.samples import IMAGES

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.certs import Pair
from pdd.controller.desired.config import build_anchor
from pdd.controller.desired.deployment import build_site_a, build_site_b, owner_of
from pdd.controller.desired.link import build_link_a, build_link_b
from pdd.controller.diff import diff, with_hash

GOLDEN = Path(__file__).parents[3] / "golden" / "controller"
PAIR = Pair(b"CERT", b"KEY")
CASES = sorted(p.name for p in GOLDEN.iterdir() if (p / "in.yaml").exists())


@dataclass(frozen=True)
class Case:
    link: PDDLink
    deployment: PDDDeployment
    anchor: dict[str, Any]


def load(name: str) -> Case:
    link, deployment = yaml.safe_load_all((GOLDEN / name / "in.yaml").read_text())
    link["metadata"] |= {"namespace": "models", "uid": "11111111-aaaa-link"}
    deployment["metadata"] |= {"namespace": "models", "uid": "22222222-bbbb-deployment"}
    parsed = PDDDeployment.from_object(deployment)
    the_link = PDDLink.from_object(link)
    anchor = build_anchor(owner_of(parsed, "b", the_link.uid), the_link.spec.member.namespace)
    anchor["metadata"]["uid"] = "33333333-cccc-anchor"
    return Case(the_link, parsed, anchor)


def render(case: Case) -> dict[str, list[dict[str, Any]]]:
    cidrs = case.link.spec.endpoint_or_default.capture_cidrs or ("10.244.0.0/16",)
    a = build_link_a(case.link, images=IMAGES, capture_cidrs=cidrs, leaf=PAIR, ca_cert=b"CA")
    a += build_site_a(
        case.deployment, case.link, images=IMAGES, drain_token="token",
        relay_replicas=case.deployment.spec.roles.relay_decode.replicas,
    )  # fmt: skip
    b = build_link_b(case.link, anchor=case.anchor, leaf=PAIR, ca_cert=b"CA")
    b += build_site_b(
        case.deployment,
        case.link,
        images=IMAGES,
        anchor=case.anchor,
        gateway_address="172.18.0.3:31443",
        capture_cidrs=cidrs,
    )
    return {"a": a, "b": [case.anchor, *b]}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("site", ["a", "b"])
def test_objects_are_those_of_the_golden_file(name: str, site: str) -> None:
    text = yaml.safe_dump_all(render(load(name))[site], sort_keys=False, width=120)
    file = GOLDEN / name / f"objects-{site}.yaml"
    if os.environ.get("PDD_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs; if the change is meant, run with PDD_GOLDEN=write"


@pytest.mark.parametrize("name", CASES)
def test_rendering_is_stable_and_converged_objects_need_no_write(name: str) -> None:
    case = load(name)
    one, two = render(case), render(case)
    assert one == two
    assert diff(one["a"], two["a"], prune=True) == () and diff(one["b"], two["b"], prune=True) == ()


@pytest.mark.parametrize("name", CASES)
def test_pods_are_safe(name: str) -> None:
    """No root but the redirect's init container, no service account token, all capabilities dropped."""
    objects = [o for objs in render(load(name)).values() for o in objs if o["kind"] in ("StatefulSet", "Deployment")]
    assert len(objects) == 5
    for obj in objects:
        pod = obj["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]} and not security["allowPrivilegeEscalation"]
            assert security.get("runAsUser", 1) != 0
            assert "requests" in container["resources"] and "livenessProbe" in container
        roots = [c["name"] for c in pod.get("initContainers", ()) if c["securityContext"].get("runAsUser") == 0]
        assert roots in ([], ["link-init"])


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_owned_and_labelled(name: str) -> None:
    case = load(name)
    for site, objects in render(case).items():
        for obj in objects:
            labels = obj["metadata"]["labels"]
            assert labels["app.kubernetes.io/managed-by"] == "pdd-operator" and labels["pdd.dev/site"] == site
            if obj is objects[0] and site == "b":
                continue
            (owner,) = obj["metadata"]["ownerReferences"]
            assert owner["uid"] == (case.anchor["metadata"]["uid"] if site == "b" else labels["pdd.dev/owner-uid"])


def test_selectors_match_their_pods_and_nothing_else() -> None:
    objects = render(load("reference"))["a"]
    workloads = [o for o in objects if o["kind"] in ("StatefulSet", "Deployment")]
    for service in (o for o in objects if o["kind"] == "Service"):
        matched = [
            w["metadata"]["name"] for w in workloads
            if service["spec"]["selector"].items() <= w["spec"]["template"]["metadata"]["labels"].items()
        ]  # fmt: skip
        assert len(matched) == 1 and service["metadata"]["name"].startswith(matched[0])


def test_a_changed_configuration_rolls_the_router_and_nothing_else() -> None:
    case = load("reference")
    changed = case.deployment.model_copy(
        update={
            "spec": case.deployment.spec.model_copy(
                update={"router": case.deployment.spec.router.model_copy(update={"relay_threshold_ms": 77})}
            )
        }
    )
    before = render(case)
    after = render(Case(case.link, changed, case.anchor))
    rolled = {
        str(c.ref) for site in ("a", "b") for c in diff(after[site], before[site], prune=True)
        if c.ref.kind in ("StatefulSet", "Deployment")
    }  # fmt: skip
    assert rolled == {"Deployment/models/tiny-router"}


def test_hash_covers_the_whole_object() -> None:
    obj = render(load("reference"))["a"][0]
    stripped = {k: v for k, v in obj.items() if k != "spec"}
    assert with_hash(stripped)["metadata"]["annotations"] != obj["metadata"]["annotations"]
