"""What both clusters look like, for a reader who has nothing but the test's output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from e2e.clusters import Clusters
from e2e.kind import ClusterRef
from e2e.shell import CommandFailed

LOG_LINES = 60
EVENTS = 30


def build_dump(clusters: Clusters, namespaces_a: tuple[str, ...], namespaces_b: tuple[str, ...]) -> str:
    """Conditions, pods, events and logs. Never raises: what cannot be read is named."""
    lines: list[str] = []
    lines += _attempt("resources of PDD", lambda: _conditions(clusters.a))
    for letter, cluster, namespaces in (("A", clusters.a, namespaces_a), ("B", clusters.b, namespaces_b)):
        for namespace in namespaces:
            title = f"cluster {letter}, namespace {namespace}"
            lines += _attempt(f"{title}: pods", lambda c=cluster, n=namespace: _pods(c, n))
            lines += _attempt(f"{title}: events", lambda c=cluster, n=namespace: _events(c, n))
            lines += _attempt(f"{title}: logs", lambda c=cluster, n=namespace: _logs(c, n))
    return "\n".join(lines)


def _attempt(title: str, read: Any) -> list[str]:
    out = [f"---- {title}"]
    try:
        out += list(read())
    except CommandFailed as error:
        out.append(f"(cannot be read: {error})")
    return out


def _conditions(cluster: ClusterRef) -> Iterator[str]:
    listing = json.loads(cluster.kubectl("get", "pddlinks,pdddeployments", "-A", "-o", "json"))
    for item in listing["items"]:
        meta, status = item["metadata"], item.get("status") or {}
        yield f"{item['kind']} {meta['namespace']}/{meta['name']} generation {meta['generation']}" + (
            f", deleted since {meta['deletionTimestamp']}" if "deletionTimestamp" in meta else ""
        )
        for one in status.get("conditions") or []:
            yield f"  {one['type']}={one['status']} {one['reason']}: {one.get('message', '')}"
        rest = {key: value for key, value in status.items() if key not in ("conditions", "scaling")}
        yield f"  {json.dumps(rest)}"


def _pods(cluster: ClusterRef, namespace: str) -> list[str]:
    return cluster.kubectl("-n", namespace, "get", "pods,statefulsets,deployments,services", "-o", "wide").splitlines()


def _events(cluster: ClusterRef, namespace: str) -> list[str]:
    return cluster.kubectl("-n", namespace, "get", "events", "--sort-by=.lastTimestamp").splitlines()[-EVENTS:]


def _logs(cluster: ClusterRef, namespace: str) -> Iterator[str]:
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    for pod in pods:
        name, statuses = pod["metadata"]["name"], pod["status"].get("containerStatuses") or []
        for status in statuses:
            words = ("-n", namespace, "logs", name, "-c", status["name"], f"--tail={LOG_LINES}")
            yield f"-- {name}/{status['name']}, {status['restartCount']} restarts"
            if status["restartCount"]:
                yield from _attempt("before its restart", lambda w=words: cluster.kubectl(*w, "-p").splitlines())
            yield from _attempt("now", lambda w=words: cluster.kubectl(*w).splitlines())
