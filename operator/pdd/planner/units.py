"""Quantities that a person writes: a number and its unit, strictly, and what was probably meant where it is wrong.

Every reader takes what YAML gave (a text or a number) and returns a float in base units: bits per second, bytes,
seconds, tokens, a share of 1, requests per second, money per hour. A bare number is refused wherever its unit could be
guessed wrong. Prefixes are decimal (k, M, G, T) unless they end with `i` (Ki, Mi, Gi). Raises UnitError.
"""

from __future__ import annotations

import math
import re

BITS = 8
HOURS_PER_MONTH = 730.0
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_NUMBER = r"([+-]?(?:[0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*(.*?)\s*$")
_BITS = re.compile(r"^([kKMGT]?|[KMGT]i)(bit/s|bits/s|bps|bit|bits)$")
_BYTES = re.compile(r"^([kKMGT]?|[KMGT]i)(B|Byte|Bytes|byte|bytes)(/s|ps)?$")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
_PERIODS = {"h": 1.0, "hour": 1.0, "day": 24.0, "month": HOURS_PER_MONTH, "year": 12 * HOURS_PER_MONTH}


class UnitError(ValueError):
    """The text is no such quantity. `str(error)` is the remedy, ready to be shown."""


def read_bits_per_s(value: object) -> float:
    """`20 Gbit/s`, `200 Mbps` -> bits per second. Bytes are refused with the figure in bits: 8 times as much."""
    number, unit = _split(value, "bits per second, for example 20 Gbit/s")
    match = _BITS.match(_fix_case(unit))
    if match:
        return _positive(number, "a line") * _scale(match[1])
    byte = _BYTES.match(unit)
    if byte:
        bits = number * _scale(byte[1]) * BITS
        amount = "" if byte[3] else " (and a size, not a rate)"
        raise UnitError(
            f"{unit} counts bytes{amount}, a line counts bits: write '{format_bits_per_s(bits)}' if bytes are meant, "
            f"'{number:g} {byte[1]}bit/s' if bits are"
        )
    if re.fullmatch(r"[kKMGT]?i?b(/s)?", unit):
        raise UnitError(f"{unit} may be read as bits or bytes: write '{number:g} {unit[0]}bit/s'")
    if not unit:
        raise UnitError(f"has no unit: write '{number:g} Gbit/s' or '{number:g} Mbit/s'")
    raise UnitError(f"{unit} is no unit of a line: write bits per second, for example '20 Gbit/s'")


def read_bytes(value: object) -> float:
    """`9848 B`, `4.5 KB`, `96 GiB` -> bytes. Bits are refused with the figure in bytes."""
    number, unit = _split(value, "bytes, for example 96 GiB")
    match = _BYTES.match(unit)
    if match and not match[3]:
        return _not_negative(number) * _scale(match[1])
    bits = _BITS.match(_fix_case(unit))
    if bits:
        as_bytes = number * _scale(bits[1]) / BITS
        raise UnitError(f"{unit} counts bits, a size counts bytes: write '{format_bytes(as_bytes)}' if bits are meant")
    if re.fullmatch(r"[kKMGT]?i?b", unit):
        raise UnitError(f"{unit} may be read as bits or bytes: write '{number:g} {unit[:-1]}B'")
    if not unit or re.fullmatch(r"[KMGT]i?", unit):
        raise UnitError(f"has no unit: write '{number:g} {unit or 'G'}B'")
    raise UnitError(f"{unit} is no unit of size: write bytes, for example '96 GiB' or '96 GB'")


def read_seconds(value: object, *, most_s: float = math.inf) -> float:
    """`200 ms`, `15 s`, `2 min` -> seconds, not negative; more than most_s is taken for a slip of unit."""
    number, unit = _split(value, "a time, for example 200 ms or 15 s")
    if not unit:
        raise UnitError(f"has no unit: write '{number:g} s' or '{number:g} ms'")
    if unit not in _SECONDS:
        raise UnitError(f"{unit} is no unit of time: write us, ms, s, min or h")
    seconds = _not_negative(number) * _SECONDS[unit]
    if seconds > most_s:
        meant = f"; did you mean '{number:g} ms'?" if unit == "s" and number / 1000 <= most_s else ""
        raise UnitError(f"must be at most {format_seconds(most_s)}{meant}")
    return seconds


def read_tokens(value: object) -> float:
    """`65536`, `64K` (64,000), `64Ki` (65,536), each with or without `tokens` -> tokens, at least 1."""
    number, unit = _split(value, "tokens, for example 64000, 64K or 64Ki")
    short = re.sub(r"\s*(tokens?|tok)$", "", unit)
    if short not in _DECIMAL and short not in _BINARY:
        raise UnitError(f"{unit} is no count of tokens: write 64000, 64K (thousands) or 64Ki (1,024 each)")
    tokens = number * _scale(short)
    if tokens < 1:
        raise UnitError("must be at least 1 token")
    return tokens


