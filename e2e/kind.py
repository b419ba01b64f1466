"""One kind cluster: creates, finds and deletes it. One node each, on a container network of our own without IPv6."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from e2e import paths
from e2e.shell import CommandFailed, run, say, wait_for

NETWORK = "pdd"
CNI_FILE = "/etc/cni/net.d/10-pdd.conflist"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What a cluster is made with. The two clusters' ranges never overlap, as those of real sites do not."""

    name: str
    pod_subnet: str
    service_subnet: str
    node_subnet: str  # the node's share of the pod subnet


PLAN_A = ClusterPlan("pdd-a", "10.244.0.0/16", "10.96.0.0/16", "10.244.0.0/24")
PLAN_B = ClusterPlan("pdd-b", "10.245.0.0/16", "10.97.0.0/16", "10.245.0.0/24")


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """A running cluster. `kubeconfig` is for this host, `kubeconfig_internal` for either cluster's pods and nodes."""

    name: str
    kubeconfig: Path
    kubeconfig_internal: Path
    node: str
    node_ip: str
    node_pid: int

    def kubectl(self, *words: str | Path, timeout_s: float = 60, stdin: bytes | Path | None = None) -> str:
        """Runs kubectl on this cluster and returns its standard output. Raises CommandFailed."""
        return run(paths.tools() / "kubectl", "--kubeconfig", self.kubeconfig, *words, timeout_s=timeout_s, stdin=stdin)

    def helm(self, *words: str | Path, timeout_s: float = 180) -> str:
        """Runs helm on this cluster and returns its standard output. Raises CommandFailed."""
        return run(paths.tools() / "helm", "--kubeconfig", self.kubeconfig, *words, timeout_s=timeout_s)

    def on_node(self, *words: str, timeout_s: float = 60, stdin: bytes | None = None) -> str:
        """Runs a command in the node's container. Raises CommandFailed."""
        return run("docker", "exec", *(["-i"] if stdin else []), self.node, *words, timeout_s=timeout_s, stdin=stdin)


def build_config(plan: ClusterPlan) -> dict[str, object]:
    """kind's configuration. kube-proxy uses nftables: not every kernel still has IPVS or the old iptables matches."""
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": plan.name,
        "networking": {
            "ipFamily": "ipv4",
            "disableDefaultCNI": True,
            "kubeProxyMode": "nftables",
            "podSubnet": plan.pod_subnet,
            "serviceSubnet": plan.service_subnet,
        },
        "nodes": [{"role": "control-plane"}],
    }


def build_cni(plan: ClusterPlan) -> dict[str, object]:
    """A CNI configuration for a one-node cluster, from plugins that our node image and kindest/node both have."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": plan.node_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pdd",
        "plugins": [
            {"type": "ptp", "ipMasq": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def ensure_network() -> bool:
    """Makes the nodes' network; True if it was not there before. kind's own would have IPv6, a way past the WAN."""
    if run("docker", "network", "ls", "-q", "-f", f"name=^{NETWORK}$").strip():
        return False
    run("docker", "network", "create", NETWORK)
    return True


def remove_network() -> None:
    if run("docker", "network", "ls", "-q", "-f", f"name=^{NETWORK}$").strip():
        run("docker", "network", "rm", NETWORK)


def exists(name: str) -> bool:
    return bool(run("docker", "ps", "-aq", "-f", f"name=^{name}-control-plane$").strip())


def find(plan: ClusterPlan) -> ClusterRef | None:
    """The cluster, if its node runs and its API server answers."""
    node = f"{plan.name}-control-plane"
    try:
        found = json.loads(run("docker", "inspect", node))[0]
    except CommandFailed:
        return None
    if not found["State"]["Running"] or NETWORK not in found["NetworkSettings"]["Networks"]:
        return None
    folder = paths.state()
    ref = ClusterRef(
        name=plan.name,
        kubeconfig=folder / f"{plan.name}.kubeconfig",
        kubeconfig_internal=folder / f"{plan.name}.internal.kubeconfig",
        node=node,
        node_ip=found["NetworkSettings"]["Networks"][NETWORK]["IPAddress"],
        node_pid=found["State"]["Pid"],
    )
    try:
        _write_kubeconfigs(ref)
        ref.kubectl("get", "--raw", "/readyz", timeout_s=10)
    except CommandFailed:
        return None
    return ref


def create(plan: ClusterPlan, image: str) -> ClusterRef:
    """Creates the cluster and waits until its node is ready and DNS answers. Logs are kept when it fails."""
    started = time.monotonic()
    node = f"{plan.name}-control-plane"
    try:
        _kind("create", "cluster", "--config", "-", "--image", image, plan=plan, stdin=_bytes(build_config(plan)))
        run("docker", "exec", "-i", node, "cp", "/dev/stdin", CNI_FILE, stdin=_bytes(build_cni(plan)))
        ref = wait_for(f"{plan.name}: API server", lambda: find(plan), timeout_s=60)
        ref.kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=1")
        # Its image is not part of a node image that was built from source, and nothing here claims a volume.
        ref.kubectl("delete", "namespace", "local-path-storage", "--ignore-not-found", "--wait=false")
        ref.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s", timeout_s=200)
        ref.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s", timeout_s=200)
    except CommandFailed:
        logs = paths.state() / "logs" / plan.name
        try:
            _kind("export", "logs", str(logs), plan=plan)
            say(f"{plan.name} did not come up; its logs are in {logs}")
        except CommandFailed as error:
            say(f"{plan.name} did not come up, and its logs could not be had: {error}")
        raise
    say(f"{plan.name} is ready after {time.monotonic() - started:.0f} s")
    return ref


def delete(plan: ClusterPlan) -> None:
    _kind("delete", "cluster", plan=plan)
    for path in paths.state().glob(f"{plan.name}.*kubeconfig"):
        path.unlink()


def _kind(*words: str, plan: ClusterPlan, stdin: bytes | None = None) -> str:
    env = {"KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK, "KUBECONFIG": str(paths.state() / f"{plan.name}.kubeconfig")}
    return run(paths.tools() / "kind", *words, "--name", plan.name, timeout_s=300, stdin=stdin, env=env)


def _write_kubeconfigs(ref: ClusterRef) -> None:
    """The host's kubeconfig, and one whose server is the node's address: a name that only containers know is no use."""
    _write(ref.kubeconfig, run(paths.tools() / "kind", "get", "kubeconfig", "--name", ref.name))
    text = run(paths.tools() / "kind", "get", "kubeconfig", "--internal", "--name", ref.name)
    _write(ref.kubeconfig_internal, text.replace(f"https://{ref.node}:6443", f"https://{ref.node_ip}:6443"))


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(0o600)
    part.rename(path)


def _bytes(document: dict[str, object]) -> bytes:
    return json.dumps(document).encode()
