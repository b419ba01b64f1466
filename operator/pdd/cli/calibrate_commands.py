"""`pdd calibrate` and `pdd bench fidelity` as typer sees them. Heavy parts are imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.bench_commands import bench_app
from pdd.cli.options import Json, Mbps, Rtt
from pdd.cli.outputs import check_output, write_output

_STACK = Path(__file__).parents[3] / "docs" / "examples" / "fidelity.yaml"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("calibrate")(calibrate)
    bench_app.command("fidelity")(fidelity)


def calibrate(
    url: Annotated[str, typer.Option(help="A running engine's base URL (default: start a reference engine).")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the document for `pdd plan` and `pdd simulate`.")] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(help="Flag of the reference engine to start (repeatable), e.g. --engine-arg=--step-ms=20."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=512, max=1_000_000, help="Longest prompt measured.")] = 4096,
    chunk_tokens: Annotated[int, typer.Option(min=0, help="Most tokens of one forward (0: find out).")] = 0,
    max_sequences: Annotated[int, typer.Option(min=0, max=4096, help="Sequences at once (0: 16).")] = 0,
    kv_tokens: Annotated[int, typer.Option(min=0, help="KV capacity in tokens (0: ask the engine).")] = 0,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Times each point is measured; medians count.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the prompts.")] = 1,
    json: Json = False,
) -> None:
    """Measure an engine and fit its time laws.

    Prefill by length and cached prefix, decode by batch and context, extend by tokens; over the API that the router
    uses. The engine must be idle. Poor fits are named.

    \b
    Example: pdd calibrate --out engine.json
             pdd calibrate --url http://127.0.0.1:8000 --chunk-tokens 8192 --json
    """
    from dataclasses import replace
    from json import dumps

    from pdd.cli.calibration.run import CalibrateOptions, calibrate_engine, calibration_rows, fit_rows, reference_engine
    from pdd.cli.console import Console, table
    from pdd.cli.runner.interrupt import run_interruptible
    from pdd.common.errors import InvalidInput
    from pdd.engine.reference.flags import parse_settings
    from pdd.planner.calibration_file import to_object

    console = Console()
    if url and engine_arg:
        raise InvalidInput("--engine-arg", engine_arg[0], "is for a reference engine that is started; drop it or --url")
    if url and not url.startswith(("http://", "https://")):
        raise InvalidInput("--url", url, "must begin with http:// or https://")
    check_output("--out", out)
    options = CalibrateOptions(max_tokens, chunk_tokens, max_sequences, kv_tokens, repeats, seed)

    async def run(options: CalibrateOptions) -> int:
        if url:
            calibration = await calibrate_engine(url, options, console.say)
        else:
            flags = list(engine_arg or ())
            if chunk_tokens:
                flags.append(f"--chunk-tokens={chunk_tokens}")
            if max_sequences:
                flags.append(f"--max-num-seqs={max_sequences}")
            known = parse_settings(flags)
            options = replace(options, chunk_tokens=known.chunk_tokens, max_sequences=known.max_num_seqs)
            async with reference_engine(flags) as engine:
                calibration = await calibrate_engine(engine.url, options, console.say, cpu=engine.cpu)
        document = to_object(calibration)
        if out is not None:
            write_output("--out", out, dumps(document, indent=2) + "\n")
            console.say(f"written: {out}")
        for warning in calibration.warnings:
            console.say(f"warning: {warning}", "yellow")
        shown = "\n\n".join(table(rows) for rows in (calibration_rows(calibration), fit_rows(calibration)))
        console.result(dumps(document, indent=2) if json else shown)
        return 0

    raise typer.Exit(run_interruptible(run(options), lambda: console.say("\nstopping")))


def fidelity(
    trace: Annotated[Path, typer.Option(help="Mooncake trace (JSON lines).")],
    file: Annotated[Path, typer.Option("--file", "-f", help="PDDDeployment and PDDLink to run.")] = _STACK,
    requests: Annotated[int, typer.Option(min=2, max=100_000, help="How many from its head.")] = 200,
    way: Annotated[list[str] | None, typer.Option(help="same-site, naive, pdd (repeatable; default: all).")] = None,
    block_tokens: Annotated[int, typer.Option(min=1, max=512, help="Tokens for each 512 of the trace.")] = 16,
    max_prompt_tokens: Annotated[int, typer.Option(min=1, help="Longer prompts are cut.")] = 2000,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="Longer answers are cut.")] = 64,
    speed: Annotated[float, typer.Option(min=0.01, help="Arrivals so many times faster.")] = 0.5,
    calibration: Annotated[
        Path | None,
        typer.Option(help="A file of `pdd calibrate --out` for all engines (default: calibrate each role's)."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Times each calibration point is measured.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON document here.")] = None,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    json: Json = False,
) -> None:
    """Predictions beside what the real data plane does.

    Calibrates the engines of FILE, replays the trace in each way on a fresh stack, simulates the same load, and prints
    the signed errors (predicted / measured - 1). Exit code 1 if one is beyond its tolerance. The machine must be idle.

    \b
    Example: pdd bench fidelity --trace conversation_trace.jsonl --requests 300 --json
    """
    from json import dumps

    from pdd.cli.bench.fidelity import FidelityBench, bench_fidelity, fidelity_rows
    from pdd.cli.bench.replay import WAYS
    from pdd.cli.bench.trace import Scale
    from pdd.cli.console import Console, table
    from pdd.cli.runner.interrupt import run_interruptible
    from pdd.common.errors import InvalidInput

    for name in way or ():
        if name not in WAYS:
            raise InvalidInput("--way", name, f"use one of {', '.join(WAYS)}")
    check_output("--out", out)
    scale = Scale(
        block_tokens=block_tokens,
        max_output_tokens=max_output_tokens,
        max_prompt_tokens=max_prompt_tokens,
        speed=speed,
    )
    ways = tuple(way or ("same-site", "naive", "pdd"))
    bench = FidelityBench(file, trace, requests, scale, ways, repeats, seed, mbps, rtt_ms, calibration)
    console = Console()

    async def run() -> int:
        document = await bench_fidelity(bench, console.say)
        if out is not None:
            write_output("--out", out, dumps(document, indent=2) + "\n")
        console.result(dumps(document, indent=2) if json else table(fidelity_rows(document)))
        return 0 if document["holds"] else 1

    raise typer.Exit(run_interruptible(run(), lambda: console.say("\nstopping the processes")))
