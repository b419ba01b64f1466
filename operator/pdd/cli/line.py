"""`pdd line`: how wide a line, how many streams, and when to compute tokens again instead of moving their KV."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pdd.cli.console import Console, table
from pdd.cli.plan import PlanOptions, read_spec
from pdd.common.errors import InvalidInput
from pdd.planner import units

if TYPE_CHECKING:
    from pdd.planner.candidates import Question
    from pdd.planner.fleet import LineSpec
    from pdd.planner.line_sizing import Crossover, Port
    from pdd.planner.stats import WorkloadStats

DEFAULT_WITHIN_S = 5.0
"""Where no TTFT is promised: what the router takes for a long transfer."""
RECOMPUTED_TOKENS = (100.0, 1_000.0, 10_000.0)


@dataclass(frozen=True, slots=True)
class Sizing:
    """ports: all that were asked about, in rising order. line: the widest. needed_streams: 0: none is enough.
    big_bytes: the 99th percentile of transfers. saving: bytes without prefix caches at MD over those with them.
    chip, cached_tokens: of main decode, whose engine could compute behind so many cached tokens."""

    within_s: float
    ports: tuple[Port, ...]
    line: LineSpec
    needed_streams: int
    big_bytes: float
    saving: float
    chip: str
    cached_tokens: float
    crossovers: tuple[Crossover, ...]

    @property
    def chosen(self) -> Port | None:
        """The smallest port that is enough."""
        return next((port for port in self.ports if port.enough), None)


def run(options: PlanOptions, within: str) -> int:
    """Returns 0, or 1 if no port is enough. Raises InvalidInput."""
    from pdd.planner.catalogue import load_chips
    from pdd.planner.model_judge import build_judge
    from pdd.planner.resolve import resolve

    console = Console()
    chips = load_chips(options.chips)
    judge, spec = build_judge(read_spec(options, chips, free=True), options.seed)
    question = resolve(spec, chips, judge.longest_tokens)
    sizing = make_sizing(question, judge.stats, read_within(within, spec.sla.ttft_p99_s))
    if options.as_json:
        console.result(json.dumps(to_document(question, sizing), indent=2, allow_nan=False))
    else:
        for assumption in spec.assumptions:
            console.say(f"assumed: {assumption}")
        console.result("\n".join(describe(question, sizing)))
    return 0 if sizing.chosen else 1


def read_within(text: str, promised_s: float | None) -> float:
    """`--within`, else the promised P99 of the first token, else DEFAULT_WITHIN_S. Seconds."""
    if not text:
        return promised_s or DEFAULT_WITHIN_S
    try:
        within_s = units.read_seconds(text)
    except units.UnitError as error:
        raise InvalidInput("--within", text, str(error)) from None
    if within_s <= 0:
        raise InvalidInput("--within", text, "must be more than 0")
    return within_s


def make_sizing(question: Question, stats: WorkloadStats, within_s: float) -> Sizing:
    """All answers. A line's other properties (RTT, streams, loss) are those of the question."""
    import numpy as np

    from pdd.planner.line_sizing import compute_crossovers, compute_drc_saving, compute_needed_streams, size_line
    from pdd.planner.relay_pool import payload_rows_bytes

    spec = question.spec
    line = spec.line_spec(max(spec.line.sizes_bps))
    payload = payload_rows_bytes(question.kv, stats.uncached.astype(np.float64), spec.block_tokens)
    bytes_per_s = spec.load.rate_per_s * float(payload.mean())
    ports = size_line(
        line,
        question.kv,
        stats,
        spec.load.rate_per_s,
        within_s,
        price_per_h=lambda capacity: spec.prices.line_per_h(capacity, bytes_per_s),
        ports_bps=spec.line.sizes_bps,
        block_tokens=spec.block_tokens,
    )
    big = float(np.quantile(payload, 0.99))
    try:
        streams = compute_needed_streams(line, big, within_s)
    except InvalidInput:
        streams = 0
    decode = question.shapes[0].main
    cached = float(stats.cached.mean())
    crossovers = compute_crossovers(question.kv, decode.times.prefill, RECOMPUTED_TOKENS, cached)
    saving = compute_drc_saving(question.kv, stats, spec.block_tokens)
    return Sizing(within_s, ports, line, streams, big, saving, decode.chip, cached, crossovers)


