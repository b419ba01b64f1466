"""`pdd doctor`: is this machine fit, and, with --context, is that cluster? Needs no internet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pdd.cli.checks.cluster import CLUSTER_CHECKS, gather_cluster_facts
from pdd.cli.checks.gather import gather_local_facts
from pdd.cli.checks.local import LOCAL_CHECKS
from pdd.cli.checks.model import Finding, Verdict, chosen
from pdd.cli.console import Console
from pdd.common.errors import InvalidInput

_MARKS = {Verdict.OK: "ok", Verdict.WARNING: "!!", Verdict.FAILED: "xx"}
_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "red"}


def list_checks(console: Console) -> int:
    """Every check's name and title, one a line."""
    names = [(check.name, check.title) for check in LOCAL_CHECKS]
    names += [(check.name, f"{check.title} (with --context)") for check in CLUSTER_CHECKS]
    for name, title in names:
        console.result(f"{name:<20} {title}")
    return 0


def doctor(
    console: Console,
    sample: Path,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    context: str | None = None,
    kubeconfig: str | None = None,
    namespace: str = "default",
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """Run the chosen checks; 1 if one failed. Warnings do not fail. Cluster checks need `context` (`` = current)."""
    names = [check.name for check in LOCAL_CHECKS]
    if context is not None:
        names += [check.name for check in CLUSTER_CHECKS]
    try:
        wanted = set(chosen(names, only, skip))
    except KeyError as error:
        raise InvalidInput(
            "--only/--skip", error.args[0], f"is no check here; there are: {', '.join(names)}"
        ) from error
    findings: list[Finding] = []
    if any(check.name in wanted for check in LOCAL_CHECKS):
        local = gather_local_facts(sample)
        findings += [check.run(local) for check in LOCAL_CHECKS if check.name in wanted]
    if context is not None and any(check.name in wanted for check in CLUSTER_CHECKS):
        console.say(f"asking cluster {context or '(current context)'}", "dim")
        cluster = gather_cluster_facts(context or None, kubeconfig, namespace)
        findings += [check.run(cluster) for check in CLUSTER_CHECKS if check.name in wanted]
    failed = sum(finding.verdict is Verdict.FAILED for finding in findings)
    warned = sum(finding.verdict is Verdict.WARNING for finding in findings)
    if as_json:
        console.result(json.dumps(_document(findings, failed), indent=2))
    else:
        for finding in findings:
            _show(console, finding, quiet)
        console.result(_closing(len(findings), failed, warned))
    return 1 if failed else 0


def _show(console: Console, finding: Finding, quiet: bool) -> None:
    if quiet and finding.verdict is Verdict.OK:
        return
    mark = console.style(_MARKS[finding.verdict], _COLOURS[finding.verdict], out=True)
    console.result(f"{mark}  {finding.check:<18} {finding.detail}")
    if finding.verdict is not Verdict.OK:
        console.result(f"      why  {finding.why}\n      fix  {finding.fix}")


def _closing(total: int, failed: int, warned: int) -> str:
    warnings = f", {warned} warning{'s' if warned != 1 else ''}" if warned else ""
    if failed:
        return f"not fit: {failed} of {total} checks failed{warnings}"
    return f"fit: {total - warned} of {total} checks passed{warnings}"


def _document(findings: Sequence[Finding], failed: int) -> dict[str, object]:
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "DoctorReport",
        "success": failed == 0,
        "checks": [
            {"name": f.check, "result": f.verdict.value, "detail": f.detail, "why": f.why, "fix": f.fix}
            for f in findings
        ],
    }
