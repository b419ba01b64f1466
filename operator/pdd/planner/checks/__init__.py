"""Published numbers against this planner's own functions. Each check prints inputs, result and target; nothing is tuned
to print a number, and what the sources leave open is varied and said (`docs/planner.md`, "Checks")."""

from __future__ import annotations

from pdd.planner.checks.check import Check, to_object
from pdd.planner.checks.run import run_checks

__all__ = ["Check", "run_checks", "to_object"]
