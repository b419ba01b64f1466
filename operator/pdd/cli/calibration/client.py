"""Requests of a calibration: one-token calls timed as a whole, streams timed by their events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import httpx

from pdd.cli.chat import COMPLETIONS, error_message
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import EngineError, TimedOut, Unreachable

TIMEOUT_S = 120.0
"""Longest wait for an answer, or for the next piece of one."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says of itself; 0 where it says nothing. most_tokens: longest prompt and answer together."""

    model: str
    owned_by: str
    most_tokens: int
    block_tokens: int
    kv_capacity_tokens: int
    kv_bytes_per_token: float


@dataclass(frozen=True, slots=True)
class OneToken:
    """A call for one token: wall seconds, and the prompt tokens that the engine had cached (None: it does not say)."""

    seconds: float
    cached: int | None


@dataclass(frozen=True, slots=True)
class Stream:
    """When the tokens of a stream came, in seconds of the client's clock; tokens of one event share a time."""

    at_s: tuple[float, ...]


class EngineClient:
    """One engine's HTTP API. Use as an async context manager. Every call has a time limit and raises Unreachable,
    TimedOut or EngineError."""

    def __init__(self, url: str, *, clock: Clock = monotonic_s) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
        timeout = httpx.Timeout(TIMEOUT_S, connect=5.0)
        self._http = httpx.AsyncClient(base_url=self.url, timeout=timeout, limits=limits, trust_env=False)
        self.model = ""

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def describe(self) -> EngineInfo:
        """From /v1/models and, where they are, /pdd/state and vLLM's cache metric."""
        models = (await self._get("/v1/models")).json()
        try:
            entry = models["data"][0]
            self.model = str(entry["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{self.url}/v1/models names no model") from error
        extra = entry.get("pdd") or {}
        block = int(extra.get("block_size") or 0)
        capacity = 0
        metrics = await self._metrics()
        config = re.search(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE)
        if config:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', config[1]))
            block = block or _integer(labels.get("block_size"))
            capacity = block * _integer(labels.get("num_gpu_blocks"))
        return EngineInfo(
            model=self.model,
            owned_by=str(entry.get("owned_by") or ""),
            most_tokens=int(entry.get("max_model_len") or 0),
            block_tokens=block,
            kv_capacity_tokens=capacity,
            kv_bytes_per_token=float(extra.get("bytes_per_token") or 0),
        )

    async def one_token(self, prompt: list[int]) -> OneToken:
        """A call as the router makes it to P: not streamed, one token."""
        hits = await self._hits()
        began_s = self._clock()
        answer = await self._post(self._body(prompt, 1))
        seconds = self._clock() - began_s
        details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        if cached is None and hits is not None:
            after = await self._hits()
            cached = None if after is None else int(after - hits)
        return OneToken(seconds, cached)

    async def stream(self, prompt: list[int], tokens: int) -> Stream:
        """A stream of exactly `tokens` tokens. The events are parsed after the last has come."""
        pieces: list[tuple[float, bytes]] = []
        body = {**self._body(prompt, tokens), "stream": True, "return_token_ids": True}
        try:
            async with self._http.stream("POST", COMPLETIONS, json=body) as answer:
                if answer.status_code != 200:
                    raise EngineError(
                        error_message(await answer.aread(), answer.status_code), status=answer.status_code
                    )
                pieces.extend([(self._clock(), data) async for data in answer.aiter_raw()])
        except httpx.TimeoutException as error:
            raise TimedOut(f"{self.url}: nothing came for {TIMEOUT_S:g} s") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url}: {error or type(error).__name__}") from error
        return Stream(token_times(pieces))

    def _body(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        return {
            "model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "stream": False,
        }  # fmt: skip

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._http.post(COMPLETIONS, json=body)
        except httpx.TimeoutException as error:
            raise TimedOut(f"{self.url}: no answer within {TIMEOUT_S:g} s") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url}: {error or type(error).__name__}") from error
        if answer.status_code != 200:
            raise EngineError(error_message(answer.content, answer.status_code), status=answer.status_code)
        document = answer.json()
        if not isinstance(document, dict):
            raise EngineError(f"{self.url}: the answer is no JSON object")
        return document

    async def _get(self, path: str) -> httpx.Response:
        try:
            answer = await self._http.get(path)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url}{path}: {error or type(error).__name__}") from error
        return answer

    async def _metrics(self) -> str:
        try:
            return (await self._get("/metrics")).text
        except Unreachable:
            return ""

    async def _hits(self) -> float | None:
        found = re.search(r"^vllm:prefix_cache_hits_total(?:\{.*\})? (\S+)$", await self._metrics(), re.MULTILINE)
        return float(found[1]) if found else None


def token_times(pieces: list[tuple[float, bytes]]) -> tuple[float, ...]:
    """One time for each token of an event stream that was read as `pieces` of (time, bytes).

    An event's tokens have the time of the piece that brought its end. Raises EngineError if the stream names no tokens.
    """
    times: list[float] = []
    left = b""
    for at_s, data in pieces:
        *events, left = (left + data.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data:").strip()
            if not payload.startswith(b"{"):
                continue
            document = json.loads(payload)
            if "error" in document:
                raise EngineError(str(document["error"]))
            for choice in document.get("choices") or ():
                ids = choice.get("token_ids")
                times += [at_s] * (len(ids) if ids is not None else bool(choice.get("text")))
    if len(times) < 2:
        raise EngineError("the stream brought fewer than two tokens")
    return tuple(times)


def _integer(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
