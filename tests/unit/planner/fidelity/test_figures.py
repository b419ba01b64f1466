"""Measured beside predicted: figures, signed errors, and the load that both have."""

import pytest

from pdd.planner.fidelity import Outcome, Request, Row, Served, compare, make_load, summarise


def served(count: int, ttft_s: float, step_s: float = 0.02, tokens: int = 11) -> list[Served]:
    return [Served(float(i), i + ttft_s, i + ttft_s + (tokens - 1) * step_s, tokens) for i in range(count)]


def test_figures_of_a_replay() -> None:
    found = summarise(served(100, 0.5))
    assert found.ttft_p50_s == pytest.approx(0.5)
    assert found.tpot_p50_s == pytest.approx(0.02)
    assert found.throughput_tokens_per_s == pytest.approx(100 * 11 / 99.7)


def test_a_p99_of_few_requests_is_not_given() -> None:
    assert summarise(served(99, 0.5)).ttft_p99_s is None
    assert summarise(served(100, 0.5)).ttft_p99_s is not None


def test_one_token_has_no_time_between_tokens() -> None:
    assert summarise(served(3, 0.5, tokens=1)).tpot_p50_s is None


def test_nothing_served_is_nothing_said() -> None:
    assert summarise([]) == Outcome(0, None, None, None, None, None)


def test_errors_are_signed_and_judged_by_their_size() -> None:
    measured, predicted = summarise(served(100, 1.0)), summarise(served(100, 0.8))
    rows = {row.figure: row for row in compare("naive", measured, predicted)}
    assert rows["ttft_p50_s"].error == pytest.approx(-0.2), "negative: the prediction is too good"
    assert rows["ttft_p50_s"].holds is False
    assert rows["ttft_p99_s"].holds is True, "a wider tolerance"
    assert rows["throughput_tokens_per_s"].holds is True


def test_a_missing_figure_neither_holds_nor_fails() -> None:
    assert Row("pdd", "ttft_p99_s", None, 1.0, 0.25).holds is None


def test_equal_prefixes_have_equal_blocks_and_only_those() -> None:
    shared, other = tuple(range(32)), tuple(range(100, 116))
    requests = [
        Request(0.0, shared, 4),
        Request(1.0, shared + other, 5),
        Request(2.0, other + shared, 6),
        Request(3.0, shared[:20], 7),
    ]
    load = make_load(requests, 16)
    assert load.blocks is not None
    rows = [load.blocks.ids[load.blocks.offsets[i] : load.blocks.offsets[i + 1]].tolist() for i in range(4)]
    assert rows[0] == rows[1][:2]
    assert rows[3] == rows[0][:1], "a block that is not full is no block"
    assert not set(rows[2]) & set(rows[1]), "the same tokens behind another prefix are other KV"
    assert load.hit_tokens.tolist() == [0, 32, 0, 16]
    assert load.output_tokens.tolist() == [4, 5, 6, 7]
