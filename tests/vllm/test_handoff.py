"""Real vLLM: the ids of every pipeline equal those of one server that ran the whole request."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]


async def complete(url: str, prompt: list[int], tokens: int, pipeline: str, **more: Any) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
    headers = {"x-pdd-trace": "1"} | ({"x-pdd-pipeline-override": pipeline} if pipeline else {})
    async with httpx.AsyncClient(timeout=120) as client:
        answer = await client.post(f"{url}/v1/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["pdd"])


def prompt(seed: int, tokens: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 370) for _ in range(tokens)]


@pytest.mark.parametrize("tokens", [31, 96, 100, 127, 128, 500, 1500])
async def test_a_handoff_between_real_servers_keeps_every_id(router_url: str, tokens: int) -> None:
    for pipeline in ("P-MD", "P-RLD"):  # the first meeting of two engines takes NIXL five seconds, and may fail for it
        await complete(router_url, prompt(3, 64), 4, pipeline)
    ids = prompt(tokens, tokens)
    many = min(1200, 1900 - tokens)  # so many that MD has landed before RLD is done, on a busy machine too
    one = await complete(router_url, ids, many, "single")
    relayed = await complete(router_url, ids, many, "P-RLD-MD")
    assert relayed["token_ids"] == one["token_ids"]
    assert relayed["producers"]["P"] == 1 and relayed["producers"]["MD"] > 0, relayed
    assert relayed["retries"] == []


@pytest.mark.parametrize("tokens", [31, 128, 500])
async def test_prefill_straight_to_main_decode_keeps_every_id(router_url: str, tokens: int) -> None:
    ids = prompt(1000 + tokens, tokens)
    one = await complete(router_url, ids, 64, "single")
    direct = await complete(router_url, ids, 64, "P-MD")
    assert direct["token_ids"] == one["token_ids"]
    assert direct["producers"]["RLD"] == 0


async def test_many_at_once_keep_every_id(router_url: str) -> None:
    prompts = [prompt(2000 + n, 40 + 37 * n) for n in range(8)]
    ones = [await complete(router_url, ids, 80, "single") for ids in prompts]
    relayed = await asyncio.gather(*(complete(router_url, ids, 80, "P-RLD-MD") for ids in prompts))
    assert [r["token_ids"] for r in relayed] == [one["token_ids"] for one in ones]


async def test_a_seeded_draw_stays_on_one_engine(router_url: str) -> None:
    """vLLM's draws do not depend on (seed, position) alone: such a request is pinned, not handed over."""
    trace = await complete(router_url, prompt(7, 200), 40, "", temperature=0.8, seed=11)
    assert trace["pipeline"] == "pinned" and trace["producers"]["RLD"] == 0
