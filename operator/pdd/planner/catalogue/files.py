"""Reads the catalogues: the data files of this package, and a user's own in the same form, strictly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from pdd.api.validate import show_path
from pdd.api.yaml_places import Document, read_yaml
from pdd.common.errors import InvalidInput
from pdd.planner.catalogue.entries import PRECISIONS, Chip, ModelEntry
from pdd.planner.catalogue.layers import Attention

HERE = Path(__file__).parent
MAX_BYTES = 1 << 20
CHIP_FIGURES = (
    "bf16_tflops", "memory_gb", "memory_tb_s", "interconnect_gb_s", "network_gb_s", "mfu",
)  # fmt: skip
CHIP_OPTIONAL = ("fp8_tflops", "int8_tops", "fp4_tflops", "price_per_h")
CHIP_KEYS = ("name", *CHIP_FIGURES, *CHIP_OPTIONAL, "node", "disputed")
MODEL_KEYS = (
    "ids", "parameters", "active", "hidden", "layers", "experts", "precision", "attention", "published",
    "published_state_mb", "source",
)  # fmt: skip
KINDS = ("full", "latent", "compressed", "window", "linear")
KIND_NEEDS: Mapping[str, tuple[str, ...]] = {
    "full": ("kv_heads", "head_dim"),
    "latent": ("latent", "rope"),
    "compressed": ("ratio", "head_dim", "rope"),
    "window": ("head_dim", "window"),
    "linear": ("key_dim", "value_dim"),
}
FieldPath = tuple[str | int, ...]


def load_chips(extra: Path | None = None) -> Mapping[str, Chip]:
    """All chips by name, with those of the user's file `extra` (which win). Raises InvalidInput."""
    return _built_in_chips() if extra is None else {**_built_in_chips(), **read_chips(extra)}


def load_models(extra: Path | None = None) -> Mapping[str, ModelEntry]:
    """All models by name, with those of the user's file `extra` (which win). Raises InvalidInput."""
    return _built_in_models() if extra is None else {**_built_in_models(), **read_models(extra)}


def get_chip(name: str, chips: Mapping[str, Chip] | None = None) -> Chip:
    """By name, in any case. Raises InvalidInput with the nearest name."""
    known = load_chips() if chips is None else chips
    return known[_find("chip", name, {each: each for each in known}, "pdd chips")]


def get_model(name: str, models: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """By name or hub id, in any case. Raises InvalidInput with the nearest name."""
    known = load_models() if models is None else models
    names = {each: each for each in known}
    names |= {hub_id: each for each, entry in known.items() for hub_id in entry.ids}
    return known[_find("model", name, names, "pdd models")]


def read_chips(path: Path) -> Mapping[str, Chip]:
    """The chips of one file. Raises InvalidInput that names file, line and field."""
    table = _open(path)
    return {name: _read_chip(table, name) for name in table.names()}


def read_models(path: Path) -> Mapping[str, ModelEntry]:
    """The models of one file. Raises InvalidInput that names file, line and field."""
    table = _open(path)
    return {name: _read_model(table, name) for name in table.names()}


@lru_cache(maxsize=1)
def _built_in_chips() -> Mapping[str, Chip]:
    return read_chips(HERE / "chips.yaml")


@lru_cache(maxsize=1)
def _built_in_models() -> Mapping[str, ModelEntry]:
    return read_models(HERE / "models.yaml")


def _find(what: str, name: str, names: Mapping[str, str], command: str) -> str:
    lowered = {each.lower(): key for each, key in names.items()}
    if name.lower() in lowered:
        return lowered[name.lower()]
    begun = sorted(each for each in lowered if name and each.startswith(name.lower()))
    near = [lowered[each] for each in begun or get_close_matches(name.lower(), lowered, n=1, cutoff=0.4)][:3]
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(near))}?"
        if near
        else f"known: {', '.join(sorted(set(names.values())))}"
    )
    raise InvalidInput(what, name, f"is not in the catalogue; {hint} ({command} lists all)")


