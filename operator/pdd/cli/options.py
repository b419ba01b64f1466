"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_IN_REPOSITORY = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"
_IN_PACKAGE = Path(__file__).parent / "samples" / "demo.yaml"
SAMPLE = _IN_REPOSITORY if _IN_REPOSITORY.is_file() else _IN_PACKAGE
"""What `pdd demo` and `pdd up` run when no file is given. A wheel has a copy of its own; a test keeps both equal."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
Mbps = Annotated[int | None, typer.Option(min=1, help="Line rate in Mbit/s (default: the file's PDDLink).")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Kubeconfig file (default: KUBECONFIG, ~/.kube/config).")]
Rtt = Annotated[int | None, typer.Option(min=0, help="Round trip in ms (default: the file's PDDLink).")]
LoadTrace = Annotated[Path | None, typer.Option(help="The load: a trace (Mooncake, agentic CSV, Azure CSV).")]
LoadRate = Annotated[str, typer.Option(help="Requests a time, for example 40/s.")]
LoadInput = Annotated[str, typer.Option("--input", help="Mean prompt, for example 64K (tokens).")]
LoadOutput = Annotated[str, typer.Option(help="Mean answer, for example 1K (tokens).")]
LoadHit = Annotated[str, typer.Option(help="Mean hit rate, for example '90 %'.")]
ChipPrice = Annotated[list[str] | None, typer.Option(help="CHIP=2.95/h: price of one chip (repeatable).")]
LinePrice = Annotated[str, typer.Option(help="Price of the line as ordered, for example 700/month.")]
OwnChips = Annotated[Path | None, typer.Option(help="YAML file with chips of your own.")]
