"""A streaming chat with PDD's trace: what came, when, and which engine made it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import EngineError, TimedOut, Unreachable

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
OnPiece = Callable[[str, str, int], None]
"""Called with (producer, text, tokens so far) for each piece that arrives."""


@dataclass(frozen=True, slots=True)
class ChatRun:
    """One finished request as its client saw it. `token_at_ms[i]`: arrival of token i, in ms since it was sent."""

    pipeline: str
    reason: str
    token_ids: tuple[int, ...]
    token_at_ms: tuple[float, ...]
    text: str
    finish_reason: str
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def ttft_ms(self) -> float:
        return self.token_at_ms[0]

    @property
    def second_token_ms(self) -> float | None:
        """From the first token to the second; None if there is only one."""
        return self.token_at_ms[1] - self.token_at_ms[0] if len(self.token_at_ms) > 1 else None


async def sse_documents(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """The JSON documents of a server-sent event stream, up to `[DONE]`. Raises EngineError if it breaks off before."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        payload = line[5:].strip()
        if payload == "[DONE]":
            return
        document = json.loads(payload)
        if "error" in document:
            raise EngineError(str(document["error"].get("message", document["error"])))
        yield document
    raise EngineError("the stream broke off before [DONE]")


async def stream_chat(
    base_url: str,
    body: dict[str, Any],
    *,
    override: str = "",
    path: str = CHAT,
    on_piece: OnPiece | None = None,
    timeout_s: float = 120.0,
    clock: Clock = monotonic_s,
) -> ChatRun:
    """POST `body` to the chat route (or to `path`, for completions) as a stream, with PDD's trace.

    `override` forces a pipeline (`P-MD`, `single`, ...). `timeout_s` bounds each wait for the next piece.
    Raises Unreachable, TimedOut, EngineError (with the router's message).
    """
    headers = {"x-pdd-trace": "1"}
    if override:
        headers["x-pdd-pipeline-override"] = override
    ids: list[int] = []
    at_ms: list[float] = []
    text: list[str] = []
    trace: dict[str, Any] = {}
    finish = ""
    started = clock()
    try:
        timeout = httpx.Timeout(timeout_s, connect=5.0)
        async with (
            # Without TLS no CA store is loaded: 50 ms of CPU that would count as the server's.
            httpx.AsyncClient(timeout=timeout, trust_env=False, verify=base_url.startswith("https:")) as client,
            client.stream("POST", f"{base_url}{path}", json={**body, "stream": True}, headers=headers) as answer,
        ):
            if answer.status_code != 200:
                raise EngineError(error_message(await answer.aread(), answer.status_code), status=answer.status_code)
            pipeline = answer.headers.get("x-pdd-pipeline", "")
            reason = answer.headers.get("x-pdd-reason", "")
            async for document in sse_documents(answer.aiter_lines()):
                now_ms = (clock() - started) * 1000
                part = document.get("pdd") or {}
                if not document.get("choices"):
                    trace = part or trace
                    continue
                choice = document["choices"][0]
                piece = (choice.get("delta") or {}).get("content") or choice.get("text") or ""
                finish = choice.get("finish_reason") or finish
                new = part.get("token_ids") or []
                ids += new
                at_ms += [now_ms] * len(new)
                text.append(piece)
                if on_piece is not None and (piece or new):
                    on_piece(str(part.get("producer", "")), piece, len(ids))
    except httpx.TimeoutException as error:
        raise TimedOut(f"{base_url}: nothing came for {timeout_s:g} s") from error
    except httpx.HTTPError as error:
        raise Unreachable(f"{base_url}: {error or type(error).__name__}") from error
    if not ids:
        raise EngineError(f"{base_url} answered without a single token")
    return ChatRun(pipeline, reason, tuple(ids), tuple(at_ms), "".join(text), finish, trace)


def error_message(body: bytes, status: int) -> str:
    """The message of an OpenAI-shaped error body, or the body's head."""
    try:
        return f"{status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}: {body[:200].decode(errors='replace')}"
