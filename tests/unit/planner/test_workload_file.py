"""Workload files: read, written and read again, and refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pdd.common.errors import InvalidInput
from pdd.planner.hit_law import HitBucket, HitMixture
from pdd.planner.laws import ArrivalLaw, Arrivals, LengthLaw, OddLaw, SessionLaw
from pdd.planner.workload import Workload
from pdd.planner.workload_document import workload_to_document
from pdd.planner.workload_file import read_workload, read_workload_text

FULL = """\
apiVersion: pdd.dev/workload/v1
kind: Workload
rate: 4800/min
input: {mean: 64K, sigma: 0.5, high: 256Ki}
output: {median: 1K, sigma: 0.4, low: 8, high: 4K}
hits:
- {from: 0 %, to: 90 %, share: 20 %, mean: 40 %}
- {from: 90 %, to: 100 %, share: 80 %}
arrivals: {kind: mmpp, burst: 6, burstLength: 5 s, calmLength: 2 min}
sessions:
  turns: 12
  growth: {median: 700, sigma: 1.2, high: 64K}
  think: {median: 10 s, sigma: 1.5, low: 500 ms, high: 1 h}
  answersCached: false
  context: 128Ki
  firstToken: 1 s
  perToken: 20 ms
odd: {share: 3 %, input: {median: 40K}, output: {median: 8}}
blockTokens: 64
"""


def test_a_full_file() -> None:
    workload = read_workload_text("w.yaml", FULL)
    assert workload.rate_per_s == 80.0 and workload.block_tokens == 64
    assert workload.input_tokens.mean == pytest.approx(64_000, rel=1e-3) and workload.input_tokens.high == 262_144
    assert workload.output_tokens == LengthLaw(1000.0, 0.4, 8.0, 4000.0)
    assert workload.hits.buckets == (HitBucket(0.0, 0.9, 0.2, 0.4), HitBucket(0.9, 1.0, 0.8))
    assert workload.arrivals == ArrivalLaw(Arrivals.MMPP, 1.0, 6.0, 5.0, 120.0)
    assert workload.sessions == SessionLaw(
        12.0, LengthLaw(700.0, 1.2, 1.0, 64_000.0), LengthLaw(10.0, 1.5, 0.5, 3600.0), False, 131_072, 1.0, 0.02
    )
    assert workload.odd is not None and workload.odd.share == 0.03 and workload.odd.input_tokens.sigma == 0


def test_only_the_rate_must_be_given() -> None:
    assert read_workload_text("w.yaml", "rate: 2/s\n") == Workload(rate_per_s=2.0)
    given = read_workload_text("w.yaml", "rate: 2/s\nsessions: {}\nodd: {}\n")
    assert given == Workload(rate_per_s=2.0, sessions=SessionLaw(), odd=OddLaw())


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("production", HitMixture()),
        ("{mean: 80 %}", HitMixture().with_mean(0.8)),
        ("{narrow: [85 %, 0.95]}", HitMixture.narrow(0.85, 0.95)),
    ],
)
def test_ways_to_write_hits(text: str, hits: HitMixture) -> None:
    assert read_workload_text("w.yaml", f"rate: 1/s\nhits: {text}\n").hits == hits


@pytest.mark.parametrize(
    "workload",
    [
        Workload(),
        Workload(rate_per_s=1 / 3, sessions=SessionLaw(), odd=OddLaw(), block_tokens=512),
        Workload(hits=HitMixture().with_mean(0.777), arrivals=ArrivalLaw(Arrivals.GAMMA, cv=2.2)),
        read_workload_text("w.yaml", FULL),
    ],
)
def test_a_workload_that_is_written_and_read_is_the_same(workload: Workload) -> None:
    text = yaml.safe_dump(workload_to_document(workload), sort_keys=False)
    assert read_workload_text("w.yaml", text) == workload


@pytest.mark.parametrize(
    ("change", "to", "line", "field"),
    [
        ("rate: 4800/min", "rate: 80", 3, "rate"),
        ("rate: 4800/min", "rate: -80/s", 3, "rate"),
        ("rate: 4800/min", "rate: 0/s", 3, "rate"),
        ("rate: 4800/min", "rate: 1e99/s", 3, "rate"),
        ("rate: 4800/min\n", "", 1, "rate"),
        ("kind: Workload", "kind: Plan", 2, "kind"),
        ("workload/v1", "workload/v9", 1, "apiVersion"),
        ("mean: 64K", "mean: 64 KB", 4, "input.mean"),
        ("mean: 64K", "median: 300Ki", 4, "input.median"),
        ("mean: 64K", "mean: 64K, median: 1K", 4, "input.mean"),
        ("mean: 64K, ", "", 4, "input.median"),
        ("{mean: 64K, sigma: 0.5, high: 256Ki}", "64K", 4, "input"),
        ("sigma: 0.4", "sigma: -1", 5, "output.sigma"),
        ("sigma: 0.4", "sigma: .nan", 5, "output.sigma"),
        ("sigma: 0.4", "sigma: yes", 5, "output.sigma"),
        ("sigma: 0.4", "sigmas: 0.4", 5, "output.sigmas"),
        ("low: 8,", "low: 2K,", 5, "output.median"),
        ("share: 20 %", "share: 50 %", 6, "hits.buckets"),
        ("share: 20 %", "share: 20", 7, "hits[0].share"),
        ("to: 90 %, share", "to: 190 %, share", 7, "hits[0].to"),
        ("mean: 40 %", "mean: 95 %", 7, "hits[0].mean"),
        ("mean: 40 %", "maen: 40 %", 7, "hits[0].maen"),
        ("kind: mmpp", "kind: burstish", 9, "arrivals.kind"),
        ("burst: 6", "burst: 0.1", 9, "arrivals.burst"),
        ("burstLength: 5 s", "burstLength: 5", 9, "arrivals.burstLength"),
        ("calmLength: 2 min", "calmLength: 0 s", 9, "arrivals.calmLength"),
        ("turns: 12", "turns: 0", 11, "sessions.turns"),
        ("median: 10 s", "median: 10", 13, "sessions.think.median"),
        ("answersCached: false", "answersCached: 0", 14, "sessions.answersCached"),
        ("context: 128Ki", "context: 128 GiB", 15, "sessions.context"),
        ("perToken: 20 ms", "perToken: 2 h", 17, "sessions.perToken"),
        ("share: 3 %", "share: 90 %", 18, "odd.share"),
        ("blockTokens: 64", "blockTokens: 0", 19, "blockTokens"),
        ("blockTokens: 64", "blokTokens: 64", 19, "blokTokens"),
        ("blockTokens: 64", "rate: 3/s", 19, "rate"),
        ("blockTokens: 64", "odd: [", 20, "YAML"),
    ],
)
def test_what_is_refused_names_file_line_and_field(change: str, to: str, line: int, field: str) -> None:
    assert change in FULL
    with pytest.raises(InvalidInput) as caught:
        read_workload_text("w.yaml", FULL.replace(change, to, 1))
    if field == "rate" and line == 19:  # given twice: the place is the first or the second of the two
        assert caught.value.field in ("w.yaml:3: rate", "w.yaml:19: rate")
    else:
        assert caught.value.field == f"w.yaml:{line}: {field}"


@pytest.mark.parametrize("text", ["", "---\n---\n", "rate: 1/s\n---\nrate: 2/s\n", "- 1\n", "7\n"])
def test_what_is_no_one_document(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"w\.yaml:1"):
        read_workload_text("w.yaml", text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_workload(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"rate: \xff/s\n")
    with pytest.raises(InvalidInput, match="no UTF-8"):
        read_workload(tmp_path / "bad.yaml")
    (tmp_path / "good.yaml").write_text("rate: 3/s\n")
    assert read_workload(tmp_path / "good.yaml").rate_per_s == 3.0
