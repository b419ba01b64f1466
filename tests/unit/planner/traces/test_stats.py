"""Statistics, the bucket borders, and what is not said for want of samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.traces import read_trace, to_document, trace_stats
from pdd.planner.traces.stats import bucket_shares, measure_spread
from pdd.planner.workload import Workload, generate

DATA = Path(__file__).parents[4] / "tests" / "data" / "traces"


def test_an_edge_belongs_to_the_upper_bucket() -> None:
    rates = np.array([0.0, 0.5, np.nextafter(0.9, 0), 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.0])
    assert bucket_shares(rates) == (0.3, 0.1, 0.1, 0.1, 0.1, 0.3)


@pytest.mark.parametrize("n", [1, 9, 10, 49, 50, 99, 100, 499, 500, 5000])
def test_a_percentile_needs_five_samples_beyond_it(n: int) -> None:
    spread = measure_spread(np.arange(n))
    for value, beyond in ((spread.p50, n / 2), (spread.p90, n / 10), (spread.p95, n / 20), (spread.p99, n / 100)):
        assert (value is not None) == (beyond >= 5)
    assert spread.max == n - 1


def test_stats_of_the_small_mooncake_file() -> None:
    load = read_trace(DATA / "mooncake.jsonl")
    stats = trace_stats(load, [8192])
    assert stats.requests == 24 and stats.sessions is None
    assert stats.hits is not None and stats.caches is not None
    rates = load.hit_tokens / load.input_tokens
    assert stats.hits.by_request == pytest.approx(rates.mean())
    assert stats.hits.by_token == pytest.approx(load.hit_tokens.sum() / load.input_tokens.sum())
    assert stats.hits.buckets == (21 / 24, 3 / 24, 0, 0, 0, 0)
    assert stats.caches[0].cache_tokens == 8192 and stats.caches[0].by_token < stats.hits.by_token
    assert stats.input_tokens.p99 is None and stats.input_tokens.p50 is not None


def test_nothing_is_said_about_hits_that_are_not_known() -> None:
    stats = trace_stats(read_trace(DATA / "azure_2024.csv"))
    assert (stats.hits, stats.caches, stats.uncached_tokens, stats.odd_share, stats.working_set) == (None,) * 5
    drawn = trace_stats(generate(Workload(), 100, 1))
    assert drawn.hits is not None and drawn.caches is None


def test_the_document_has_every_figure_and_only_json_types() -> None:
    document = to_document(trace_stats(read_trace(DATA / "agentic.csv"), [20_000]), "agentic.csv", "agentic")
    assert (document["apiVersion"], document["kind"]) == ("pdd.dev/trace/v1", "TraceStats")
    assert document["requests"] == 9 and document["sessions"]["conversations"] == 4
    buckets = document["hitRate"]["buckets"]
    assert [(b["from"], b["to"]) for b in buckets] == [
        (0.0, 0.9), (0.9, 0.95), (0.95, 0.97), (0.97, 0.98), (0.98, 0.99), (0.99, 1.0),
    ]  # fmt: skip
    assert sum(b["share"] for b in buckets) == pytest.approx(1, abs=1e-5)
    assert document["finiteCaches"][0]["cache_tokens"] == 20_000
    assert set(document["workingSet_tokens"]) == {"share50", "share90", "share99"}


def test_one_request_and_requests_at_one_time() -> None:
    load = read_trace(DATA / "mooncake.jsonl", 1)
    one = trace_stats(load)
    assert (one.requests, one.rate_per_s, one.gap_cv, one.duration_s) == (1, 0.0, None, 0.0)
    many = read_trace(DATA / "mooncake.jsonl")
    together = trace_stats(replace(many, arrival_s=np.zeros(len(many))))
    assert (together.rate_per_s, together.gap_cv) == (0.0, None)


@pytest.mark.parametrize("size", [-1.0, float("nan"), float("inf")])
def test_cache_sizes_that_are_none(size: float) -> None:
    with pytest.raises(InvalidInput, match="cache_tokens"):
        trace_stats(read_trace(DATA / "mooncake.jsonl"), [size])
