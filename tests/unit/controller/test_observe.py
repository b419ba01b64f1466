"""What live objects say: readiness, troubles with a remedy, addresses that stick."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.samples import link

from pdd.api.conditions import Reason
from pdd.controller.observe import gateway_address, is_ready, pod_cidrs, trouble_of, view_workload


def sts(ready: int, updated: int, observed: int = 2, generation: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "status": {"readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": observed},
    }


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "status": status}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    return pod(
        "p-0", containerStatuses=[{"name": "engine", "image": "i:1", "state": {"waiting": {"reason": reason}}, **more}]
    )


def test_unknown_cluster_is_unknown_not_zero() -> None:
    view = view_workload(None, [], 2, known=False)
    assert view.ready is None and view.available is None and not view.rolled_out


def test_missing_workload_is_zero() -> None:
    assert view_workload(None, [], 2, known=True).ready == 0


def test_rolled_out_needs_the_current_generation() -> None:
    assert view_workload(sts(2, 2), [], 2, known=True).rolled_out
    assert not view_workload(sts(2, 2, observed=1), [], 2, known=True).rolled_out
    assert not view_workload(sts(2, 1), [], 2, known=True).rolled_out


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
CRASHED = {"terminated": {"exitCode": 2}}


@pytest.mark.parametrize(
    ("broken", "reason", "remedy"),
    [
        (waiting("ImagePullBackOff"), Reason.IMAGE_PULL, "imagePullSecrets"),
        (
            waiting("CrashLoopBackOff", lastState=CRASHED),
            Reason.CRASH_LOOP,
            "code 2; see: kubectl logs -n n p-0 -c engine",
        ),
        (pod("p-0", conditions=[UNSCHEDULABLE]), Reason.UNSCHEDULABLE, "Insufficient cpu"),
    ],
)
def test_trouble_says_what_and_what_to_do(broken: dict[str, Any], reason: Reason, remedy: str) -> None:
    found = trouble_of([broken])
    assert found is not None and found.reason is reason and remedy in found.message


def test_starting_pods_are_no_trouble() -> None:
    assert trouble_of([waiting("ContainerCreating"), pod("p-1")]) is None


def test_terminating_pod_is_not_ready() -> None:
    ready = pod("p", conditions=[{"type": "Ready", "status": "True"}])
    assert is_ready(ready)
    ready["metadata"]["deletionTimestamp"] = "t"
    assert not is_ready(ready)


def node(name: str, ip: str, ready: str = "True", cidr: str = "10.244.0.0/24") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"podCIDRs": [cidr, "fd00::/64"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ip}],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


NODE_PORT = {"spec": {"ports": [{"nodePort": 31443}]}}


def test_node_port_address_is_a_ready_nodes() -> None:
    nodes = [node("a", "1.1.1.1", ready="False"), node("b", "2.2.2.2")]
    assert gateway_address(link(), NODE_PORT, nodes, "") == ("2.2.2.2:31443", "")


def test_address_sticks_while_it_is_right() -> None:
    """A new first node must not restart every MD pod of B."""
    nodes = [node("a", "1.1.1.1"), node("b", "2.2.2.2")]
    assert gateway_address(link(), NODE_PORT, nodes, "2.2.2.2:31443")[0] == "2.2.2.2:31443"
    assert gateway_address(link(), NODE_PORT, nodes, "9.9.9.9:31443")[0] == "1.1.1.1:31443"


def test_missing_address_says_what_to_do() -> None:
    assert "advertise.host" in gateway_address(link(), NODE_PORT, None, "")[1]
    assert gateway_address(link(), None, [], "")[0] == ""
    lb = link(spec={"gateway": {"exposure": {"type": "LoadBalancer"}}})
    assert "NodePort" in gateway_address(lb, {"spec": {"ports": [{}]}}, [], "")[1]


def test_advertised_and_balanced_addresses() -> None:
    given = link(spec={"gateway": {"exposure": {"advertise": {"host": "gw.example", "port": 443}}}})
    assert gateway_address(given, NODE_PORT, None, "") == ("gw.example:443", "")
    lb = link(spec={"gateway": {"exposure": {"type": "LoadBalancer"}}})
    service = {"spec": {"ports": [{}]}, "status": {"loadBalancer": {"ingress": [{"ip": "fd00::1"}]}}}
    assert gateway_address(lb, service, None, "") == ("[fd00::1]:7443", "")


def test_pod_networks_are_those_of_ipv4() -> None:
    assert pod_cidrs([node("a", "1", cidr="10.244.1.0/24"), node("b", "2")]) == ("10.244.0.0/24", "10.244.1.0/24")
