"""Options of `pdd plan` change the load and the prices, and name what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdd.cli.plan import PlanOptions, change_load, read_price
from pdd.common.errors import InvalidInput
from pdd.planner.spec import LoadSpec

LOAD = LoadSpec(10.0)


def test_options_change_only_what_they_name() -> None:
    load = change_load(PlanOptions("f", rate="600/min", hit_rate="80 %"), LOAD)
    assert (load.rate_per_s, load.hit_rate, load.input_tokens) == (10.0, 0.8, LOAD.input_tokens)
    assert change_load(PlanOptions("f"), LOAD) is LOAD


def test_a_trace_brings_its_own_rate_unless_one_is_given() -> None:
    trace = Path("t.jsonl")
    assert change_load(PlanOptions("f", trace=trace), LOAD).rate_per_s == 0.0
    assert change_load(PlanOptions("f", trace=trace, rate="3/s"), LOAD).rate_per_s == 3.0


@pytest.mark.parametrize(
    ("options", "flag", "said"),
    [
        (PlanOptions("f", rate="40"), "--rate", "'40/s'"),
        (PlanOptions("f", hit_rate="90"), "--hit", "'90 %'"),
        (PlanOptions("f", input_tokens="64 KB"), "--input", "no count of tokens"),
        (PlanOptions("f", trace=Path("t"), output_tokens="1K"), "--output", "the trace says it"),
        (PlanOptions("f", trace=Path("t"), hit_rate="90 %"), "--hit", "the trace says it"),
    ],
)
def test_a_wrong_option_is_named(options: PlanOptions, flag: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        change_load(options, LOAD)
    assert caught.value.field == flag
    assert said in caught.value.remedy


def test_prices_of_chips() -> None:
    assert read_price("H100=2.95/h", {}) == ("H100", 2.95)
    with pytest.raises(InvalidInput, match=r"CHIP=PRICE"):
        read_price("H100", {})
    with pytest.raises(InvalidInput, match=r"2\.95 USD/h"):
        read_price("H100=2.95", {})
