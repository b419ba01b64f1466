"""The commands that run, look at and check PDD, as typer sees them. Heavy parts are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SAMPLE = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
Mbps = Annotated[int | None, typer.Option(min=1, help="Line rate in Mbit/s (default: the file's PDDLink).")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Kubeconfig file (default: KUBECONFIG, ~/.kube/config).")]
Rtt = Annotated[int | None, typer.Option(min=0, help="Round trip in ms (default: the file's PDDLink).")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("demo")(demo)
    app.command("up")(up)
    app.command("status")(status)
    app.command("doctor")(doctor)


def demo(
    file: Annotated[Path, typer.Option("--file", "-f", help="PDDDeployment and PDDLink to run.")] = SAMPLE,
    once: Annotated[bool, typer.Option("--once", help="Only the long request and the naive one.")] = False,
    json: Json = False,
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Length of the long prompt.")] = 8000,
    output_tokens: Annotated[int, typer.Option(min=0, help="Length of the answer; 0 fits it to the line.")] = 0,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep all running afterwards, until Ctrl-C.")] = False,
    port: Annotated[int | None, typer.Option(help="Port of the router (default: any free one).")] = None,
) -> None:
    """Both clusters on this machine, an emulated line between them, and one long prompt.

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
    port: Annotated[int, typer.Option(help="Port of the router; if taken, the next free one.")] = 8080,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    json: Json = False,
) -> None:
    """Run a PDDDeployment as processes of this machine until Ctrl-C; prints the URL and a curl line.

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
    """How a deployment is doing: verdict, roles, line, and what is wrong. Cluster A's kubeconfig is enough.

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
    """Is this machine fit to run PDD, and, with --context, is that cluster? Each problem comes with its fix.

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
