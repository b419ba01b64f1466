"""Looks the names of a PlanSpec up in the catalogues: what one engine of each chip can do, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from pdd.common.errors import InvalidInput
from pdd.planner.calibration_file import read_engine_times, read_kv_law
from pdd.planner.candidates import Question, Shape
from pdd.planner.catalogue import Chip, ModelEntry, get_chip, get_model
from pdd.planner.fleet import Pool
from pdd.planner.kvlaw import KVLaw, payload_bytes
from pdd.planner.roofline import estimate_times
from pdd.planner.spec import PlanSpec, SiteSpec
from pdd.planner.units import format_bytes

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Chips of one engine that are tried where the file leaves it open."""
USABLE = 0.9
"""Share of memory that weights and KV may take; the rest is activations and buffers."""
SITES = {"a": "a", "relay": "a", "b": "b"}
LEAST_CONTEXTS = 2
"""The longest requests of which an engine must hold so many at once beside the weights."""


@dataclass(frozen=True, slots=True)
class _Model:
    """What is needed of the model. entry None: every engine is calibrated, so the catalogue need not know it."""

    entry: ModelEntry | None
    precision: str
    kv: KVLaw
    weight_bytes: float


def resolve(spec: PlanSpec, chips: Mapping[str, Chip], longest_tokens: int) -> Question:
    """The question with engines, times, prices and KV law. longest_tokens: prompt and answer of the longest request.

    Raises InvalidInput that names the file's field: an unknown model or chip (with the nearest name), a model that does
    not fit.
    """
    model = _find_model(spec)
    site_a = {name: _build_pool(spec, "a", name, model, chips, longest_tokens) for name in spec.site_a.chips}
    site_b = {name: _build_pool(spec, "b", name, model, chips, longest_tokens) for name in spec.site_b.chips}
    relays = site_a
    if spec.relay is not None:
        relays = {name: _build_pool(spec, "relay", name, model, chips, longest_tokens) for name in spec.relay.chips}
    shapes = tuple(Shape(site_a[p], relays[r], site_b[m]) for p, r, m in product(site_a, relays, site_b))
    return Question(spec, shapes, model.kv, site_b | site_a, model.weight_bytes, longest_tokens, model.precision)


def _find_model(spec: PlanSpec) -> _Model:
    calibrated = {*spec.site_a.chips, *spec.site_b.chips} <= set(spec.calibrations)
    if calibrated:
        kv = spec.kv or next((law for path in spec.calibrations.values() if (law := read_kv_law(path))), None)
        if kv is not None:
            return _Model(None, spec.precision, kv, 0.0)
    try:
        entry = get_model(spec.model)
    except InvalidInput as error:
        raise InvalidInput(spec.place("model"), error.value, error.remedy) from None
    precision = spec.precision or entry.default_precision
    try:
        kv = spec.kv or entry.kv_law(precision)
        return _Model(entry, precision, kv, entry.weight_bytes(precision))
    except InvalidInput as error:
        raise InvalidInput(spec.place("precision"), error.value, error.remedy) from None


def _build_pool(
    spec: PlanSpec, site: str, name: str, model: _Model, chips: Mapping[str, Chip], longest_tokens: int
) -> Pool:
    """One engine of chip `name` at the site: "a" (prefill), "relay" (in A too), "b" (main decode)."""
    given: SiteSpec = {"a": spec.site_a, "relay": spec.relay or spec.site_a, "b": spec.site_b}[site]
    price = spec.prices.chips[name]
    if name in spec.calibrations:
        times = read_engine_times(spec.calibrations[name])
        accelerators = given.accelerators or 1
        return Pool(1, times, name, accelerators, price * accelerators)
    try:
        chip = get_chip(name, chips)
    except InvalidInput as error:
        raise InvalidInput(spec.place(f"sites.{SITES[site]}.chips"), error.value, error.remedy) from None
    if model.entry is None:
        raise InvalidInput(spec.place("model"), spec.model, "is not in the catalogue: calibrate every engine")
    count = _count_chips(spec, site, given, chip, model, longest_tokens)
    times = estimate_times(chip, count, model.entry, model.precision, given.chunk_tokens, given.max_sequences)
    return Pool(1, times, name, count, price * count)


def _count_chips(spec: PlanSpec, site: str, given: SiteSpec, chip: Chip, model: _Model, longest_tokens: int) -> int:
    """Chips of one engine: as given, or the fewest that hold the weights and a few of the longest requests."""
    need = model.weight_bytes + LEAST_CONTEXTS * payload_bytes(model.kv, longest_tokens)
    usable = chip.memory_bytes * USABLE
    if given.accelerators:
        if model.weight_bytes >= given.accelerators * usable:
            held = f"{given.accelerators} x {chip.name} hold {format_bytes(given.accelerators * usable)}"
            remedy = (
                f"the weights of {spec.model} ({model.precision}) are {format_bytes(model.weight_bytes)}, and {held}: "
                f"give at least {-(-model.weight_bytes // usable):.0f}"
            )
            field = "sites.a.relayAccelerators" if site == "relay" else f"sites.{site}.accelerators"
            raise InvalidInput(spec.place(field), given.accelerators, remedy)
        return given.accelerators
    for count in SIZES:
        if need <= count * usable:
            return count
    remedy = (
        f"{SIZES[-1]} of them hold {format_bytes(SIZES[-1] * usable)}, the model with {LEAST_CONTEXTS} of the longest "
        f"requests needs {format_bytes(need)}: take chips with more memory, or a smaller precision"
    )
    raise InvalidInput(spec.place(f"sites.{SITES[site]}.chips"), chip.name, remedy)
