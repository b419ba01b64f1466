"""Plan files: what is read, and that each kind of mistake names file, line, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import load_chips
from pdd.planner.resolve import resolve
from pdd.planner.spec import HitLaw
from pdd.planner.spec_file import KEYS, read_plan_text

GOOD = """\
model: DeepSeek-V4-Pro
precision: fp8
workload:
  rate: 40/s
  input: 64K
  output: 1K
  hitRate: 90 %
sla:
  ttftP99: 15 s
  tpotP99: 60 ms
sites:
  a: {chips: [H100], accelerators: 16}
  b: {chips: [H200]}
  line:
    sizes: [10 Gbit/s, 20 Gbit/s]
    rtt: 20 ms
    perFlow: 200 Mbit/s
prices:
  currency: USD
  chips:
    H100: 2.95/h
    H200: 3.70/h
  line: {perGbit: 0.05/h}
"""


def test_a_whole_file_is_read() -> None:
    spec = read_plan_text("plan.yaml", GOOD)
    assert (spec.model, spec.precision) == ("DeepSeek-V4-Pro", "fp8")
    assert (spec.load.rate_per_s, spec.load.input_tokens, spec.load.hit_rate) == (40.0, 64_000.0, 0.9)
    assert spec.load.hits is HitLaw.MIXTURE
    assert (spec.sla.ttft_p90_s, spec.sla.ttft_p99_s, spec.sla.tpot_p99_s) == (None, 15.0, 0.06)
    assert spec.site_a.accelerators == 16
    assert spec.site_b.accelerators == 0
    assert spec.line.sizes_bps == (10e9, 20e9)
    assert (spec.line.rtt_s, spec.line.flow_bps) == (0.02, 200e6)
    assert spec.line_spec(20e9).price_per_h == pytest.approx(1.0)
    assert any("inputSpread" in assumption for assumption in spec.assumptions)


def test_relay_decode_may_have_engines_of_another_size() -> None:
    assert read_plan_text("plan.yaml", GOOD).relay is None
    text = GOOD.replace("accelerators: 16", "accelerators: 32, relayAccelerators: 64")
    spec = read_plan_text("plan.yaml", text)
    assert spec.relay is not None and (spec.relay.accelerators, spec.relay.chips) == (64, ("H100",))
    shape = resolve(spec, load_chips(None), 128_000).shapes[0]
    assert (shape.prefill.accelerators, shape.relay.accelerators) == (32, 64)
    assert shape.relay.price_per_h == pytest.approx(64 * 2.95)
    assert shape.relay.times != shape.prefill.times
    small = GOOD.replace("accelerators: 16", "accelerators: 32, relayAccelerators: 1")
    with pytest.raises(InvalidInput, match=r"plan.yaml:12: sites.a.relayAccelerators: 1: the weights"):
        resolve(read_plan_text("plan.yaml", small), load_chips(None), 128_000)


def test_every_key_stands_in_the_documentation() -> None:
    text = (Path(__file__).parents[4] / "docs" / "planner.md").read_text()
    table = text.partition("### Keys of a plan file")[2].partition("###")[0]
    missing = [key for keys in KEYS.values() for key in keys if key not in ("apiVersion", "kind") and key not in table]
    assert missing == []


def test_a_trace_stands_beside_the_file_and_excludes_the_rest() -> None:
    text = GOOD.replace("  input: 64K\n  output: 1K\n  hitRate: 90 %\n", "  trace: t.jsonl\n")
    assert read_plan_text("plan.yaml", text, folder=Path("x")).load.trace == Path("x/t.jsonl")
    with pytest.raises(InvalidInput, match=r"plan\.yaml:5: workload\.output.*the trace says it"):
        read_plan_text("plan.yaml", text.replace("trace: t.jsonl", "output: 1K\n  trace: t.jsonl"))


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("  hitRate: 90 %", "  hitrate: 90 %", "plan.yaml:7: workload.hitrate", "did you mean hitRate"),
        ("  ttftP99: 15 s", "  ttftP99: 15", "plan.yaml:9: sla.ttftP99", "'15 s' or '15 ms'"),
        ("  tpotP99: 60 ms", "  tpotP99: 60 s", "plan.yaml:10: sla.tpotP99", "did you mean '60 ms'"),
        ("  tpotP99: 60 ms", "  ttftP90: 20 s", "plan.yaml:10: sla.ttftP90", "not be more than sla.ttftP99"),
        ("rtt: 20 ms", "rtt: 20 s", "plan.yaml:16: sites.line.rtt", "did you mean '20 ms'"),
        ("[10 Gbit/s, 20 Gbit/s]", "[10 Gbit/s, 100 GB]", "plan.yaml:15: sites.line.sizes[1]", "counts bytes"),
        ("  rate: 40/s", "  rate: 40", "plan.yaml:4: workload.rate", "'40/s'"),
        ("  rate: 40/s\n", "", "plan.yaml:3: workload.rate", "is missing"),
        ("    H100: 2.95/h", "    H100: -2.95/h", "plan.yaml:21: prices.chips.H100", "must not be negative"),
        ("    H100: 2.95/h", "    H100: 2.95", "plan.yaml:21: prices.chips.H100", "'2.95 USD/h'"),
        ("    H200: 3.70/h", "    H20: 3.70/h", "plan.yaml:20: prices.chips", "no price for H200 (H20 has one"),
        ("  line: {perGbit: 0.05/h}\n", "", "plan.yaml:18: prices.line", "is missing"),
        ("{perGbit: 0.05/h}", "{perGbit: 0.05/GB}", "plan.yaml:23: prices.line.perGbit", "/GB is no period"),
        ("  b: {chips: [H200]}", "  b: {chips: []}", "plan.yaml:13: sites.b.chips", "at least one"),
        ("accelerators: 16", "accelerators: 0.5", "plan.yaml:12: sites.a.accelerators", "whole number from 1"),
        ("  hitRate: 90 %", "  hitRate: 90", "plan.yaml:7: workload.hitRate", "write '90 %' or 0.9"),
        ("  input: 64K", "  input: 64 GB", "plan.yaml:5: workload.input", "no count of tokens"),
        ("model: DeepSeek-V4-Pro", "model: DeepSeek-V4-Pro\nmodel: X", "plan.yaml:1: model", "given twice"),
        ("model: DeepSeek-V4-Pro\n", "model: [\n", "plan.yaml:", "mend it"),
    ],
)
def test_each_mistake_names_its_place_and_remedy(old: str, new: str, where: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidInput) as caught:
        read_plan_text("plan.yaml", GOOD.replace(old, new))
    assert caught.value.field.startswith(where)
    assert said in caught.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "just text", "a: 1\n---\nb: 2\n", "model: \x00"])
def test_what_is_no_plan_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_plan_text("plan.yaml", text)


def test_ports_have_prices_of_their_own() -> None:
    text = GOOD.replace("{perGbit: 0.05/h}", "{ports: {10 Gbit/s: 2.25/h, 20 Gbit/s: 4/h}, perGB: 0.02/GB}")
    spec = read_plan_text("plan.yaml", text)
    assert spec.prices.line_per_h(10e9) == 2.25
    assert spec.prices.line_per_h(10e9, bytes_per_s=1e9) == pytest.approx(2.25 + 0.02 * 3600)
    with pytest.raises(InvalidInput, match="has no price: add this size"):
        read_plan_text("plan.yaml", text.replace("20 Gbit/s: 4/h", "10 Gbps: 4/h"))


def test_a_calibrated_engine_replaces_a_chip_of_the_catalogue() -> None:
    spec = read_plan_text("plan.yaml", GOOD + "calibrations: {H100: p.json}\n", folder=Path("x"))
    assert spec.calibrations == {"H100": Path("x/p.json")}
    with pytest.raises(InvalidInput, match=r"plan\.yaml:24: calibrations\.H800.*no site has this chip"):
        read_plan_text("plan.yaml", GOOD + "calibrations: {H800: p.json}\n")
