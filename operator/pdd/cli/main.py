"""The `pdd` command. Each subcommand imports what it needs when it runs, so `pdd validate` needs no Kubernetes package.

Exit codes: 0 done, 1 failed or not met, 2 wrong usage or invalid input, 3 unreachable or forbidden, 124 timed out,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated

import typer

from pdd import __version__
from pdd.cli.bathtub_commands import register as register_bathtub
from pdd.cli.calibrate_commands import register as register_calibrate
from pdd.cli.catalogue_commands import register as register_catalogue
from pdd.cli.line_commands import register as register_line
from pdd.cli.local_commands import register as register_local
from pdd.cli.plan_commands import register as register_plan
from pdd.cli.simulate_commands import register as register_simulate
from pdd.cli.trace_commands import register as register_trace
from pdd.common.errors import Forbidden, InvalidInput, PDDError, TimedOut, Unreachable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130

_FACTS = ("is ", "cannot ", "holds ", "runs ", "the file holds ")
"""How a remedy begins that says what is wrong rather than what to do."""

EPILOG = (
    "Exit codes: 0 done, 1 failed or not met, 2 wrong usage or invalid input, "
    "3 unreachable or forbidden, 124 timed out, 130 interrupted."
)

app = typer.Typer(
    name="pdd",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
link_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Pair this cluster (A) with another (B).")
app.add_typer(link_app, name="link")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"pdd {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show Python tracebacks (any place on the line).")] = False,
) -> None:
    """Serve one large language model from two Kubernetes clusters.

    \b
    pdd demo                               both clusters on this machine, one long prompt
    pdd validate crds/samples/full.yaml    check a file offline
    pdd link create b --member-kubeconfig b.kubeconfig -n pdd
    """


@app.command("validate")
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML files; - reads standard input.")],
    json: Json = False,
) -> None:
    """Check PDDDeployments and PDDLinks offline, by the rules of the API server and more.

    \b
    Example: pdd validate crds/samples/full.yaml
             kubectl get pdd tiny -o yaml | pdd validate -

    Unknown keys are errors, with the nearest known one. Exit code 2 if anything is wrong.
    """
    from pdd.cli.validate import run

    raise typer.Exit(run(files, as_json=json))


@link_app.command("create")
def link_create(
    name: Annotated[str, typer.Argument(help="Name of the Secret (and of the PDDLink that will use it).")],
    member_kubeconfig: Annotated[Path, typer.Option(help="kubeconfig that reaches cluster B.")],
    member_context: Annotated[str, typer.Option(help="Its context (default: its current one).")] = "",
    member_namespace: Annotated[str, typer.Option(help="Namespace in B, where chart pdd-member is installed.")] = "pdd",
    member_server: Annotated[
        str, typer.Option("--member-server", "--server", help="URL of B's API server as seen from A's pods.")
    ] = "",
    member_tls_server_name: Annotated[str, typer.Option(help="Name in B's certificate, if the URL's is not.")] = "",
    member_service_account: Annotated[str, typer.Option(help="ServiceAccount in B to act as.")] = "pdd-member",
    use_given: Annotated[
        bool, typer.Option("--use-given-credentials", help="Store the kubeconfig's own credentials, no token.")
    ] = False,
    token_hours: Annotated[int, typer.Option(min=1, max=8760, help="Lifetime asked for the token.")] = 24 * 30,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace in A of the Secret.")] = "default",
    kubeconfig: Annotated[Path | None, typer.Option(help="kubeconfig that reaches cluster A.")] = None,
    context: Annotated[str, typer.Option(help="Context of cluster A (default: the current one).")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the Secret instead of applying it.")] = False,
    timeout_s: Annotated[int, typer.Option(min=1, max=600, help="Longest wait for an API server.")] = 15,
    json: Json = False,
) -> None:
    """Make or refresh the Secret in A that holds the credentials of B.

    \b
    Example: pdd link create site-b --member-kubeconfig b.kubeconfig -n default
    """
    from pdd.cli.link_create import LinkCreateOptions, run

    options = LinkCreateOptions(
        name=name,
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        member_kubeconfig=member_kubeconfig,
        member_context=member_context,
        member_namespace=member_namespace,
        member_server=member_server,
        member_tls_server_name=member_tls_server_name,
        member_service_account=member_service_account,
        use_given=use_given,
        token_hours=token_hours,
        dry_run=dry_run,
        timeout_s=timeout_s,
        as_json=json,
    )
    raise typer.Exit(run(options))


register_local(app)
register_plan(app)
register_line(app)
register_simulate(app)
register_trace(app)
register_catalogue(app)
register_bathtub(app)
register_calibrate(app)


def exit_code(error: PDDError) -> int:
    """The exit code of an error of ours."""
    if isinstance(error, InvalidInput):
        return EXIT_USAGE
    if isinstance(error, Unreachable | Forbidden):
        return EXIT_UNREACHABLE
    if isinstance(error, TimedOut):
        return EXIT_TIMED_OUT
    return EXIT_FAILED


def report(error: PDDError) -> None:
    """Say on standard error what is wrong and what to do."""
    if isinstance(error, InvalidInput):
        shown = "" if error.value is None else f": {error.value!r}"
        label = "why:  " if error.remedy.startswith(_FACTS) else "fix:  "
        print(f"error: {error.field}{shown}\n{label} {error.remedy}", file=sys.stderr)
        return
    print(f"error: {error.message} ({error.reason})", file=sys.stderr)


def main() -> None:
    """Entry point. Never shows a traceback without --debug."""
    debug = "--debug" in sys.argv[1:] or bool(os.environ.get("PDD_DEBUG"))
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if arguments[:1] == ["help"]:  # as git, kubectl and helm have it
        arguments = [*arguments[1:], "--help"]
    program = Path(sys.argv[0]).name
    try:
        app(args=arguments, prog_name="kubectl pdd" if program.startswith("kubectl-") else "pdd")
    except PDDError as error:
        if debug:
            raise
        report(error)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        with tempfile.NamedTemporaryFile("w", prefix="pdd-error-", suffix=".log", delete=False) as log:
            log.write(traceback.format_exc())
        print(
            f"error: {type(error).__name__}: {error}\nfix:   a fault of pdd; see {log.name}, or add --debug",
            file=sys.stderr,
        )
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
