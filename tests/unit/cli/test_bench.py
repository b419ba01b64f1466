"""Figures from samples: percentiles, and what a handoff bench tells of runs that were and were not handed off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdd.api.config import HandoffMode
from pdd.api.deployment import SLASpec
from pdd.cli.bench.handoff import Sample, handoff_rows, summarise, with_mode
from pdd.cli.bench.link import link_rows
from pdd.cli.bench.replay import Outcome, hit_bucket, replay_rows
from pdd.cli.bench.replay import summarise as summarise_replay
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


def replayed(pipeline: str, ids: tuple[int, ...], missing_tokens: int, relayed: int, gap_ms: float = 20.0) -> Outcome:
    times = tuple(100.0 + gap_ms * i for i in range(len(ids)))
    trace = {
        "prompt_tokens": 1000,
        "producers": {"RLD": relayed},
        "kv": {"missing_bytes": missing_tokens * 4096, "missing_tokens": missing_tokens},
    }
    return Outcome(ChatRun(pipeline, "x", ids, times, "", "length", trace))


def test_a_replay_counts_failures_and_keeps_them_out_of_percentiles() -> None:
    outcomes = [
        replayed("P-MD", (1, 2, 3), 20, 0),
        replayed("P-RLD-MD", (1, 2, 3), 900, 2, gap_ms=200.0),
        Outcome(None, "503: no engine"),
    ]
    alone = [replayed("single", (1, 2, 3), 0, 0), replayed("single", (1, 2, 4), 0, 0), Outcome(None, "x")]
    figures = summarise_replay(outcomes, alone, 4_000_000, SLASpec(tpot_p99_ms=100))
    assert (figures["answered"], figures["failed"], figures["errors"]) == (2, 1, ["503: no engine"])
    assert figures["pipelines"] == {"P-MD": 1, "P-RLD-MD": 1}
    assert figures["hit_rate_buckets"] == {">=95 %": 1, "<50 %": 1}
    assert figures["rld_token_share"] == round(2 / 6, 4)
    assert figures["kv_bytes_missing"] == 920 * 4096
    assert figures["within_sla_share"] == round(1 / 3, 4)
    assert figures["identical_share"] == round(1 / 3, 4)
    assert figures["tpot_ms"]["p50"] == 110.0
    rows = replay_rows({"ways": {"pdd": figures}})
    assert ["answered", "2/3"] in rows and ["equal to one engine's", "33.3 %"] in rows


def test_hit_rate_buckets_have_inclusive_lower_edges() -> None:
    buckets = []
    for missing in (501, 500, 200, 50):
        run = replayed("P-MD", (1,), missing, 0).run
        assert run is not None
        buckets.append(hit_bucket(run))
    assert buckets == ["<50 %", "50-80 %", "80-95 %", ">=95 %"]


def test_the_links_table_puts_plain_tcp_beside_it() -> None:
    shares = {"first_bps": 9e7, "last_bps": 9.5e7, "first_share": 0.9, "last_share": 0.95}
    lane = {"idle": {"p50": 20.1, "p99": 21.0}, "under_bulk": {"p50": 22.0, "p99": 30.0}}
    document = {
        "link_by_streams": {"4": {"one_object": shares, "many_objects": shares, "fast_lane_ms": lane}},
        "plain": {"tcp_1": {"first_bps": 9e7, "last_bps": 9e7}},
    }
    rows = link_rows(document)
    assert rows[1] == ["link, 4 streams", "90.0 %, 95.0 %", "90.0 %, 95.0 %", "20.1 / 21.0 ms", "22.0 / 30.0 ms"]
    assert rows[2] == ["plain TCP, 1", "90, 90 Mbit/s", "-", "-", "-"]
