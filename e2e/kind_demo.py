"""`make kind-demo`: crds/samples/demo.yaml on two kind clusters with a WAN between them, and the demo's chat over it.

Every command that a user would type is printed before it runs. The clusters stay up; `python -m e2e.clusters down`
deletes them.

usage: python -m e2e.kind_demo [--json] [--delete]     --delete: take the clusters down at the end
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from e2e import clusters as sites
from e2e import engine, install, paths, prepare
from e2e.clusters import Clusters, Line
from e2e.shell import CommandFailed, wait_for
from e2e.wan.client import WanError
from pdd.cli.console import Console
from pdd.cli.demo import DemoOptions, DemoSession, report
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.common.errors import PDDError

T = TypeVar("T")
SAMPLE = paths.REPOSITORY / "crds" / "samples" / "demo.yaml"
NAMESPACE = "pdd-demo"
READY_S = 240
SECOND_TOKEN_LIMIT_MS = 600.0
"""Here two Kubernetes control planes share the cores with the engines; `pdd demo` asks for 300."""


def run(console: Console, *, as_json: bool) -> int:
    """Everything from nothing to the table; 0 if every promise came true. Raises CommandFailed, PDDError."""
    started = time.monotonic()
    spec = load_local_spec(SAMPLE)
    line = spec.link.spec.line
    _, images = step(console, "node image, tools and the project's images", prepare.prepare)
    wan = Line(rtt_ms=line.rtt_ms, mbps=line.capacity_mbps)
    pair = step(console, "two kind clusters and the WAN between their nodes", lambda: sites.up(wan))
    step(console, "images into both nodes", lambda: pair.load(*images))
    url = step(console, "Helm, credentials, sample", lambda: deploy(pair, spec, show=not as_json))
    console.say(f"router of cluster A: {url}/v1")
    options = DemoOptions(file=SAMPLE, as_json=as_json, second_token_limit_ms=SECOND_TOKEN_LIMIT_MS)

    async def bulk_bytes() -> int:
        return await asyncio.to_thread(line_bytes, pair, spec)

    results = asyncio.run(DemoSession(spec, url, bulk_bytes, options, console).run())
    met = report(spec, options, console, results, time.monotonic() - started)
    show_next(console, pair, url)
    return 0 if met else 1


def deploy(pair: Clusters, spec: LocalSpec, *, show: bool) -> str:
    """What a user does, command by command; the router's URL once the deployment is Ready."""
    work = install.Installer(pair, show=show)
    member_namespace = spec.link.spec.member.namespace
    work.member(member_namespace)
    work.operator(install.pin_images(pair))
    work.namespace(pair.a, NAMESPACE)
    work.link_secret(spec.link.name, NAMESPACE, member_namespace)
    work.apply(pair.a, NAMESPACE, SAMPLE)
    name = spec.deployment.name
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(pair.a.kubeconfig))
    print(work.pdd("status", name, *where, "--wait", str(READY_S), timeout_s=READY_S + 30), file=sys.stderr, end="")

    def node_port() -> int | None:
        found = json.loads(pair.a.kubectl("-n", NAMESPACE, "get", "service", f"{name}-router", "-o", "json"))
        port: int | None = found["spec"]["ports"][0].get("nodePort")
        return port

    return f"http://{pair.a.node_ip}:{wait_for('the node port of the router', node_port, timeout_s=30)}"


def line_bytes(pair: Clusters, spec: LocalSpec) -> int:
    """Bytes of KV that the gateway has sent over the WAN so far."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{spec.link.name}-gateway:8081/proxy/members"
    members: list[dict[str, Any]] = json.loads(pair.a.kubectl("get", "--raw", path, timeout_s=15))["members"]
    return sum(int(member["bulk_bytes_total"]) for member in members)


def show_next(console: Console, pair: Clusters, url: str) -> None:
    """The commands that a curious user runs next."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "stream": True})
    console.say("next:")
    console.say('  eval "$(python -m e2e.clusters env)"; export KUBECONFIG=$KUBECONFIG_A')
    console.say(f"  kubectl -n {NAMESPACE} get pdd,pddlink,pods")
    console.say(f"  curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'")
    console.say("  python -m e2e.clusters down       deletes both clusters")


def step(console: Console, what: str, work: Callable[[], T]) -> T:
    """Run one step and say how long it took."""
    console.say(f"{what} ...")
    started = time.monotonic()
    result = work()
    console.say(f"{what}: {time.monotonic() - started:.0f} s", "green")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.kind_demo", usage=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--delete", action="store_true")
    args = parser.parse_args(arguments)
    console = Console()
    try:
        return run(console, as_json=args.json)
    except (CommandFailed, WanError, engine.NoEngine, PDDError) as error:
        console.say(f"kind-demo: {error}", "red")
        return 1
    finally:
        if args.delete:
            sites.down()


if __name__ == "__main__":
    sys.exit(main())
