"""All checks in order."""

from __future__ import annotations

from pdd.planner.checks.arithmetic import check_arithmetic
from pdd.planner.checks.check import Check
from pdd.planner.checks.handoff import check_handoff
from pdd.planner.checks.limits import check_limits
from pdd.planner.checks.line import check_line
from pdd.planner.checks.published import check_bathtub, check_prfaas


def run_checks() -> list[Check]:
    """Every check, a second or two of work. None raises: what does not hold says so."""
    return [
        *check_arithmetic(),
        *check_line(),
        *check_handoff(),
        *check_prfaas(),
        *check_bathtub(),
        *check_limits(),
    ]
