"""vLLM's completions API in token ids, as vLLM (>= 0.10) and the reference engine speak it.

Field names and the NIXL handle: vLLM's `/v1/completions` and `kv_transfer_params`. A P call carries
`do_remote_decode: true` with empty remote fields and answers the handle; a reader's call carries that handle verbatim.
"""

from __future__ import annotations

from typing import Any

import orjson

from pdd.common.errors import EngineError
from pdd.engine.adapters.base import Answer, Chunk, EngineCall, Usage

_EXPORT = orjson.dumps(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)
_STREAM = b',"stream":true,"stream_options":{"include_usage":true}'
_ERROR_CHARS = 300


class VLLMAdapter:
    """`model`: the name that the engines serve under."""

    path = b"/v1/completions"

    def __init__(self, model: str) -> None:
        self._head = b'{"model":' + orjson.dumps(model) + b',"return_token_ids":true,"prompt":['

    def encode(self, call: EngineCall) -> tuple[bytes, ...]:
        """The JSON body in pieces; the prompt's piece is shared by all calls of a request."""
        extra = b",".join([b"%d" % i for i in call.extra_ids])
        comma = b"," if call.prompt and extra else b""
        tail = [comma, extra, b'],"max_tokens":%d' % call.max_tokens]
        if call.min_tokens > 0:
            tail.append(b',"min_tokens":%d' % call.min_tokens)
        if call.sampling:
            tail += [b",", orjson.dumps(call.sampling)[1:-1]]
        tail.append(_STREAM if call.stream else b',"stream":false')
        if call.handle is not None:
            tail += [b',"kv_transfer_params":', orjson.dumps(call.handle)]
        elif call.wants_handle:
            tail += [b',"kv_transfer_params":', _EXPORT]
        tail.append(b"}")
        return self._head, call.prompt, b"".join(tail)

    def decode_answer(self, body: bytes, *, pulled: bool) -> Answer:
        """One choice with `token_ids`, `finish_reason`, and for a P call `kv_transfer_params`."""
        document = _object(body)
        choice = _choice(document)
        if choice is None:
            raise EngineError("the engine's answer has no choice")
        ids = choice.get("token_ids")
        if not isinstance(ids, list):
            raise EngineError("the engine does not answer token_ids: it must honour return_token_ids")
        handle = document.get("kv_transfer_params")
        return Answer(
            ids=tuple(ids),
            finish_reason=choice.get("finish_reason") or "",
            handle=handle if isinstance(handle, dict) else None,
            usage=_usage(document, pulled=pulled),
        )

    def decode_event(self, data: bytes, *, pulled: bool) -> Chunk | None:
        """A chunk; the usage chunk has no choice and gives no ids."""
        if data == b"[DONE]":
            return None
        document = _object(data)
        if "error" in document:
            raise EngineError(f"the engine broke off: {_message(document)}")
        choice = _choice(document)
        usage = _usage(document, pulled=pulled)
        if choice is None:
            return Chunk((), None, usage)
        ids = choice.get("token_ids")
        if ids is None and choice.get("text"):
            raise EngineError("the engine streams no token_ids: it must honour return_token_ids")
        return Chunk(tuple(ids or ()), choice.get("finish_reason"), usage)

    def decode_error(self, status: int, body: bytes) -> str:
        """The message of an OpenAI error body, else the start of the body."""
        try:
            message = _message(orjson.loads(body))
        except (orjson.JSONDecodeError, EngineError):
            message = body[:_ERROR_CHARS].decode("utf-8", "replace")
        return message[:_ERROR_CHARS] or f"HTTP {status}"


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineError(f"the engine's answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise EngineError("the engine's answer is not a JSON object")
    return document


def _choice(document: dict[str, Any]) -> dict[str, Any] | None:
    choices = document.get("choices")
    if not choices:
        return None
    first = choices[0]
    if not isinstance(first, dict):
        raise EngineError("the engine's choice is not an object")
    return first


def _message(document: object) -> str:
    """`error.message`, or vLLM's older flat `message`."""
    if isinstance(document, dict):
        error = document.get("error", document)
        if isinstance(error, dict):
            return str(error.get("message") or error)
        return str(error)
    return str(document)


def _usage(document: dict[str, Any], *, pulled: bool) -> Usage | None:
    """Usage of a call.

    vLLM counts pulled tokens as cached (its `cached_tokens` is then prompt - 1), so without the reference engine's
    extra field the local hit of a call with a handle is unknown.
    """
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    extra = details.get("pdd") or {}
    local = extra.get("local_cached_tokens")
    if local is None and not pulled:
        local = cached
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=cached,
        local_cached_tokens=local,
        remote_tokens=extra.get("remote_tokens"),
        remote_bytes=extra.get("remote_bytes"),
    )
