"""Quantities: what is read, and what a slip of unit is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdd.planner import units


@pytest.mark.parametrize(
    ("text", "bps"),
    [("20 Gbit/s", 20e9), ("20Gbps", 20e9), ("25Gbit", 25e9), ("200 mbps", 200e6), ("1.5 Tbit/s", 1.5e12)],
)
def test_a_line_is_read_in_bits(text: str, bps: float) -> None:
    assert units.read_bits_per_s(text) == pytest.approx(bps)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("100 GB", "'800 Gbit/s' if bytes are meant, '100 Gbit/s' if bits"),
        ("100 GB", "a size, not a rate"),
        ("2.5 GB/s", "'20 Gbit/s' if bytes are meant, '2.5 Gbit/s' if bits"),
        ("10 GiB/s", "'85.9 Gbit/s' if bytes are meant"),
        ("20 Gb", "may be read as bits or bytes: write '20 Gbit/s'"),
        ("20", "has no unit: write '20 Gbit/s' or '20 Mbit/s'"),
        (20, "has no unit"),
        ("20 ms", "is no unit of a line"),
        ("-1 Gbit/s", "more than 0"),
        ("nan Gbit/s", "no number with a unit"),
        ("1e999 Gbit/s", "finite"),
        (True, "write bits per second"),
    ],
)
def test_bytes_for_a_line_are_refused_with_both_readings(text: object, said: str) -> None:
    with pytest.raises(units.UnitError) as caught:
        units.read_bits_per_s(text)
    assert said in str(caught.value)


def test_decimal_and_binary_sizes_differ() -> None:
    assert units.read_bytes("1 GB") == 1e9
    assert units.read_bytes("1 GiB") == 2**30
    with pytest.raises(units.UnitError, match=r"counts bits.*'12 GB'"):
        units.read_bytes("96 Gbit")
    with pytest.raises(units.UnitError, match="no unit: write '96 GB'"):
        units.read_bytes(96)


@pytest.mark.parametrize(
    ("text", "seconds"), [("200 ms", 0.2), ("15s", 15.0), ("2 min", 120.0), ("0 s", 0.0), ("50us", 5e-5)]
)
def test_times_need_their_unit(text: str, seconds: float) -> None:
    assert units.read_seconds(text) == pytest.approx(seconds)


def test_a_time_without_unit_or_far_too_long_names_what_was_meant() -> None:
    with pytest.raises(units.UnitError, match="write '20 s' or '20 ms'"):
        units.read_seconds(20)
    with pytest.raises(units.UnitError, match="did you mean '20 ms'"):
        units.read_seconds("20 s", most_s=2.0)
    with pytest.raises(units.UnitError, match="not be negative"):
        units.read_seconds("-3 ms")


def test_tokens_in_thousands_and_in_1024() -> None:
    assert [units.read_tokens(text) for text in (65536, "64K", "64Ki", "64K tokens", "1,000")] == [
        65536.0,
        64000.0,
        65536.0,
        64000.0,
        1000.0,
    ]
    with pytest.raises(units.UnitError, match="no count of tokens"):
        units.read_tokens("64 KB")


def test_shares_rates_and_prices() -> None:
    assert units.read_share("90 %") == pytest.approx(0.9)
    assert units.read_share(0.9) == 0.9
    with pytest.raises(units.UnitError, match=r"write '90 %' or 0\.9"):
        units.read_share(90)
    assert units.read_per_s("4800/min") == pytest.approx(80.0)
    assert units.read_per_s("11.5 req/s") == 11.5
    assert units.read_money_per_h("2.95 USD/h", "USD") == 2.95
    assert units.read_money_per_h("730/month", "USD") == pytest.approx(1.0)
    assert units.read_money_per_gb("20 USD/TB", "USD") == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("reader", "value", "said"),
    [
        (units.read_per_s, "80", "'80/s'"),
        (lambda v: units.read_money_per_h(v, "USD"), "2.95", "'2.95 USD/h'"),
        (lambda v: units.read_money_per_h(v, "USD"), "-2.95/h", "must not be negative"),
        (lambda v: units.read_money_per_h(v, "USD"), "2.95 EUR/h", "prices.currency: EUR"),
        (lambda v: units.read_money_per_gb(v, "USD"), "0.02/Gbit", "'0.16/GB' if Gbit are meant"),
    ],
)
def test_slips_of_rates_and_prices_are_named(reader: Callable[[object], float], value: str, said: str) -> None:
    with pytest.raises(units.UnitError) as caught:
        reader(value)
    assert said in str(caught.value)


def test_formatted_quantities_are_read_back() -> None:
    for bps in (1e9, 20e9, 200e6, 1.5e12):
        assert units.read_bits_per_s(units.format_bits_per_s(bps)) == pytest.approx(bps)
    for seconds in (0.047, 2.4, 0.0):
        assert units.read_seconds(units.format_seconds(seconds)) == pytest.approx(seconds)