def read_share(value: object) -> float:
    """`90 %` or `0.9` -> 0.9. A bare number above 1 is refused."""
    number, unit = _split(value, "a share, for example 90 % or 0.9")
    if unit not in ("", "%"):
        raise UnitError(f"{unit} is no unit of a share: write '{number:g} %'")
    if not unit and number > 1:
        raise UnitError(f"is more than all: write '{number:g} %' or {number / 100:g}")
    share = number / 100 if unit else number
    if not 0 <= share <= 1:
        raise UnitError("must be between 0 and 100 %")
    return share


def read_per_s(value: object) -> float:
    """`80/s`, `80 req/s`, `4800/min` -> requests per second, more than 0."""
    number, unit = _split(value, "requests a time, for example 80/s")
    match = re.fullmatch(r"(?:req(?:uests?)?|r)?\s*/\s*(s|min|h)|(rps)", unit)
    if not match:
        raise UnitError(f"has no unit of time: write '{number:g}/s' or '{number:g}/min'")
    return _positive(number, "a rate") / {"s": 1.0, "min": 60.0, "h": 3600.0}[match[1] or "s"]


def read_money_per_h(value: object, currency: str) -> float:
    """`2.95/h`, `2.95 USD/h`, `1500/month` (730 hours) -> money per hour, not negative."""
    number, unit = _split(value, f"a price a time, for example '2.95 {currency}/h'")
    money, slash, period = unit.partition("/")
    if not slash:
        raise UnitError(f"has no unit of time: write '{number:g} {currency}/h' or '{number:g} {currency}/month'")
    _check_currency(money, currency)
    name = period.strip().removeprefix("GPU-")
    if name not in _PERIODS:
        raise UnitError(f"/{period} is no period: write /h, /day, /month or /year")
    return _price(number) / _PERIODS[name]


def read_money_per_gb(value: object, currency: str) -> float:
    """`0.02/GB`, `0.02 USD/GiB` -> money per 10^9 bytes, not negative."""
    number, unit = _split(value, f"a price a size, for example '0.02 {currency}/GB'")
    money, slash, size = unit.partition("/")
    if not slash:
        raise UnitError(f"has no unit of size: write '{number:g} {currency}/GB'")
    _check_currency(money, currency)
    match = _BYTES.match(size.strip())
    if not match or match[3]:
        bits = "bits" in size or "bit" in size or re.fullmatch(r"[KMGT]?b", size.strip())
        meant = f"; '{number * BITS:g}/GB' if Gbit are meant" if bits else ""
        raise UnitError(f"/{size} is no size in bytes: write /GB, /TB or /GiB{meant}")
    return _price(number) / (_scale(match[1]) / 1e9)


def format_bits_per_s(bps: float) -> str:
    """As the readers read it: `20 Gbit/s`."""
    for prefix in ("T", "G", "M", "k"):
        if bps >= _DECIMAL[prefix]:
            return f"{bps / _DECIMAL[prefix]:.4g} {prefix}bit/s"
    return f"{bps:.4g} bit/s"


def format_bytes(size: float) -> str:
    """As the readers read it: `2.5 GB`."""
    for prefix in ("T", "G", "M", "k"):
        if size >= _DECIMAL[prefix]:
            return f"{size / _DECIMAL[prefix]:.4g} {prefix}B"
    return f"{size:.4g} B"


def format_seconds(seconds: float) -> str:
    """As the readers read it: `2.4 s`, `47 ms`."""
    if seconds == 0 or not math.isfinite(seconds):
        return "0 s" if seconds == 0 else "no end"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _split(value: object, wanted: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"write {wanted}")
    match = _QUANTITY.match(str(value))
    if not match:
        raise UnitError(f"is no number with a unit: write {wanted}")
    number = float(match[1].replace("_", "").replace(",", ""))
    if not math.isfinite(number):
        raise UnitError(f"must be finite: write {wanted}")
    return number, match[2]


def _scale(prefix: str) -> float:
    return _DECIMAL[prefix] if prefix in _DECIMAL else _BINARY[prefix]


def _fix_case(unit: str) -> str:
    """`gbps` and `gbit/s` in small letters are common and clear; `GBps` is bytes and stays."""
    return unit[:1].upper() + unit[1:] if re.fullmatch(r"[mgt](bit/s|bits/s|bps|bit|bits)", unit) else unit


def _positive(number: float, what: str) -> float:
    if number <= 0:
        raise UnitError(f"must be more than 0: {what} without capacity serves nothing")
    return number


def _not_negative(number: float) -> float:
    if number < 0:
        raise UnitError("must not be negative")
    return number


def _price(number: float) -> float:
    if number < 0:
        raise UnitError("a price must not be negative; write 0 for what costs nothing")
    return number


def _check_currency(money: str, currency: str) -> None:
    name = money.strip()
    if name and name != currency:
        raise UnitError(f"{name} is not the file's currency: write {currency}, or set prices.currency: {name}")
