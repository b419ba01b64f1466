"""The doctor: which checks run, what each verdict says, and what scripts read."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from pdd.cli import doctor as module
from pdd.cli.checks.cluster import CLUSTER_CHECKS, ClusterFacts
from pdd.cli.checks.local import LOCAL_CHECKS, LocalFacts
from pdd.cli.checks.model import Verdict, chosen
from pdd.cli.console import Console
from pdd.common.errors import InvalidInput

HEALTHY = LocalFacts(
    python=(3, 11), cores=2, memory_bytes=8 * 1024**3, temp_free_bytes=10**10, congestion_controls=("cubic", "bbr")
)
SAMPLE = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"


def ran(monkeypatch: pytest.MonkeyPatch, facts: LocalFacts, **kwargs: Any) -> tuple[int, str]:
    monkeypatch.setattr(module, "gather_local_facts", lambda sample: facts)
    out = io.StringIO()
    code = module.doctor(Console(err=io.StringIO(), out=out, env={}), SAMPLE, **kwargs)
    return code, out.getvalue()


def test_a_healthy_machine_passes_every_local_check() -> None:
    assert [check.run(HEALTHY).verdict for check in LOCAL_CHECKS] == [Verdict.OK] * len(LOCAL_CHECKS)


@pytest.mark.parametrize(
    ("change", "check", "verdict"),
    [
        ({"python": (3, 10)}, "local.python", Verdict.FAILED),
        ({"missing_packages": ("uvloop",)}, "local.packages", Verdict.FAILED),
        ({"cores": 1}, "local.cores", Verdict.WARNING),
        ({"memory_bytes": 10**8}, "local.memory", Verdict.WARNING),
        ({"memory_bytes": None}, "local.memory", Verdict.WARNING),
        ({"temp_writable": False}, "local.temp", Verdict.FAILED),
        ({"temp_free_bytes": 10}, "local.temp", Verdict.FAILED),
        ({"loopback": False}, "local.loopback", Verdict.FAILED),
        ({"router_port_free": False}, "local.port", Verdict.WARNING),
        ({"sample_error": "spec.x: unknown"}, "local.sample", Verdict.FAILED),
        ({"stale_runs": ("/tmp/pdd-run-1-x",)}, "local.leftovers", Verdict.WARNING),
        ({"congestion_controls": ("cubic",)}, "link.bbr", Verdict.WARNING),
        ({"missing_tools": ("kind",)}, "kind.tools", Verdict.WARNING),
    ],
)
def test_each_defect_is_found_by_its_check_alone(change: dict[str, Any], check: str, verdict: Verdict) -> None:
    findings = [c.run(dataclasses.replace(HEALTHY, **change)) for c in LOCAL_CHECKS]
    wrong = [f for f in findings if f.verdict is not Verdict.OK]
    assert [(f.check, f.verdict) for f in wrong] == [(check, verdict)]
    assert wrong[0].why and wrong[0].fix


def test_every_check_is_selected_by_name_or_category() -> None:
    names = [check.name for check in (*LOCAL_CHECKS, *CLUSTER_CHECKS)]
    assert chosen(names, ["kind"], []) == ["kind.tools"]
    assert chosen(names, ["local.python", "link"], []) == ["local.python", "link.bbr"]
    assert chosen(names, ["cluster"], ["cluster.rights"]) == ["cluster.reached", "cluster.crds", "cluster.dry-run"]


def test_a_misspelt_selector_is_an_error_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=r"locl.*is no check here"):
        ran(monkeypatch, HEALTHY, only=["locl"])


def test_warnings_do_not_fail_and_failures_do(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = ran(monkeypatch, dataclasses.replace(HEALTHY, cores=1))
    assert code == 0 and "1 warning" in text
    code, text = ran(monkeypatch, dataclasses.replace(HEALTHY, loopback=False))
    assert code == 1 and "not fit: 1 of 11 checks failed" in text and "ip link set lo up" in text


def test_quiet_shows_problems_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, HEALTHY, quiet=True)[1] == "fit: 11 of 11 checks passed\n"


def test_json_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = ran(monkeypatch, dataclasses.replace(HEALTHY, loopback=False), as_json=True)
    document = json.loads(text)
    assert code == 1 and document["success"] is False
    bad = [check for check in document["checks"] if check["result"] != "ok"]
    assert [check["name"] for check in bad] == ["local.loopback"] and bad[0]["fix"]


def test_a_cluster_that_does_not_answer_fails_all_its_checks() -> None:
    findings = [check.run(ClusterFacts(error="timed out")) for check in CLUSTER_CHECKS]
    assert all(f.verdict is Verdict.FAILED for f in findings)
    assert "timed out" in findings[0].detail
    healthy = [check.run(ClusterFacts(version="v1.34.4")).verdict for check in CLUSTER_CHECKS]
    assert healthy == [Verdict.OK] * len(CLUSTER_CHECKS)


def test_this_machine_can_be_looked_at() -> None:
    from pdd.cli.checks.gather import gather_local_facts

    facts = gather_local_facts(SAMPLE)
    assert facts.sample_error == "" and facts.cores >= 1 and facts.python >= (3, 11)
    assert "is no" not in gather_local_facts(SAMPLE.parent / "none.yaml").sample_error
    assert "cannot be read" in gather_local_facts(SAMPLE.parent / "none.yaml").sample_error
