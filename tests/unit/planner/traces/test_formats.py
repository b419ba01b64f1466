"""Each format: what is read, from small files of the repository that always are there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pdd.planner.traces import TraceFormat, detect_format, read_trace

DATA = Path(__file__).parents[4] / "tests" / "data" / "traces"


def test_the_format_is_told_by_the_first_line_whatever_the_name(tmp_path: Path) -> None:
    kinds = {
        "mooncake.jsonl": TraceFormat.MOONCAKE,
        "agentic.csv": TraceFormat.AGENTIC,
        "azure_2023.csv": TraceFormat.AZURE,
        "azure_2024.csv": TraceFormat.AZURE,
        "azure_multimodal.csv": TraceFormat.AZURE,
    }
    for name, kind in kinds.items():
        other = tmp_path / "trace"
        other.write_bytes((DATA / name).read_bytes())
        assert detect_format(other) is kind


def test_mooncake_times_lengths_hits_and_blocks() -> None:
    load = read_trace(DATA / "mooncake.jsonl")
    rows = [json.loads(line) for line in (DATA / "mooncake.jsonl").read_text().splitlines()]
    assert load.arrival_s.tolist() == [row["timestamp"] / 1000 for row in rows]
    assert load.input_tokens.tolist() == [row["input_length"] for row in rows]
    assert load.output_tokens.tolist() == [row["output_length"] for row in rows]
    assert load.session.tolist() == [-1] * 24 and load.previous.tolist() == [-1] * 24
    blocks = load.blocks
    assert blocks is not None and blocks.block_tokens == 512
    assert np.diff(blocks.offsets).tolist() == [len(row["hash_ids"]) for row in rows]
    # The file numbers its blocks in the order of first sight, as the reader does: the same ids come back.
    assert blocks.ids.tolist() == [hash_id for row in rows for hash_id in row["hash_ids"]]
    # Worked out by hand: the first block of all is common to the three conversations, each of which then goes on.
    assert load.hit_tokens.tolist()[:4] == [0, 512, 512, 4 * 512]


def test_a_mooncake_block_counts_as_hit_only_after_an_equal_prefix(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [[1, 2, 3], [2, 3], [1, 3], [1, 2, 4], [1, 2, 3]]
    path.write_text(
        "".join(
            json.dumps({"timestamp": i, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}) + "\n"
            for i, ids in enumerate(rows)
        )
    )
    load = read_trace(path)
    assert (load.hit_tokens // 512).tolist() == [0, 0, 1, 2, 3]
    assert load.blocks is not None
    assert load.blocks.ids.tolist() == [0, 1, 2, 3, 4, 0, 5, 0, 1, 6, 0, 1, 2]


def test_a_hit_in_the_last_partial_block_is_no_more_than_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = json.dumps({"timestamp": 0, "input_length": 700, "output_length": 0, "hash_ids": [5, 6]}) + "\n"
    path.write_text(line * 2)
    load = read_trace(path)
    assert load.hit_tokens.tolist() == [0, 700] and load.output_tokens.tolist() == [1, 1]


def test_agentic_sessions_sub_agents_and_think_times() -> None:
    load = read_trace(DATA / "agentic.csv", session_gap_s=1000.0)
    assert load.arrival_s.tolist() == [0, 15, 22, 25, 30, 40, 60, 1000, 1100]
    # The agent, then two sub-agents that ran at once (the second one's time falls in the file), then the next session.
    assert load.session.tolist() == [0, 0, 1, 2, 1, 0, 0, 3, 3]
    assert load.previous.tolist() == [-1, 0, -1, -1, 2, 1, 5, -1, 7]
    # The seventh has no think time: from the end of the answer before (40 + 3 s) to its own time.
    assert load.think_s.tolist() == [0, 10, 0, 0, 6, 19, 17, 0, 91]
    assert load.hit_tokens.tolist() == [0, 9984, 0, 3008, 3968, 19968, 8000, 0, 49984]
    assert load.output_tokens.tolist() == [100, 200, 50, 40, 60, 1, 10, 300, 20]
    assert load.blocks is None


def test_agentic_sessions_start_apart() -> None:
    starts = read_trace(DATA / "agentic.csv", session_gap_s=7.0).arrival_s
    assert starts.tolist() == [0, 7, 15, 22, 25, 30, 40, 60, 107]


@pytest.mark.parametrize(
    ("name", "arrivals", "inputs", "outputs"),
    [
        ("azure_2023.csv", [0.0, 0.052, 0.098189, 29.479069], [4808, 3180, 110, 1555], [10, 8, 27, 1]),
        ("azure_2024.csv", [0.0, 0.99007, 0.993405], [2162, 2399, 76], [5, 6, 15]),
        ("azure_multimodal.csv", [0.0, 2.0], [1500, 300], [120, 40]),
    ],
)
def test_azure_releases(name: str, arrivals: list[float], inputs: list[int], outputs: list[int]) -> None:
    load = read_trace(DATA / name)
    assert load.arrival_s.tolist() == pytest.approx(arrivals, abs=1e-6)
    assert load.input_tokens.tolist() == inputs and load.output_tokens.tolist() == outputs
    assert not load.hit_tokens.any() and load.blocks is None


def test_azure_times_of_other_zones_are_the_same_moments(tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 01:00:00+02:00,5,5\n2024-05-09 23:00:01+00:00,6,6\n"
    )
    assert read_trace(path).arrival_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["mooncake.jsonl", "agentic.csv", "azure_2023.csv", "azure_2024.csv"])
@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_a_limit_reads_the_head_only(name: str, limit: int) -> None:
    whole, head = read_trace(DATA / name), read_trace(DATA / name, limit)
    assert len(head) == min(limit, len(whole))
    if name != "agentic.csv":  # its file is in the order of sessions, not of arrival
        assert head.input_tokens.tolist() == whole.input_tokens.tolist()[:limit]
        assert head.hit_tokens.tolist() == whole.hit_tokens.tolist()[:limit]


def test_what_lies_beyond_the_limit_is_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text((DATA / "mooncake.jsonl").read_text() + "broken\n")
    assert len(read_trace(path, 24)) == 24


def test_columns_may_stand_in_any_order_and_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text('"GeneratedTokens","note, free","TIMESTAMP","ContextTokens"\n7,"a, b",2023-11-16 18:17:03,9\n')
    load = read_trace(path)
    assert load.input_tokens.tolist() == [9] and load.output_tokens.tolist() == [7]


@pytest.mark.parametrize("name", ["agentic.csv", "azure_2023.csv"])
def test_csv_lines_may_all_end_with_lf_or_all_with_crlf(tmp_path: Path, name: str) -> None:
    text = (DATA / name).read_bytes().replace(b"\r\n", b"\n")
    loads = []
    for end in (b"\n", b"\r\n"):
        path = tmp_path / "trace.csv"
        path.write_bytes(text.replace(b"\n", end))
        loads.append(read_trace(path))
        path.write_bytes(text.replace(b"\n", end).removesuffix(end))
        assert len(read_trace(path)) == len(loads[-1])
    assert loads[0].arrival_s.tolist() == loads[1].arrival_s.tolist()
    assert loads[0].input_tokens.tolist() == loads[1].input_tokens.tolist()
