"""`pdd plan` as typer sees it. The planner is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.options import ChipPrice, Json, LinePrice, LoadHit, LoadInput, LoadOutput, LoadRate, LoadTrace, OwnChips

EXIT_INFEASIBLE = 1


def register(app: typer.Typer) -> None:
    """Add `plan` to `app`."""
    app.command("plan")(plan)


def plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="PDDDeployment with its PDDLink, or a plan file.")],
    json: Json = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say in words what was searched, found and why.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file with pictures.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the report's pictures, SVG and PNG.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the chosen plan as PDDLink and PDDDeployment.")] = None,
    trace: LoadTrace = None,
    rate: LoadRate = "",
    input_: LoadInput = "",
    output: LoadOutput = "",
    hit: LoadHit = "",
    price: ChipPrice = None,
    line_price: LinePrice = "",
    chips: OwnChips = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the load that all plans meet.")] = 1,
) -> None:
    """What to buy, how many of each, how wide a line.

    Searches chips per role, line, relay threshold and engines of each role for the most requests within the promise
    per money, and simulates the best. Exit code 1 and `infeasible:` if no plan keeps the promise.

    \b
    Example: pdd plan docs/examples/plan-standard.yaml --explain
             pdd plan crds/samples/vllm.yaml --price H20=1.50/h --line-price 700/month --rate 4/s
             pdd plan docs/examples/plan-small.yaml --json
    """
    from pdd.cli.plan import PlanOptions, run

    options = PlanOptions(
        file=file,
        as_json=json,
        explain=explain,
        report=report,
        pictures=pictures,
        out=out,
        trace=trace,
        rate=rate,
        input_tokens=input_,
        output_tokens=output,
        hit_rate=hit,
        prices=tuple(price or ()),
        line_price=line_price,
        chips=chips,
        seed=seed,
    )
    raise typer.Exit(run(options))
