"""`pdd trace` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdd.cli.main import main
from pdd.cli.trace import format_stats
from pdd.planner.traces import read_trace, trace_stats
from pdd.planner.workload_file import read_workload_text

DATA = Path(__file__).parents[3] / "tests" / "data" / "traces"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["pdd", "trace", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_stats_json_is_one_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("stats", str(DATA / "mooncake.jsonl"), "--cache", "8Ki", "--cache", "1M", "--json")
    assert call(monkeypatch, *arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "TraceStats" and document["format"] == "mooncake" and document["requests"] == 24
    assert [cache["cache_tokens"] for cache in document["finiteCaches"]] == [8192, 1_000_000]
    assert document["finiteCaches"][1]["byToken"] == document["hitRate"]["byToken"]


@pytest.mark.parametrize("name", ["mooncake.jsonl", "agentic.csv", "azure_2023.csv"])
def test_stats_for_a_person(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert call(monkeypatch, "stats", str(DATA / name)) == 0
    out = capsys.readouterr().out
    assert name in out and "prompt tokens" in out
    assert ("nothing is known about hits" in out) == name.startswith("azure")


def test_lines_stay_within_120_columns() -> None:
    for name in ("mooncake.jsonl", "agentic.csv", "azure_2024.csv"):
        text = format_stats(trace_stats(read_trace(DATA / name)), name, "x")
        assert max(map(len, text.splitlines())) <= 120


def test_fit_prints_a_workload_that_is_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "fit", str(DATA / "mooncake.jsonl")) == 0
    workload = read_workload_text("out.yaml", capsys.readouterr().out)
    assert workload.rate_per_s == pytest.approx(read_trace(DATA / "mooncake.jsonl").rate_per_s)
    assert workload.block_tokens == 512


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"", "trace.csv:1: file"), (b"\xef\xbb\xbf{}", "trace.csv:1: byte order mark"), (b"a,b\n1,2\n", ":1: header")],
)
@pytest.mark.parametrize("command", ["stats", "fit"])
def test_a_broken_trace_ends_with_2_and_says_where(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    content: bytes,
    shown: str,
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    assert call(monkeypatch, command, str(path), "--json") == 2
    captured = capsys.readouterr()
    assert shown in captured.err and captured.out == ""


@pytest.mark.parametrize("size", ["50 GB", "-1", "many", "nan", "0"])
def test_cache_sizes_that_are_no_tokens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: str
) -> None:
    assert call(monkeypatch, "stats", str(DATA / "mooncake.jsonl"), f"--cache={size}") == 2
    assert "--cache" in capsys.readouterr().err
