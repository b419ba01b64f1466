"""Engines are killed, the line is cut, clients hang up: no token lost or doubled, nothing left running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.router_stack import MODEL, Stack, running_stack

TEXT = "A token that the client has seen is never taken back, and none is missing after it. "
BODY: dict[str, Any] = {"prompt": (TEXT * 20)[:1400], "max_tokens": 240, "ignore_eos": True, "temperature": 0}
FLAGS = {"relay-decode": {"step-ms": 12}, "main-decode": {"step-ms": 12}}
Strike = Callable[[Stack], Awaitable[None]]


@contextlib.asynccontextmanager
async def a_stack(folder: Path, **options: Any) -> AsyncIterator[tuple[Stack, list[int]]]:
    """A stack, and the ids of BODY by one engine."""
    async with running_stack(folder, flags=FLAGS, **{"line_mbps": 30, **options}) as stack:
        single = await stack.complete(BODY, "single")
        yield stack, single["pdd"]["token_ids"]


async def stream_and_strike(stack: Stack, after: str, count: int, strike: Strike) -> dict[str, Any]:
    """Stream BODY; once `count` tokens of producer `after` have come, strike. Returns the trace, with what the client
    was given as `seen`."""
    seen: list[int] = []
    by_producer: dict[str, int] = {}
    struck = False
    trace: dict[str, Any] = {}
    async for event in stack.stream(BODY, "P-RLD-MD"):
        assert "error" not in event, event
        pdd = event.get("pdd", {})
        if "producer" in pdd:
            seen += pdd["token_ids"]
            by_producer[pdd["producer"]] = by_producer.get(pdd["producer"], 0) + len(pdd["token_ids"])
            if not struck and by_producer.get(after, 0) >= count:
                struck = True
                await strike(stack)
        elif pdd:
            trace = pdd
    assert struck, f"{after} made fewer than {count} tokens: {by_producer}"
    return {**trace, "seen": seen}


async def test_relay_killed_while_main_lands(tmp_path: Path) -> None:
    async with a_stack(tmp_path) as (stack, truth):
        trace = await stream_and_strike(stack, "RLD", 3, lambda s: s.relay[0].kill())
        assert trace["seen"] == truth
        assert trace["producers"]["MD"] > 0 and any(r["role"] == "relay-decode" for r in trace["retries"])
        await stack.wait_idle(leases=False)


async def test_relay_killed_with_another_left(tmp_path: Path) -> None:
    async with a_stack(tmp_path, relay=2, line_mbps=10) as (stack, truth):

        async def kill_busy(stack: Stack) -> None:
            states = [await stack.state(one) for one in stack.relay]
            await stack.relay[[s["running"] for s in states].index(1)].kill()

        trace = await stream_and_strike(stack, "RLD", 3, kill_busy)
        assert trace["seen"] == truth
        assert [who for who, _ in trace["runs"]][:4] == ["P", "RLD", "P", "RLD"]
        await stack.wait_idle(leases=False)


async def test_main_killed_in_mid_stream(tmp_path: Path) -> None:
    async with a_stack(tmp_path) as (stack, truth):
        trace = await stream_and_strike(stack, "MD", 3, lambda s: s.main[0].kill())
        assert trace["seen"] == truth
        runs = [who for who, _ in trace["runs"]]
        assert runs[:5] == ["P", "RLD", "MD", "P", "RLD"], runs
        after = await stack.complete({**BODY, "max_tokens": 20})
        assert after["pdd"]["token_ids"] == truth[:20]
        # On a slow machine the end of the line's loss may have been declared in between: still local, ramping back.
        assert after["headers"]["x-pdd-pipeline"] == "P-RLD"
        assert after["headers"]["x-pdd-reason"] in ("LineLost", "LineRecovering")
        assert (await stack.load())["mode"] == "local"
        await stack.wait_idle(leases=False)


async def test_prefill_killed_while_relay_streams(tmp_path: Path) -> None:
    """MD's handle, or its source, is gone: RLD carries the request to its end."""
    async with a_stack(tmp_path) as (stack, truth):
        trace = await stream_and_strike(stack, "RLD", 1, lambda s: s.prefill[0].kill())
        assert trace["seen"] == truth


async def test_line_cut_while_landing_then_healed(tmp_path: Path) -> None:
    async with a_stack(tmp_path, line_mbps=20) as (stack, truth):
        line = stack.line
        assert line is not None

        async def cut(_: Stack) -> None:
            line.cut()
            asyncio.get_running_loop().call_later(0.7, line.heal)

        trace = await stream_and_strike(stack, "RLD", 3, cut)
        assert trace["seen"] == truth
        await stack.wait_idle(8.0, leases=False)


@pytest.mark.parametrize("after", ["nothing", "P", "RLD", "MD"])
async def test_hang_up_frees_all_three_engines_at_once(tmp_path: Path, after: str) -> None:
    async with a_stack(tmp_path) as (stack, _):
        body = {**BODY, "prompt": [7, *BODY["prompt"].encode()], "max_tokens": 2000}
        if after == "nothing":
            with contextlib.suppress(httpx.ReadTimeout):
                await stack.client.post(
                    stack.router.url + "/v1/completions", json={"model": MODEL, **body}, timeout=0.1
                )
        else:
            stream = stack.stream(body, "P-RLD-MD")
            async for event in stream:
                if event.get("pdd", {}).get("producer") == after:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
        await stack.wait_idle(4.0)
        assert all(engine["sessions"] == 0 for engine in (await stack.load())["engines"])


async def test_restarted_main_is_thought_empty(tmp_path: Path) -> None:
    async with a_stack(tmp_path) as (stack, truth):
        first = await stack.complete(BODY)
        assert first["pdd"]["producers"]["MD"] > 0
        assert (await stack.complete(BODY))["headers"]["x-pdd-pipeline"] == "P-MD"
        await stack.main[0].kill()
        await wait_lost(stack)  # at a fixed URL nothing but the outage tells a restart
        await stack.main[0].start()
        await stack.main[0].wait_healthy()
        await wait_mode(stack, "normal")
        again = await stack.complete(BODY, "P-RLD-MD")
        assert again["pdd"]["token_ids"] == truth
        assert again["pdd"]["kv"]["missing_bytes"] == again["pdd"]["kv"]["prompt_bytes"]


async def wait_lost(stack: Stack) -> None:
    for _ in range(400):
        engines = (await stack.load())["engines"]
        if not any(e["healthy"] for e in engines if e["role"] == "main-decode"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"main decode is still thought healthy: {engines}")


async def wait_mode(stack: Stack, mode: str) -> None:
    for _ in range(200):
        load = await stack.load()
        if load["mode"] == mode and all(e["healthy"] for e in load["engines"] if e["role"] == "main-decode"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"mode is not {mode}: {load}")
