"""`pdd line` as typer sees it. The planner is imported when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from pdd.cli.options import ChipPrice, Json, LinePrice, LoadHit, LoadInput, LoadOutput, LoadRate, LoadTrace, OwnChips


def register(app: typer.Typer) -> None:
    """Add `line` to `app`."""
    app.command("line")(line)


def line(
    file: Annotated[str, typer.Argument(metavar="FILE", help="PDDDeployment with its PDDLink, or a plan file.")],
    json: Json = False,
    within: Annotated[str, typer.Option(help="99 % of transfers land in it; default: the promised TTFT P99.")] = "",
    trace: LoadTrace = None,
    rate: LoadRate = "",
    input_: LoadInput = "",
    output: LoadOutput = "",
    hit: LoadHit = "",
    price: ChipPrice = None,
    line_price: LinePrice = "",
    chips: OwnChips = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the load.")] = 1,
) -> None:
    """How wide a line: the smallest port that lands the KV in time, its price, and what moving beats.

    By the analytic model, in milliseconds. Exit code 1 and `infeasible:` if no port is enough.

    \b
    Example: pdd line docs/examples/plan-standard.yaml --within 4s
             pdd line crds/samples/vllm.yaml --rate 4/s --json
    """
    from pdd.cli.line import run
    from pdd.cli.plan import PlanOptions

    options = PlanOptions(
        file=file,
        as_json=json,
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
    raise typer.Exit(run(options, within))