@dataclass(frozen=True, slots=True)
class _Table:
    document: Document

    def fail(self, path: FieldPath, value: object, remedy: str) -> InvalidInput:
        return InvalidInput(f"{self.document.file}:{self.document.place(path)[0]}: {show_path(path)}", value, remedy)

    def names(self) -> list[str]:
        body = self.document.body
        if not isinstance(body, dict) or not body:
            raise self.fail((), body, "write a mapping: name, then its fields")
        for path in self.document.duplicates:
            raise self.fail(path, self.document.value(path), "is given twice: keep one")
        return [str(name) for name in body]

    def section(self, path: FieldPath, known: tuple[str, ...]) -> dict[str, Any]:
        value = self.document.value(path)
        if not isinstance(value, dict):
            raise self.fail(path, value, "write a mapping (key: value lines)")
        for key in value:
            if key not in known:
                near = get_close_matches(str(key), known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                raise self.fail((*path, str(key)), value[key], f"is not a known field; {hint}")
        return value

    def number(self, path: FieldPath, low: float = 0.0, high: float = 1e9, *, above: bool = True) -> float:
        """A finite number in (low, high], or [low, high] unless `above`."""
        value = self.document.value(path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(path, value, "is missing: write a number" if value is None else "write a number")
        if not math.isfinite(value) or value > high or value < low or (above and value == low):
            raise self.fail(path, value, f"must be {'more than' if above else 'at least'} {low:g}, at most {high:g}")
        return float(value)

    def whole(self, path: FieldPath, low: int = 1) -> int:
        value = self.number(path, low, above=False)
        if value != int(value):
            raise self.fail(path, value, "write a whole number")
        return int(value)

    def figure(self, path: FieldPath, *, above: bool = True) -> tuple[float, str]:
        """`[value, source]`."""
        value = self.document.value(path)
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str) or not value[1]:
            raise self.fail(path, value, "write [value, source]: every figure has one")
        return self.number((*path, 0), above=above), value[1]


def _open(path: Path) -> _Table:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"{path}: file", path.stat().st_size, f"has more than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: file", str(path), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: file", str(path), f"is no UTF-8 at byte {error.start}") from None
    documents, broken = read_yaml(str(path), text)
    if broken is not None:
        raise InvalidInput(f"{path}:{broken.line}: YAML", None, f"mend it: {broken.problem}")
    if len(documents) != 1:
        raise InvalidInput(f"{path}:1: file", f"{len(documents)} documents", "a catalogue holds one document")
    return _Table(documents[0])


def _read_chip(table: _Table, name: str) -> Chip:
    given = table.section((name,), CHIP_KEYS)
    optional = [key for key in CHIP_OPTIONAL if key in given]
    figures = {
        key: table.figure((name, key), above=key != "price_per_h") for key in (*CHIP_FIGURES, *optional)
    }  # fmt: skip
    value = {key: figure for key, (figure, _) in figures.items()}
    if value["mfu"] > 1:
        raise table.fail((name, "mfu"), value["mfu"], "is a share of the peak: at most 1")
    low = value.get("fp8_tflops", value.get("int8_tops", value["bf16_tflops"]))
    disputed = table.section((name, "disputed"), CHIP_KEYS) if "disputed" in given else {}
    return Chip(
        name=name,
        title=str(given.get("name", name)),
        bf16_flops=value["bf16_tflops"] * 1e12,
        low_flops=low * 1e12,
        fp4_flops=value.get("fp4_tflops", low) * 1e12,
        memory_bytes=value["memory_gb"] * 1e9,
        memory_bytes_per_s=value["memory_tb_s"] * 1e12,
        interconnect_bytes_per_s=value["interconnect_gb_s"] * 1e9,
        network_bytes_per_s=value["network_gb_s"] * 1e9,
        mfu=value["mfu"],
        node=table.whole((name, "node")) if "node" in given else 8,
        price_per_h=value.get("price_per_h"),
        sources={key: source for key, (_, source) in figures.items()},
        disputed={key: str(text) for key, text in disputed.items()},
    )


def _read_model(table: _Table, name: str) -> ModelEntry:
    given = table.section((name,), MODEL_KEYS)
    groups = given.get("attention")
    if not isinstance(groups, list) or not groups:
        raise table.fail((name, "attention"), groups, "write a list of groups of layers")
    if given.get("precision") not in PRECISIONS:
        raise table.fail((name, "precision"), given.get("precision"), f"write one of {', '.join(PRECISIONS)}")
    experts = table.section((name, "experts"), ("routed", "per_token", "share")) if "experts" in given else {}
    published = table.section((name, "published"), PRECISIONS) if "published" in given else {}
    parameters, active = table.number((name, "parameters")) * 1e9, table.number((name, "active")) * 1e9
    if active > parameters:
        raise table.fail((name, "active"), active / 1e9, "are more than all parameters")
    ids = given.get("ids", [])
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise table.fail((name, "ids"), ids, "write a list of names")
    return ModelEntry(
        name=name,
        ids=tuple(ids),
        parameters=parameters,
        active_params=active,
        hidden=table.whole((name, "hidden")),
        layers=table.whole((name, "layers")),
        default_precision=given["precision"],
        attention=tuple(_read_attention(table, (name, "attention", i)) for i in range(len(groups))),
        experts=table.whole((name, "experts", "routed")) if experts else 0,
        experts_per_token=table.whole((name, "experts", "per_token")) if experts else 0,
        expert_share=table.number((name, "experts", "share"), 0, 1) if experts else 0.0,
        published={key: table.figure((name, "published", key)) for key in published},
        published_state_bytes=table.figure((name, "published_state_mb"))[0] * 1e6
        if "published_state_mb" in given
        else None,
        source=str(given.get("source", "")),
    )


def _read_attention(table: _Table, path: FieldPath) -> Attention:
    known = tuple(each.name for each in fields(Attention))
    given = table.section(path, known)
    kind = given.get("kind")
    if kind not in KINDS:
        raise table.fail((*path, "kind"), kind, f"write one of {', '.join(KINDS)}")
    for key in ("layers", "heads", *KIND_NEEDS[kind]):
        table.whole((*path, key))
    if given.get("indexer"):
        for key in ("indexer_heads", "top_k"):
            table.whole((*path, key))
    return Attention(kind, **{key: table.whole((*path, key), 0) for key in given if key != "kind"})
