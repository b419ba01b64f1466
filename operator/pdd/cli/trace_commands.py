"""`pdd trace ...` as typer sees it. Heavy parts are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdd.cli.options import Json

trace_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at recorded loads: Mooncake (JSON lines), agentic sessions and Azure (CSV).",
)
Limit = Annotated[int | None, typer.Option(min=1, help="Only so many requests from the file's head.")]
TraceFile = Annotated[Path, typer.Argument(metavar="FILE", help="The trace; its format is told by its first line.")]


def register(app: typer.Typer) -> None:
    """Add `trace` to `app`."""
    app.add_typer(trace_app, name="trace")


@trace_app.command("stats")
def stats(
    file: TraceFile,
    cache: Annotated[
        list[str] | None,
        typer.Option(help="Cache size in tokens: 50M, 64Ki (repeatable; default: 1M 3M 10M 30M 100M)."),
    ] = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Counts, lengths, hit rates with an unlimited cache and with caches of given sizes.

    Hits of limited caches are found by exact LRU over the blocks; where a trace has sessions and no hashes, over the
    sessions' prompts. A trace with neither (Azure) says nothing about hits.

    \b
    Example: pdd trace stats conversation_trace.jsonl --cache 3M --cache 50M --json
    """
    from pdd.cli.trace import run_stats

    run_stats(file, cache, limit, as_json=json)


@trace_app.command("fit")
def fit(
    file: TraceFile,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """The workload that a trace looks like, in laws: lengths, hit mixture, burstiness, sessions.

    The YAML that it prints is read by `pdd simulate` and as a library by `pdd.planner.workload_file`.

    \b
    Example: pdd trace fit conversation_trace.jsonl > workload.yaml
    """
    from pdd.cli.trace import run_fit

    run_fit(file, limit, as_json=json)
