"""The ground that the other e2e tests stand on: two ready clusters, and a line between them that does what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.clusters import Clusters
from e2e.kind import ClusterRef
from e2e.shell import CommandFailed
from e2e.wan.client import Wan

NAMESPACE = "pdd-selftest"
NODE_PORT = 31999
SERVER = "import http.server as h; h.test(HandlerClass=h.SimpleHTTPRequestHandler, port=8080)"

# Connects `count` times and prints the milliseconds of each connection: one round trip, plus little.
CONNECT = """
import socket, sys, time
host, port, count, timeout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
for _ in range(count):
    started = time.monotonic()
    socket.create_connection((host, port), timeout=timeout).close()
    print((time.monotonic() - started) * 1000)
"""


def pod(name: str, command: list[str]) -> dict[str, object]:
    container = {"name": "main", "image": "pdd/router:dev", "imagePullPolicy": "Never", "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{**container, "workingDir": "/tmp"}]},
    }


def objects() -> dict[str, object]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server", "namespace": NAMESPACE},
        "spec": {
            "type": "NodePort",
            "selector": {"app": "server"},
            "ports": [{"port": 8080, "nodePort": NODE_PORT}],
        },
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    items = [namespace, pod("server", ["python3", "-c", SERVER]), pod("probe", ["sleep", "infinity"]), service]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def connect_ms(cluster: ClusterRef, host: str, port: int, count: int = 1, timeout_s: float = 5) -> list[float]:
    """Times of TCP connections from a pod of the cluster. Raises CommandFailed when one fails."""
    words = ("-n", NAMESPACE, "exec", "probe", "--", "python3", "-c", CONNECT, host, str(port), str(count))
    return [float(line) for line in cluster.kubectl(*words, str(timeout_s)).split()]


@pytest.fixture(scope="module")
def probes(clusters: Clusters) -> Iterator[Clusters]:
    """In each cluster a pod that connects, and a pod that serves HTTP on a NodePort."""
    for cluster in (clusters.a, clusters.b):
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout_s=120)
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(objects()).encode())
    for cluster in (clusters.a, clusters.b):
        cluster.kubectl(
            "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s", timeout_s=100
        )
    yield clusters
    for cluster in (clusters.a, clusters.b):
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_both_nodes_are_ready_and_ranges_do_not_overlap(clusters: Clusters) -> None:
    pods, services = set(), set()
    for cluster in (clusters.a, clusters.b):
        node = json.loads(cluster.kubectl("get", "node", cluster.node, "-o", "json"))
        conditions = {item["type"]: item["status"] for item in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        pods.add(node["spec"]["podCIDR"])
        services.add(cluster.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"))
    assert len(pods) == 2
    assert len(services) == 2


def test_a_round_trip_between_pod_and_other_node_takes_what_the_line_is_set_to(probes: Clusters, wan: Wan) -> None:
    def fastest_ms() -> float:
        return min(connect_ms(probes.b, probes.a.node_ip, NODE_PORT, count=20))

    rtt_ms = 2 * wan.stats()["settings"]["delay_ms"]
    assert rtt_ms <= fastest_ms() < rtt_ms + 8
    wan.set(delay_ms=40)
    assert 80 <= fastest_ms() < 88


def test_pods_reach_the_other_sites_api_server_and_node_port_through_the_line(probes: Clusters, wan: Wan) -> None:
    wan.count(6443, NODE_PORT)
    before = {port: wan.port_bytes(port) for port in (6443, NODE_PORT)}
    for near, far in ((probes.a, probes.b), (probes.b, probes.a)):
        for port in (6443, NODE_PORT):
            assert connect_ms(near, far.node_ip, port)
    for port, (to_b, to_a) in before.items():
        after = wan.port_bytes(port)
        assert after[0] > to_b, port
        assert after[1] > to_a, port


def test_an_api_call_from_the_other_sites_pod_is_accepted_with_the_internal_kubeconfig(probes: Clusters) -> None:
    text = probes.b.kubeconfig_internal.read_text()
    assert f"https://{probes.b.node_ip}:6443" in text
    # The node of A has kubectl; its way to B is the pods' way.
    probes.a.on_node("cp", "/dev/stdin", "/tmp/selftest.kubeconfig", stdin=text.encode())
    try:
        names = probes.a.on_node("kubectl", "--kubeconfig", "/tmp/selftest.kubeconfig", "get", "nodes", "-o", "name")
    finally:
        probes.a.on_node("rm", "-f", "/tmp/selftest.kubeconfig")
    assert names.split() == [f"node/{probes.b.node}"]


def test_a_partition_stops_everything_and_heals(probes: Clusters, wan: Wan) -> None:
    with wan.partitioned():
        for port in (6443, NODE_PORT):
            with pytest.raises(CommandFailed, match="timed out"):
                connect_ms(probes.a, probes.b.node_ip, port, timeout_s=2)
    assert connect_ms(probes.a, probes.b.node_ip, NODE_PORT)


def test_blocking_a_port_leaves_the_others_alone(probes: Clusters, wan: Wan) -> None:
    with wan.blocking(NODE_PORT):
        with pytest.raises(CommandFailed, match="timed out"):
            connect_ms(probes.b, probes.a.node_ip, NODE_PORT, timeout_s=2)
        assert connect_ms(probes.a, probes.b.node_ip, 6443)
    assert connect_ms(probes.b, probes.a.node_ip, NODE_PORT)


def test_a_connection_survives_a_partition_of_two_seconds(probes: Clusters, wan: Wan) -> None:
    fetch = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1], timeout=30).status)"
    url = f"http://{probes.a.node_ip}:{NODE_PORT}/"
    wan.partition()
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            probes.b.kubectl, "-n", NAMESPACE, "exec", "probe", "--", "python3", "-c", fetch, url, timeout_s=40
        )
        time.sleep(2)
        wan.heal()
        assert answer.result().strip() == "200"
    assert time.monotonic() - started >= 2


def test_the_rate_is_what_the_line_is_set_to(probes: Clusters, wan: Wan) -> None:
    wan.set(mbps=50)
    size = 5 << 20
    fetch = "import urllib.request as u, sys; print(len(u.urlopen(sys.argv[1], timeout=30).read()))"
    probes.a.kubectl(
        "-n", NAMESPACE, "exec", "server", "--", "python3", "-c", f"open('/tmp/blob', 'wb').write(bytes({size}))"
    )
    url = f"http://{probes.a.node_ip}:{NODE_PORT}/blob"
    before = wan.line_bytes()[0]
    started = time.monotonic()
    words = ("-n", NAMESPACE, "exec", "probe", "--", "python3", "-c", fetch, url)
    assert probes.b.kubectl(*words).strip() == str(size)
    elapsed_s = time.monotonic() - started
    assert elapsed_s > size * 8 / 50e6
    carried = wan.line_bytes()[0] - before
    assert size < carried < 1.15 * size
