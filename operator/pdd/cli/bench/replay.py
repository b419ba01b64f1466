"""`pdd bench replay`: the head of a trace through PDD, the naive way and one site, on fresh stacks in one run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pdd.api.deployment import SLASpec
from pdd.api.engines import served_names
from pdd.cli.bench.stats import percentile
from pdd.cli.bench.trace import Scale, TraceRequest, load_mooncake, mean_hit_rate
from pdd.cli.chat import COMPLETIONS, ChatRun, stream_chat
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.cli.runner.stack import Stack, running_stack
from pdd.common.errors import PDDError

Say = Callable[[str], None]
WAYS = {"pdd": "", "naive": "P-MD", "same-site": "P-RLD"}
"""Way to the override that forces it. same-site: the decode engine beside P runs each request to its end."""
_ALONE_AT_ONCE = 4
_HIT_EDGES = (0.5, 0.8, 0.95)


@dataclass(frozen=True, slots=True)
class ReplayBench:
    """What to replay. `compare`: run every prompt again on one engine alone, id by id (PDD's way only)."""

    file: Path
    trace: Path
    requests: int
    scale: Scale
    ways: tuple[str, ...]
    compare: bool
    mbps: int | None
    rtt_ms: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replayed request: its run, or why it failed."""

    run: ChatRun | None
    error: str = ""


async def bench_replay(bench: ReplayBench, say: Say) -> dict[str, Any]:
    """The document of `pdd bench replay --json`."""
    spec = load_local_spec(bench.file).with_line(bench.mbps, bench.rtt_ms)
    requests = load_mooncake(bench.trace, bench.requests, bench.scale)
    line = spec.link.spec.line
    ways: dict[str, Any] = {}
    for way in bench.ways:
        say(f"{way}: {len(requests)} requests, arrivals over {requests[-1].at_s:.0f} s")
        async with running_stack(spec) as stack:
            ways[way] = await stack.supervisor.guard(_run_way(spec, stack, bench, requests, way))
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "ReplayBench",
        "trace": {
            "name": bench.trace.name,
            "requests": len(requests),
            "prompt_tokens_mean": round(sum(len(r.prompt) for r in requests) / len(requests), 1),
            "output_tokens_mean": round(sum(r.output_tokens for r in requests) / len(requests), 1),
            "hit_rate_infinite_cache": round(mean_hit_rate(requests, bench.scale.block_tokens), 4),
            "speed": bench.scale.speed,
        },
        "line": {"rate_mbps": line.capacity_mbps, "rtt_ms": line.rtt_ms, "emulated": True},
        "ways": ways,
    }


async def _run_way(
    spec: LocalSpec, stack: Stack, bench: ReplayBench, requests: Sequence[TraceRequest], way: str
) -> dict[str, Any]:
    before = await stack.bulk_bytes()
    outcomes = await send_all(spec, stack, requests, WAYS[way])
    line_bytes = await stack.bulk_bytes() - before
    alone: list[Outcome] = []
    if bench.compare and way == "pdd":
        gate = asyncio.Semaphore(_ALONE_AT_ONCE)

        async def again(request: TraceRequest) -> Outcome:
            async with gate:
                return await send_one(spec, stack, request, "single")

        alone = list(await asyncio.gather(*(again(request) for request in requests)))
    return summarise(outcomes, alone, line_bytes, spec.deployment.spec.sla)


async def send_all(spec: LocalSpec, stack: Stack, requests: Sequence[TraceRequest], override: str) -> list[Outcome]:
    """Every request at its arrival, whatever the answers take. Outcomes in the order of `requests`."""

    async def one(request: TraceRequest) -> Outcome:
        await asyncio.sleep(request.at_s)
        return await send_one(spec, stack, request, override)

    return list(await asyncio.gather(*(one(request) for request in requests)))


async def send_one(spec: LocalSpec, stack: Stack, request: TraceRequest, override: str) -> Outcome:
    """One request now, to its last token."""
    body = {
        "model": served_names(spec.deployment.spec.model)[0],
        "prompt": list(request.prompt),
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    try:
        return Outcome(await stream_chat(stack.router_url, body, override=override, path=COMPLETIONS))
    except PDDError as error:
        return Outcome(None, str(error))


def summarise(outcomes: Sequence[Outcome], alone: Sequence[Outcome], line_bytes: int, sla: SLASpec) -> dict[str, Any]:
    """Figures of one way. Failed requests are counted, and are in no percentile. Times in ms."""
    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    missing = sum(int((run.trace.get("kv") or {}).get("missing_bytes") or 0) for run in runs)
    tokens = sum(len(run.token_ids) for run in runs)
    relayed = sum(int((run.trace.get("producers") or {}).get("RLD", 0)) for run in runs)
    within = sum(_within(run, sla) for run in runs)
    figures: dict[str, Any] = {
        "answered": len(runs),
        "failed": len(outcomes) - len(runs),
        "errors": [outcome.error for outcome in outcomes if outcome.error][:5],
        "ttft_ms": _spread([run.ttft_ms for run in runs]),
        "second_token_ms": _spread([run.second_token_ms for run in runs if run.second_token_ms is not None]),
        "tpot_ms": _spread([tpot for run in runs if (tpot := tpot_ms(run)) is not None]),
        "pipelines": dict(Counter(run.pipeline for run in runs)),
        "hit_rate_buckets": dict(Counter(hit_bucket(run) for run in runs)),
        "rld_token_share": round(relayed / tokens, 4) if tokens else None,
        "kv_bytes_on_line": line_bytes,
        "kv_bytes_missing": missing,
        "within_sla_share": round(within / len(outcomes), 4) if outcomes else None,
    }
    if alone:
        pairs = zip(outcomes, alone, strict=True)
        equal = sum(a.run is not None and b.run is not None and a.run.token_ids == b.run.token_ids for a, b in pairs)
        figures["identical_share"] = round(equal / len(outcomes), 4)
    return figures


def tpot_ms(run: ChatRun) -> float | None:
    """Mean time per output token after the first; None with one token."""
    count = len(run.token_at_ms)
    return (run.token_at_ms[-1] - run.token_at_ms[0]) / (count - 1) if count > 1 else None


def hit_bucket(run: ChatRun) -> str:
    """Which share of the prompt MD had: `<50 %`, `50-80 %`, `80-95 %`, `>=95 %`; `unknown` without figures."""
    kv = run.trace.get("kv") or {}
    prompt, missing = run.trace.get("prompt_tokens"), kv.get("missing_tokens")
    if not prompt or missing is None:
        return "unknown"
    hit = 1 - missing / prompt
    labels = ("<50 %", "50-80 %", "80-95 %", ">=95 %")
    return labels[sum(hit >= edge for edge in _HIT_EDGES)]


def _within(run: ChatRun, sla: SLASpec) -> bool:
    tpot = tpot_ms(run)
    return (sla.ttft_p99_ms is None or run.ttft_ms <= sla.ttft_p99_ms) and (
        sla.tpot_p99_ms is None or tpot is None or tpot <= sla.tpot_p99_ms
    )


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    found = {f"p{q}": percentile(values, q) for q in (50, 90, 99)}
    return {key: None if value is None else round(value, 1) for key, value in found.items()}


def replay_rows(document: dict[str, Any]) -> list[list[str]]:
    """The document as rows of a table for people, header first."""
    ways = document["ways"]
    rows = [["", *ways]]

    def row(title: str, show: Callable[[dict[str, Any]], str]) -> None:
        rows.append([title, *(show(figures) for figures in ways.values())])

    row("answered", lambda f: f"{f['answered']}/{f['answered'] + f['failed']}")
    for key, title in (("ttft_ms", "first token"), ("second_token_ms", "second, after it"), ("tpot_ms", "per token")):
        row(f"{title} p50/p90/p99 ms", partial(_percentiles, key))
    row("pipelines", lambda f: ", ".join(f"{name} {count}" for name, count in sorted(f["pipelines"].items())))
    row("tokens by RLD", lambda f: "-" if f["rld_token_share"] is None else f"{100 * f['rld_token_share']:.1f} %")
    row("KV on the line", lambda f: f"{f['kv_bytes_on_line'] / 1e6:.1f} MB")
    row("KV that MD lacked", lambda f: f"{f['kv_bytes_missing'] / 1e6:.1f} MB")
    row("within the SLA", lambda f: f"{100 * (f['within_sla_share'] or 0):.1f} %")
    row("equal to one engine's", lambda f: f"{100 * f['identical_share']:.1f} %" if "identical_share" in f else "-")
    return rows


def _percentiles(key: str, figures: dict[str, Any]) -> str:
    return "/".join(_number(figures[key][q]) for q in ("p50", "p90", "p99"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
