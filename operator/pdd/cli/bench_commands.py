"""`pdd bench ...` as typer sees it. Heavy parts are imported when a bench runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.options import SAMPLE, Json, Mbps, Rtt

bench_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure one part on this machine. The figures stand beside what they are compared with, from the same run.",
)


def register(app: typer.Typer) -> None:
    """Add `bench` to `app`."""
    app.add_typer(bench_app, name="bench")


@bench_app.command("handoff")
def handoff(
    file: Annotated[Path, typer.Option("--file", "-f", help="PDDDeployment and PDDLink to run.")] = SAMPLE,
    mode: Annotated[list[str] | None, typer.Option(help="OneShot, CatchUp or Auto (repeatable; default: all).")] = None,
    requests: Annotated[int, typer.Option(min=1, max=1000, help="Requests in each mode.")] = 10,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests at once.")] = 1,
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Length of each prompt, never seen before.")] = 3000,
    output_tokens: Annotated[int, typer.Option(min=2, help="Length of each answer.")] = 120,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    json: Json = False,
) -> None:
    """Pauses when MD takes over, by handoff mode.

    They stand beside the normal time between two tokens of the same streams.

    \b
    Example: pdd bench handoff --mode OneShot --mode CatchUp --requests 20 --json
    """
    from json import dumps

    from pdd.api.config import HandoffMode
    from pdd.cli.bench.handoff import HandoffBench, bench_handoff, handoff_rows
    from pdd.cli.console import Console, table
    from pdd.cli.runner.interrupt import run_interruptible
    from pdd.common.errors import InvalidInput

    known = {m.value: m for m in HandoffMode}
    for name in mode or ():
        if name not in known:
            raise InvalidInput("--mode", name, f"use one of {', '.join(known)}")
    bench = HandoffBench(
        file=file,
        modes=tuple(known[name] for name in (mode or known)),
        requests=requests,
        concurrency=concurrency,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        mbps=mbps,
        rtt_ms=rtt_ms,
    )
    console = Console()

    async def run() -> int:
        document = await bench_handoff(bench, console.say)
        console.result(dumps(document, indent=2) if json else table(handoff_rows(document)))
        return 0

    raise typer.Exit(run_interruptible(run(), lambda: console.say("\nstopping the processes")))


@bench_app.command("replay")
def replay(
    trace: Annotated[Path, typer.Option(help="Mooncake trace (JSON lines).")],
    file: Annotated[Path, typer.Option("--file", "-f", help="PDDDeployment and PDDLink to run.")] = SAMPLE,
    requests: Annotated[int, typer.Option(min=1, max=100_000, help="How many from its head.")] = 50,
    way: Annotated[list[str] | None, typer.Option(help="pdd, naive, same-site (repeatable; default: all).")] = None,
    block_tokens: Annotated[int, typer.Option(min=1, max=512, help="Tokens for each 512 of the trace.")] = 64,
    max_prompt_tokens: Annotated[int, typer.Option(min=1, help="Longer prompts are cut.")] = 8000,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="Longer answers are cut.")] = 64,
    speed: Annotated[float, typer.Option(min=0.01, help="Arrivals so many times faster.")] = 1.0,
    compare: Annotated[bool, typer.Option(help="Run each prompt again on one engine, id by id.")] = True,
    mbps: Mbps = None,
    rtt_ms: Rtt = None,
    json: Json = False,
) -> None:
    """A trace through PDD, naive, and one site.

    Latencies, pipelines, hit rates, bytes on the line; each way on a fresh stack.

    \b
    Example: pdd bench replay --trace conversation_trace.jsonl --requests 100 --speed 0.5
    """
    from json import dumps

    from pdd.cli.bench.replay import WAYS, ReplayBench, bench_replay, replay_rows
    from pdd.cli.bench.trace import Scale
    from pdd.cli.console import Console, table
    from pdd.cli.runner.interrupt import run_interruptible
    from pdd.common.errors import InvalidInput

    for name in way or ():
        if name not in WAYS:
            raise InvalidInput("--way", name, f"use one of {', '.join(WAYS)}")
    scale = Scale(
        block_tokens=block_tokens,
        max_output_tokens=max_output_tokens,
        max_prompt_tokens=max_prompt_tokens,
        speed=speed,
    )
    bench = ReplayBench(file, trace, requests, scale, tuple(way or WAYS), compare, mbps, rtt_ms)
    console = Console()

    async def run() -> int:
        document = await bench_replay(bench, console.say)
        console.result(dumps(document, indent=2) if json else table(replay_rows(document)))
        return 0

    raise typer.Exit(run_interruptible(run(), lambda: console.say("\nstopping the processes")))


@bench_app.command("router")
def router(
    requests: Annotated[int, typer.Option(min=10, help="Requests in the closed loop.")] = 1000,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second of the latency figures.")] = 50.0,
    seconds: Annotated[float, typer.Option(min=1, help="How long at that rate.")] = 5.0,
    streams: Annotated[int, typer.Option(min=1, help="Streams of 200 tokens at once.")] = 32,
    json: Json = False,
) -> None:
    """What the router costs, alone.

    Its engines answer at once and have no model. CPU time is the router process's own, as the kernel counts it.

    \b
    Example: pdd bench router --rate 100 --json
    """
    from json import dumps

    from pdd.cli.bench.router import RouterBench, bench_router
    from pdd.cli.console import Console
    from pdd.cli.runner.interrupt import run_interruptible

    bench = RouterBench(requests=requests, rate=rate, seconds=seconds, streams=streams)
    console = Console()

    async def run() -> int:
        document = await bench_router(bench, console.say)
        if json:
            console.result(dumps(document, indent=2))
        else:
            shown = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
            console.result("\n".join(f"  {key:<38} {value}" for key, value in shown.items()))
        return 0

    raise typer.Exit(run_interruptible(run(), lambda: console.say("\nstopping the processes")))


@bench_app.command("link")
def link(
    line: Annotated[str, typer.Option(help="emulated, or loopback (no line at all).")] = "emulated",
    rtt_ms: Annotated[float, typer.Option(min=0, help="Round trip of the emulated line in ms.")] = 20.0,
    mbps: Annotated[float, typer.Option(min=1, help="Cap of the link in Mbit/s.")] = 95.0,
    line_mbps: Annotated[float, typer.Option(min=0, help="Rate of the emulated line; 0: the cap.")] = 100.0,
    streams: Annotated[list[int] | None, typer.Option(min=1, max=16, help="Streams (repeatable; 1 and 4).")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds of each transfer.")] = 2,
    json: Json = False,
) -> None:
    """Goodput and the fast lane, beside plain TCP.

    One object and many, by number of streams; the fast lane's round trip idle and while bulk saturates the cap.

    \b
    Example: pdd bench link --mbps 950 --line-mbps 1000 --streams 1 --streams 4 --json
    """
    from json import dumps

    from pdd.cli.bench.link import bench_link, link_rows
    from pdd.cli.console import Console, table
    from pdd.common.errors import InvalidInput

    if line not in ("emulated", "loopback"):
        raise InvalidInput("--line", line, "use emulated or loopback")
    console = Console()
    console.say("measuring the link; about 10 s for each number of streams")
    document = bench_link(
        line=line, rtt_ms=rtt_ms, mbps=mbps, streams=streams or (1, 4), rounds=rounds, line_mbps=line_mbps
    )
    console.result(dumps(document, indent=2) if json else table(link_rows(document)))


@bench_app.command("simulator")
def simulator(
    requests: Annotated[int, typer.Option(min=1000, max=5_000_000, help="Requests of each scenario.")] = 200_000,
    json: Json = False,
) -> None:
    """Requests a second that the simulator runs on one core.

    CPU time, best of three, for each scenario. The first run compiles and is shown apart.

    \b
    Example: pdd bench simulator --requests 1000000 --json
    """
    from json import dumps

    from pdd.cli.bench.simulator import bench_simulator
    from pdd.cli.console import Console

    console = Console()
    document = bench_simulator(requests, console.say)
    if json:
        console.result(dumps(document, indent=2))
    else:
        console.result("\n".join(f"  {name:<34} {rate:>12,.0f}" for name, rate in document["requests_per_s"].items()))
    raise typer.Exit(0 if document["holds"] else 1)
