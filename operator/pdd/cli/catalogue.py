"""`pdd chips` and `pdd models`: reads the catalogues, compares, prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any

from pdd.cli.console import Console, table
from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import Chip, ModelEntry, get_chip, get_model, load_chips, load_models
from pdd.planner.kvlaw import payload_bytes
from pdd.planner.roles import DIMENSIONS, REFERENCE, RoleTimes, build_radar, choose_roles, compare_roles, score_chips
from pdd.planner.units import UnitError, read_share, read_tokens

OUTPUT_VERSION = "pdd.dev/catalogue/v1"
LENGTHS = (100, 6_400, 64_000)
"""Uncached tokens whose KV is shown: a short turn, 64K at 90 %, 64K."""


@dataclass(frozen=True, slots=True)
class ChipsQuestion:
    """What `pdd chips` was asked; quantities as they were written."""

    names: tuple[str, ...]
    file: Path | None
    model: str | None
    prompt: str
    output: str
    hit: str


def run_chips(question: ChipsQuestion, *, as_json: bool) -> None:
    """Prints one JSON document, or tables."""
    known = load_chips(question.file)
    chosen = [get_chip(name, known) for name in question.names] or list(known.values())
    reference = known[REFERENCE]
    compared = _compare(question, chosen) if question.model is not None else None
    console = Console()
    if as_json:
        console.result(dumps(_chips_document(chosen, reference, question, compared), indent=2))
        return
    console.result(table(_chip_rows(chosen, reference)))
    if any(chip.disputed for chip in chosen) and not question.names:
        console.result(
            "* sources disagree: pdd chips NAME says how. Fit: powers of 2 against the H100, to look at only."
        )
    if question.names:
        for chip in chosen:
            console.result(_sources(chip))
    if compared is not None:
        best = choose_roles(compared)
        console.result(f"\n{question.model}, {question.prompt} in, {question.output} out, {question.hit} hit:")
        console.result(table(_role_rows(compared)))
        if best:
            console.result(f"least cost: prefill {best['prefill']}, decode {best['decode']}")


def run_models(names: tuple[str, ...], file: Path | None, precision: str, *, as_json: bool) -> None:
    """Prints one JSON document, or a table."""
    known = load_models(file)
    chosen = [get_model(name, known) for name in names] or list(known.values())
    if as_json:
        entries = [_model_document(entry, precision) for entry in chosen]
        Console().result(dumps({"apiVersion": OUTPUT_VERSION, "kind": "Models", "models": entries}, indent=2))
    else:
        Console().result(table(_model_rows(chosen, precision)))


def _compare(question: ChipsQuestion, chips: list[Chip]) -> list[RoleTimes]:
    return compare_roles(
        chips,
        get_model(question.model or ""),
        input_tokens=int(_read("--input", question.prompt, read_tokens)),
        output_tokens=int(_read("--output", question.output, read_tokens)),
        hit_rate=_read("--hit", question.hit, read_share),
    )


def _read(option: str, text: str, reader: Callable[[object], float]) -> float:
    try:
        return reader(text)
    except UnitError as error:
        raise InvalidInput(option, text, str(error)) from None


def _chips_document(
    chips: list[Chip], reference: Chip, question: ChipsQuestion, compared: list[RoleTimes] | None
) -> dict[str, Any]:
    scores = {score.chip: score for score in score_chips(chips, reference)}
    radar = build_radar(chips, reference)
    entries = []
    for chip in chips:
        entry = asdict(chip)
        score = scores[chip.name]
        entry["scores"] = {key: round(v, 4) for key, v in zip(DIMENSIONS, score.values, strict=True)}
        entry["fit"] = {role: round(value, 4) for role, value in score.fit.items()}
        entry["radar"] = [round(value, 4) for value in radar[chip.name]]
        entries.append(entry)
    document: dict[str, Any] = {
        "apiVersion": OUTPUT_VERSION, "kind": "Chips", "reference": reference.name, "chips": entries,
    }  # fmt: skip
    if compared is not None:
        document["roles"] = {
            "model": question.model,
            "chips": [asdict(each) for each in compared],
            "leastCost": choose_roles(compared),
        }
    return document


def _model_document(entry: ModelEntry, precision: str) -> dict[str, Any]:
    law = entry.kv_law(precision)
    return {
        "name": entry.name,
        "ids": list(entry.ids),
        "parameters": entry.parameters,
        "activeParameters": entry.active_params,
        "layers": entry.layers,
        "precision": precision or entry.default_precision,
        "weight_bytes": entry.weight_bytes(precision),
        "kv": asdict(law),
        "payload_bytes": {str(tokens): payload_bytes(law, tokens) for tokens in LENGTHS},
        "published": {key: {"bytes_per_token": value, "source": who} for key, (value, who) in entry.published.items()},
        "source": entry.source,
    }


def _chip_rows(chips: list[Chip], reference: Chip) -> list[list[str]]:
    rows = [["chip", "BF16 TF", "FP8 TF", "GB", "TB/s", "link GB/s", "USD/h", "P fit", "MD fit"]]
    for chip, score in zip(chips, score_chips(chips, reference), strict=True):
        figures = (
            chip.bf16_flops / 1e12, chip.low_flops / 1e12, chip.memory_bytes / 1e9, chip.memory_bytes_per_s / 1e12,
            chip.interconnect_bytes_per_s / 1e9,
        )  # fmt: skip
        price = "-" if chip.price_per_h is None else f"{chip.price_per_h:.2f}"
        fits = (f"{score.fit[role]:+.2f}" for role in ("prefill", "decode"))
        rows.append([chip.name + ("*" if chip.disputed else ""), *(f"{v:,.4g}" for v in figures), price, *fits])
    return rows


def _sources(chip: Chip) -> str:
    lines = [f"\n{chip.title}"]
    lines += [f"  {key:<20} {source}" for key, source in chip.sources.items()]
    lines += [f"  {key:<20} disputed: {text}" for key, text in chip.disputed.items()]
    return "\n".join(lines)


def _role_rows(compared: list[RoleTimes]) -> list[list[str]]:
    rows = [["chip", "chips", "prefill tok/s", "decode tok/s", "batch", "TPOT ms", "USD/M prefill", "USD/M decode"]]
    for each in compared:
        costs = ("-" if cost is None else f"{cost:.2f}" for cost in (each.prefill_cost, each.decode_cost))
        rates = (f"{each.prefill_tokens_per_s:,.0f}", f"{each.decode_tokens_per_s:,.0f}")
        rows.append([each.chip, str(each.accelerators), *rates, str(each.batch), f"{each.tpot_s * 1000:.1f}", *costs])
    return rows


def _model_rows(models: list[ModelEntry], precision: str) -> list[list[str]]:
    rows = [["model", "total B", "active B", "as", "weights GB", "KV B/token", "window MB", "state MB", "64K GB"]]
    for entry in models:
        law = entry.kv_law(precision)
        rows.append(
            [
                entry.name,
                f"{entry.parameters / 1e9:,.4g}",
                f"{entry.active_params / 1e9:.3g}",
                precision or entry.default_precision,
                f"{entry.weight_bytes(precision) / 1e9:,.4g}",
                f"{law.bytes_per_token:,.0f}",
                f"{law.window_bytes_per_token * law.window_tokens / 1e6:.2f}",
                f"{law.state_bytes / 1e6:.0f}",
                f"{payload_bytes(law, 64_000) / 1e9:.2f}",
            ]
        )
    return rows
