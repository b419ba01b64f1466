"""`pdd bench handoff`: how long a stream pauses when MD takes over, by mode, beside its normal inter-token time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdd.api.config import HandoffMode
from pdd.api.engines import kv_layout, served_names, tokenizer_name
from pdd.cli.bench.stats import spread
from pdd.cli.chat import ChatRun, stream_chat
from pdd.cli.demo import token_counter
from pdd.cli.demo_text import long_chat
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.cli.runner.stack import Stack, running_stack

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HandoffBench:
    """What to run in each mode: `requests` different prompts of `prompt_tokens`, `concurrency` at once."""

    file: Path
    modes: tuple[HandoffMode, ...]
    requests: int
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    mbps: int | None
    rtt_ms: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One request and the same prompt's tokens from one engine alone."""

    run: ChatRun
    single_token_ids: tuple[int, ...]


async def bench_handoff(bench: HandoffBench, say: Say) -> dict[str, Any]:
    """The document of `pdd bench handoff --json`. Each mode gets a fresh stack, so no cache carries over."""
    spec = load_local_spec(bench.file).with_line(bench.mbps, bench.rtt_ms)
    line = spec.link.spec.line
    modes: dict[str, Any] = {}
    for mode in bench.modes:
        say(f"{mode.value}: {bench.requests} requests of {bench.prompt_tokens} tokens, {bench.concurrency} at once")
        async with running_stack(with_mode(spec, mode)) as stack:
            samples = await stack.supervisor.guard(_run_mode(spec, stack, bench))
        modes[mode.value] = summarise(samples, kv_layout(spec.deployment).bytes_per_token)
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "HandoffBench",
        "line": {"rate_mbps": line.capacity_mbps, "rtt_ms": line.rtt_ms, "emulated": True},
        "requests_per_mode": bench.requests,
        "concurrency": bench.concurrency,
        "prompt_tokens": bench.prompt_tokens,
        "output_tokens": bench.output_tokens,
        "modes": modes,
    }


def with_mode(spec: LocalSpec, mode: HandoffMode) -> LocalSpec:
    """The same deployment with another handoff mode."""
    deployment = spec.deployment
    router = deployment.spec.router.model_copy(update={"handoff_mode": mode})
    changed = deployment.model_copy(update={"spec": deployment.spec.model_copy(update={"router": router})})
    return LocalSpec(changed, spec.link)


def summarise(samples: Sequence[Sample], bytes_per_token: int) -> dict[str, Any]:
    """Figures of one mode. Requests that were not handed off are counted, and are in no other figure than
    `identical_share`. Stall and inter-token time in ms; payload is what crosses the line for the handoff."""
    handoffs = [s.run.trace["handoff"] for s in samples if s.run.trace.get("handoff")]
    normal = [s.run.trace["itl_ms"]["p50"] for s in samples if s.run.trace.get("itl_ms")]
    tokens = sum(h["tokens"] for h in handoffs)
    payload = sum(h["payload_bytes"] for h in handoffs)
    identical = sum(s.run.token_ids == s.single_token_ids for s in samples)
    return {
        "handoffs": len(handoffs),
        "without_handoff": len(samples) - len(handoffs),
        "stall_ms": spread([float(h["stall_ms"]) for h in handoffs]),
        "normal_itl_ms": spread([float(value) for value in normal]),
        "rounds": spread([float(h["rounds"]) for h in handoffs]),
        "tokens": spread([float(h["tokens"]) for h in handoffs]),
        "identical_share": round(identical / len(samples), 4) if samples else None,
        "payload_bytes_per_100_tokens": round(100 * payload / tokens, 1) if tokens else None,
        "kv_bytes_per_100_tokens": 100 * bytes_per_token,
    }


async def _run_mode(spec: LocalSpec, stack: Stack, bench: HandoffBench) -> list[Sample]:
    count = token_counter(tokenizer_name(spec.deployment))
    model = served_names(spec.deployment.spec.model)[0]
    gate = asyncio.Semaphore(bench.concurrency)

    async def one(seed: int, override: str) -> ChatRun:
        body = {
            "model": model,
            "messages": long_chat(seed, bench.prompt_tokens, count),
            "max_tokens": bench.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        async with gate:
            return await stream_chat(stack.router_url, body, override=override)

    async def all_of(seeds: range, override: str) -> list[ChatRun]:
        return list(await asyncio.gather(*(one(seed, override) for seed in seeds)))

    await all_of(range(1), "P-RLD-MD")  # warm-up: connections, first-touch of memory
    seeds = range(1, bench.requests + 1)
    runs = await all_of(seeds, "P-RLD-MD")
    alone = await all_of(seeds, "single")
    return [Sample(run, single.token_ids) for run, single in zip(runs, alone, strict=True)]


def handoff_rows(document: dict[str, Any]) -> list[list[str]]:
    """The document as rows of a table for people, header first."""
    rows = [["mode", "handoffs", "pause p50", "p99", "max", "normal", "identical", "B/100 tokens", "KV/100 tokens"]]
    for mode, figures in document["modes"].items():
        stall, share = figures["stall_ms"], figures["identical_share"]
        rows.append(
            [
                mode,
                str(figures["handoffs"]),
                *(_ms(stall[key]) for key in ("p50", "p99", "max")),
                _ms(figures["normal_itl_ms"]["p50"]),
                "-" if share is None else f"{100 * share:.0f} %",
                str(figures["payload_bytes_per_100_tokens"]),
                str(figures["kv_bytes_per_100_tokens"]),
            ]
        )
    return rows


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
