"""`pdd bathtub` as a person calls it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pdd.cli.main import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["pdd", "bathtub", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_json_and_picture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "bathtub.svg"
    assert call(monkeypatch, "--input", "16000", "--chunk", "4096", "--svg", str(picture), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [round(100 * dip["hit_rate"]) for dip in document["dips"]] == [20, 40, 70]
    assert len(document["points"]) == 100 and len(document["advice"]) == 4
    root = ET.fromstring(picture.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(root.findall(".//{*}polyline")) == 3


def test_words_and_times_of_a_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--model", "DeepSeek-V3", "--chip", "H800", "--accelerators", "16") == 0
    out = capsys.readouterr().out
    assert "fuse tails" in out and "dip of" in out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--input", "1"), "input_tokens"),
        (("--input", "64 KB"), "--input"),
        (("--chunk", "4 GB"), "--chunk"),
        (("--cached-price", "10"), "--cached-price"),
        (("--per-token", "10"), "--per-token"),
        (("--per-token", "0 s"), "--per-token"),
        (("--model", "Qwen3-31B"), "did you mean"),
        (("--model", "Kimi-K2", "--accelerators", "1"), "accelerators"),
        (("--svg", "/nowhere/at/all.svg"), "--svg"),
    ],
)
def test_what_is_wrong_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], shown: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert shown in capsys.readouterr().err
