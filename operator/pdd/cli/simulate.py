"""`pdd simulate`: one fleet under one load, event by event; same-site and naive beside it, from the same requests."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdd.cli.console import Console, table
from pdd.cli.plan import PlanOptions, change_load, read_spec
from pdd.cli.progress import Progress
from pdd.common.errors import InvalidInput

if TYPE_CHECKING:
    from pdd.planner.fleet import Fleet, Way
    from pdd.planner.load import Load
    from pdd.planner.sim import SimResult
    from pdd.planner.spec import PlanSpec

DEFAULT_REQUESTS = 20_000
DEFAULT_SHAPE = "DeepSeek-V4-Pro on H100 and H200, 20 Gbit/s, 20 ms, four streams of 200 Mbit/s"


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """As given on the command line; 0 or empty: not given."""

    file: str = ""
    trace: Path | None = None
    requests: int = 0
    rate: str = ""
    input_tokens: str = ""
    output_tokens: str = ""
    hit_rate: str = ""
    engines: tuple[int, int, int] = (0, 0, 0)
    line: str = ""
    ways: tuple[str, ...] = ()
    closed: bool = False
    all_hits: bool = False
    slow_start: bool = False
    request: int = -1
    seed: int = 1
    as_json: bool = False


def run(options: SimulateOptions) -> int:
    """Prints one table or document. Raises InvalidInput."""
    from pdd.planner.fleet import Way
    from pdd.planner.sim import SimOptions, precompile, simulate

    if not options.file and options.trace is None:
        raise InvalidInput("FILE", None, "give a PDDDeployment with its PDDLink, a plan file, or --trace FILE")
    known = {way.value: way for way in Way}
    for name in options.ways:
        if name not in known:
            raise InvalidInput("--way", name, f"use one of {', '.join(known)}")
    console = Console()
    fleet, spec, load, assumptions = _build(options)
    if options.request >= len(load):
        raise InvalidInput("--request", options.request, f"there are {len(load)} requests: 0 to {len(load) - 1}")
    if precompile.start():
        console.say(precompile.NOTICE)
    ways = [known[name] for name in options.ways] or list(Way)
    documents: dict[str, Any] = {}
    began = time.monotonic()
    for way in ways:
        with Progress(console, way.value) as progress:
            run_options = SimOptions(
                seed=options.seed, closed_loop=options.closed, caches=not options.all_hits,
                slow_start=options.slow_start, sla=spec.sla, progress=progress.at,
            )  # fmt: skip
            started = time.monotonic()
            result = simulate(_fleet_of(fleet, way), load, run_options)
        documents[way.value] = _document(result, time.monotonic() - started, options.request)
    document = {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "Simulation",
        "requests": len(load),
        "ratePerS": load.rate_per_s,
        "engines": {"prefill": fleet.prefill.engines, "relay": fleet.relay.engines, "main": fleet.main.engines},
        "lineBps": fleet.line.capacity_bps,
        "assumptions": assumptions,
        "ways": documents,
        "seconds": time.monotonic() - began,
    }
    if options.as_json:
        console.result(json.dumps(document, indent=2, allow_nan=False))
    else:
        for assumption in assumptions:
            console.say(f"assumed: {assumption}")
        console.result(table(_rows(documents)))
        for note in dict.fromkeys(note for one in documents.values() for note in one["notes"]):
            console.say(f"not said: {note}")
        for name, one in documents.items():
            if not one["keepsUp"]:
                early, late = one["growthS"]
                console.say(
                    f"warning: {name} does not keep up: the median TTFT grows through the run, from {early:.3g} to "
                    f"{late:.3g} s (or the load rises); its figures say how long the run was",
                    "yellow",
                )
    return 0


def _build(options: SimulateOptions) -> tuple[Fleet, PlanSpec, Load, list[str]]:
    """(fleet, question, load, what was assumed)."""
    from pdd.planner import units
    from pdd.planner.candidates import build_fleet, compute_bounds
    from pdd.planner.catalogue import load_chips
    from pdd.planner.judge import Stage
    from pdd.planner.loads import with_rate
    from pdd.planner.model_judge import build_judge, build_workload
    from pdd.planner.resolve import resolve
    from pdd.planner.traces import read_trace
    from pdd.planner.workload import generate

    chips = load_chips(None)
    spec, assumptions = _read(options)
    if options.trace is not None:
        load = read_trace(options.trace, options.requests or None)
        if len(load) < 2:
            raise InvalidInput("--trace", str(options.trace), "one request has no rate: give two or more")
        if options.rate:
            load = with_rate(load, spec.load.rate_per_s)
        elif load.rate_per_s <= 0:
            raise InvalidInput("--rate", "", "the trace's requests all come at once: give a rate, for example 10/s")
        spec = replace(spec, load=replace(spec.load, rate_per_s=load.rate_per_s))
    else:
        load = generate(build_workload(spec.load), options.requests or DEFAULT_REQUESTS, options.seed)
    judge, spec = build_judge(spec, options.seed)
    question = resolve(spec, chips, int((load.input_tokens + load.output_tokens).max()))
    size = max(spec.line.sizes_bps)
    if options.line:
        try:
            size = units.read_bits_per_s(options.line)
        except units.UnitError as error:
            raise InvalidInput("--line", options.line, str(error)) from None
    elif spec.objects is not None:
        size = _ordered_bps(spec)
    counts = [given or stated for given, stated in zip(options.engines, _stated_engines(spec), strict=True)]
    threshold = spec.rules.relay_threshold_s
    if not all(counts):
        asked = replace(spec, line=replace(spec.line, sizes_bps=(size,)), thresholds_s=(threshold,))
        (bound, *_) = compute_bounds(replace(question, spec=asked), judge, spec.sla, spec.load.rate_per_s)
        sized = [bound.need(stage, 0.8) for stage in (Stage.PREFILL, Stage.RELAY, Stage.MAIN)]
        counts = [count or least for count, least in zip(counts, sized, strict=True)]
        assumptions.append(f"engines for 80 % utilisation: P {counts[0]}, RLD {counts[1]}, MD {counts[2]}")
    return build_fleet(question, question.shapes[0], size, threshold, counts), spec, load, assumptions


def _read(options: SimulateOptions) -> tuple[PlanSpec, list[str]]:
    from pdd.planner.catalogue import load_chips
    from pdd.planner.spec_file import read_plan_text

    asked = PlanOptions(
        file=options.file, rate=options.rate, trace=options.trace, input_tokens=options.input_tokens,
        output_tokens=options.output_tokens, hit_rate=options.hit_rate,
    )  # fmt: skip
    if not options.file:
        spec = read_plan_text("built-in", DEFAULT_PLAN, folder=Path())
        spec = replace(spec, load=change_load(asked, spec.load))
        return spec, [f"no FILE: {DEFAULT_SHAPE}"]
    # A simulation asks nobody for money: a price that is not known counts as nothing here.
    spec = read_spec(asked, load_chips(None), free=True)
    return spec, [text for text in spec.assumptions if text.startswith("load:")]


def _stated_engines(spec: PlanSpec) -> tuple[int, int, int]:
    """Replicas of (P, RLD, MD) in the PDDDeployment; zeros for a plan file, which has none."""
    if spec.objects is None:
        return 0, 0, 0
    roles = spec.objects.deployment["spec"].get("roles", {})
    relay = roles.get("relayDecode", {})
    least = (relay.get("autoscaling") or {}).get("minReplicas", relay.get("replicas", 1))
    return roles.get("prefill", {}).get("replicas", 1), least, roles.get("mainDecode", {}).get("replicas", 1)


def _ordered_bps(spec: PlanSpec) -> float:
    """The rate that KV may use on the PDDLink."""
    from pdd.api.v1alpha1 import PDDLink

    assert spec.objects is not None
    return float(PDDLink.from_object(dict(spec.objects.link)).spec.rate_cap_mbps) * 1e6


def _fleet_of(fleet: Fleet, way: Way) -> Fleet:
    """The same engines used another way: same-site and naive have no relay, its engines decode with the others."""
    from pdd.planner.fleet import Way

    if way is Way.PDD:
        return fleet
    main = replace(fleet.main, engines=fleet.main.engines + fleet.relay.engines)
    return replace(fleet, way=way, main=main, relay=replace(fleet.relay, engines=0))


def _document(result: SimResult, seconds: float, request: int) -> dict[str, Any]:
    from pdd.planner.sim import trace_request

    def spans(found: Any) -> dict[str, Any]:
        names = {0.5: "p50", 0.9: "p90", 0.99: "p99"}
        return {
            names[share]: None if one is None else {"value": one.value, "low": one.low, "high": one.high}
            for share, one in found.items()
        }

    document = {
        "requests": result.requests,
        "firstTokenS": spans(result.first_token),
        "ttftS": spans(result.ttft),
        "secondGapS": spans(result.second_gap),
        "tpotS": spans(result.tpot),
        "e2eS": spans(result.e2e),
        "pipelines": dict(result.pipelines),
        "relayTokenShare": result.relay_token_share,
        "meanHit": result.mean_hit,
        "lineBytes": result.line_bytes,
        "utilisation": dict(result.utilisation),
        "throughputPerS": result.throughput_per_s,
        "goodputPerS": result.goodput_per_s,
        "meanStallS": result.mean_stall_s,
        "keepsUp": result.growth is None,
        "growthS": list(result.growth) if result.growth else None,
        "notes": list(result.notes),
        "seconds": seconds,
    }
    if request >= 0:
        document["request"] = trace_request(result.columns, request)
    return document


_LATENCIES = (
    ("first token", "firstTokenS"),
    ("TTFT", "ttftS"),
    ("first to second", "secondGapS"),
    ("TPOT", "tpotS"),
)
"""TTFT here is until tokens flow: P's own first token is out before any transfer."""


