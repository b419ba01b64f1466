"""`pdd plan`: reads the question, has it answered, prints; talk goes to standard error."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pdd.cli.console import Console
from pdd.cli.outputs import check_output, check_output_folder, write_output
from pdd.cli.validate import read_text
from pdd.common.errors import InvalidInput
from pdd.planner import units
from pdd.planner.spec import LoadSpec, PlanSpec
from pdd.planner.spec_file import read_plan_text
from pdd.planner.spec_objects import DEFAULT_RATE_PER_S, Given, holds_resources, read_plan_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pdd.planner.catalogue import Chip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """As given on the command line; empty: not given."""

    file: str
    as_json: bool = False
    explain: bool = False
    report: Path | None = None
    pictures: Path | None = None
    out: Path | None = None
    trace: Path | None = None
    rate: str = ""
    input_tokens: str = ""
    output_tokens: str = ""
    hit_rate: str = ""
    prices: tuple[str, ...] = ()
    line_price: str = ""
    chips: Path | None = None
    seed: int = 1


def run(options: PlanOptions) -> int:
    """Returns 0, or 1 if no plan keeps the promise. Raises InvalidInput."""
    from pdd.planner.answer import make_answer, to_json
    from pdd.planner.catalogue import load_chips
    from pdd.planner.explain import explain, summarise
    from pdd.planner.model_judge import build_judge
    from pdd.planner.render import render_yaml
    from pdd.planner.resolve import resolve
    from pdd.planner.sim import precompile

    console = Console()
    begun = time.monotonic()
    if options.pictures is not None and options.report is None:
        raise InvalidInput("--pictures", str(options.pictures), "give --report too: the pictures are the report's")
    check_output("--out", options.out, source=options.file)
    check_output("--report", options.report, source=options.file)
    check_output_folder("--pictures", options.pictures)
    chips = load_chips(options.chips)
    spec = read_spec(options, chips)
    judge, spec = build_judge(spec, options.seed)
    question = resolve(spec, chips, judge.longest_tokens)
    if precompile.start():
        console.say(precompile.NOTICE)
    answer = make_answer(question, judge, say=lambda text: console.say(f"{time.monotonic() - begun:5.1f} s  {text}"))
    lines = summarise(answer)
    if options.out and answer.search.chosen is None:
        console.say(f"not written: {options.out}, since no plan keeps the promise")
    elif options.out and answer.search.chosen:
        write_output("--out", options.out, render_yaml(question, answer.search.chosen, lines[0]))
        console.say(f"written: {options.out} (check: pdd validate {options.out})")
        console.say(f"play it again: pdd simulate {options.out} {load_options(spec.load)}")
    if options.report:
        from pdd.planner.report import build_report

        report = build_report(answer, judge, chips, f"pdd plan {options.file}", pictures=options.pictures is not None)
        write_output("--report", options.report, report.page)
        if options.pictures is not None:
            options.pictures.mkdir(parents=True, exist_ok=True)
            for name, content in report.pictures.items():
                write_output("--pictures", options.pictures / name, content)
        console.say(f"written: {options.report}" + (f", pictures in {options.pictures}" if options.pictures else ""))
    if options.as_json:
        if not answer.feasible:
            console.say(lines[0])
        console.result(json.dumps(to_json(answer, seconds=time.monotonic() - begun), indent=2, allow_nan=False))
    else:
        shown = [lines[0], "", *explain(answer), "", *lines[1:]] if options.explain else lines
        console.result("\n".join(shown))
    return 0 if answer.feasible else 1


def read_spec(options: PlanOptions, chips: Mapping[str, Chip], *, free: bool = False) -> PlanSpec:
    """The question of the file with what the options change. free: a price that nobody told counts as nothing, where
    the answer does not rest on it."""
    text = read_text(options.file)
    if not holds_resources(text):
        for flag, value in (("--price", options.prices), ("--line-price", options.line_price)):
            if value:
                shown = value if isinstance(value, str) else ", ".join(value)
                raise InvalidInput(flag, shown, "a plan file has its own prices: change them there")
        spec = read_plan_text(options.file, text, folder=Path(options.file).parent)
        return replace(spec, load=change_load(options, spec.load))
    chip_prices = dict(read_price(item, chips) for item in options.prices)
    line_price = _read("--line-price", options.line_price, lambda v: units.read_money_per_h(v, "USD"), None)
    given = Given(chip_prices=chip_prices, line_price_per_h=line_price, free=free)

    def price_of(name: str) -> float | None:
        from pdd.planner.catalogue import get_chip

        return get_chip(name, chips).price_per_h

    base = read_plan_objects(options.file, text, given, price_of)
    load = change_load(options, base.load)
    if load == base.load:
        return base
    said = tuple(assumption for assumption in base.assumptions if not assumption.startswith("load:"))
    kept = () if options.trace else (_describe_load(options, load),)
    return replace(base, load=load, assumptions=(*said, *kept))


def change_load(options: PlanOptions, load: LoadSpec) -> LoadSpec:
    """The load with the options that were given. A trace replaces it; its own rate holds unless --rate is given."""
    rate = _read("--rate", options.rate, units.read_per_s, None)
    if options.trace is not None:
        for flag, value in (("--input", options.input_tokens), ("--output", options.output_tokens)):
            if value:
                raise InvalidInput(flag, value, "the trace says it: remove this, or --trace")
        if options.hit_rate:
            raise InvalidInput("--hit", options.hit_rate, "the trace says it: remove this, or --trace")
        return replace(load, trace=options.trace, rate_per_s=rate or 0.0)
    changes: dict[str, float | None] = {
        "rate_per_s": rate,
        "input_tokens": _read("--input", options.input_tokens, units.read_tokens, None),
        "output_tokens": _read("--output", options.output_tokens, units.read_tokens, None),
        "hit_rate": _read("--hit", options.hit_rate, units.read_share, None),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(load, **given) if given else load  # type: ignore[arg-type]


def read_price(item: str, chips: Mapping[str, Chip]) -> tuple[str, float]:
    """`H100=2.95/h` -> the chip's name and money per hour."""
    name, equals, price = item.partition("=")
    if not equals:
        raise InvalidInput("--price", item, "write CHIP=PRICE, for example H100=2.95/h")
    return name.strip(), _read("--price", price, lambda v: units.read_money_per_h(v, "USD"), 0.0) or 0.0


def load_options(load: LoadSpec) -> str:
    """The load as options of the other commands: a PDDDeployment does not hold it."""
    if load.trace is not None:
        return f"--trace {load.trace} --rate {load.rate_per_s:g}/s"
    return (
        f"--rate {load.rate_per_s:g}/s --input {load.input_tokens:.0f} --output {load.output_tokens:.0f} "
        f"--hit {load.hit_rate:g}"
    )


def _describe_load(options: PlanOptions, load: LoadSpec) -> str:
    stated = "" if options.rate or load.rate_per_s != DEFAULT_RATE_PER_S else " (default rate)"
    return (
        f"load: {load.rate_per_s:g} requests/s{stated} of {load.input_tokens:g} tokens in and "
        f"{load.output_tokens:g} out, {load.hit_rate:.0%} hit rate in seven buckets"
    )


def _read(flag: str, value: str, reader: Callable[[object], T], default: T | None) -> T | None:
    if not value:
        return default
    try:
        return reader(value)
    except units.UnitError as error:
        raise InvalidInput(flag, value, str(error)) from None
