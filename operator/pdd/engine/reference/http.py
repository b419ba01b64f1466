"""The engine's HTTP: vLLM's routes as far as PDD uses them, and /pdd/state."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from pdd.common import tasks
from pdd.common.errors import InvalidInput, Overloaded
from pdd.common.show import shown
from pdd.engine.reference import asgi, model_info
from pdd.engine.reference.asgi import Disconnected, Receive, Scope, Send
from pdd.engine.reference.flags import Settings
from pdd.engine.reference.kv_client import Puller
from pdd.engine.reference.kv_server import KVServer
from pdd.engine.reference.metrics import Gauges, render_metrics
from pdd.engine.reference.parse import BadRequest, Bounds, Completion, check_ids, check_model, parse_completion
from pdd.engine.reference.replies import (
    Head,
    Identity,
    chunk_body,
    completion_body,
    error_body,
    final_usage_body,
    transfer_params,
)
from pdd.engine.reference.runner import EngineThread
from pdd.engine.reference.sequence import Output, Request
from pdd.engine.tokenizer import ByteTokenizer

_log = logging.getLogger("pdd.engine.http")
_MAX_BODY_BYTES = 16 << 20
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the app stands on."""

    settings: Settings
    identity: Identity
    bounds: Bounds
    engine: EngineThread
    puller: Puller
    kv_server: KVServer


