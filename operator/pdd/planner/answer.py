"""The whole answer of `pdd plan`: the search, the comparison, the sensitivity; made in one call, and as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdd.planner.candidates import Question
from pdd.planner.fleet import Fleet, Pool, Sla
from pdd.planner.homogeneous import Comparison, Rival, compare
from pdd.planner.judge import Figures, Judge, Span, Stage, meets
from pdd.planner.pareto import Candidate
from pdd.planner.search import Search, describe_binding, search
from pdd.planner.sensitivity import Scenario, run_scenarios

OUTPUT_VERSION = "pdd.dev/plan/v1"
ROOM = 1.02
"""The nearest promise stands so much above what was simulated, so that asking for it is answered with yes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """feasible: search.chosen keeps the promise. nearest_sla: a promise that search.best keeps, None if feasible.
    comparison, sensitivity: of the chosen plan; None and empty if there is none. seconds: for all of it."""

    search: Search
    nearest_sla: Sla | None
    binding: Stage
    binding_why: str
    comparison: Comparison | None
    sensitivity: tuple[Scenario, ...]
    seconds: float

    @property
    def feasible(self) -> bool:
        return self.search.chosen is not None


def make_answer(
    question: Question,
    judge: Judge,
    *,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Search, then compare and vary what was chosen. `say` gets progress in words."""
    begun = clock()
    found = search(question, judge, clock=clock, say=say)
    stage, why = describe_binding(found.best, found.sla)
    if found.chosen is None:
        return Answer(found, compute_nearest_sla(found.best.figures, found.sla), stage, why, None, (), clock() - begun)
    say("comparing with one site and with naive cross-site at equal cost")
    comparison = compare(question, judge, found.chosen, found.sla)
    say("varying hit rate, line price and lengths")
    scenarios = run_scenarios(question, judge, found.chosen, found.sla)
    return Answer(found, None, stage, why, comparison, tuple(scenarios), clock() - begun)


def plan_file(path: Path, *, seed: int = 1, chips: Path | None = None) -> Answer:
    """The answer to a plan file (docs/examples). chips: a YAML file with chips of one's own.

    Takes seconds, and 20 more when the simulator is compiled for the first time. Raises InvalidInput.
    """
    from pdd.planner.catalogue import load_chips
    from pdd.planner.model_judge import build_judge
    from pdd.planner.resolve import resolve
    from pdd.planner.sim import precompile
    from pdd.planner.spec_file import read_plan_text

    precompile.start()
    judge, spec = build_judge(read_plan_text(str(path), path.read_text(), folder=path.parent), seed)
    return make_answer(resolve(spec, load_chips(chips), judge.longest_tokens), judge)


def compute_nearest_sla(figures: Figures, sla: Sla) -> Sla:
    """The promise loosened just so far that the figures keep it; what was kept stays. Limits in whole milliseconds."""

    def loosened(limit: float | None, span: Span | None) -> float | None:
        if limit is None or span is None or not math.isfinite(span.value):
            return limit
        return limit if span.value <= limit else math.ceil(span.value * ROOM * 1000) / 1000

    p90 = loosened(sla.ttft_p90_s, figures.ttft_p90_s)
    p99 = loosened(sla.ttft_p99_s, figures.ttft_p99_s)
    return Sla(p90, p99, loosened(sla.tpot_p99_s, figures.tpot_p99_s))


def to_json(answer: Answer, *, seconds: float | None = None) -> dict[str, Any]:
    """The one document of `pdd plan --json`. Units stand in the names; money in `currency`.

    seconds: of the whole command, where more than the answer was made.
    """
    found = answer.search
    spec = found.question.spec
    document: dict[str, Any] = {
        "apiVersion": OUTPUT_VERSION,
        "kind": "Plan",
        "feasible": answer.feasible,
        "model": spec.model,
        "currency": spec.prices.currency,
        "sla": _sla(found.sla),
        "chosen": _candidate(found.chosen, found.sla) if found.chosen else None,
        "pareto": [_candidate(candidate, found.sla) for candidate in found.front],
        "bindingConstraint": {"stage": answer.binding.name.lower(), "why": answer.binding_why},
        "runnersUp": [{"plan": _candidate(r.candidate, found.sla), "why": r.why} for r in found.runners_up],
        "comparison": _comparison(answer.comparison) if answer.comparison else None,
        "sensitivity": [_scenario(scenario, found.sla) for scenario in answer.sensitivity],
        "assumptions": list(spec.assumptions),
        "screened": found.screened,
        "simulated": len(found.simulated),
        "notScreened": found.dropped,
        "seconds": round(answer.seconds if seconds is None else seconds, 3),
    }
    if answer.nearest_sla is not None:
        document["nearest"] = _candidate(found.nearest, found.sla)
        document["nearestFeasibleSla"] = _sla(answer.nearest_sla)
    return document


def _sla(sla: Sla) -> dict[str, float | None]:
    return {"ttft_p90_s": sla.ttft_p90_s, "ttft_p99_s": sla.ttft_p99_s, "tpot_p99_s": sla.tpot_p99_s}


def _candidate(candidate: Candidate, sla: Sla) -> dict[str, Any]:
    return {
        "name": candidate.label,
        "meetsSla": meets(candidate.figures, sla),
        **_fleet(candidate.fleet),
        "cost_per_h": round(candidate.cost_per_h, 4),
        "bcr": _finite(candidate.bcr),
        "simulated": _figures(candidate.simulated) if candidate.simulated else None,
        "predicted": _figures(candidate.predicted),
    }


def _fleet(fleet: Fleet) -> dict[str, Any]:
    return {
        "way": fleet.way.value,
        "prefill": _pool(fleet.prefill),
        "relayDecode": _pool(fleet.relay),
        "mainDecode": _pool(fleet.main),
        "line": {
            "capacity_bps": fleet.line.capacity_bps,
            "rtt_s": fleet.line.rtt_s,
            "streams": fleet.line.streams,
            "price_per_h": round(fleet.line.price_per_h, 4),
        },
        "relay_threshold_s": fleet.rules.relay_threshold_s,
        "handoffMode": fleet.rules.handoff_mode.value,
    }


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "engines": pool.engines,
        "chip": pool.chip,
        "accelerators": pool.accelerators,
        "price_per_h": round(pool.price_per_h, 4),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "first_token_p99_s": _finite(figures.first_p99_s) if figures.first_p99_s else None,
        "ttft_p50_s": _span(figures.ttft_p50_s),
        "ttft_p90_s": _span(figures.ttft_p90_s),
        "ttft_p99_s": _span(figures.ttft_p99_s),
        "tpot_p99_s": _span(figures.tpot_p99_s),
        "goodput_per_s": _span(figures.goodput_per_s),
        "utilisation": {stage.name.lower(): _finite(share) for stage, share in figures.utilisation.items()},
        "relay_share": _finite(figures.relay_share),
        "line_bytes_per_s": _finite(figures.line_bytes_per_s),
        "requests": figures.requests,
        "seeds": figures.seeds,
    }


def _span(span: Span | None) -> dict[str, float | None] | None:
    if span is None:
        return None
    return {"value": _finite(span.value), "low": _finite(span.low), "high": _finite(span.high)}


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "equal_cost_per_h": round(comparison.plan.cost_per_h, 4),
        "bcrGain": _finite(comparison.bcr_gain),
        "plan": _rival(comparison.plan),
        "sameSite": _rival(comparison.same_site),
        "naive": _rival(comparison.naive),
        "otherSites": [_rival(rival) for rival in comparison.other_sites],
    }


def _rival(rival: Rival) -> dict[str, Any]:
    return {
        "name": rival.name,
        **_fleet(rival.fleet),
        "cost_per_h": round(rival.cost_per_h, 4),
        "rate_per_s": _finite(rival.rate_per_s),
        "goodput_per_s": _finite(rival.goodput_per_s),
        "bcr": _finite(rival.bcr),
        "atBestRate": _figures(rival.at_best),
        "atLoad": _figures(rival.at_load),
    }


def _scenario(scenario: Scenario, sla: Sla) -> dict[str, Any]:
    other = scenario.replanned
    return {
        "what": scenario.what,
        "change": scenario.change,
        "planKeepsSla": scenario.keeps,
        "why": scenario.why,
        "bcr": _finite(scenario.bcr),
        "predicted": _figures(scenario.figures),
        "replanned": _candidate(other, sla) if other else None,
    }
