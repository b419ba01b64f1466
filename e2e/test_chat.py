"""One conversation through both clusters: who made which token, that they are the right ones, what crossed the line."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from e2e.client import Answer
from e2e.oracle import Oracle
from e2e.streams import build_body, build_requests, check_answer, describe_difference, in_flight
from e2e.system import MODEL, System
from pdd.cli.demo_text import Messages, follow_up, long_chat
from pdd.engine.tokenizer import ByteTokenizer

PROMPT_TOKENS = 2400
OUTPUT_TOKENS = 180
FIRST_TURN_TOKENS = 60
BYTES_PER_TOKEN = 4096
BLOCK_TOKENS = 16
CHAT = "/v1/chat/completions"


def chat_body(messages: Messages, **values: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
    usage = {"stream_options": {"include_usage": True}}
    return {"model": MODEL, "messages": messages, "max_tokens": OUTPUT_TOKENS, **sampling, **usage, **values}


def new_chat(prompt_tokens: int = PROMPT_TOKENS) -> Messages:
    """A conversation that no engine has seen."""
    return long_chat(
        secrets.randbits(32), prompt_tokens, lambda messages: len(ByteTokenizer().apply_chat_template(messages))
    )


def expected_ids(oracle: Oracle, messages: Messages) -> tuple[int, ...]:
    prompt = ByteTokenizer().apply_chat_template(messages)
    return oracle.ids({"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True})


def runs_in_order(answer: Answer) -> list[str]:
    return [producer for producer, _ in answer.trace["runs"]]


def test_a_long_chat_streams_from_p_then_rld_then_md(system: System, oracle: Oracle) -> None:
    messages = new_chat()
    answer = system.client.stream(CHAT, chat_body(messages))
    check_answer(answer, expected_ids(oracle, messages))
    assert answer.pipeline == "P-RLD-MD", answer.headers
    assert runs_in_order(answer) == ["P", "RLD", "MD"], answer.trace["runs"]
    assert answer.headers["x-request-id"] == answer.trace["request_id"]
    assert answer.usage["prompt_tokens"] == answer.trace["prompt_tokens"]
    assert answer.trace["handoff"]["tokens"] > 0
    # The second token must not wait for the KV: that takes PROMPT_TOKENS * 4096 * 8 bits / 95 Mbit/s = 828 ms.
    gap_ms = answer.at_ms[1] - answer.at_ms[0]
    landed_ms = answer.trace["timings_ms"]["landed"] - answer.trace["timings_ms"]["first_token"]
    handoff = answer.trace["handoff"]
    system.note(f"second token after {gap_ms:.0f} ms, KV landed after {landed_ms:.0f} ms, handoff {handoff}")
    assert gap_ms < landed_ms
    assert gap_ms < 500


def test_a_chat_without_streaming_says_the_same(system: System, oracle: Oracle) -> None:
    messages = new_chat()
    body = {key: value for key, value in chat_body(messages).items() if key != "stream_options"}
    answer = system.client.complete(CHAT, body)
    check_answer(answer, expected_ids(oracle, messages))
    assert answer.pipeline == "P-RLD-MD"
    assert all(answer.trace["producers"][name] > 0 for name in ("P", "RLD", "MD")), answer.trace["producers"]
    assert answer.document["object"] == "chat.completion"
    assert answer.document["choices"][0]["message"]["role"] == "assistant"


def test_the_single_engine_run_through_the_router_gives_the_same_ids(system: System) -> None:
    messages = new_chat()
    crossing = system.client.stream(CHAT, chat_body(messages))
    alone = system.client.stream(CHAT, chat_body(messages), override="single")
    assert alone.trace["pipeline"] == "single"
    assert set(alone.producers) <= {"RLD"} or set(alone.producers) <= {"P"}, alone.trace["producers"]
    assert alone.ids == crossing.ids, describe_difference(crossing.ids, alone.ids)


def test_the_second_turn_finds_its_prefix_at_md_and_skips_rld(system: System, oracle: Oracle) -> None:
    messages = new_chat()
    first = system.client.stream(CHAT, chat_body(messages, max_tokens=FIRST_TURN_TOKENS))
    second_messages = follow_up(messages, first.text, "And then?")
    second = system.client.stream(CHAT, chat_body(second_messages))
    check_answer(second, expected_ids(oracle, second_messages))
    assert second.pipeline == "P-MD", second.headers
    assert runs_in_order(second) == ["P", "MD"]
    hit_rate = second.trace["kv"]["md_cached_tokens"] / second.trace["prompt_tokens"]
    system.note(f"hit rate of the second turn {hit_rate:.3f}, {second.trace['kv']}")
    assert hit_rate > 0.9


@pytest.mark.parametrize("override", ["P-RLD-MD", "P-MD"])
def test_what_crosses_the_line_is_what_md_lacked(system: System, oracle: Oracle, override: str) -> None:
    wan, port = system.clusters.wan, system.line_port()
    wan.count(port)
    request = build_requests(secrets.token_hex(8), 1, PROMPT_TOKENS, OUTPUT_TOKENS)[0]
    missing = -(-PROMPT_TOKENS // BLOCK_TOKENS) * BLOCK_TOKENS * BYTES_PER_TOKEN
    before = wan.port_bytes(port)[0]
    answer = system.client.stream("/v1/completions", build_body(request, MODEL), override=override)
    carried = wan.port_bytes(port)[0] - before
    check_answer(answer, oracle.ids(request))
    assert answer.pipeline == override
    system.note(f"{override}: {carried} bytes in IP packets, {missing} bytes of missing KV: {carried / missing:.3f}")
    assert answer.trace["kv"]["missing_bytes"] == missing
    assert 0.98 * missing < carried < 1.10 * missing  # TCP, IP and TLS headers are 4 % by themselves


def test_several_chats_at_once_do_not_mix(system: System, oracle: Oracle) -> None:
    requests = build_requests(secrets.token_hex(8), 6, 700, 60)
    expected = oracle.many(requests)
    with in_flight(system.client, [build_body(request, MODEL) for request in requests]) as flight:
        answers = flight.finish(120)
    for index, (answer, ids) in enumerate(zip(answers, expected, strict=True)):
        check_answer(answer, ids, f"stream {index}")