def _rows(documents: dict[str, Any]) -> list[list[str]]:
    def span(found: dict[str, Any] | None) -> str:
        if found is None:
            return "-"
        if found["low"] is None:
            return f"{found['value']:.3g}"
        return f"{found['value']:.3g} ({found['low']:.3g}..{found['high']:.3g})"

    rows = [["", *documents]]
    for label, key in _LATENCIES:
        rows += [
            [f"{label} {share.upper()}, s", *(span(one[key][share]) for one in documents.values())]
            for share in ("p50", "p90", "p99")
        ]
    rows.append(["goodput, requests/s", *(f"{one['goodputPerS']:.3g}" for one in documents.values())])
    rows.append(["RLD's share of tokens", *(f"{one['relayTokenShare']:.1%}" for one in documents.values())])
    rows.append(["mean hit rate", *(f"{one['meanHit']:.1%}" for one in documents.values())])
    rows.append(["GB on the line", *(f"{one['lineBytes'] / 1e9:.3g}" for one in documents.values())])
    for stage in ("prefill", "relay", "main", "line"):
        shares = [one["utilisation"].get(stage) for one in documents.values()]
        rows.append([f"{stage} busy", *("-" if share is None else f"{share:.0%}" for share in shares)])
    return rows


DEFAULT_PLAN = """\
model: DeepSeek-V4-Pro
workload: {rate: 10/s, input: 64K, output: 1K, hitRate: 90 %}
sites:
  a: {chips: [H100]}
  b: {chips: [H200]}
  line: {sizes: [20 Gbit/s], rtt: 20 ms, perFlow: 200 Mbit/s, streams: 4}
prices: {currency: USD, chips: {H100: 2.95/h, H200: 3.70/h}, line: {perGbit: 0.05/h}}
"""
"""The fleet for a trace alone; prices play no part in a simulation."""
