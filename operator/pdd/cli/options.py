"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SAMPLE = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
Mbps = Annotated[int | None, typer.Option(min=1, help="Line rate in Mbit/s (default: the file's PDDLink).")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Kubeconfig file (default: KUBECONFIG, ~/.kube/config).")]
Rtt = Annotated[int | None, typer.Option(min=0, help="Round trip in ms (default: the file's PDDLink).")]
