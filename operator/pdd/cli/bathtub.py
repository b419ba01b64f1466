"""`pdd bathtub`: reads the options, computes, prints and draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any

from pdd.cli.console import Console, table
from pdd.cli.outputs import check_output, write_output
from pdd.common.errors import InvalidInput
from pdd.planner.bathtub import Advice, Bathtub, BathtubSpec, advise, compute_bathtub
from pdd.planner.catalogue import get_chip, get_model
from pdd.planner.hit_law import HitMixture
from pdd.planner.roofline import HALF_TOKENS, estimate_times
from pdd.planner.timing import PrefillTime
from pdd.planner.units import UnitError, read_seconds, read_share, read_tokens

OUTPUT_VERSION = "pdd.dev/bathtub/v1"
HIT_QUANTILES = 200
SHOWN = range(0, 100, 10)


@dataclass(frozen=True, slots=True)
class BathtubQuestion:
    """What was asked; quantities as they were written."""

    inputs: tuple[str, ...]
    chunk: str
    cached_price: str
    price: float
    per_token: str
    fixed: str
    model: str | None
    chip: str
    accelerators: int
    hit: str
    svg: Path | None
    png: Path | None = None


def run_bathtub(question: BathtubQuestion, *, as_json: bool) -> None:
    """Prints one JSON document, or tables; draws if a file was named."""
    check_output("--svg", question.svg)
    check_output("--png", question.png)
    spec = build_spec(question)
    curves = compute_bathtub(spec)
    found = advise(spec, _hit_rates(_read("--hit", question.hit, read_share)))
    if question.svg is not None or question.png is not None:
        _draw(question, draw_bathtub(curves))
    console = Console()
    console.result(dumps(to_document(curves, found), indent=2) if as_json else format_bathtub(curves, found))


def build_spec(question: BathtubQuestion) -> BathtubSpec:
    """The engine's times and the prices. Raises InvalidInput that names the option."""
    chunk = int(_read("--chunk", question.chunk, read_tokens))
    if question.model is not None:
        chip, model = get_chip(question.chip), get_model(question.model)
        times = estimate_times(chip, question.accelerators, model, "", chunk, 256).prefill
    else:
        per_token_s = _read("--per-token", question.per_token, read_seconds)
        if per_token_s == 0:
            raise InvalidInput("--per-token", question.per_token, "must be more than 0")
        times = PrefillTime(per_token_s, chunk, HALF_TOKENS, 0.0, _read("--fixed", question.fixed, read_seconds))
    return BathtubSpec(
        prefill=times,
        input_tokens=tuple(int(_read("--input", text, read_tokens)) for text in question.inputs),
        cached_price=_read("--cached-price", question.cached_price, read_share),
        price=question.price,
    )


def to_document(curves: Bathtub, found: list[Advice]) -> dict[str, Any]:
    """Units stand in the names; rates and gains are shares of 1."""
    spec = curves.spec
    return {
        "apiVersion": OUTPUT_VERSION,
        "kind": "Bathtub",
        "input_tokens": list(spec.input_tokens),
        "cachedPrice": spec.cached_price,
        "prefill": asdict(spec.prefill),
        "dips": [asdict(dip) for dip in curves.dips],
        "valley": asdict(curves.valley),
        "points": [asdict(point) for point in curves.points],
        "fused": [asdict(point) for point in curves.fused],
        "advice": [asdict(each) for each in found],
    }


def format_bathtub(curves: Bathtub, found: list[Advice]) -> str:
    """A table on the 10 % grid, then dips, valley and advice in words."""
    base = curves.points[0]
    dips = {round(dip.hit_rate * 100): dip for dip in curves.dips}
    rows = [["hit rate", "uncached tok/s", "cached tok/s", "revenue/h", "of that at 0 %", "fused", ""]]
    for percent in SHOWN:
        point, fused = curves.points[percent], curves.fused[percent]
        rows.append(
            [
                f"{percent} %",
                f"{point.miss_tokens_per_s:,.0f}",
                f"{point.hit_tokens_per_s:,.0f}",
                f"{point.revenue_per_h:,.2f}",
                f"{point.revenue_per_h / base.revenue_per_h:.3f}",
                f"{fused.revenue_per_h / base.revenue_per_h:.3f}",
                f"dip of {dips[percent].depth:.1%}" if percent in dips else "",
            ]
        )
    valley = curves.valley
    fall = f"uncached tokens a second fall like 1 - {valley.slope:.2f} x hit rate"
    if valley.hit_rate is None:
        said = f"{fall}: with cached tokens at {curves.spec.cached_price:.0%} there is no valley"
    else:
        said = f"{fall}: revenue is least near {valley.hit_rate:.0%}"
    lines = [table(rows), said, "what changes would do (revenue, uncached tokens/s, requests/s of an engine):"]
    for each in found:
        gains = " ".join(f"{gain:+7.1%}" for gain in (each.revenue_gain, each.throughput_gain, each.requests_gain))
        lines.append(f"  {gains}  {each.what}" + (f" ({each.note})" if each.note else ""))
    return "\n".join(lines)


def draw_bathtub(curves: Bathtub) -> str:
    """The picture: revenue with tails alone and fused, uncached tokens a second; 1 at no hits."""
    from pdd.planner.report.svg import Axis, Plot

    base = curves.points[0]
    lines = [
        ("uncached tokens/s", [(p.hit_rate, p.miss_tokens_per_s / base.miss_tokens_per_s) for p in curves.points]),
        ("revenue", [(p.hit_rate, p.revenue_per_h / base.revenue_per_h) for p in curves.points]),
        ("revenue, tails fused", [(p.hit_rate, p.revenue_per_h / base.revenue_per_h) for p in curves.fused]),
    ]
    top = 1.05 * min(3.0, max(y for _, line in lines for _, y in line))
    plot = Plot("Prefill against the hit rate", Axis(0, 1, "hit rate"), Axis(0, top, "of that at no hits"))
    for colour, (name, line) in enumerate(lines):
        plot.line([(x, y) for x, y in line if y <= top], colour, name)
    for dip in curves.dips:
        plot.upright(dip.hit_rate, f"{dip.hit_rate:.0%}")
    return plot.svg()


def _hit_rates(mean: float) -> list[float]:
    """Quantiles of the production mixture at that mean."""
    mixture = HitMixture().with_mean(mean)
    shares = [(i + 0.5) / HIT_QUANTILES for i in range(HIT_QUANTILES)]
    return mixture.quantiles(shares)


def _read(option: str, text: str, reader: Callable[[object], float]) -> float:
    try:
        return reader(text)
    except UnitError as error:
        raise InvalidInput(option, text, str(error)) from None


def _draw(question: BathtubQuestion, picture: str) -> None:
    from pdd.planner.report.files import make_png, make_svg

    svg = make_svg(picture)
    if question.svg is not None:
        write_output("--svg", question.svg, svg)
    if question.png is not None:
        write_output("--png", question.png, make_png(svg))
