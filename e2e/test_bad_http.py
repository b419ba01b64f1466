"""Malformed HTTP: always an answer in OpenAI's error shape, with the right status, and the router goes on."""

from __future__ import annotations

import json
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.client import Answer, StreamBroken
from e2e.oracle import Oracle
from e2e.streams import build_body, build_requests, check_answer
from e2e.system import MODEL, System

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
MAX_CONTEXT = 8192


def chat(**values: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": MESSAGES, "max_tokens": 4, **values}


def completion(**values: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "hello", "max_tokens": 4, **values}


RAW: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"hello",
    "half an object": b'{"model": "tiny", "messages": [',
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "broken UTF-8": b'{"model": "tiny", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "deep nesting": b'{"model": "tiny", "messages": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "not a number": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
}

BODIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no model": (CHAT, {"messages": MESSAGES}, "model"),
    "model is a number": (CHAT, chat(model=7), "model"),
    "no messages": (CHAT, {"model": MODEL}, "messages"),
    "messages empty": (CHAT, chat(messages=[]), "messages"),
    "messages is text": (CHAT, chat(messages="hello"), "messages"),
    "message is text": (CHAT, chat(messages=["hello"]), "messages"),
    "unknown role": (CHAT, chat(messages=[{"role": "wizard", "content": "x"}]), "messages"),
    "content is a number": (CHAT, chat(messages=[{"role": "user", "content": 7}]), "messages"),
    "negative max_tokens": (CHAT, chat(max_tokens=-1), "max_tokens"),
    "max_tokens is text": (CHAT, chat(max_tokens="many"), "max_tokens"),
    "max_tokens a fraction": (CHAT, chat(max_tokens=1.5), "max_tokens"),
    "temperature negative": (CHAT, chat(temperature=-1), "temperature"),
    "temperature is text": (CHAT, chat(temperature="hot"), "temperature"),
    "top_p above one": (CHAT, chat(top_p=1.5), "top_p"),
    "seed is text": (CHAT, chat(seed="lucky"), "seed"),
    "stream is text": (CHAT, chat(stream="yes please"), "stream"),
    "stop is a number": (CHAT, chat(stop=7), "stop"),
    "n is negative": (CHAT, chat(n=-2), "n"),
    "no prompt": (COMPLETIONS, {"model": MODEL, "max_tokens": 4}, "prompt"),
    "prompt empty": (COMPLETIONS, completion(prompt=""), "prompt"),
    "prompt of no ids": (COMPLETIONS, completion(prompt=[]), "prompt"),
    "prompt is an object": (COMPLETIONS, completion(prompt={"a": 1}), "prompt"),
    "an id out of range": (COMPLETIONS, completion(prompt=[65, 1_000_000]), "prompt"),
    "a negative id": (COMPLETIONS, completion(prompt=[-1]), "prompt"),
    "ids and text mixed": (COMPLETIONS, completion(prompt=[65, "b"]), "prompt"),
    "prompt too long": (COMPLETIONS, completion(prompt=[65] * (MAX_CONTEXT + 1)), "prompt"),
    "chat too long": (CHAT, chat(messages=[{"role": "user", "content": "x" * (MAX_CONTEXT + 1)}]), "messages"),
    "output beyond context": (COMPLETIONS, completion(prompt=[65] * 100, max_tokens=MAX_CONTEXT), "max_tokens"),
}


def check_error(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, f"{answer.status}: {answer.text[:300]}"
    error = answer.error
    assert set(error) >= {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-request-id"]
    return error


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("case", RAW)
def test_a_body_that_is_no_request_is_refused(system: System, case: str, path: str) -> None:
    check_error(system.client.post(path, RAW[case]), 400)


@pytest.mark.parametrize("case", BODIES)
def test_a_wrong_field_is_refused_by_name(system: System, case: str) -> None:
    path, body, field = BODIES[case]
    error = check_error(system.client.post(path, body), 400)
    assert field in f"{error['param']} {error['message']}", error


@pytest.mark.parametrize("case", ["negative max_tokens", "prompt too long"])
def test_a_stream_is_refused_in_the_same_shape(system: System, case: str) -> None:
    path, body, _ = BODIES[case]
    answer = system.client.stream(path, body)
    assert answer.status == 400
    assert answer.error["message"]


def test_an_unknown_model_is_404_and_the_known_ones_are_listed(system: System) -> None:
    error = check_error(system.client.post(CHAT, chat(model="gpt-99")), 404)
    assert "gpt-99" in error["message"]
    assert MODEL in error["message"]


def test_an_unknown_path_is_404_and_a_wrong_method_405(system: System) -> None:
    check_error(system.client.request("POST", "/v1/embeddings", {"model": MODEL}), 404)
    check_error(system.client.request("GET", CHAT), 405)


def test_half_a_request_is_given_up_and_the_next_one_is_served(system: System, oracle: Oracle) -> None:
    parts = urlsplit(system.url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as sock:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        sock.sendall(head.encode() + b'{"model": ')
    request = build_requests(secrets.token_hex(8), 1, 50, 8)[0]
    check_answer(system.client.stream(COMPLETIONS, build_body(request, MODEL)), oracle.ids(request))


def test_garbage_instead_of_http_does_not_stop_the_router(system: System) -> None:
    parts = urlsplit(system.url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + secrets.token_bytes(64) + b"\r\n\r\n")
        sock.settimeout(10)
        answer = sock.recv(4096)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert system.client.request("GET", "/health").status == 200


def test_overload_is_429_with_retry_after_and_the_admitted_are_served_whole(system: System, oracle: Oracle) -> None:
    """The sample admits 64 and queues 16; 120 come at once."""
    requests = build_requests(secrets.token_hex(8), 2, 40, 60)
    expected = oracle.many(requests)
    bodies = [build_body(requests[index % 2], MODEL) for index in range(120)]

    def send(body: dict[str, Any]) -> Answer | StreamBroken:
        try:
            return system.client.stream(COMPLETIONS, body)
        except StreamBroken as error:
            return error

    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(send, bodies))
    broken = [answer for answer in answers if isinstance(answer, StreamBroken)]
    assert not broken, broken[:3]
    refused = [answer for answer in answers if isinstance(answer, Answer) and answer.status != 200]
    system.note(f"{len(answers) - len(refused)} served, {len(refused)} refused")
    assert len(refused) >= 10, "nothing was overloaded"
    assert len(answers) - len(refused) >= 64, "fewer were served than the router admits at once"
    for refusal in refused:
        check_error(refusal, 429)
        assert int(refusal.headers["retry-after"]) >= 1
    for index, answer in enumerate(answers):
        if isinstance(answer, Answer) and answer.status == 200:
            check_answer(answer, expected[index % 2], f"request {index}")


def test_errors_are_json_even_for_a_client_that_asks_for_a_stream(system: System) -> None:
    answer = system.client.post(CHAT, chat(messages=[], stream=True))
    assert json.loads(answer.text)["error"]["message"]
    check_error(answer, 400)
