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
