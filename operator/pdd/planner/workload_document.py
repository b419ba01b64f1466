"""A Workload as the document that `workload_file` reads: exactly the same workload comes back."""

from __future__ import annotations

from typing import Any

from pdd.planner.laws import LengthLaw
from pdd.planner.workload import Workload
from pdd.planner.workload_file import API_VERSION


def workload_to_document(workload: Workload) -> dict[str, Any]:
    """Ready for YAML or JSON; every field is written out."""
    arrivals, sessions, odd = workload.arrivals, workload.sessions, workload.odd
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "rate": f"{workload.rate_per_s!r}/s",
        "input": _length(workload.input_tokens),
        "output": _length(workload.output_tokens),
        "hits": [
            {"from": b.low, "to": b.high, "share": b.share} | ({} if b.mean is None else {"mean": b.mean})
            for b in workload.hits.buckets
        ],
        "arrivals": {
            "kind": arrivals.kind.value,
            "cv": arrivals.cv,
            "burst": arrivals.burst,
            "burstLength": f"{arrivals.burst_s!r} s",
            "calmLength": f"{arrivals.calm_s!r} s",
        },
        "blockTokens": workload.block_tokens,
    }
    if sessions is not None:
        document["sessions"] = {
            "turns": sessions.turns,
            "growth": _length(sessions.growth),
            "think": _length(sessions.think_s, " s"),
            "answersCached": sessions.answers_cached,
            "context": sessions.context_tokens,
            "firstToken": f"{sessions.first_token_s!r} s",
            "perToken": f"{sessions.token_s!r} s",
        }
    if odd is not None:
        document["odd"] = {
            "share": odd.share,
            "input": _length(odd.input_tokens),
            "output": _length(odd.output_tokens),
        }
    return document


def _length(law: LengthLaw, unit: str = "") -> dict[str, Any]:
    values = {"median": law.median, "low": law.low, "high": law.high}
    written: dict[str, Any] = {key: f"{value!r}{unit}" if unit else value for key, value in values.items()}
    return written | {"sigma": law.sigma}
