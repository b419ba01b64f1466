"""`pdd bench router`: what the router costs, with engines that answer at once. CPU time is read from the kernel."""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pdd.api.config import Endpoints, KVLayout, LinkExpectation, RouterConfig
from pdd.cli.bench.load import Reply, build_request, closed_loop, open_loop
from pdd.cli.bench.stats import percentile
from pdd.cli.runner.http import answers
from pdd.cli.runner.plan import module_argv
from pdd.cli.runner.ports import free_ports
from pdd.cli.runner.process import Child, ProcessSpec
from pdd.cli.runner.supervisor import Supervisor

Say = Callable[[str], None]
_MODEL = "null"
_LONG_PROMPT_TOKENS = 100_000
_READY_S = 30.0


@dataclass(frozen=True, slots=True)
class RouterBench:
    """How much of each: requests of 16 tokens in a closed loop; `rate` a second in an open one for `seconds`; streams
    of 200 tokens; prompts of 100,000 ids."""

    requests: int = 1000
    connections: int = 8
    prompt_tokens: int = 512
    rate: float = 50.0
    seconds: float = 5.0
    streams: int = 32
    long_prompts: int = 20


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far and resident bytes now, of one process."""

    cpu_s: float
    rss_bytes: int


def read_usage(pid: int) -> Usage:
    """From /proc. Raises OSError when the process is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))


def router_config(engine_ports: Sequence[int]) -> RouterConfig:
    """A router in front of null engines over a line so fast that every request goes P-MD."""
    p, rld, md = (Endpoints(urls=(f"http://127.0.0.1:{port}",)) for port in engine_ports)
    return RouterConfig(
        deployment="bench",
        served_model_names=(_MODEL,),
        max_context_tokens=2 * _LONG_PROMPT_TOKENS,
        kv=KVLayout(bytes_per_token=1),
        prefill=p,
        relay_decode=rld,
        main_decode=md,
        link=LinkExpectation(capacity_bps=10**12, rtt_ms=0),
    )


async def bench_router(bench: RouterBench, say: Say) -> dict[str, Any]:
    """The document of `pdd bench router --json`."""
    with tempfile.TemporaryDirectory(prefix="pdd-bench-") as name:
        folder = Path(name)
        ports = free_ports(4)
        config = folder / "router.json"
        config.write_text(router_config(ports[:3]).model_dump_json(by_alias=True))
        env = {"PDD_LOG_LEVEL": "warning", "PDD_LOG_FORMAT": "text"}
        engine_argv = module_argv("pdd.cli.bench.null_engine", *(str(port) for port in ports[:3]))
        router_argv = module_argv("pdd.router", "--config", str(config), "--host", "127.0.0.1", "--port", str(ports[3]))
        async with Supervisor(folder) as supervisor:
            engine = supervisor.start(ProcessSpec("engines", engine_argv, env))
            await supervisor.wait_ready(engine, answers(f"http://127.0.0.1:{ports[0]}/health"), _READY_S)
            router = supervisor.start(ProcessSpec("router", router_argv, env))
            await supervisor.wait_ready(router, answers(f"http://127.0.0.1:{ports[3]}/ready"), _READY_S)
            figures = await supervisor.guard(_measure(bench, say, router, ports))
    return {"apiVersion": "pdd.dev/v1alpha1", "kind": "RouterBench", **figures}


async def _measure(bench: RouterBench, say: Say, router: Child, ports: Sequence[int]) -> dict[str, Any]:
    port, rng = ports[3], random.Random(7)
    await closed_loop(port, _requests(rng, 50, bench.prompt_tokens, 16), bench.connections)  # warm-up

    say(f"{bench.requests} requests of {bench.prompt_tokens} tokens in, 16 out, {bench.connections} at once")
    cpu_s, replies = await _costing(router, port, _requests(rng, bench.requests, bench.prompt_tokens, 16), bench)
    requests_per_core_s = len(replies) / cpu_s

    say(f"{bench.rate:g} requests a second for {bench.seconds:g} s, one token out")
    count = max(1, int(bench.rate * bench.seconds))
    routed = await open_loop(port, _requests(rng, count, bench.prompt_tokens, 2), bench.rate)
    direct = await closed_loop(ports[0], _requests(rng, count, bench.prompt_tokens, 1), 1)
    engine_ms = 2 * 1000 * (percentile([reply.seconds for reply in direct], 50) or 0.0)  # P's call, then MD's

    say(f"{bench.streams} streams of 200 tokens at once")
    streams = _requests(rng, bench.streams, bench.prompt_tokens, 200, stream=True)
    before = read_usage(router.pid)
    await closed_loop(port, streams, bench.streams)
    stream_cpu_s = read_usage(router.pid).cpu_s - before.cpu_s

    say(f"{bench.long_prompts} prompts of {_LONG_PROMPT_TOKENS:,} ids")
    long = _requests(rng, bench.long_prompts, _LONG_PROMPT_TOKENS, 2)
    indexed, before = await _indexed_blocks(port), read_usage(router.pid)
    await closed_loop(port, long, 1)
    after, grown = read_usage(router.pid), await _indexed_blocks(port) - indexed
    return {
        "requests_per_core_s": round(requests_per_core_s, 1),
        "overhead_ms": {
            "rate_per_s": bench.rate,
            **{f"p{q}": _overhead(routed, q, engine_ms) for q in (50, 95, 99)},
            "engines_ms": round(engine_ms, 3),
        },
        "stream_tokens_per_core_s": round(bench.streams * 200 / stream_cpu_s, 1) if stream_cpu_s else None,
        "core_s_per_100k_token_prompt": round((after.cpu_s - before.cpu_s) / bench.long_prompts, 4),
        "rss_bytes_per_million_indexed_blocks": (
            round((after.rss_bytes - before.rss_bytes) / grown * 1e6) if grown > 0 else None
        ),
        "indexed_blocks": grown,
        "rss_bytes": after.rss_bytes,
    }


async def _costing(
    router: Child, port: int, requests: Sequence[bytes], bench: RouterBench
) -> tuple[float, list[Reply]]:
    before = read_usage(router.pid)
    replies = await closed_loop(port, requests, bench.connections)
    return max(read_usage(router.pid).cpu_s - before.cpu_s, 0.01), replies


def _requests(
    rng: random.Random, count: int, prompt_tokens: int, output_tokens: int, *, stream: bool = False
) -> list[bytes]:
    """Prompts that share no prefix: each is indexed as new."""
    return [
        build_request(
            "/v1/completions",
            {
                "model": _MODEL,
                "prompt": [rng.randrange(32, 127) for _ in range(min(prompt_tokens, 64))]
                + [65] * max(0, prompt_tokens - 64),
                "max_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": stream,
            },
        )
        for _ in range(count)
    ]


def _overhead(replies: Sequence[Reply], q: float, engine_ms: float) -> float:
    whole_ms = 1000 * (percentile([reply.seconds for reply in replies], q) or 0.0)
    return round(max(0.0, whole_ms - engine_ms), 2)


async def _indexed_blocks(port: int) -> int:
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return int(sum(float(value) for value in re.findall(r"^pdd_router_index_blocks\{[^}]*\} (\S+)$", text, re.M)))
