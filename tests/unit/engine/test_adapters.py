"""The vLLM-style adapter, and server-sent events cut anywhere."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from pdd.api.config import EngineType
from pdd.common.errors import EngineError, InvalidInput
from pdd.engine.adapters import EngineCall, EventSplitter, adapter_for
from pdd.engine.adapters.sse import MAX_EVENT_BYTES

ADAPTER = adapter_for(EngineType.VLLM, "tiny")


def body(**call: Any) -> dict[str, Any]:
    default: dict[str, Any] = {"prompt": b"1,2", "extra_ids": (), "max_tokens": 5, "stream": False, "sampling": {}}
    return dict(orjson.loads(b"".join(ADAPTER.encode(EngineCall(**{**default, **call})))))


def test_prefill_call_asks_for_the_kv_and_one_token() -> None:
    got = body(max_tokens=1, wants_handle=True, sampling={"temperature": 0.0})
    assert got["prompt"] == [1, 2] and got["max_tokens"] == 1 and got["stream"] is False
    assert got["return_token_ids"] is True and got["temperature"] == 0.0 and "stream_options" not in got
    assert got["kv_transfer_params"]["do_remote_decode"] is True
    assert got["kv_transfer_params"]["remote_block_ids"] is None


def test_reader_call_carries_the_handle_verbatim_and_the_ledger_behind_the_prompt() -> None:
    handle = {"do_remote_prefill": True, "remote_block_ids": [[1]], "vendor": {"x": None}}
    got = body(extra_ids=[7, 8], handle=handle, stream=True, min_tokens=2)
    assert got["prompt"] == [1, 2, 7, 8] and got["kv_transfer_params"] == handle
    assert got["stream"] is True and got["stream_options"] == {"include_usage": True} and got["min_tokens"] == 2


def test_a_continuing_call_has_no_transfer_params() -> None:
    assert "kv_transfer_params" not in body(extra_ids=[3])
    assert body(prompt=b"", extra_ids=[3])["prompt"] == [3]


def test_answer_with_handle_and_split_usage() -> None:
    answer = ADAPTER.decode_answer(
        orjson.dumps(
            {
                "choices": [{"token_ids": [9], "finish_reason": "length"}],
                "kv_transfer_params": {"remote_host": "h"},
                "usage": {
                    "prompt_tokens": 10, "completion_tokens": 1,
                    "prompt_tokens_details": {
                        "cached_tokens": 9, "pdd": {"local_cached_tokens": 4, "remote_bytes": 80},
                    },
                },
            }
        ),
        pulled=True,
    )  # fmt: skip
    assert answer.ids == (9,) and answer.handle == {"remote_host": "h"} and answer.usage is not None
    assert (answer.usage.local_cached_tokens, answer.usage.remote_bytes) == (4, 80)


@pytest.mark.parametrize(("pulled", "local"), [(True, None), (False, 9)])
def test_stock_vllm_counts_pulled_tokens_as_cached_so_a_pull_tells_nothing(pulled: bool, local: int | None) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}
    raw = orjson.dumps({"choices": [{"token_ids": [9], "finish_reason": "length"}], "usage": usage})
    got = ADAPTER.decode_answer(raw, pulled=pulled).usage
    assert got is not None and got.local_cached_tokens == local


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"text":"a"}]}', b'{"choices":[7]}', b"\xff"]
)
def test_an_answer_without_token_ids_is_an_engine_error(raw: bytes) -> None:
    with pytest.raises(EngineError):
        ADAPTER.decode_answer(raw, pulled=False)


def test_events_tokens_usage_error_done() -> None:
    chunk = ADAPTER.decode_event(b'{"choices":[{"token_ids":[1,2],"finish_reason":null}]}', pulled=False)
    assert chunk is not None and chunk.ids == (1, 2) and chunk.finish_reason is None
    usage = ADAPTER.decode_event(b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}', pulled=False)
    assert usage is not None and usage.ids == () and usage.usage is not None
    assert ADAPTER.decode_event(b"[DONE]", pulled=False) is None
    with pytest.raises(EngineError, match="out of memory"):
        ADAPTER.decode_event(b'{"error":{"message":"out of memory"}}', pulled=False)
    with pytest.raises(EngineError):
        ADAPTER.decode_event(b'{"choices":[{"text":"a"}]}', pulled=False)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"error":{"message":"too long"}}', "too long"),
        (b'{"message":"old"}', "old"),
        (b"<html>", "<html>"),
        (b"", "HTTP 500"),
    ],
)
def test_an_engines_error_is_told_in_one_line(raw: bytes, said: str) -> None:
    assert ADAPTER.decode_error(500, raw) == said


def test_sglang_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidInput, match="not support"):
        adapter_for(EngineType.SGLANG, "tiny")


@pytest.mark.parametrize("seed", range(100))
def test_events_survive_any_cut_and_line_ending(seed: int) -> None:
    rng = random.Random(seed)
    events = [f'{{"k":{k},"t":"{rng.choice(["é", "😀", "x"])}"}}'.encode() for k in range(20)]
    end = rng.choice([b"\n\n", b"\r\n\r\n"])
    raw = b": comment" + end + b"".join(b"data: " + event + end for event in events)
    splitter = EventSplitter()
    got: list[bytes] = []
    while raw:
        cut = rng.randint(1, 30)
        got += splitter.feed(raw[:cut])
        raw = raw[cut:]
    assert got == events


def test_data_over_several_lines_and_without_a_space() -> None:
    assert EventSplitter().feed(b"event: x\ndata:a\ndata: b\n\n") == [b"a\nb"]


def test_an_event_without_end_is_bounded() -> None:
    splitter = EventSplitter()
    with pytest.raises(EngineError):
        for _ in range(MAX_EVENT_BYTES // 65536 + 2):
            splitter.feed(b"x" * 65536)
