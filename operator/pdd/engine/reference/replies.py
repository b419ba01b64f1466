"""Bodies that the engine answers with, in vLLM's and OpenAI's shapes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdd.engine.reference.parse import Completion
from pdd.engine.reference.sequence import Lease, Usage


@dataclass(frozen=True, slots=True)
class Identity:
    """How this engine names itself to readers of its KV."""

    engine_id: str
    advertise_host: str
    kv_port: int


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kinds = {404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
    kind = kinds.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": code or status}}


def transfer_params(identity: Identity, lease: Lease) -> dict[str, Any]:
    """The handle that a decode engine is given verbatim."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(lease.blocks)],
        "remote_engine_id": identity.engine_id,
        "remote_request_id": lease.lease_id,
        "remote_host": identity.advertise_host,
        "remote_port": identity.kv_port,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": lease.num_tokens,
        "remote_blocks_expiry_time": None,
        "transfer_mode": "pull",
    }


def usage_body(prompt_tokens: int, completion_tokens: int, usage: Usage | None) -> dict[str, Any]:
    """cached_tokens is what was not computed here: local prefix and remote KV together, as vLLM counts it."""
    body: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if usage is not None:
        body["prompt_tokens_details"] = {
            "cached_tokens": usage.local_cached_tokens + usage.remote_tokens,
            "pdd": {
                "local_cached_tokens": usage.local_cached_tokens,
                "remote_tokens": usage.remote_tokens,
                "remote_bytes": usage.remote_bytes,
                "computed_tokens": usage.computed_tokens,
            },
        }
    return body


@dataclass(frozen=True, slots=True)
class Head:
    """What all bodies of one answer share. created is in Unix seconds."""

    request_id: str
    created: int
    completion: Completion

    def fields(self) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.completion.model,
        }


def completion_body(
    head: Head, text: str, tokens: list[int], finish_reason: str, usage: Usage | None, transfer: dict[str, Any] | None
) -> dict[str, Any]:
    """The whole answer. Who sent the prompt as ids does not get them back: they would cross the line for nothing."""
    completion = head.completion
    choice = _choice(text, finish_reason)
    if completion.return_token_ids:
        choice["token_ids"] = tokens
        if completion.prompt_was_text:
            choice["prompt_token_ids"] = list(completion.prompt)
    return {
        **head.fields(),
        "choices": [choice],
        "usage": usage_body(len(completion.prompt), len(tokens), usage),
        "kv_transfer_params": transfer,
    }


def chunk_body(
    head: Head, text: str, tokens: list[int], finish_reason: str | None, so_far: int, usage: Usage | None
) -> dict[str, Any]:
    """One step's news. `so_far` is how many tokens the answer has with these."""
    choice = _choice(text, finish_reason)
    if head.completion.return_token_ids:
        choice["token_ids"] = tokens
    body = {**head.fields(), "choices": [choice]}
    if head.completion.include_usage and head.completion.continuous_usage:
        body["usage"] = usage_body(len(head.completion.prompt), so_far, usage)
    return body


def final_usage_body(head: Head, completion_tokens: int, usage: Usage | None) -> dict[str, Any]:
    return {
        **head.fields(),
        "choices": [],
        "usage": usage_body(len(head.completion.prompt), completion_tokens, usage),
    }


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
