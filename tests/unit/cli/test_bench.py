"""Figures from samples: percentiles, and what a handoff bench tells of runs that were and were not handed off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdd.api.config import HandoffMode
from pdd.cli.bench.handoff import Sample, handoff_rows, summarise, with_mode
from pdd.cli.bench.stats import percentile, spread
from pdd.cli.chat import ChatRun
from pdd.cli.runner.spec import load_local_spec

SAMPLE = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"


def sample(stall_ms: float | None, tokens: int = 50, single: tuple[int, ...] = (1, 2)) -> Sample:
    handoff: Any = None
    if stall_ms is not None:
        handoff = {"mode": "OneShot", "rounds": 1, "tokens": tokens, "payload_bytes": 4 * tokens, "stall_ms": stall_ms}
    trace = {"handoff": handoff, "itl_ms": {"p50": 20.0, "p99": 30.0, "max": 40.0}}
    return Sample(ChatRun("P-RLD-MD", "x", (1, 2), (1.0, 2.0), "", "length", trace), single)


@pytest.mark.parametrize(("q", "expected"), [(0, 1.0), (50, 2.5), (99, 3.97), (100, 4.0)])
def test_percentiles_are_interpolated(q: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], q) == pytest.approx(expected)


def test_nothing_measured_is_none_not_zero() -> None:
    assert percentile([], 50) is None
    assert spread([]) == {"count": 0, "p50": None, "p99": None, "max": None}


def test_a_mode_is_summarised_with_what_was_not_handed_off() -> None:
    figures = summarise([sample(10.0), sample(30.0), sample(None, single=(1, 3))], bytes_per_token=4096)
    assert (figures["handoffs"], figures["without_handoff"]) == (2, 1)
    assert figures["stall_ms"] == {"count": 2, "p50": 20.0, "p99": 29.8, "max": 30.0}
    assert figures["normal_itl_ms"]["p50"] == 20.0
    assert figures["identical_share"] == 0.6667
    assert figures["payload_bytes_per_100_tokens"] == 400.0
    assert figures["kv_bytes_per_100_tokens"] == 409_600


def test_the_table_has_a_row_for_each_mode() -> None:
    document = {"modes": {"OneShot": summarise([sample(12.0)], 4096), "CatchUp": summarise([sample(None)], 4096)}}
    rows = handoff_rows(document)
    assert [row[0] for row in rows] == ["mode", "OneShot", "CatchUp"]
    assert rows[1][2] == "12 ms" and rows[2][2] == "-"
    assert len({len(row) for row in rows}) == 1


def test_the_mode_reaches_the_router() -> None:
    spec = with_mode(load_local_spec(SAMPLE), HandoffMode.CATCH_UP)
    assert spec.deployment.spec.router.handoff_mode is HandoffMode.CATCH_UP
