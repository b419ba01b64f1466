"""Bodies of completions: what is served, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from pdd.engine.reference.parse import BadRequest, Bounds, Completion, parse_completion
from pdd.engine.tokenizer import ByteTokenizer

BOUNDS = Bounds(("tiny", "alias"), 272, 1000, 640)
HANDLE = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2, 3]],
    "remote_engine_id": "e",
    "remote_request_id": "cmpl-1",
    "remote_host": "10.0.0.1",
    "remote_port": 5601,
    "tp_size": 1,
    "remote_num_tokens": 40,
}


def parse(**body: Any) -> Completion:
    return parse_completion({"prompt": [1, 2, 3], **body}, BOUNDS, ByteTokenizer())


def refused(**body: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse(**body)
    return caught.value


def test_defaults_are_openais() -> None:
    completion = parse()
    assert (completion.model, completion.prompt, completion.max_tokens) == ("tiny", (1, 2, 3), 16)
    assert (completion.sampling.temperature, completion.sampling.top_p) == (1.0, 1.0)
    assert not (completion.stream or completion.seeded or completion.export or completion.remote)


def test_text_becomes_bytes() -> None:
    assert parse(prompt="ä").prompt == (0xC3, 0xA4)
    assert parse(prompt=[[5, 6]]).prompt == (5, 6)


def test_what_a_prefill_and_a_reader_send() -> None:
    none = dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
    prefill = parse(max_tokens=1, kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False, **none})
    assert prefill.export and prefill.remote is None
    reader = parse(kv_transfer_params=HANDLE)
    assert reader.remote is not None and not reader.export
    assert (reader.remote.request_id, reader.remote.port, reader.remote.num_tokens) == ("cmpl-1", 5601, 40)
    assert reader.remote.block_ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2), ("best_of", 3), ("logprobs", 1), ("logprobs", True), ("echo", True), ("suffix", "x"), ("stop", ["a"]),
        ("presence_penalty", 0.5), ("frequency_penalty", -1), ("repetition_penalty", 1.1), ("min_p", 0.1),
        ("min_tokens", 2), ("logit_bias", {"5": 1}), ("use_beam_search", True), ("prompt_logprobs", 0), ("n", True),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(field: str, value: object) -> None:
    error = refused(**{field: value})
    assert (error.status, error.param) == (400, field)
    assert field in error.message and repr(value) in error.message


def test_neutral_values_of_unsupported_fields_are_accepted() -> None:
    parse(n=1, logprobs=None, echo=False, stop=[], presence_penalty=0.0, frequency_penalty=0, repetition_penalty=1.0)
    parse(some_unknown_field=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", []), ("prompt", ""), ("prompt", None), ("prompt", [1, "a"]), ("prompt", [272]), ("prompt", [-1]),
        ("prompt", [True]), ("prompt", ["a", "b"]), ("max_tokens", 0), ("max_tokens", 1.5), ("max_tokens", "5"),
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", "hot"), ("top_p", 0), ("top_p", 1.1),
        ("top_k", -2), ("seed", 1 << 64), ("seed", "x"), ("stop_token_ids", [1.5]), ("stop_token_ids", 3),
        ("ignore_eos", 1), ("stream", "yes"), ("return_token_ids", "no"), ("stream_options", {"include_usage": True}),
        ("kv_transfer_params", []),
    ],
)  # fmt: skip
def test_bad_values_are_refused_by_name(field: str, value: object) -> None:
    error = refused(**{field: value})
    assert (error.status, error.param) == (400, field)


def test_unknown_model_is_404_and_lists_the_known() -> None:
    error = refused(model="huge")
    assert (error.status, error.code) == (404, "model_not_found")
    assert "tiny, alias" in error.message
    assert parse(model="alias").model == "alias"


def test_too_long_is_refused_with_both_limits_named() -> None:
    assert "context of 1000" in refused(prompt=[1] * 999, max_tokens=2).message
    assert "640 tokens" in refused(prompt=[1] * 640, max_tokens=1).message
    parse(prompt=[1] * 630, max_tokens=10)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("remote_engine_id", None), ("remote_request_id", ""), ("remote_host", 5), ("remote_port", None),
        ("remote_port", 0), ("remote_port", 70000), ("remote_num_tokens", None), ("remote_num_tokens", 0),
        ("remote_block_ids", None), ("remote_block_ids", [1]), ("remote_block_ids", [[1], [2]]),
        ("do_remote_prefill", "yes"),
    ],
)  # fmt: skip
def test_a_broken_handle_is_refused_by_field(field: str, value: object) -> None:
    error = refused(kv_transfer_params={**HANDLE, field: value})
    assert error.param == f"kv_transfer_params.{field}"


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(BadRequest, match="JSON object"):
        parse_completion(body, BOUNDS, ByteTokenizer())
