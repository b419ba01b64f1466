"""Through real engines: whatever the pipeline and the handoff, the ids are those of one engine that ran the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.integration.router_stack import Stack, running_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "Prefill turns a prompt into keys and values; relay decode hides the time that they need to cross the line. "
FLAGS = {"relay-decode": {"step-ms": 10}, "main-decode": {"step-ms": 2}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["OneShot", "CatchUp"])
async def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    folder: Path = tmp_path_factory.mktemp(f"stack-{request.param}")
    async with running_stack(folder, flags=FLAGS, line_mbps=60, handoffMode=request.param) as running:
        yield running


def prompt(tokens: int, salt: int) -> str:
    return (f"{salt}: " + TEXT * 40)[:tokens]


@pytest.mark.parametrize(
    ("tokens", "sampling"),
    [
        (1, {"temperature": 0}),
        (31, {"temperature": 0.9, "seed": 5}),
        (160, {"temperature": 0}),
        (701, {"temperature": 1.0, "top_p": 0.9, "top_k": 40, "seed": 7}),
    ],
)
async def test_ids_equal_one_engines_by_every_pipeline(stack: Stack, tokens: int, sampling: dict[str, Any]) -> None:
    body = {"prompt": prompt(tokens, tokens), "max_tokens": 60, "ignore_eos": True, **sampling}
    overrides = ("single", "P-MD", "P-RLD-MD", "P-RLD")
    single, *routed = await asyncio.gather(*(stack.complete(body, override) for override in overrides))
    for override, answer in zip(overrides[1:], routed, strict=True):
        assert answer["pdd"]["token_ids"] == single["pdd"]["token_ids"], override
        assert answer["choices"][0]["text"] == single["choices"][0]["text"]
        assert answer["headers"]["x-pdd-pipeline"] == override
        assert answer["usage"]["completion_tokens"] == 60 and answer["usage"]["prompt_tokens"] == tokens
        assert answer["pdd"]["retries"] == []


async def test_a_long_landing_is_relayed_and_handed_over_in_the_configured_mode(stack: Stack) -> None:
    body = {"prompt": prompt(1500, 1), "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    single = await stack.complete(body, "single")
    routed = await stack.complete(body)
    trace = routed["pdd"]
    assert trace["token_ids"] == single["pdd"]["token_ids"]
    assert (trace["pipeline"], trace["reason"]) == ("P-RLD-MD", "LongTransfer")
    assert trace["producers"]["RLD"] > 20 and trace["producers"]["MD"] > 20 and trace["producers"]["P"] == 1
    assert [who for who, _ in trace["runs"]] == ["P", "RLD", "MD"]
    mode = "CatchUp" if "CatchUp" in str(stack.folder) else "OneShot"
    handoff = trace["handoff"]
    assert handoff["mode"] == mode and handoff["payload_bytes"] > 0 and handoff["stall_ms"] > 0
    assert handoff["rounds"] >= 2 if mode == "CatchUp" else handoff["rounds"] == 1
    times = trace["timings_ms"]
    assert (
        times["first_token"] < times["second_token"] < times["landed"] <= times["handoff_start"] < times["handoff_end"]
    )
    assert times["second_token"] - times["first_token"] < 1000 < times["landed"] - times["first_token"] + 1000
    assert trace["kv"]["remote_bytes"] <= trace["kv"]["missing_bytes"] == trace["kv"]["prompt_bytes"]


async def test_the_second_turn_is_short_enough_for_p_md_and_the_line_carries_only_what_is_missing(stack: Stack) -> None:
    first = prompt(800, 2)
    body: dict[str, Any] = {"prompt": first, "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    turn = await stack.complete(body)
    assert turn["pdd"]["pipeline"] == "P-RLD-MD" and turn["pdd"]["producers"]["MD"] > 0
    assert stack.line is not None
    before = stack.line.bytes_back
    ids = [*first.encode(), *turn["pdd"]["token_ids"], *b" and then?"]
    again = await stack.complete({**body, "prompt": ids, "max_tokens": 20})
    single = await stack.complete({**body, "prompt": ids, "max_tokens": 20}, "single")
    trace = again["pdd"]
    assert (trace["pipeline"], trace["reason"]) == ("P-MD", "ShortTransfer")
    assert trace["token_ids"] == single["pdd"]["token_ids"]
    assert trace["kv"]["missing_bytes"] < 0.1 * trace["kv"]["prompt_bytes"]
    assert stack.line.bytes_back - before <= 1.05 * trace["kv"]["missing_bytes"] + 4096


async def test_an_unseeded_sampled_request_is_seeded_by_the_router_and_survives_the_handoff(stack: Stack) -> None:
    body = {"prompt": prompt(900, 3), "max_tokens": 200, "ignore_eos": True, "temperature": 1.0}
    one, other = await stack.complete(body), await stack.complete({**body, "prompt": prompt(901, 4)})
    for answer in (one, other):
        assert answer["pdd"]["output_tokens"] == 200 and answer["pdd"]["retries"] == []
        assert answer["headers"]["x-pdd-pipeline"] == "P-RLD-MD"


async def test_nothing_is_left_on_any_engine(stack: Stack) -> None:
    await stack.wait_idle()
    load = await stack.load()
    assert all(engine["sessions"] == 0 for engine in load["engines"])
    relay = load["relay"]
    assert relay["sessions"] == 0 and relay["holding_s_count"] == relay["arrivals_total"] > 0
    metrics = (await stack.client.get(stack.router.url + "/metrics")).text
    assert "pdd_router_diverged_tokens_total 0.0" in metrics
