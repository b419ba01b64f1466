"""Bodies: what is accepted, pinned, refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pdd.api.config import EngineType, RouterConfig
from pdd.common.errors import InvalidInput
from pdd.engine.adapters.features import FEATURES, IGNORED
from pdd.engine.tokenizer import ByteTokenizer
from pdd.router.openai import Ask, BadRequest, parse_ask, parse_body

FEATURES_PAGE = Path(__file__).parents[3] / "docs" / "features.md"


def config(engine: str = "reference", **capabilities: bool) -> RouterConfig:
    return RouterConfig.model_validate(
        {
            "deployment": "tiny",
            "servedModelNames": ["tiny", "alias"],
            "engine": engine,
            "capabilities": {"positionKeyedSampling": True, **capabilities},
            "maxContextTokens": 100,
            "kv": {"bytesPerToken": 4096},
            "prefill": {},
            "relayDecode": {},
            "link": {"capacityBps": 1000, "rttMs": 1},
        }
    )


def ask(body: dict[str, Any], *, chat: bool = False, using: RouterConfig | None = None) -> Ask:
    default: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    whole = {"model": "tiny", **default, **body}
    return parse_ask(whole, chat=chat, config=using or config(), tokenizer=ByteTokenizer(), seeds=lambda: 42)


@pytest.mark.parametrize(
    ("body", "param", "status"),
    [
        ({"model": "nope"}, "model", 404),
        ({"model": None}, "model", 400),
        ({"model": 7}, "model", 400),
        ({"prompt": ""}, "prompt", 400),
        ({"prompt": []}, "prompt", 400),
        ({"prompt": ["a", "b"]}, "prompt", 400),
        ({"prompt": [1, -1]}, "prompt", 400),
        ({"prompt": [1, 10**9]}, "prompt", 400),
        ({"prompt": [1, 2.5]}, "prompt", 400),
        ({"prompt": [1, "a"]}, "prompt", 400),
        ({"prompt": 7}, "prompt", 400),
        ({"prompt": "x" * 100}, "prompt", 400),
        ({"max_tokens": 99}, "max_tokens", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"max_tokens": "5"}, "max_tokens", 400),
        ({"max_tokens": True}, "max_tokens", 400),
        ({"temperature": -1}, "temperature", 400),
        ({"temperature": float("nan")}, "temperature", 400),
        ({"top_p": 0}, "top_p", 400),
        ({"top_k": -2}, "top_k", 400),
        ({"seed": "a"}, "seed", 400),
        ({"stop": [""]}, "stop", 400),
        ({"stop": ["a"] * 17}, "stop", 400),
        ({"stop": 5}, "stop", 400),
        ({"stop_token_ids": ["a"]}, "stop_token_ids", 400),
        ({"stream": "yes"}, "stream", 400),
        ({"stream_options": []}, None, None),
        ({"stream_options": 1}, "stream_options", 400),
        ({"n": 2}, "n", 400),
        ({"logprobs": 0}, "logprobs", 400),
        ({"presence_penalty": 0.5}, "presence_penalty", 400),
        ({"response_format": {"type": "json_object"}}, "response_format", 400),
        ({"kv_transfer_params": {}}, "kv_transfer_params", 400),
        ({"max_tokns": 5}, "max_tokns", 400),
        (
            {"n": 1, "presence_penalty": 0, "response_format": {"type": "text"}, "user": "me", "logprobs": None},
            None,
            None,
        ),
    ],
)
def test_each_wrong_field_is_named(body: dict[str, Any], param: str | None, status: int | None) -> None:
    if status is None:
        ask(body)
        return
    with pytest.raises(BadRequest) as caught:
        ask(body)
    assert (caught.value.param, caught.value.status) == (param, status)
    assert param is not None and param in caught.value.message


@pytest.mark.parametrize(
    "messages",
    [None, [], "hi", ["hi"], [{"role": "elf", "content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}],
     [{"role": "user", "content": "x", "tool_calls": [{}]}]],
)  # fmt: skip
def test_wrong_messages_are_named(messages: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        ask({"messages": messages}, chat=True)
    assert caught.value.param is not None and caught.value.param.startswith("messages")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"a"', b"\xff", b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_body(raw)


def test_defaults_follow_openai() -> None:
    assert ask({}).max_tokens == 16
    chat = ask({}, chat=True)
    assert chat.max_tokens == 100 - len(chat.prompt)
    assert ask({"max_completion_tokens": 3, "max_tokens": 5}).max_tokens == 3


def test_a_sampled_request_without_seed_gets_one_when_sampling_is_keyed_by_position() -> None:
    assert ask({}).sampling["seed"] == 42 and not ask({}).pinned
    assert ask({"seed": 7}).sampling["seed"] == 7


def test_sampling_is_pinned_where_engines_draw_differently() -> None:
    using = config("vllm", positionKeyedSampling=False)
    assert (
        ask({}, using=using).pinned and ask({}, using=using).resumable and "seed" not in ask({}, using=using).sampling
    )
    assert not ask({"temperature": 0}, using=using).pinned
    assert ask({"temperature": 0}, using=config("vllm", greedyPortable=False)).pinned


def test_penalties_are_stateful_on_vllm() -> None:
    got = ask({"temperature": 0, "presence_penalty": 0.5}, using=config("vllm"))
    assert got.pinned and not got.resumable and got.sampling["presence_penalty"] == 0.5


def test_eos_is_a_stop_id_unless_ignored() -> None:
    assert 256 in ask({}).stop_ids
    ignoring = ask({"ignore_eos": True, "stop_token_ids": [3]})
    assert ignoring.stop_ids == {3} and ignoring.sampling["ignore_eos"] is True


def test_the_features_page_says_what_the_code_does() -> None:
    page = FEATURES_PAGE.read_text()
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4:
            for name in re.findall(r"`([a-z_]+)", cells[0]):
                rows[name] = cells
    for name, feature in FEATURES.items():
        if name in ("tool_choice", "function_call", "audio"):
            continue
        assert name in rows, f"{name} is not in docs/features.md"
        for engine, cell in ((EngineType.REFERENCE, rows[name][1]), (EngineType.VLLM, rows[name][2])):
            assert feature.treatment(engine).value in cell, (name, engine, cell)
    assert all(f"`{name}`" in page for name in IGNORED)


DEEP: Any = "end"
for _ in range(900):
    DEEP = [DEEP]


@pytest.mark.parametrize("engine", ["reference", "vllm"])
@pytest.mark.parametrize(
    "field",
    sorted({"model", "prompt", "temperature", "top_p", "top_k", "seed", "max_tokens", "min_tokens", "stop", "n",
            "stop_token_ids", "ignore_eos", "stream", "stream_options", "return_token_ids", "messages", "unheard_of",
            *FEATURES}),
)  # fmt: skip
def test_a_deeply_nested_value_is_a_bad_request_whatever_field_it_is_in(field: str, engine: str) -> None:
    for value in (DEEP, {"a": DEEP}, [DEEP, DEEP]):
        for chat in (False, True):
            if field == "prompt" and chat:
                continue
            if field == "messages" and not chat:
                continue
            with pytest.raises((BadRequest, InvalidInput)) as caught:
                ask({field: value}, chat=chat, using=config(engine))
            assert len(caught.value.message) < 400 and field in caught.value.message
    if field == "messages":
        for message in ({"role": DEEP}, {"role": "user", "content": DEEP}, {"role": "user", "content": [DEEP]}):
            with pytest.raises((BadRequest, InvalidInput)):
                ask({field: [message]}, chat=True)