def describe(question: Question, sizing: Sizing) -> list[str]:
    """The verdict first, then the ports, then what else decides."""
    from pdd.planner.wan import flow_rate_bps

    chosen, limit = sizing.chosen, units.format_seconds(sizing.within_s)
    verdict = f"infeasible: no line asked about lands 99 % of KV transfers within {limit}: {_remedy(sizing)}"
    if chosen:
        late = f"P99 {units.format_seconds(chosen.transfer.p99_s)}, {chosen.utilisation:.0%} used"
        name = units.format_bits_per_s(chosen.capacity_bps)
        verdict = f"line: {name} is the smallest that lands 99 % of KV transfers within {limit} ({late})"
    lines = [verdict, table(_rows(question, sizing))]
    lines.append("x: too late; -: does not keep up. Price: the line's, per million output tokens.")
    alone_bps = flow_rate_bps(sizing.line)
    alone, size = units.format_bits_per_s(alone_bps), units.format_bytes(sizing.big_bytes)
    needed = f"{sizing.needed_streams} would land" if sizing.needed_streams else "no number lands"
    lines += [
        f"streams: a transfer has {sizing.line.streams} and gets {alone} at most;",
        f"  {needed} one of {size} (99th percentile) within {limit} on an idle line",
        f"prefix caches at main decode: without them, {sizing.saving:.3g} times the bytes would cross",
        f"computing again at main decode ({sizing.chip}, behind {sizing.cached_tokens:,.0f} cached tokens) beats",
        f"moving the KV where a transfer gets less than this (here at most {alone}):",
    ]
    for cross in sizing.crossovers:
        wins = "compute" if alone_bps < cross.rate_bps else "move"
        what = f"{cross.tokens:,.0f} tokens ({units.format_bytes(cross.payload_bytes)}"
        took = f"{units.format_seconds(cross.recompute_s)} of an engine)"
        lines += [f"  {units.format_bits_per_s(cross.rate_bps):>14}  for {what}, {took}: {wins}"]
    return lines


def _rows(question: Question, sizing: Sizing) -> list[list[str]]:
    currency = question.spec.prices.currency
    rows = [["", "line", "used", "P50", "P90", "P99", f"{currency}/h", f"{currency}/M tokens"]]
    for port in sizing.ports:
        late = [units.format_seconds(s) for s in (port.transfer.p50_s, port.transfer.p90_s, port.transfer.p99_s)]
        mark = "*" if port is sizing.chosen else "" if port.enough else "x"
        name, used = units.format_bits_per_s(port.capacity_bps), f"{port.utilisation:.0%}"
        price = [f"{port.price_per_h:.4g}", f"{port.price_per_million_tokens:.3g}"]
        rows.append([mark, name, used, *(late if math.isfinite(port.transfer.p99_s) else ["-"] * 3), *price])
    return rows


def _remedy(sizing: Sizing) -> str:
    if not math.isfinite(sizing.ports[-1].transfer.p99_s):
        return "the widest does not keep up; ask about wider ones (line.sizes)"
    if sizing.needed_streams > sizing.line.streams:
        return f"one transfer needs {sizing.needed_streams} streams, not {sizing.line.streams} (line.streams)"
    return "allow more time (--within), or ask about wider ones (line.sizes)"


def to_document(question: Question, sizing: Sizing) -> dict[str, Any]:
    """The one document of `pdd line --json`. Units stand in the names; money in `currency`."""

    def finite(value: float) -> float | None:
        return float(f"{value:.6g}") if math.isfinite(value) else None

    ports = [
        {
            "capacity_bps": port.capacity_bps,
            "enough": port.enough,
            "utilisation": finite(port.utilisation),
            "transfer_p50_s": finite(port.transfer.p50_s),
            "transfer_p90_s": finite(port.transfer.p90_s),
            "transfer_p99_s": finite(port.transfer.p99_s),
            "price_per_h": finite(port.price_per_h),
            "price_per_million_output_tokens": finite(port.price_per_million_tokens),
        }
        for port in sizing.ports
    ]
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "LineSizing",
        "model": question.spec.model,
        "currency": question.spec.prices.currency,
        "within_s": sizing.within_s,
        "chosen": next((port for port in ports if port["enough"]), None),
        "ports": ports,
        "streams": sizing.line.streams,
        "neededStreams": sizing.needed_streams or None,
        "transfer_p99_bytes": finite(sizing.big_bytes),
        "prefixCacheSaving": finite(sizing.saving),
        "recompute": {
            "chip": sizing.chip,
            "cached_tokens": finite(sizing.cached_tokens),
            "crossovers": [
                {
                    "tokens": cross.tokens,
                    "bytes": finite(cross.payload_bytes),
                    "recompute_s": finite(cross.recompute_s),
                    "below_bps": finite(cross.rate_bps),
                }
                for cross in sizing.crossovers
            ],
        },
        "assumptions": list(question.spec.assumptions),
    }
