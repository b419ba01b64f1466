"""`pdd chips` and `pdd models` as a person calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdd.cli.main import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["pdd", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_chips_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "chips", "--model", "DeepSeek-V4-Pro", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "Chips" and len(document["chips"]) >= 16
    assert all(len(chip["radar"]) == 4 and chip["sources"] for chip in document["chips"])
    assert set(document["roles"]["leastCost"]) == {"prefill", "decode"}


def test_models_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "models", "deepseek-ai/DeepSeek-V4-Pro", "--precision", "bf16", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["models"]
    assert entry["kv"]["bytes_per_token"] == 9848 and entry["precision"] == "bf16"


def test_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "chips") == 0
    assert "H100" in capsys.readouterr().out
    assert call(monkeypatch, "chips", "h20") == 0
    assert "disputed" in capsys.readouterr().out
    assert call(monkeypatch, "models") == 0
    out = capsys.readouterr().out
    assert "DeepSeek-V4-Pro" in out and max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("chips", "H10"), "did you mean H100"),
        (("models", "Qwen3-31B"), "did you mean"),
        (("models", "--precision", "int3"), "bf16, fp8, fp4"),
        (("chips", "--model", "Qwen3-8B", "--hit", "90"), "--hit"),
        (("chips", "--model", "Qwen3-8B", "--input", "64 KB"), "--input"),
    ],
)
def test_what_is_wrong_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], shown: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert shown in capsys.readouterr().err


def test_a_broken_file_of_a_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("X1:\n  memory_gb: 80\n")
    assert call(monkeypatch, "chips", "--file", str(tmp_path / "mine.yaml")) == 2
    assert "mine.yaml:" in capsys.readouterr().err
