"""`pdd bench link`: the link's own bench (`python -m pdd.link bench`) as a child of ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdd.cli.runner.plan import module_argv
from pdd.cli.runner.process import ProcessSpec
from pdd.cli.runner.supervisor import Supervisor
from pdd.common.errors import PDDError

LINK_BENCH_TIMEOUT_S = 600.0


async def bench_link(arguments: Sequence[str], timeout_s: float = LINK_BENCH_TIMEOUT_S) -> dict[str, Any]:
    """Run it with `--json` and the given arguments; its document. Raises ChildFailed with its last lines, TimedOut."""
    with tempfile.TemporaryDirectory(prefix="pdd-bench-") as folder:
        argv = module_argv("pdd.link", "bench", "--json", *arguments)
        async with Supervisor(Path(folder)) as supervisor:
            out = await supervisor.run_once(ProcessSpec("link-bench", argv, once=True, keep_stdout=True), timeout_s)
        try:
            document = json.loads(out)
        except ValueError as error:
            raise PDDError(f"the link's bench printed no JSON document: {out[:200]!r}") from error
    if not isinstance(document, dict):
        raise PDDError(f"the link's bench printed {type(document).__name__}, not an object")
    return document
