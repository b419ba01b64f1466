"""Statuses: every state has a reason and a remedy, the same observation writes nothing, unknown is not zero."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.controller.samples import NOW, deployment, link

from pdd.api.conditions import ConditionStatus, Reason, get_condition
from pdd.api.deployment import Role
from pdd.api.status import Mode, PDDDeploymentStatus
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.controller.health import Failure, Health, MemberState
from pdd.controller.kube.errors import AccessDenied
from pdd.controller.member import MemberView
from pdd.controller.observe import RoleView, Trouble, WorkloadView
from pdd.controller.status_deployment import LineView, Observation, SiteOutcome, build_status
from pdd.controller.status_link import LinkObservation, build_link_status
from pdd.controller.status_write import as_status
from pdd.controller.verdict import Problem

LATER = "2026-12-01T01:00:00Z"
CONNECTED = MemberView(Health(MemberState.CONNECTED), identity="uid-b", server="https://b:6443")
LOST = MemberView(
    Health(MemberState.LOST, failure=Failure("Unreachable", "no answer; check the network")), identity="uid-b"
)
UP = WorkloadView(1, 1, 1)
DOWN = WorkloadView(1, 0, 0)
UNKNOWN = WorkloadView(1, None, None)
UP_LINE = LineView(gateway_ready=True, connected=2)


def roles(p: WorkloadView = UP, rld: WorkloadView = UP, md: WorkloadView = UP) -> tuple[RoleView, ...]:
    return RoleView(Role.PREFILL, "a", p), RoleView(Role.RELAY_DECODE, "a", rld), RoleView(Role.MAIN_DECODE, "b", md)


GOOD = Observation(
    link=link(), problem=None, member=CONNECTED, roles=roles(), router=UP,
    line=LineView(gateway_ready=True, connected=1), site_a=SiteOutcome(), site_b=SiteOutcome(),
)  # fmt: skip


def with_status(status: PDDDeploymentStatus | None) -> PDDDeployment:
    return deployment().model_copy(update={"status": status})


def conditions(
    seen: Observation, old: PDDDeploymentStatus | None = None, now: str = NOW
) -> dict[str, tuple[str, str, str]]:
    status = build_status(with_status(old), seen, now=now)
    return {c.type: (c.status.value, c.reason, c.message) for c in status.conditions}


def test_all_good_is_ready() -> None:
    got = conditions(GOOD)
    assert {t: s for t, (s, _, _) in got.items()} == {
        "Ready": "True", "Planned": "True", "MembersReachable": "True", "LinkHealthy": "True", "RolesAvailable": "True",
        "Progressing": "False", "Degraded": "False",
    }  # fmt: skip
    status = build_status(deployment(), GOOD, now=NOW)
    assert status.mode is Mode.NORMAL and status.summary.main_decode == "1/1" and status.observed_generation == 3


def test_same_observation_gives_the_same_status_an_hour_later() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    again = build_status(with_status(first), GOOD, now=LATER)
    assert as_status(again) == as_status(first)


def test_times_move_only_with_a_flip() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    worse = build_status(with_status(first), replace(GOOD, roles=roles(rld=DOWN)), now=LATER)
    ready, available = get_condition(worse.conditions, "Planned"), get_condition(worse.conditions, "RolesAvailable")
    assert ready and ready.last_transition_time == NOW
    assert available and available.last_transition_time == LATER


def test_every_condition_has_a_reason_and_the_generation() -> None:
    for seen in (
        GOOD,
        replace(GOOD, link=None, problem=Problem(Reason.LINK_NOT_FOUND, "x")),
        replace(GOOD, member=None),
    ):
        for condition in build_status(deployment(), seen, now=NOW).conditions:
            assert condition.reason and condition.observed_generation == 3
            Reason(condition.reason)


def test_link_that_does_not_exist() -> None:
    seen = replace(
        GOOD, link=None, member=None, problem=Problem(Reason.LINK_NOT_FOUND, "create it"),
        line=LineView(gateway_ready=None), roles=roles(DOWN, DOWN, UNKNOWN), router=DOWN,
    )  # fmt: skip
    got = conditions(seen)
    assert got["Planned"] == ("False", "LinkNotFound", "create it")
    assert got["Ready"][:2] == ("False", "LinkNotFound") and got["MembersReachable"][0] == "Unknown"


def test_lost_cluster_b_is_unknown_engines_not_zero() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    seen = replace(GOOD, member=LOST, roles=roles(md=UNKNOWN))
    got = conditions(seen, first)
    assert got["MembersReachable"][:2] == ("False", "Unreachable")
    assert got["RolesAvailable"][0] == "Unknown"
    assert got["Ready"][0] == "True", "the line still carries requests"
    assert got["Degraded"][0] == "True"
    status = build_status(with_status(first), seen, now=LATER)
    main = next(r for r in status.roles if r.role is Role.MAIN_DECODE)
    assert main.ready is None and status.summary.main_decode == "?/1"


def test_lost_line_is_local_mode_and_back() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    local = build_status(with_status(first), replace(GOOD, line=LineView(gateway_ready=True, connected=0)), now=LATER)
    assert local.mode is Mode.LOCAL
    ready, degraded = get_condition(local.conditions, "Ready"), get_condition(local.conditions, "Degraded")
    assert ready and ready.status is ConditionStatus.TRUE and ready.reason == "LineLost"
    assert degraded and degraded.status is ConditionStatus.TRUE
    assert build_status(with_status(local), GOOD, now=LATER).mode is Mode.NORMAL


def test_first_start_without_streams_is_not_ready() -> None:
    got = conditions(replace(GOOD, line=LineView(gateway_ready=True, connected=0), roles=roles(md=DOWN)))
    assert got["Ready"][0] == "False" and got["LinkHealthy"][1] == "WaitingForStreams"


def test_gateway_that_cannot_be_asked_changes_nothing() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    seen = replace(GOOD, line=LineView(gateway_ready=True, connected=None, error="timed out"))
    status = build_status(with_status(first), seen, now=LATER)
    assert status.mode is Mode.NORMAL
    healthy = get_condition(status.conditions, "LinkHealthy")
    assert healthy and healthy.status is ConditionStatus.UNKNOWN and "timed out" in healthy.message


def test_stuck_pod_is_named_in_ready_and_roles() -> None:
    stuck = WorkloadView(1, 0, 1, Trouble(Reason.IMAGE_PULL, "pod p-0: image x cannot be pulled"))
    got = conditions(replace(GOOD, roles=roles(p=stuck)))
    assert got["RolesAvailable"][1] == "ImagePull" and "image x" in got["Ready"][2]


def test_refused_write_in_b_names_the_object_and_the_chart() -> None:
    outcome = SiteOutcome(error=AccessDenied("cannot patch", status=403), failed_object="StatefulSet/pdd/x")
    got = conditions(replace(GOOD, site_b=outcome))
    assert got["MembersReachable"][:2] == ("False", "Forbidden") and "pdd-member" in got["MembersReachable"][2]


def test_problem_after_ready_keeps_serving_and_says_so() -> None:
    first = build_status(deployment(), GOOD, now=NOW)
    got = conditions(replace(GOOD, problem=Problem(Reason.MODEL_TOO_LARGE, "too large")), first)
    assert got["Ready"][0] == "True" and got["Degraded"][:2] == ("True", "ModelTooLarge")


def seen_link(**over: Any) -> LinkObservation:
    base = LinkObservation(
        problem=None, member=CONNECTED, gateway=UP, address="1.2.3.4:31443", address_note="",
        certificate_not_after=LATER, line=LineView(gateway_ready=True, connected=2), streams=8,
        deployments=("models/tiny",), site_a=SiteOutcome(),
        site_b=SiteOutcome(),
    )  # fmt: skip
    return replace(base, **over)


def link_conditions(seen: LinkObservation, live: PDDLink | None = None) -> dict[str, tuple[str, str, str]]:
    status = build_link_status(live or link(), seen, now=NOW)
    return {c.type: (c.status.value, c.reason, c.message) for c in status.conditions}


def test_link_all_good() -> None:
    got = link_conditions(seen_link())
    assert got["Ready"][0] == got["GatewayReady"][0] == got["CredentialsValid"][0] == got["LinkHealthy"][0] == "True"
    assert "2 endpoints, 8 streams" in got["LinkHealthy"][2]


def test_refused_credentials_of_a_link() -> None:
    refused = MemberView(Health(MemberState.LOST, failure=Failure("CredentialsInvalid", "renew them", definite=True)))
    got = link_conditions(seen_link(member=refused))
    assert got["MembersReachable"] == ("False", "CredentialsInvalid", "renew them")
    assert got["CredentialsValid"][0] == "False" and got["Ready"][1] == "CredentialsInvalid"


def test_broken_newest_credentials_while_older_work() -> None:
    view = replace(CONNECTED, credentials_failure=Failure("CredentialsInvalid", "401", definite=True))
    got = link_conditions(seen_link(member=view))
    assert got["MembersReachable"][0] == "True" and got["CredentialsValid"][0] == "False"
    assert "older credentials still work" in got["CredentialsValid"][2]


@pytest.mark.parametrize(
    ("left_s", "reason"),
    [(30 * 86400, "Connected"), (7 * 86400 + 1, "Connected"), (7 * 86400, "CredentialsExpireSoon"),
     (60, "CredentialsExpireSoon"), (-60, "CredentialsExpireSoon")],
)  # fmt: skip
def test_credentials_that_end_are_announced(left_s: int, reason: str) -> None:
    ends = datetime.fromisoformat(NOW.replace("Z", "+00:00")) + timedelta(seconds=left_s)
    end = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    got = link_conditions(seen_link(member=replace(CONNECTED, credentials_expire=end)))
    assert got["CredentialsValid"][:2] == ("True", reason)
    assert end in got["CredentialsValid"][2] and "pdd link create" in got["CredentialsValid"][2]


@pytest.mark.parametrize("written", ["", "never", "2026-13-40", "{}"])
def test_an_end_that_cannot_be_read_is_no_end(written: str) -> None:
    got = link_conditions(seen_link(member=replace(CONNECTED, credentials_expire=written)))
    assert got["CredentialsValid"] == ("True", "Connected", "")


def test_silent_cluster_says_nothing_about_credentials() -> None:
    got = link_conditions(seen_link(member=LOST))
    assert got["CredentialsValid"][0] == "Unknown"


@pytest.mark.parametrize(
    ("over", "reason"),
    [({"gateway": DOWN}, "GatewayNotReady"), ({"address": "", "address_note": "no address yet"}, "WaitingForAddress")],
)
def test_gateway_states(over: dict[str, Any], reason: str) -> None:
    assert link_conditions(seen_link(**over))["GatewayReady"][1] == reason


def test_deletion_of_a_link_in_use_names_its_users() -> None:
    going = link(metadata={"deletionTimestamp": NOW})
    got = link_conditions(seen_link(), going)
    assert got["Progressing"][1] == "InUse" and "models/tiny" in got["Progressing"][2]


def test_unused_link_is_not_unhealthy() -> None:
    got = link_conditions(seen_link(deployments=(), line=LineView(gateway_ready=True, connected=0)))
    assert got["LinkHealthy"][:2] == ("Unknown", "NotUsed")


def test_link_status_is_stable() -> None:
    first = build_link_status(link(), seen_link(), now=NOW)
    again = build_link_status(link().model_copy(update={"status": first}), seen_link(), now=LATER)
    assert as_status(again) == as_status(first)


def test_measured_numbers_do_not_flutter() -> None:
    """A round trip of 20.4 ms and then 21.7 ms is no news; twice as long is."""
    first = build_link_status(link(), seen_link(line=replace(UP_LINE, rtt_ms=20.4, goodput_bps=8e7)), now=NOW)
    live = link().model_copy(update={"status": first})
    near = build_link_status(live, seen_link(line=replace(UP_LINE, rtt_ms=21.7, goodput_bps=9e7)), now=LATER)
    far = build_link_status(live, seen_link(line=replace(UP_LINE, rtt_ms=41.0, goodput_bps=8e7)), now=LATER)
    assert first.line and first.line.rtt_ms == 20 and first.line.goodput_mbps == 80
    assert near.line == first.line
    assert far.line and far.line.rtt_ms == 41 and far.line.observed_at == LATER
