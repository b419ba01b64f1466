"""`pdd chips` and `pdd models` as typer sees them. Heavy parts are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.options import Json

Extra = Annotated[Path | None, typer.Option("--file", "-f", help="Your own entries (YAML), beside the built-in ones.")]


def register(app: typer.Typer) -> None:
    """Add `chips` and `models` to `app`."""
    app.command("chips")(chips)
    app.command("models")(models)


def chips(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these, with sources.")] = None,
    file: Extra = None,
    model: Annotated[str | None, typer.Option(help="Compare roles for this model, by roofline times.")] = None,
    prompt: Annotated[str, typer.Option("--input", help="Prompt tokens, for --model.")] = "64K",
    output: Annotated[str, typer.Option(help="Answer tokens, for --model.")] = "1K",
    hit: Annotated[str, typer.Option(help="Hit rate, for --model.")] = "90 %",
    json: Json = False,
) -> None:
    """Accelerators that the planner knows: figures, prices, sources, scores; with --model, what each role would cost.

    \b
    Example: pdd chips --model DeepSeek-V4-Pro --input 64K --hit 90%
             pdd chips H20 --json
    """
    from pdd.cli.catalogue import ChipsQuestion, run_chips

    run_chips(ChipsQuestion(tuple(names or ()), file, model, prompt, output, hit), as_json=json)


def models(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these (or hub ids).")] = None,
    file: Extra = None,
    precision: Annotated[str, typer.Option(help="bf16, fp8 or fp4 (default: each model's own).")] = "",
    json: Json = False,
) -> None:
    """Models that the planner knows: parameters, weights, and what their KV weighs.

    \b
    Example: pdd models DeepSeek-V4-Pro --precision bf16
    """
    from pdd.cli.catalogue import run_models

    run_models(tuple(names or ()), file, precision, as_json=json)
