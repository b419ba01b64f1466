"""`pdd simulate --checks`: published numbers beside what the models give."""

from __future__ import annotations

import json

from pdd.cli.console import Console, table


def run(*, as_json: bool) -> int:
    """Returns 0 if every check holds, else 1."""
    from pdd.planner.checks import run_checks, to_object

    console = Console()
    found = run_checks()
    if as_json:
        console.result(json.dumps([to_object(check) for check in found], indent=2, allow_nan=False))
    else:
        rows = [["check", "result", "target", "tolerance", "holds"]]
        rows += [
            [
                check.name,
                _shown(check.result),
                _shown(check.target),
                f"{check.tolerance:.0%}" if check.tolerance else "",
                "yes" if check.holds else "NO",
            ]
            for check in found
        ]
        console.result(table(rows))
        console.result(f"{sum(check.holds for check in found)} of {len(found)} hold; inputs and sources: --json")
    return 0 if all(check.holds for check in found) else 1


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return " ".join(f"{one:.4g}" for one in value)
    return f"{value:.5g}"
