from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdd.cli.bench.trace import Scale, load_mooncake, mean_hit_rate
from pdd.common.errors import InvalidInput

SCALE = Scale(block_tokens=32, max_output_tokens=40, speed=2.0)


def trace(tmp_path: Path, *requests: tuple[int, int, int, list[int]]) -> Path:
    path = tmp_path / "trace.jsonl"
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(keys, request, strict=True))) + "\n" for request in requests))
    return path


def test_lengths_and_times_are_scaled_and_equal_ids_give_equal_prefixes(tmp_path: Path) -> None:
    path = trace(tmp_path, (0, 1024, 320, [7, 8]), (3000, 1100, 10_000, [7, 9, 10]), (4000, 40, 1, [11]))
    first, second, third = load_mooncake(path, 3, SCALE)
    assert [len(r.prompt) for r in (first, second, third)] == [64, 68, 2]
    assert [r.output_tokens for r in (first, second, third)] == [20, 40, 4]
    assert [r.at_s for r in (first, second, third)] == [0.0, 1.5, 2.0]
    assert first.prompt[:32] == second.prompt[:32] and first.prompt[32:64] != second.prompt[32:64]
    assert all(32 <= token <= 126 for token in first.prompt)


def test_the_hit_rate_of_the_scaled_trace_is_that_of_its_ids(tmp_path: Path) -> None:
    path = trace(tmp_path, (0, 1024, 8, [1, 2]), (0, 1024, 8, [1, 3]), (0, 1024, 8, [1, 2]), (0, 1024, 8, [2, 1]))
    requests = load_mooncake(path, 4, SCALE)
    assert mean_hit_rate(requests, 32) == pytest.approx((0 + 32 + 64 + 0) / 256)


def test_a_long_prompt_is_cut(tmp_path: Path) -> None:
    path = trace(tmp_path, (0, 5120, 8, list(range(10))))
    (request,) = load_mooncake(path, 1, Scale(block_tokens=32, max_prompt_tokens=100))
    assert len(request.prompt) == 100


def test_a_missing_a_broken_and_a_short_trace_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_mooncake(tmp_path / "none", 1, SCALE)
    broken = tmp_path / "broken"
    broken.write_text('{"timestamp": 1}\n')
    with pytest.raises(InvalidInput, match="broken:1: input_length"):
        load_mooncake(broken, 1, SCALE)
    csv = tmp_path / "azure.csv"
    csv.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,5\n")
    with pytest.raises(InvalidInput, match="no block hashes"):
        load_mooncake(csv, 1, SCALE)
    with pytest.raises(InvalidInput, match="the trace has 1"):
        load_mooncake(trace(tmp_path, (0, 100, 8, [1])), 5, SCALE)
