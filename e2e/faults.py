"""Things that go wrong on purpose. Each is a context manager: what it broke is whole again when it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from e2e.kind import ClusterRef
from e2e.shell import CommandFailed, wait_for

MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
PARKED = "/etc/kubernetes/kube-apiserver.parked.yaml"


@contextlib.contextmanager
def api_server_down(cluster: ClusterRef) -> Iterator[None]:
    """The cluster's API server is gone inside the block, for everybody; pods go on running.

    Returns once it refuses connections, and at the end once it is ready again and the node too.
    """
    cluster.on_node("mv", MANIFEST, PARKED)
    try:
        wait_for(f"{cluster.name}: API server down", lambda: not api_server_answers(cluster), timeout_s=60)
        yield
    finally:
        cluster.on_node("mv", PARKED, MANIFEST)
        wait_for(f"{cluster.name}: API server back", lambda: api_server_answers(cluster), timeout_s=120)
        ready = ("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
        wait_for(f"{cluster.name}: node ready", lambda: cluster.kubectl(*ready, timeout_s=130), timeout_s=150)


def api_server_answers(cluster: ClusterRef) -> bool:
    try:
        cluster.kubectl("get", "--raw", "/readyz", timeout_s=5)
    except CommandFailed:
        return False
    return True


def kill_pod(cluster: ClusterRef, namespace: str, pod: str) -> None:
    """Ends a pod at once, without the notice that a deletion gives: its processes get SIGKILL."""
    cluster.kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def kill_container(cluster: ClusterRef, namespace: str, pod: str, container: str) -> None:
    """Kills one container's first process; kubelet starts it again in the same pod."""
    path = "{.status.containerStatuses[?(@.name=='" + container + "')].containerID}"
    identity = cluster.kubectl("-n", namespace, "get", "pod", pod, "-o", f"jsonpath={path}").removeprefix(
        "containerd://"
    )
    if not identity:
        raise CommandFailed(f"{cluster.name}: {namespace}/{pod}: no container {container} runs")
    cluster.on_node("ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", identity)
