"""Reads a plan file: a small YAML of model, workload, sla, sites and prices. Strict; errors name file, line and field.

    model: DeepSeek-V4-Pro            # a name of `pdd models`
    workload: {rate: 40/s, input: 64K, output: 1K, hitRate: 90 %}
    sla: {ttftP99: 15 s, tpotP99: 60 ms}
    sites:
      a: {chips: [H100]}              # prefill and relay decode
      b: {chips: [H200]}              # main decode
      line: {sizes: [10 Gbit/s, 20 Gbit/s], rtt: 20 ms}
    prices:
      chips: {H100: 2.95/h, H200: 3.70/h}
      line: {perGbit: 0.05/h}

`KEYS` lists every key; `units` says how quantities are written. `calibrations` names files of `pdd calibrate` by chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pdd.api.validate import show_path
from pdd.api.yaml_places import Document, read_yaml
from pdd.common.errors import InvalidInput
from pdd.planner import units
from pdd.planner.fleet import Sla
from pdd.planner.spec import DEFAULT_THRESHOLDS_S, PORTS_BPS, HitLaw, LineOffer, LoadSpec, PlanSpec, Prices, SiteSpec

T = TypeVar("T")
MAX_LIST = 16
MAX_TTFT_S = 600.0
MAX_TPOT_S = 10.0
MAX_RTT_S = 2.0

KEYS: Mapping[str, tuple[str, ...]] = {
    "": (
        "apiVersion",
        "kind",
        "model",
        "precision",
        "workload",
        "sla",
        "sites",
        "prices",
        "relayThresholds",
        "calibrations",
    ),
    "workload": ("rate", "input", "inputSpread", "output", "outputSpread", "hitRate", "hits", "trace"),
    "sla": ("ttftP90", "ttftP99", "tpotP99"),
    "sites": ("a", "b", "line"),
    "sites.a": ("chips", "accelerators", "relayAccelerators", "maxSequences", "chunkTokens", "maxEngines", "local"),
    "sites.b": ("chips", "accelerators", "maxSequences", "chunkTokens", "maxEngines", "local"),
    "sites.line": ("sizes", "rtt", "efficiency", "perFlow", "streams", "connections", "loss"),
    "prices": ("currency", "chips", "line"),
    "prices.line": ("fixed", "perGbit", "perGB", "ports"),
}
"""Every key of a plan file; `prices.chips` and `prices.line.ports` hold names of the user's."""


@dataclass(slots=True)
class _Reader:
    document: Document
    assumptions: list[str] = field(default_factory=list)

    def where(self, *path: str | int) -> str:
        """`FILE:LINE: field`; a field that is missing is placed at its parent."""
        return f"{self.document.file}:{self.document.place(path)[0]}: {show_path(path) or 'file'}"

    def fail(self, path: tuple[str | int, ...], value: object, remedy: str) -> InvalidInput:
        return InvalidInput(self.where(*path), value, remedy)

    def section(self, *path: str, required: bool = True) -> Mapping[str, Any]:
        """A mapping with known keys only; an absent optional one is empty."""
        value = self.document.value(path) if path else self.document.body
        if value is None and not required:
            return {}
        if value is None:
            inside = KEYS.get(".".join(path), ("names of your own",))
            raise self.fail(path, None, f"is missing: give it, with {', '.join(inside)}")
        if not isinstance(value, dict):
            raise self.fail(path, value, "write a mapping (key: value lines)")
        known = KEYS.get(".".join(path))
        for key in value if known else ():
            if key not in (known or ()):
                near = get_close_matches(str(key), known or (), n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known or ())}"
                raise self.fail((*path, str(key)), value[key], f"is not a known field; {hint}")
        return value

    def read(self, path: tuple[str | int, ...], reader: Callable[[object], T], default: T | None = None) -> T:
        """The value through `reader`; without a default it must be there."""
        value = self.document.value(path)
        if value is None:
            if default is None or self.given(path):
                raise self.fail(path, None, "is missing: it has no default")
            return default
        try:
            return reader(value)
        except units.UnitError as error:
            raise self.fail(path, value, str(error)) from None

    def given(self, path: tuple[str | int, ...]) -> bool:
        return path in self.document.places

    def entries(self, *path: str) -> list[Any]:
        value = self.document.value(path)
        if not isinstance(value, list) or not value:
            raise self.fail(path, value, "write a list with at least one entry, for example [a, b]")
        if len(value) > MAX_LIST:
            raise self.fail(path, f"{len(value)} entries", f"write at most {MAX_LIST}: each multiplies the search")
        return value


