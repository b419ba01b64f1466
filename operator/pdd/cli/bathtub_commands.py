"""`pdd bathtub` as typer sees it. Heavy parts are imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.options import Json


def register(app: typer.Typer) -> None:
    """Add `bathtub` to `app`."""
    app.command("bathtub")(bathtub)


def bathtub(
    prompt: Annotated[list[str] | None, typer.Option("--input", help="Prompt tokens (repeatable; 16000).")] = None,
    chunk: Annotated[str, typer.Option(help="Tokens of one forward at most.")] = "4096",
    cached_price: Annotated[
        str, typer.Option(help="Price of a cached token as a share of an uncached one's.")
    ] = "10 %",
    price: Annotated[float, typer.Option(min=0.0, help="Money for a million uncached tokens.")] = 1.0,
    per_token: Annotated[str, typer.Option(help="Time of an uncached token.")] = "10 us",
    fixed: Annotated[str, typer.Option(help="Time of a forward, whatever its size.")] = "0 s",
    model: Annotated[str | None, typer.Option(help="Take the times from this model on --chip instead.")] = None,
    chip: Annotated[str, typer.Option(help="For --model.")] = "H100",
    accelerators: Annotated[int, typer.Option(min=1, max=1024, help="For --model: chips of one engine.")] = 8,
    hit: Annotated[str, typer.Option(help="Mean hit rate that the advice is computed for.")] = "90 %",
    svg: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
    png: Annotated[Path | None, typer.Option(help="The same as PNG.")] = None,
    json: Json = False,
) -> None:
    """Throughput and revenue of a prefill engine against the hit rate: dips, the valley, and what helps.

    Where few tokens remain for the last chunk of a prompt, it costs a forward and yields little; where cached tokens
    are cheap, more hits can earn less.

    \b
    Example: pdd bathtub --input 16000 --chunk 4096 --cached-price 10% --fixed 50ms --svg bathtub.svg
    """
    from pdd.cli.bathtub import BathtubQuestion, run_bathtub

    question = BathtubQuestion(
        inputs=tuple(prompt or ("16000",)),
        chunk=chunk,
        cached_price=cached_price,
        price=price,
        per_token=per_token,
        fixed=fixed,
        model=model,
        chip=chip,
        accelerators=accelerators,
        hit=hit,
        svg=svg,
        png=png,
    )
    run_bathtub(question, as_json=json)
