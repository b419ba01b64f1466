"""What the client gets: chunks, bodies, usage, errors, trace. Pure bytes; the token path builds no dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from pdd.router.events import Record
from pdd.router.ledger import Ledger, Producer
from pdd.router.openai import Ask

DONE = b"data: [DONE]\n\n"
_TYPES = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}


class StreamRenderer:
    """Chunks of one stream. `trace`: each chunk says who made it."""

    def __init__(self, ask: Ask, request_id: str, created_s: int, *, trace: bool) -> None:
        self._ask = ask
        self._trace = trace
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        head = {"id": request_id, "object": kind, "created": created_s, "model": ask.model}
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._open = self._head + (
            b',"choices":[{"index":0,"delta":{' if ask.chat else b',"choices":[{"index":0,"text":'
        )
        self._first = True
        self._usage_null = b',"usage":null' if ask.include_usage else b""

    def chunk(
        self, producer: Producer | None, ids: Sequence[int], text: str, finish: str | None, output_tokens: int
    ) -> bytes:
        """One event. finish: the reason, on the last. output_tokens: so far, these included."""
        ask = self._ask
        quoted = orjson.dumps(text)
        parts = [self._open]
        if ask.chat:
            if self._first:
                parts.append(b'"role":"assistant","content":' + quoted)
            elif text or not finish:
                parts.append(b'"content":' + quoted)
            parts.append(b"}")
        else:
            parts.append(quoted)
        parts.append(b',"logprobs":null,"finish_reason":')
        parts.append(b'"%b"' % finish.encode() if finish else b"null")
        id_list = b"[" + b",".join([b"%d" % i for i in ids]) + b"]"
        if ask.return_token_ids:
            parts.append(b',"token_ids":' + id_list)
            if self._first:
                parts.append(b',"prompt_token_ids":' + orjson.dumps(ask.prompt.tolist()))
        self._first = False
        parts.append(b"}]")
        if ask.continuous_usage and ask.include_usage:
            parts.append(b',"usage":' + orjson.dumps(usage_body(len(ask.prompt), output_tokens, 0, details=False)))
        else:
            parts.append(self._usage_null)
        if self._trace and producer is not None:
            parts.append(b',"pdd":{"producer":"%b","token_ids":%b}' % (producer.value.encode(), id_list))
        parts.append(b"}\n\n")
        return b"".join(parts)

    def usage(self, output_tokens: int, cached_tokens: int) -> bytes:
        """The usage chunk, once, before the trace."""
        usage = orjson.dumps(usage_body(len(self._ask.prompt), output_tokens, cached_tokens))
        return self._head + b',"choices":[],"usage":' + usage + b"}\n\n"

    def trace(self, trace: dict[str, Any]) -> bytes:
        """The last chunk before [DONE]."""
        return self._head + b',"choices":[],"pdd":' + orjson.dumps(trace) + b"}\n\n"


def usage_body(prompt_tokens: int, output_tokens: int, cached_tokens: int, *, details: bool = True) -> dict[str, Any]:
    """Merged over all engines: the prompt once, the ledger's tokens, P's cache hit."""
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }
    if details:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return usage


def completion_body(
    ask: Ask, request_id: str, created_s: int, text: str, finish: str, ledger: Ledger, record: Record,
    trace: dict[str, Any] | None,
) -> bytes:  # fmt: skip
    """The whole answer without streaming."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
    if ask.chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    if ask.return_token_ids:
        choice["token_ids"] = ledger.ids
        choice["prompt_token_ids"] = ask.prompt.tolist()
    body: dict[str, Any] = {
        "id": request_id,
        "object": "chat.completion" if ask.chat else "text_completion",
        "created": created_s,
        "model": ask.model,
        "choices": [choice],
        "usage": usage_body(len(ask.prompt), len(ledger), record.cached_tokens),
    }
    if trace is not None:
        body["pdd"] = trace
    return orjson.dumps(body)


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> bytes:
    """OpenAI's error shape."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(status: int, message: str, code: str) -> bytes:
    """An error after the stream has begun."""
    return b"data: " + error_body(status, message, code=code) + b"\n\n"


def trace_body(request_id: str, prompt_tokens: int, ledger: Ledger, record: Record) -> dict[str, Any]:
    """TRACE: who made what when. Milliseconds since arrival."""
    plan, handoff = record.plan, record.handoff
    gaps = sorted(record.gaps_s)
    return {
        "request_id": request_id,
        "pipeline": record.pipeline.value if record.pipeline else None,
        "reason": record.reason.value if record.reason else None,
        "prompt_tokens": prompt_tokens,
        "output_tokens": len(ledger),
        "token_ids": ledger.ids,
        "producers": ledger.counts(),
        "runs": [[producer.value, count] for producer, count in ledger.runs],
        "engines": record.engines,
        "timings_ms": {
            "first_token": _ms(record, record.first_token_s),
            "second_token": _ms(record, record.second_token_s),
            "landed": _ms(record, record.landed_s),
            "handoff_start": _ms(record, record.handoff_start_s),
            "handoff_end": _ms(record, record.handoff_end_s),
            "total": _ms(record, record.ended_s),
        },
        "handoff": None
        if handoff is None or record.handoff_end_s is None
        else {
            "mode": handoff.mode,
            "rounds": handoff.rounds,
            "tokens": handoff.tokens,
            "payload_bytes": handoff.payload_bytes,
            "stall_ms": None if handoff.stall_s is None else round(handoff.stall_s * 1000, 3),
        },
        "kv": {
            "prompt_bytes": plan.prompt_bytes if plan else None,
            "missing_bytes": plan.missing_bytes if plan else None,
            "missing_tokens": plan.missing_tokens if plan else None,
            "md_cached_tokens": record.main_cached_tokens,
            "remote_bytes": record.remote_bytes,
        },
        "itl_ms": {
            "p50": _percentile_ms(gaps, 0.50),
            "p99": _percentile_ms(gaps, 0.99),
            "max": _percentile_ms(gaps, 1.0),
        },
        "retries": record.retries,
    }


def _ms(record: Record, at_s: float | None) -> float | None:
    return None if at_s is None else round((at_s - record.arrived_s) * 1000, 3)


def _percentile_ms(ordered: list[float], share: float) -> float | None:
    """Nearest rank: the smallest gap that at least `share` of the gaps do not exceed."""
    if not ordered:
        return None
    rank = max(0, -int(-share * len(ordered) // 1) - 1)
    return round(ordered[min(rank, len(ordered) - 1)] * 1000, 3)
