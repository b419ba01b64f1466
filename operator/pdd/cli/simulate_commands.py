"""`pdd simulate` as typer sees it. The simulator is imported when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from pdd.cli.options import Json, LoadHit, LoadInput, LoadOutput, LoadRate, LoadTrace


def register(app: typer.Typer) -> None:
    """Add `simulate` to `app`."""
    app.command("simulate")(simulate)


def simulate(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="PDDDeployment with its PDDLink, or a plan file.")] = "",
    json: Json = False,
    trace: LoadTrace = None,
    requests: Annotated[int, typer.Option(min=0, help="How many; of a trace, from its head. 0: all, or 20,000.")] = 0,
    rate: LoadRate = "",
    input_: LoadInput = "",
    output: LoadOutput = "",
    hit: LoadHit = "",
    prefill: Annotated[int, typer.Option(min=0, help="P engines; 0: as the file says, or for 80 % use.")] = 0,
    relay: Annotated[int, typer.Option(min=0, help="RLD engines; 0: likewise.")] = 0,
    main: Annotated[int, typer.Option(min=0, help="MD engines; 0: likewise.")] = 0,
    line: Annotated[str, typer.Option(help="The line, for example '20 Gbit/s'.")] = "",
    way: Annotated[list[str] | None, typer.Option(help="pdd, naive, same-site (repeatable; default: all).")] = None,
    closed: Annotated[bool, typer.Option("--closed", help="The next turn comes after the answer and a pause.")] = False,
    all_hits: Annotated[
        bool, typer.Option("--all-hits", help="Caches without limit: every hit of the load is one.")
    ] = False,
    slow_start: Annotated[bool, typer.Option("--slow-start", help="Connections on the line are cold.")] = False,
    request: Annotated[int, typer.Option(min=-1, help="Add the time line of this request (0: the first kept).")] = -1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a load that is drawn.")] = 1,
    checks: Annotated[
        bool, typer.Option("--checks", help="Run no load: hold the models against published numbers.")
    ] = False,
) -> None:
    """Run one fleet under one load, event by event.

    Same-site, naive and PDD meet the same requests. A percentile is printed with its 95 % interval, and not at all when
    fewer than 20 requests lie beyond it.

    \b
    Example: pdd simulate docs/examples/plan-standard.yaml
             pdd simulate --trace conversation_trace.jsonl --json
             pdd simulate --checks
    """
    if checks:
        from pdd.cli.model_checks import run as run_checks

        raise typer.Exit(run_checks(as_json=json))
    from pdd.cli.simulate import SimulateOptions, run

    options = SimulateOptions(
        file=file, trace=trace, requests=requests, rate=rate, input_tokens=input_,
        output_tokens=output, hit_rate=hit, engines=(prefill, relay, main), line=line,
        ways=tuple(way or ()), closed=closed, all_hits=all_hits, slow_start=slow_start, request=request, seed=seed,
        as_json=json,
    )  # fmt: skip
    raise typer.Exit(run(options))