def read_plan_text(file: str, text: str, *, folder: Path | None = None) -> PlanSpec:
    """The question that the text of plan file `file` asks. Traces are named relative to `folder`.

    Raises InvalidInput with field `FILE:LINE: field`. Names of chips and models are checked later, by the catalogue.
    """
    documents, broken = read_yaml(file, text.removeprefix("\ufeff"))
    if broken is not None:
        raise InvalidInput(f"{file}:{broken.line}: YAML", None, f"mend it: {broken.problem}")
    if len(documents) != 1:
        found = f"{len(documents)} documents"
        raise InvalidInput(f"{file}:1: file", found, "a plan file holds one document: model, workload, sites, prices")
    return read_plan_document(documents[0], folder or Path())


def read_plan_document(document: Document, folder: Path) -> PlanSpec:
    """As `read_plan_text`, of a document that was read."""
    reader = _Reader(document)
    for path in document.duplicates:
        raise reader.fail(path, document.value(path), "is given twice: keep one")
    reader.section()
    places = {show_path(path): reader.where(*path) for path in document.places}
    prices = _read_prices(reader)
    line = _read_line(reader)
    for port in prices.ports:
        if port not in line.sizes_bps:
            shown = units.format_bits_per_s(port)
            raise reader.fail(("prices", "line", "ports"), shown, "is not one of sites.line.sizes: add it there")
    if prices.ports:
        for size in line.sizes_bps:
            if size not in prices.ports:
                shown = units.format_bits_per_s(size)
                raise reader.fail(("prices", "line", "ports"), shown, "has no price: add this size to the ports")
    site_a, site_b = _read_site(reader, "a"), _read_site(reader, "b")
    thresholds = DEFAULT_THRESHOLDS_S
    if reader.given(("relayThresholds",)):
        count = len(reader.entries("relayThresholds"))
        thresholds = tuple(reader.read(("relayThresholds", i), units.read_seconds) for i in range(count))
    return PlanSpec(
        source=document.file,
        model=reader.read(("model",), _read_name),
        precision=reader.read(("precision",), _read_name, ""),
        load=_read_load(reader, folder),
        sla=_read_sla(reader),
        site_a=site_a,
        site_b=site_b,
        relay=_read_relay(reader, site_a),
        line=line,
        prices=prices,
        thresholds_s=tuple(sorted(set(thresholds))),
        calibrations=_read_calibrations(reader, folder),
        assumptions=tuple(reader.assumptions),
        places=places,
    )


