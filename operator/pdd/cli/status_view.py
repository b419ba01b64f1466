"""Status in a screenful: pure text from a PDDDeployment of a cluster, or from a running router's load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pdd.api.conditions import Condition, ConditionStatus, ConditionType, get_condition
from pdd.api.status import MemberState, PDDDeploymentStatus, RoleStatus, Site
from pdd.api.v1alpha1 import PDDDeployment

_NEGATIVE = (ConditionType.DEGRADED.value, ConditionType.PROGRESSING.value)
"""Conditions whose True is the state that wants attention."""
_SHORT_ROLE = {"prefill": "P", "relayDecode": "RLD", "mainDecode": "MD"}


def age(then: str, now: datetime) -> str:
    """`4 s`, `2m11s`, `3h05m`, `2d`: how long `then` (RFC 3339) is ago; `?` if it is no time."""
    try:
        at = datetime.fromisoformat(then.replace("Z", "+00:00"))
    except ValueError:
        return "?"
    seconds = max(0, int((now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 60:
        return f"{minutes}m{seconds % 60:02d}s"
    return f"{hours}h{minutes % 60:02d}m" if hours < 48 else f"{hours // 24}d"


def deployment_lines(deployment: PDDDeployment, now: datetime) -> list[str]:
    """Verdict first, one line a role, the line, then what is wrong and who must act. Ages are told for what the
    operator saw in B."""
    status = deployment.status
    if status is None:
        hint = "no status yet: is the operator running? kubectl -n pdd-system get pods"
        return [f"{deployment.name}  Unknown  {hint}"]
    lines = [_verdict(deployment, status, now)]
    answers = status.member is None or status.member.state is MemberState.CONNECTED
    lines += [_role_line(role, answers, now) for role in status.roles]
    lines.append(f"  A  router {status.router.ready}/{status.router.desired}  {status.router.reason}".rstrip())
    if status.link is not None:
        link = status.link
        rtt = f"  RTT {link.rtt_ms} ms" if link.rtt_ms is not None else ""
        used = "" if link.goodput_mbps is None else f"  {link.goodput_mbps} of {link.capacity_mbps or '?'} Mbit/s"
        limited = f"  limited by {link.limited_by}" if link.limited_by else ""
        lines.append(f"  line {link.name}  {link.state}  {link.connected_engines} engines{used}{rtt}{limited}")
    if status.member is not None:
        member = status.member
        words = [f"  cluster B  {member.state.value} since {age(member.since, now)}", member.reason, member.message]
        lines.append("  ".join(word for word in words if word))
    if status.scaling is not None and status.scaling.history:
        event = status.scaling.history[0]
        lines.append(f"  scaled RLD {event.from_} -> {event.to}  {event.reason}  {age(event.time, now)} ago")
    if status.plan is not None and status.plan.stages:
        shares = (f"{s.name} {s.utilization_percent} %" for s in status.plan.stages if s.name != "local transfer")
        lines.append("  predicted use  " + ", ".join(shares))
    lines += [f"  !! {problem}" for problem in _problems(status.conditions, now)]
    if status.url:
        lines.append(f"url  {status.url}/v1")
    return lines


def is_ready(deployment: PDDDeployment) -> bool:
    """Ready was True for the generation that was last written."""
    status = deployment.status
    ready = None if status is None else get_condition(status.conditions, ConditionType.READY)
    return (
        ready is not None
        and ready.status is ConditionStatus.TRUE
        and ready.observed_generation >= deployment.generation
    )


def _verdict(deployment: PDDDeployment, status: PDDDeploymentStatus, now: datetime) -> str:
    ready = get_condition(status.conditions, ConditionType.READY)
    if ready is None:
        word = "Unknown"
    else:
        word = {"True": "Ready", "False": "NotReady", "Unknown": "Unknown"}[ready.status.value]
        word += f" ({ready.reason})" if ready.status is not ConditionStatus.TRUE else ""
        word += f" since {age(ready.last_transition_time, now)}"
    model = deployment.spec.model.name
    stale = (
        "  (the operator has not seen the last change yet)"
        if status.observed_generation < deployment.generation
        else ""
    )
    return f"{deployment.name}  {word}  mode {status.mode.value}  model {model}{stale}"


def _role_line(role: RoleStatus, answers: bool, now: datetime) -> str:
    """`observed_at` is when this was first seen as it is; while B answers it is seen so until now."""
    ready = "?" if role.ready is None else str(role.ready)
    parts = [f"  {role.site.value}  {_SHORT_ROLE[role.role.value]:<3} {ready}/{role.desired}"]
    parts += [text for text in (role.reason, role.message) if text]
    if role.observed_at and role.site is Site.B:
        so_for = age(role.observed_at, now)
        parts.append(f"unchanged for {so_for}" if answers else f"STALE: B does not answer; so since {so_for}")
    return "  ".join(parts)


def _problems(conditions: Sequence[Condition], now: datetime) -> list[str]:
    wrong = [
        c
        for c in conditions
        if c.type != ConditionType.READY.value and c.status.value != ("False" if c.type in _NEGATIVE else "True")
    ]
    return [f"{c.type} {c.status.value}: {c.reason}, {age(c.last_transition_time, now)}: {c.message}" for c in wrong]


def router_lines(url: str, load: Mapping[str, Any]) -> list[str]:
    """The same from one router: its mode, its engines, the line. `load` is what GET /internal/load answers."""
    engines = load.get("engines") or []
    healthy = sum(bool(engine.get("healthy")) for engine in engines)
    relay = load.get("relay") or {}
    lines = [f"router {url}  mode {load.get('mode', '?')}  {healthy}/{len(engines)} engines healthy"]
    for engine in engines:
        state = "draining" if engine.get("draining") else "healthy" if engine.get("healthy") else "NOT HEALTHY"
        where = engine.get("url") or engine.get("host") or "?"
        lines.append(f"  {engine.get('role', '?'):<12} {state:<11} {engine.get('sessions', 0)} sessions  {where}")
    held = float(relay.get("holding_s_sum") or 0.0)
    count = int(relay.get("holding_s_count") or 0)
    mean = f", held {1000 * held / count:.0f} ms on average" if count else ""
    lines.append(
        f"  relayed {relay.get('arrivals_total', 0)} requests, {relay.get('sessions', 0)} now{mean}, "
        f"refused {relay.get('refused_total', 0)}"
    )
    lines += [f"  {line}" for line in line_lines(load.get("link"))]
    return lines


def line_lines(link: Any) -> list[str]:
    """One line for each MD of a /members document (or of the router's copy of it)."""
    members = link.get("members", []) if isinstance(link, Mapping) else []
    lines = []
    for member in members:
        rate = (member.get("rate_bps") or 0) / 1e6
        goodput = (member.get("goodput_bps") or 0) / 1e6
        rtt = member.get("rtt_ms")
        lines.append(
            f"line {member.get('name', '?')}  {member.get('state', '?')}  {member.get('streams', '?')} streams  "
            f"{goodput:.1f} of {rate:.0f} Mbit/s" + (f"  RTT {rtt:.0f} ms" if rtt is not None else "")
        )
    return lines
