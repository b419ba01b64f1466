"""Published figures of the real traces, from the files themselves. They lie beside the repository, not in it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from pdd.planner.load import Load
from pdd.planner.traces import measure_reuse, read_trace, trace_stats

TRACES = Path(__file__).parents[5] / "shared" / "traces"
MOONCAKE = TRACES / "mooncake" / "conversation_trace.jsonl"
AGENTIC = TRACES / "agentic" / "requests.csv"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not beside this checkout")


@pytest.fixture(scope="module")
def mooncake() -> Load:
    return read_trace(MOONCAKE)


@pytest.fixture(scope="module")
def agentic() -> Load:
    return read_trace(AGENTIC)


@needs_traces
def test_mooncake_conversation(mooncake: Load) -> None:
    stats = trace_stats(mooncake, [3e6, 50e6])
    assert stats.requests == 12_031 and stats.hits is not None and stats.caches is not None
    assert round(100 * stats.hits.by_request, 1) == 40.9
    assert round(100 * stats.hits.by_token, 1) == 37.4
    assert [round(100 * share, 1) for share in stats.hits.buckets] == [84.1, 6.1, 3.7, 2.0, 2.1, 2.0]
    assert round(100 * stats.hits.high, 1) == 9.8
    # Mooncake's paper: 50 M tokens come near the unlimited cache, 3 M give less than half of it.
    small, large = stats.caches
    assert small.by_token < 0.5 * stats.hits.by_token and large.by_token > 0.98 * stats.hits.by_token


@needs_traces
def test_the_second_half_of_mooncake_conversation(mooncake: Load) -> None:
    rates = (mooncake.hit_tokens / mooncake.input_tokens)[-6016:]
    assert round(100 * float(rates.mean()), 1) == 43.1


@needs_traces
def test_agentic_sessions(agentic: Load) -> None:
    stats = trace_stats(agentic, [1e6, 30e6])
    assert stats.requests == 49_334 and stats.hits is not None and stats.caches is not None
    assert round(100 * stats.hits.by_request, 1) == 95.1
    assert round(100 * stats.hits.by_token, 1) == 96.3
    assert [round(100 * share, 1) for share in stats.hits.buckets] == [7.0, 4.4, 5.6, 6.6, 17.7, 58.7]
    assert round(100 * stats.hits.high, 1) == 88.6
    # "about 73 %", "P50 216, P90 898, mean 440": from the notes on the trace, rounded there.
    assert stats.cold_uncached_share == pytest.approx(0.73, abs=0.02)
    assert (stats.output_tokens.p50, stats.output_tokens.p90) == (216, 898)
    assert round(stats.output_tokens.mean) == 440
    assert stats.input_tokens.p50 == pytest.approx(104e3, rel=0.01)
    assert stats.odd_share is not None and 0.0045 <= stats.odd_share <= 0.0055
    assert stats.caches[0].by_request < 0.5 < 0.94 < stats.caches[1].by_request


@needs_traces
def test_agentic_times_follow_the_sessions(agentic: Load) -> None:
    later = agentic.previous >= 0
    before = agentic.previous[later]
    assert (agentic.session[later] == agentic.session[before]).all()
    assert (agentic.arrival_s[later] >= agentic.arrival_s[before]).all()
    assert (np.diff(agentic.arrival_s) >= 0).all()
    assert np.quantile(agentic.think_s[later], 0.5) == pytest.approx(10, abs=1)


@needs_traces
def test_reuse_of_the_longest_trace_is_found_within_seconds(agentic: Load) -> None:
    begun = time.process_time()
    measure_reuse(agentic)
    assert time.process_time() - begun < 5