def _read_load(reader: _Reader, folder: Path) -> LoadSpec:
    reader.section("workload")
    trace = reader.read(("workload", "trace"), _read_name, "")
    if trace:
        for key in ("input", "inputSpread", "output", "outputSpread", "hitRate", "hits"):
            if reader.given(("workload", key)):
                value = reader.document.value(("workload", key))
                raise reader.fail(("workload", key), value, "the trace says it: remove this, or the trace")
        rate = reader.read(("workload", "rate"), units.read_per_s, 0.0)
        return LoadSpec(rate, trace=folder / trace)
    default = LoadSpec(1.0)
    for key, shown in (("inputSpread", default.input_spread), ("outputSpread", default.output_spread)):
        if not reader.given(("workload", key)):
            reader.assumptions.append(f"workload.{key} {shown:g} (sigma of the lognormal law of lengths)")
    if not reader.given(("workload", "hits")):
        reader.assumptions.append("workload.hits mixture: hit rates as skewed as production shows them (seven buckets)")
    return LoadSpec(
        rate_per_s=reader.read(("workload", "rate"), units.read_per_s),
        input_tokens=reader.read(("workload", "input"), units.read_tokens),
        input_spread=reader.read(("workload", "inputSpread"), _number(0, 3), default.input_spread),
        output_tokens=reader.read(("workload", "output"), units.read_tokens),
        output_spread=reader.read(("workload", "outputSpread"), _number(0, 3), default.output_spread),
        hit_rate=reader.read(("workload", "hitRate"), units.read_share),
        hits=HitLaw(reader.read(("workload", "hits"), _choice([law.value for law in HitLaw]), default.hits.value)),
    )


def _read_sla(reader: _Reader) -> Sla:
    reader.section("sla", required=False)

    def limit(key: str, most_s: float) -> float | None:
        if not reader.given(("sla", key)):
            return None
        value = reader.read(("sla", key), lambda v: units.read_seconds(v, most_s=most_s))
        if value <= 0:
            raise reader.fail(("sla", key), reader.document.value(("sla", key)), "must be more than 0")
        return value

    sla = Sla(limit("ttftP90", MAX_TTFT_S), limit("ttftP99", MAX_TTFT_S), limit("tpotP99", MAX_TPOT_S))
    if sla.ttft_p90_s is not None and sla.ttft_p99_s is not None and sla.ttft_p90_s > sla.ttft_p99_s:
        value = reader.document.value(("sla", "ttftP90"))
        raise reader.fail(("sla", "ttftP90"), value, "must not be more than sla.ttftP99: 99 % include those 90 %")
    if sla == Sla():
        reader.assumptions.append("no sla: every plan that keeps up counts, the cheapest is chosen")
    return sla


def _read_site(reader: _Reader, name: str) -> SiteSpec:
    reader.section("sites")
    reader.section("sites", name)
    chips = reader.entries("sites", name, "chips")
    read = [reader.read(("sites", name, "chips", i), _read_name) for i in range(len(chips))]
    default = SiteSpec(())
    path = ("sites", name)
    return SiteSpec(
        chips=tuple(dict.fromkeys(read)),
        accelerators=reader.read((*path, "accelerators"), _whole(1, 64), default.accelerators),
        max_sequences=reader.read((*path, "maxSequences"), _whole(1, 65536), default.max_sequences),
        chunk_tokens=int(reader.read((*path, "chunkTokens"), units.read_tokens, float(default.chunk_tokens))),
        max_engines=reader.read((*path, "maxEngines"), _whole(1, 1024), default.max_engines),
        local_bps=reader.read((*path, "local"), units.read_bits_per_s, default.local_bps),
    )


def _read_relay(reader: _Reader, site_a: SiteSpec) -> SiteSpec | None:
    """Relay decode's own engines, where they have another number of chips than those of prefill."""
    path = ("sites", "a", "relayAccelerators")
    return replace(site_a, accelerators=reader.read(path, _whole(1, 64))) if reader.given(path) else None


def _read_line(reader: _Reader) -> LineOffer:
    reader.section("sites", "line")
    path = ("sites", "line")
    sizes = PORTS_BPS
    if reader.given((*path, "sizes")):
        count = len(reader.entries(*path, "sizes"))
        sizes = tuple(reader.read((*path, "sizes", i), units.read_bits_per_s) for i in range(count))
    else:
        reader.assumptions.append("sites.line.sizes: 1, 10, 20, 25, 40 and 100 Gbit/s")
    default = LineOffer((), 0.0)
    return LineOffer(
        sizes_bps=tuple(sorted(set(sizes))),
        rtt_s=reader.read((*path, "rtt"), lambda v: units.read_seconds(v, most_s=MAX_RTT_S)),
        efficiency=reader.read((*path, "efficiency"), units.read_share, default.efficiency),
        flow_bps=reader.read((*path, "perFlow"), units.read_bits_per_s, default.flow_bps),
        streams=reader.read((*path, "streams"), _whole(1, 16), default.streams),
        connections=reader.read((*path, "connections"), _whole(1, 1_000_000), default.connections),
        loss=reader.read((*path, "loss"), units.read_share, default.loss),
    )


