"""`pdd up`: a deployment as processes of this machine, until Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path

from pdd.api.engines import served_names
from pdd.cli.console import Console
from pdd.cli.runner.interrupt import run_interruptible
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.cli.runner.stack import ROUTER_PORT, running_stack


def up(
    file: Path,
    console: Console,
    *,
    name: str = "",
    port: int = ROUTER_PORT,
    mbps: int | None = None,
    rtt_ms: int | None = None,
    as_json: bool = False,
) -> int:
    """Run the deployment of `file`; 130 after Ctrl-C. `port` taken: the next free one, and says so."""
    spec = load_local_spec(file, name).with_line(mbps, rtt_ms)
    return run_interruptible(
        _up(spec, console, port, as_json), lambda: console.say("\nstopping the processes (again Ctrl-C: at once)")
    )


async def _up(spec: LocalSpec, console: Console, port: int, as_json: bool) -> int:
    def progress(what: str, seconds: float) -> None:
        console.say(f"  {what:<68} {seconds:5.1f} s")

    console.say(f"{spec.deployment.name}: starting as processes of this machine")
    async with running_stack(spec, router_port=port, progress=progress) as stack:
        plan = stack.plan
        if port and not plan.router_url.endswith(f":{port}"):
            console.say(f"  port {port} is taken, the router listens at {plan.router_url}", "yellow")
        model = served_names(spec.deployment.spec.model)[0]
        if as_json:
            document = {
                "apiVersion": "pdd.dev/v1alpha1",
                "kind": "LocalStack",
                "router": plan.router_url,
                "gateway": plan.gateway_url,
                "line": plan.line_url,
                "engines": {engine.name: engine.url for engine in plan.engines},
                "logs": str(stack.folder / "logs"),
            }
            console.result(json.dumps(document))
        else:
            messages = [{"role": "user", "content": "Hello"}]
            body = json.dumps({"model": model, "messages": messages, "max_tokens": 64, "stream": True})
            console.result(
                f"export OPENAI_BASE_URL={plan.router_url}/v1\n"
                f"curl -N {plan.router_url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
            )
            console.say(f"  logs: {stack.folder / 'logs'}   Ctrl-C ends it")
        await stack.supervisor.watch()
    return 0