class App:
    """A bare ASGI application. `draining` makes it refuse new work with 503."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tokenizer = ByteTokenizer()
        self._started = int(time.time())
        self.draining = False
        self.sessions = 0
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/completions"): self._completions,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/pdd/state"): self._state,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        route = (scope["method"], scope["path"])
        handler = self._routes.get(route)
        try:
            if handler is not None:
                await handler(scope, receive, send)
            elif any(path == route[1] for _, path in self._routes):
                await self._refuse(send, 405, f"{route[0]} is not allowed on {route[1]}")
            else:
                known = ", ".join(path for _, path in self._routes)
                await self._refuse(send, 404, f"{route[1]}: no such route; have {known}")
        except BadRequest as error:
            await self._refuse(send, error.status, error.message, param=error.param, code=error.code)
        except InvalidInput as error:
            await self._refuse(send, 400, error.message, param=error.field)
        except Overloaded as error:
            retry = [(b"retry-after", str(max(1, round(error.retry_after_s))).encode())]
            await asgi.send_json(send, 429, error_body(429, error.message), retry)
        except asgi.BodyTooLarge as error:
            await self._refuse(send, 413, str(error))
        except TimeoutError:
            await self._refuse(send, 408, "the body did not arrive in time")
        except Disconnected:
            _log.debug("client went away")

    async def _refuse(
        self, send: Send, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        headers = [(b"retry-after", b"1")] if status == 503 else []
        await asgi.send_json(send, status, error_body(status, message, param=param, code=code), headers)

    # -- completions --------------------------------------------------------------------------------------------------

    async def _completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        completion = parse_completion(await _read_json(receive), self._parts.bounds, self._tokenizer)
        if self.draining or not self._parts.engine.alive:
            await self._refuse(send, 503, "the engine is shutting down; ask another")
            return
        request = self._build_request(scope, completion)
        head = Head(request.request_id, int(time.time()), completion)
        news: asyncio.Queue[Output | None] = asyncio.Queue()
        self._submit(request, news)
        self.sessions += 1
        hang_up = tasks.spawn(_watch(receive, news), name=f"hang-up-{request.request_id}")
        finished = False
        try:
            if completion.stream:
                finished = await self._stream(head, news, send)
            else:
                finished = await self._answer(head, news, send, hang_up)
        finally:
            hang_up.cancel()
            self.sessions -= 1
            if not finished:
                self._parts.engine.abort(request.request_id)

    def _submit(self, request: Request, news: asyncio.Queue[Output | None]) -> None:
        if request.remote is not None:
            self._parts.puller.expect(request.request_id, request.remote)
        try:
            self._parts.engine.submit(request, news.put_nowait)
        except Overloaded:
            if request.remote is not None:
                self._parts.puller.release(request.request_id, request.remote)
            raise

    def _build_request(self, scope: Scope, completion: Completion) -> Request:
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), "")
        stem = "".join(c for c in given[:64] if c in _ID_CHARACTERS) or secrets.token_hex(8)
        sampling = completion.sampling
        if not completion.seeded:
            sampling = replace(sampling, seed=secrets.randbits(63))
        return Request(
            request_id=f"cmpl-{stem}-{secrets.token_hex(4)}",
            prompt=completion.prompt,
            max_tokens=completion.max_tokens,
            sampling=sampling,
            stop_token_ids=completion.stop_token_ids,
            ignore_eos=completion.ignore_eos,
            export=completion.export,
            remote=completion.remote,
        )

    async def _answer(
        self, head: Head, news: asyncio.Queue[Output | None], send: Send, hang_up: asyncio.Task[None]
    ) -> bool:
        """One JSON body at the end. Returns whether the engine is done with the request: not if it has granted a lease
        and the asker has left without the handle."""
        tokens: list[int] = []
        while True:
            output = await news.get()
            if output is None:
                return False
            if output.error is not None:
                await self._refuse(send, 500, output.error)
                return True
            tokens.extend(output.tokens)
            if output.finish_reason is not None:
                lease = output.lease
                if lease is not None and hang_up.done():
                    return False
                transfer = transfer_params(self._parts.identity, lease) if lease is not None else None
                text = self._tokenizer.decode(tokens)
                reason = output.finish_reason
                await asgi.send_json(send, 200, completion_body(head, text, tokens, reason, output.usage, transfer))
                return True

    async def _stream(self, head: Head, news: asyncio.Queue[Output | None], send: Send) -> bool:
        """Events as tokens come. An error before the first token is still a plain 500."""
        detokenizer = self._tokenizer.detokenizer()
        count = 0
        started = False
        while True:
            output = await news.get()
            if output is None:
                return False
            if output.error is not None and not started:
                await self._refuse(send, 500, output.error)
                return True
            if not started:
                await asgi.start_events(send, [])
                started = True
            if output.error is not None:
                await asgi.send_event(send, error_body(500, output.error))
                await asgi.end_events(send)
                return True
            count += len(output.tokens)
            text = detokenizer.feed(output.tokens)
            reason = output.finish_reason
            if reason is not None:
                text += detokenizer.flush()
            await asgi.send_event(send, chunk_body(head, text, list(output.tokens), reason, count, output.usage))
            if reason is not None:
                if head.completion.include_usage:
                    await asgi.send_event(send, final_usage_body(head, count, output.usage))
                await asgi.end_events(send)
                return True

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._parts.settings
        entries = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "pdd",
                "root": name,
                "parent": None,
                "max_model_len": settings.max_model_len,
                "pdd": model_info(settings.block_size),
            }
            for name in settings.served_model_names
        ]
        await asgi.send_json(send, 200, {"object": "list", "data": entries})

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._parts.engine.alive:
            await self._refuse(send, 503, "the engine's thread has died; restart the process")
        elif self.draining:
            await self._refuse(send, 503, "draining")
        else:
            await asgi.send_bytes(send, 200, b"", [(b"x-pdd-engine-id", self._parts.identity.engine_id.encode())])

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        core = self._parts.engine.core
        page = render_metrics(self._parts.settings.served_model_names[0], core.counters, self._gauges())
        kind = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        await asgi.send_bytes(send, 200, page.encode(), kind)

    def _gauges(self) -> Gauges:
        engine, core = self._parts.engine, self._parts.engine.core
        total = core.blocks.num_blocks
        return Gauges(
            running=core.running,
            waiting=engine.queued,
            deferred=core.deferred,
            loading=core.loading,
            holding=max(0, self._parts.puller.sessions - core.loading),
            used_share=1 - core.blocks.free_blocks / total,
            free_blocks=core.blocks.free_blocks,
            total_blocks=total,
            block_size=core.blocks.block_size,
            served_bytes=self._parts.kv_server.totals.bytes,
            leases=core.leases.counts(),
        )

    async def _state(self, scope: Scope, receive: Receive, send: Send) -> None:
        gauges = self._gauges()
        body = {
            "role": self._parts.settings.role,
            "engine_id": self._parts.identity.engine_id,
            "draining": self.draining,
            "running": gauges.running,
            "waiting": gauges.waiting,
            "loading": gauges.loading,
            "free_blocks": gauges.free_blocks,
            "total_blocks": gauges.total_blocks,
            "cached_blocks": self._parts.engine.core.blocks.cached_blocks,
            "leases": gauges.leases.held,
            "sessions": self.sessions,
            "kv_sessions": self._parts.puller.sessions,
            "kv_port": self._parts.identity.kv_port,
        }
        await asgi.send_json(send, 200, body)

    async def _tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_json(receive)
        if not isinstance(body, dict):
            raise BadRequest(None, "the body must be a JSON object")
        check_model(body, self._parts.settings.served_model_names)
        messages = body.get("messages")
        if messages is not None:
            if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
                raise BadRequest("messages", "messages: must be a list of objects")
            prompted = body.get("add_generation_prompt", True) is not False
            tokens = self._tokenizer.apply_chat_template(messages, add_generation_prompt=prompted)
        elif isinstance(body.get("prompt"), str):
            tokens = self._tokenizer.encode(body["prompt"])
        else:
            raise BadRequest("prompt", f"prompt: {shown(body.get('prompt'))}: must be a string (or give messages)")
        reply: dict[str, Any] = {
            "tokens": tokens,
            "count": len(tokens),
            "max_model_len": self._parts.settings.max_model_len,
        }
        await asgi.send_json(send, 200, reply)

    async def _detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_json(receive)
        if not isinstance(body, dict) or not isinstance(body.get("tokens"), list):
            raise BadRequest("tokens", "tokens: must be a list of token ids")
        check_model(body, self._parts.settings.served_model_names)
        ids = check_ids("tokens", body["tokens"], self._tokenizer.vocab_size)
        await asgi.send_json(send, 200, {"prompt": self._tokenizer.decode(ids)})


async def _watch(receive: Receive, news: asyncio.Queue[Output | None]) -> None:
    await asgi.wait_for_disconnect(receive)
    news.put_nowait(None)


async def _read_json(receive: Receive) -> object:
    raw = await asgi.read_body(receive, _MAX_BODY_BYTES)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(None, f"the body is not JSON: {error}") from error