def _read_prices(reader: _Reader) -> Prices:
    reader.section("prices")
    currency = reader.read(("prices", "currency"), _read_name, "USD")
    reader.section("prices", "chips")
    chips = {
        str(name): reader.read(("prices", "chips", str(name)), lambda v: units.read_money_per_h(v, currency))
        for name in _names(reader, "prices", "chips")
    }
    for site in ("a", "b"):
        named = reader.document.value(("sites", site, "chips"))
        for name in named if isinstance(named, list) else ():  # what is no list is refused with the site
            if str(name) not in chips:
                near = get_close_matches(str(name), chips, n=1, cutoff=0.5)
                hint = f" ({near[0]} has one: a slip?)" if near else ""
                raise reader.fail(("prices", "chips"), None, f"no price for {name}{hint}: add '{name}: 2.95/h'")
    line = reader.section("prices", "line")
    if not line:
        raise reader.fail(("prices", "line"), None, "no price: give perGbit, fixed, perGB or ports (0/h if it is free)")
    ports: dict[float, float] = {}
    if "ports" in line:
        if "fixed" in line or "perGbit" in line:
            raise reader.fail(("prices", "line", "ports"), line["ports"], "give either ports, or fixed and perGbit")
        for name in _names(reader, "prices", "line", "ports"):
            path = ("prices", "line", "ports", str(name))
            try:
                size = units.read_bits_per_s(name)
            except units.UnitError as error:
                raise reader.fail(path, name, str(error)) from None
            ports[size] = reader.read(path, lambda v: units.read_money_per_h(v, currency))
    free = 0.0
    return Prices(
        chips=chips,
        currency=currency,
        line_fixed_per_h=reader.read(("prices", "line", "fixed"), lambda v: units.read_money_per_h(v, currency), free),
        line_per_gbit_h=reader.read(("prices", "line", "perGbit"), lambda v: units.read_money_per_h(v, currency), free),
        line_per_gb=reader.read(("prices", "line", "perGB"), lambda v: units.read_money_per_gb(v, currency), free),
        ports=ports,
    )


def _read_calibrations(reader: _Reader, folder: Path) -> dict[str, Path]:
    if not reader.given(("calibrations",)):
        return {}
    chips = {str(name) for site in ("a", "b") for name in reader.document.value(("sites", site, "chips"))}
    found = {}
    for name in _names(reader, "calibrations"):
        path = ("calibrations", str(name))
        if str(name) not in chips:
            raise reader.fail(path, name, f"no site has this chip: write one of {', '.join(sorted(chips))}")
        found[str(name)] = folder / reader.read(path, _read_name)
    return found


def _names(reader: _Reader, *path: str) -> list[object]:
    value = reader.document.value(path)
    if not isinstance(value, dict) or not value:
        raise reader.fail(path, value, "write a mapping with at least one entry (name: price)")
    return list(value)


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise units.UnitError("write a name; put it in quotes if it is a number")
    return value.strip()


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise units.UnitError(f"write a whole number from {least} to {most}")
        return value

    return read


def _number(least: float, most: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise units.UnitError(f"write a number from {least:g} to {most:g}")
        return float(value)

    return read


def _choice(names: Iterable[str]) -> Callable[[object], str]:
    known = tuple(names)

    def read(value: object) -> str:
        if value not in known:
            near = get_close_matches(str(value), known, n=1, cutoff=0.5)
            raise units.UnitError(f"write one of {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else ""))
        return str(value)

    return read
