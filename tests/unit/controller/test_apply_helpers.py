"""Deadlines of deletions, orphans, and the number of RLD engines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.controller.samples import DEPLOYMENT, deployment, link, merged

from pdd.controller.cleanup import deadline_s, expired
from pdd.controller.plan import plan_problem, relay_replicas
from pdd.controller.sweep import orphans


def going(at: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"deletionTimestamp": at, "annotations": annotations}}


def test_deadline_is_the_annotations_or_the_operators() -> None:
    assert deadline_s(going("t"), 300) == 300
    assert deadline_s(going("t", **{"pdd.dev/deletion-deadline-s": "30"}), 300) == 30
    assert deadline_s(going("t", **{"pdd.dev/deletion-deadline-s": "soon"}), 300) == 300


def test_deletion_expires_by_its_own_time() -> None:
    obj = going("2026-12-01T00:00:00Z")
    assert not expired(obj, 300, datetime(2026, 12, 1, 0, 4, 59, tzinfo=UTC))
    assert expired(obj, 300, datetime(2026, 12, 1, 0, 5, 0, tzinfo=UTC))
    assert not expired({"metadata": {}}, 0)


def in_b(
    owner_uid: str, link_uid: str = "11111111-aaaa", kind: str = "ConfigMap", owner_kind: str = "PDDDeployment"
) -> dict[str, Any]:
    labels = {"pdd.dev/owner-uid": owner_uid, "pdd.dev/link-uid": link_uid, "pdd.dev/owner-kind": owner_kind}
    return {"kind": kind, "metadata": {"name": "x", "namespace": "pdd", "labels": labels}}


def test_orphans_are_only_those_of_this_link_whose_owner_is_gone_or_moved() -> None:
    owners = {"here": DEPLOYMENT, "moved": merged(DEPLOYMENT, {"spec": {"linkRef": {"name": "other"}}})}
    objects = [
        in_b("here"), in_b("gone"), in_b("moved"), in_b("gone", link_uid="somebody else's"),
        in_b("11111111-aaaa", owner_kind="PDDLink"), in_b("gone", kind="Pod"),
    ]  # fmt: skip
    assert orphans(link(), objects, owners) == [objects[1], objects[2]]


def test_owner_that_cannot_be_read_keeps_its_objects() -> None:
    assert orphans(link(), [in_b("odd")], {"odd": {"metadata": {"name": "x"}, "spec": {"linkRef": 7}}}) == []


AUTOSCALED = {"spec": {"roles": {"relayDecode": {"replicas": 2, "autoscaling": {"minReplicas": 2, "maxReplicas": 6}}}}}


@pytest.mark.parametrize(
    ("live", "target", "expected"),
    [
        (None, None, 2),
        ({"spec": {"replicas": 5}}, None, 5),
        ({"spec": {"replicas": 5}}, 3, 3),
        ({"spec": {"replicas": 9}}, None, 6),
    ],
)
def test_silent_autoscaler_keeps_what_runs(live: Any, target: int | None, expected: int) -> None:
    assert relay_replicas(deployment(**AUTOSCALED), live, target) == expected


def test_without_autoscaling_the_spec_rules() -> None:
    fixed = deployment(spec={"roles": {"relayDecode": {"replicas": 3}}})
    assert relay_replicas(fixed, {"spec": {"replicas": 9}}, 7) == 3


@pytest.mark.parametrize(
    ("over", "has_link", "reason", "words"),
    [
        ({}, False, "LinkNotFound", "kubectl get pddlink"),
        ({"spec": {"engine": {"type": "sglang"}}}, True, "EngineNotBuilt", "use reference or vllm"),
        (
            {
                "spec": {
                    "model": {"parametersMillions": 70000, "kv": {"bytesPerToken": 1000}},
                    "engine": {"type": "vllm"},
                    "roles": {"prefill": {"accelerator": {"type": "H20", "count": 1}}},
                }
            },
            True,
            "ModelTooLarge",
            "accelerator",
        ),
    ],
)
def test_problems_name_reason_and_remedy(over: dict[str, Any], has_link: bool, reason: str, words: str) -> None:
    problem = plan_problem(deployment(**over), link() if has_link else None)
    assert problem is not None and problem.reason.value == reason and words in problem.message


def test_sound_spec_has_no_problem() -> None:
    assert plan_problem(deployment(), link()) is None
