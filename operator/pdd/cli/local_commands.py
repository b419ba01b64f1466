"""The commands that run, look at and check PDD, as typer sees them. Heavy parts are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.bench_commands import register as register_bench
from pdd.cli.options import SAMPLE, Context, Json, Kubeconfig, Mbps, Rtt


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("demo")(demo)
    app.command("up")(up)
    app.command("status")(status)
    app.command("doctor")(doctor)
    register_bench(app)


def demo(
    file: Annotated[Path, typer.Option("--file", "-f", help="PDDDeployment and PDDLink to run.")] = SAMPLE,
    once: Annotated[bool, typer.Option("--once", help="Only the long request and the naive one.")] = False,
    json: Json = False,
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Length of the long prompt.")] = 8000,
    output_tokens: Annotated[int, typer.Option(min=0, help="Length of the answer; 0 fits it to the line.")] = 0,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep all running afterwards, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the router; 0: any free one.")] = 0,
) -> None:
    """Run both clusters on this machine and show a long prompt.

    \b
    Example: pdd demo --once --json --mbps 100 --rtt-ms 20

    Shows the stream with each token's producer, then PDD beside a naive run: first token, second token, bytes on the
    line, and whether every token equals one engine's. Exit code 1 if a promise is not met.
    """
    from pdd.cli.console import Console
    from pdd.cli.demo import DemoOptions
    from pdd.cli.demo import demo as run

    options = DemoOptions(
        file=file,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        mbps=mbps,
        rtt_ms=rtt_ms,
        once=once,
        as_json=json,
        keep=keep,
        port=port,
    )
    raise typer.Exit(run(options, Console()))


def up(
    file: Annotated[Path, typer.Argument(help="YAML with a PDDDeployment and its PDDLink.")] = SAMPLE,
    name: Annotated[str, typer.Option(help="Which PDDDeployment, if the file holds several.")] = "",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the router; if taken, the next free one; 0: any free one.")
    ] = 8080,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    json: Json = False,
) -> None:
    """Run a deployment on this machine until Ctrl-C.

    Prints the URL and a curl line.

    \b
    Example: pdd up crds/samples/demo.yaml --port 9000
    """
    from pdd.cli.console import Console
    from pdd.cli.up import up as run

    raise typer.Exit(run(file, Console(), name=name, port=port, mbps=mbps, rtt_ms=rtt_ms, as_json=json))


def status(
    name: Annotated[str, typer.Argument(help="PDDDeployment (default: all of the namespace).")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace (default: the context's).")] = "",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    url: Annotated[str, typer.Option(help="Ask a router instead, e.g. http://127.0.0.1:8080.")] = "",
    wait: Annotated[float, typer.Option(min=0, help="Wait so many seconds until Ready; 124 if not.")] = 0,
    json: Json = False,
) -> None:
    """Show how a deployment is doing, problems last.

    Cluster A's kubeconfig is enough: B's side comes from the status, with its age.

    \b
    Example: pdd status tiny -n default --wait 120
    """
    from pdd.cli import status as run
    from pdd.cli.console import Console

    if url:
        raise typer.Exit(run.status_of_router(url, Console(), as_json=json))
    raise typer.Exit(
        run.status_of_deployments(
            Console(), name=name, namespace=namespace, context=context, kubeconfig=kubeconfig, wait_s=wait, as_json=json
        )
    )


def doctor(
    only: Annotated[list[str] | None, typer.Option(help="Run only this check or category (repeatable).")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Leave this check or category out (repeatable).")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the checks and end.")] = False,
    context: Annotated[
        str | None, typer.Option(help="Check this cluster too; an empty string is the current one.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace for the cluster checks.")] = "default",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show problems only.")] = False,
    json: Json = False,
) -> None:
    """Check this machine, and with --context a cluster.

    Each problem comes with its reason and its fix. Exit code 1 if a check failed; warnings do not count.

    \b
    Example: pdd doctor --only local --json
    """
    from pdd.cli import doctor as run
    from pdd.cli.console import Console

    if list_:
        raise typer.Exit(run.list_checks(Console()))
    code = run.doctor(
        Console(),
        SAMPLE,
        only=only or (),
        skip=skip or (),
        context=context,
        kubeconfig=kubeconfig,
        namespace=namespace,
        quiet=quiet,
        as_json=json,
    )
    raise typer.Exit(code)
