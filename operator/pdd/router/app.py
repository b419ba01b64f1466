"""The router's ASGI application: routes, admission, answers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable

import orjson

from pdd import __version__
from pdd.common.errors import InvalidInput, Overloaded
from pdd.common.show import shown
from pdd.common.tasks import spawn
from pdd.policy.pipeline import Pipeline
from pdd.router.admission import Admission
from pdd.router.asgi import Disconnected, Headers, Message, Receive, Scope, Send, header, read_body, send_all, wait_gone
from pdd.router.conduct import Conductor
from pdd.router.discovery import Discovery
from pdd.router.events import Deliver, Fail, Failure, Finish, Role
from pdd.router.internal import Internal
from pdd.router.openai import Ask, BadRequest, parse_ask, parse_body
from pdd.router.render import DONE, StreamRenderer, completion_body, error_body, error_event, trace_body
from pdd.router.services import Services

_log = logging.getLogger("pdd.router.access")
_OVERRIDES = {
    "P-MD": Pipeline.P_MD, "P-RLD-MD": Pipeline.P_RLD_MD, "P-RLD": Pipeline.P_RLD, "single": Pipeline.SINGLE
}  # fmt: skip
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_MODEL_PREFIX = "/v1/models/"
Handler = Callable[[Scope, Receive, Send, str], Awaitable[None]]


class _Started:
    """Send, and know whether an answer has begun."""

    __slots__ = ("_send", "begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


class App:
    """A bare ASGI application."""

    def __init__(self, services: Services) -> None:
        self._services = services
        limits = services.config.limits
        self._admission = Admission(limits.max_concurrent, limits.max_queued)
        self._discovery = Discovery(services)
        self._internal = Internal(services, self._discovery, self._admission)
        self._created_s = int(time.time())
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._chat,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/ready"): self._ready,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/version"): self._version,
            ("GET", "/internal/load"): self._internal.load,
            ("GET", "/internal/workload"): self._internal.workload,
            ("PUT", "/internal/drain"): self._internal.drain,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        given = header(scope, b"x-request-id")[:128]
        request_id = "".join(c for c in given if c in _ID_CHARACTERS) or f"pdd-{secrets.token_hex(8)}"
        send = started = _Started(send)
        try:
            await self._find(scope)(scope, receive, send, request_id)
        except BadRequest as error:
            self._services.metrics.refused.labels("BadRequest").inc()
            body = error_body(error.status, error.message, param=error.param, code=error.code)
            await send_all(send, error.status, body, [(b"x-request-id", request_id.encode())])
        except InvalidInput as error:
            self._services.metrics.refused.labels("BadRequest").inc()
            await send_all(
                send, 400, error_body(400, error.message, param=error.field), [(b"x-request-id", request_id.encode())]
            )
        except Overloaded as error:
            self._services.metrics.refused.labels(error.reason).inc()
            self._services.seen.add_refused(self._services.clock())
            headers = [
                (b"x-request-id", request_id.encode()),
                (b"retry-after", b"%d" % max(1, round(error.retry_after_s))),
            ]
            await send_all(send, 429, error_body(429, error.message, code=error.reason), headers)
        except Disconnected:
            pass
        except Exception:
            _log.exception("a request failed by a fault of the router", extra={"fields": {"request_id": request_id}})
            if started.begun:
                raise  # uvicorn breaks the connection off: the client must not take what it has for the whole
            message = f"a fault of the router; its log has the details under {request_id}"
            body = error_body(500, message, code="InternalError")
            await send_all(send, 500, body, [(b"x-request-id", request_id.encode())])

    def _find(self, scope: Scope) -> Handler:
        """The handler of a route. HEAD is GET whose body the server drops. Raises BadRequest (404, 405)."""
        method, path = scope["method"], scope["path"]
        handler = self._routes.get(("GET" if method == "HEAD" else method, path))
        if handler is not None:
            return handler
        if path.startswith(_MODEL_PREFIX) and method in ("GET", "HEAD"):
            return self._model
        if any(known == path for _, known in self._routes):
            raise BadRequest(None, f"{method} is not allowed on {path}", status=405)
        known_paths = ", ".join(path for _, path in self._routes if not path.startswith("/internal"))
        raise BadRequest(None, f"{path[:200]}: no such route; have {known_paths}", status=404)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._discovery.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._discovery.stop()
                self._services.client.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ---- completions ----------------------------------------------------------------------------------------------

    async def _completions(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        await self._serve(scope, receive, send, request_id, chat=False)

    async def _chat(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        await self._serve(scope, receive, send, request_id, chat=True)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str, *, chat: bool) -> None:
        services = self._services
        raw = await read_body(receive, services.config.limits.max_body_bytes)
        ask = parse_ask(parse_body(raw), chat=chat, config=services.config, tokenizer=services.tokenizer, seeds=_seed)
        del raw
        override = self._override(scope)
        gone = spawn(wait_gone(receive), name=f"gone-{request_id}")
        try:
            if not self._admission.try_enter():
                await self._queue(gone)
            try:
                exchange = _Exchange(services, ask, request_id, trace=header(scope, b"x-pdd-trace") == "1")
                conductor = Conductor(services, ask, request_id, override)
                gone.add_done_callback(lambda _: conductor.hang_up())
                try:
                    conductor.start()
                    await exchange.answer(conductor, send)
                finally:
                    conductor.close()
                    exchange.log(conductor)
            finally:
                self._admission.leave()
        finally:
            gone.cancel()

    async def _queue(self, gone: asyncio.Task[None]) -> None:
        """Wait for a place, or for the client to leave. Raises Overloaded, Disconnected."""
        place = spawn(self._enter(), name="admission")
        await asyncio.wait({place, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not place.done():
            place.cancel()
            await asyncio.wait({place})
            raise Disconnected
        refusal = place.result()
        if refusal is not None:
            raise refusal
        if gone.done():
            self._admission.leave()
            raise Disconnected

    async def _enter(self) -> Overloaded | None:
        """Being refused is an answer, not a task's failure."""
        try:
            await self._admission.enter()
        except Overloaded as error:
            return error
        return None

    def _override(self, scope: Scope) -> Pipeline | None:
        wanted = header(scope, b"x-pdd-pipeline-override")
        if not wanted:
            return None
        if not self._services.config.allow_overrides:
            raise BadRequest(
                "x-pdd-pipeline-override",
                "x-pdd-pipeline-override: not allowed here: the router runs without allowOverrides",
            )
        if wanted not in _OVERRIDES:
            known = ", ".join(_OVERRIDES)
            raise BadRequest(
                "x-pdd-pipeline-override", f"x-pdd-pipeline-override: {wanted[:40]!r}: must be one of {known}"
            )
        return _OVERRIDES[wanted]

    # ---- the rest -------------------------------------------------------------------------------------------------

    async def _models(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        entries = [self._model_entry(name) for name in self._services.config.served_model_names]
        body = orjson.dumps({"object": "list", "data": entries})
        await send_all(send, 200, body, [(b"x-request-id", request_id.encode())])

    async def _model(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        name = scope["path"].removeprefix(_MODEL_PREFIX)
        known = self._services.config.served_model_names
        if name not in known:
            message = f"model: {shown(name)}: not served here; have {', '.join(known)}"
            raise BadRequest("model", message, status=404, code="model_not_found")
        body = orjson.dumps(self._model_entry(name))
        await send_all(send, 200, body, [(b"x-request-id", request_id.encode())])

    def _model_entry(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "pdd",
            "max_model_len": self._services.config.max_context_tokens,
        }

    async def _health(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        await send_all(send, 200, b'{"status":"ok"}')

    async def _ready(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        """200 once a request could be answered: one engine that prefills, and one that decodes."""
        now_s = self._services.clock()
        missing = [
            "/".join(role.value for role in stage)
            for stage in ((Role.PREFILL,), (Role.RELAY, Role.MAIN))
            if not any(
                engine.ready(now_s) and engine.known_good
                for role in stage
                for engine in self._services.fleet.engines[role].values()
            )
        ]
        if missing:
            message = f"no engine is ready for: {', '.join(missing)}"
            await send_all(send, 503, error_body(503, message, code="NotReady"), [(b"retry-after", b"1")])
            return
        local = self._services.planner.mode.local
        await send_all(send, 200, orjson.dumps({"status": "ready", "mode": "local" if local else "normal"}))

    async def _metrics(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        services = self._services
        services.metrics.in_flight.set(self._admission.in_flight)
        services.metrics.queued.set(self._admission.queued)
        page = services.metrics.render(services.fleet, services.clock(), local=services.planner.mode.local)
        await send_all(send, 200, page, kind=b"text/plain; version=0.0.4; charset=utf-8")

    async def _version(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        await send_all(send, 200, orjson.dumps({"version": __version__}))


class _Exchange:
    """One answer to one client: headers, chunks or body, the log line."""

    def __init__(self, services: Services, ask: Ask, request_id: str, *, trace: bool) -> None:
        self._services = services
        self._ask = ask
        self._id = request_id
        self._trace = trace
        self._created_s = int(time.time())
        self._outcome = "ClientGone"

    async def answer(self, conductor: Conductor, send: Send) -> None:
        """Until all is sent, or the client has left."""
        if self._ask.stream:
            await self._stream(conductor, send)
        else:
            await self._whole(conductor, send)

    async def _stream(self, conductor: Conductor, send: Send) -> None:
        renderer = StreamRenderer(self._ask, self._id, self._created_s, trace=self._trace)
        started = False
        count = 0
        while True:
            out: list[bytes] = []
            last: Finish | Fail | None = None
            for piece in [await conductor.next_piece(), *conductor.ready_pieces()]:
                if isinstance(piece, Deliver):
                    count += len(piece.ids)
                    out.append(renderer.chunk(piece.producer, piece.ids, piece.text, None, count))
                else:
                    last = piece
                    break
            if isinstance(last, Fail) and not started and not out:
                await self._fail(conductor, last.failure, send)
                return
            if not started:
                headers = [*_SSE_HEADERS, *self._headers(conductor)]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            if last is not None:
                out += await self._ending(conductor, renderer, last, count)
            await send({"type": "http.response.body", "body": b"".join(out), "more_body": last is None})
            if last is not None:
                return

    async def _ending(
        self, conductor: Conductor, renderer: StreamRenderer, last: Finish | Fail, count: int
    ) -> list[bytes]:
        """The last events of a stream: finish reason or error, usage, trace, [DONE]."""
        machine = conductor.machine
        out: list[bytes] = []
        if isinstance(last, Fail):
            self._outcome = last.failure.reason
            if last.failure.reason == "ClientGone":
                return out
            out.append(error_event(last.failure.status or 502, last.failure.message, last.failure.reason))
        else:
            self._outcome = last.reason
            out.append(renderer.chunk(None, (), last.text, last.reason, count))
            if self._ask.include_usage:
                out.append(renderer.usage(count, machine.record.cached_tokens))
        if self._trace:
            await conductor.settle()
            out.append(renderer.trace(trace_body(self._id, len(self._ask.prompt), machine.ledger, machine.record)))
        out.append(DONE)
        return out

    async def _whole(self, conductor: Conductor, send: Send) -> None:
        parts: list[str] = []
        while True:
            piece = await conductor.next_piece()
            if isinstance(piece, Deliver):
                parts.append(piece.text)
            elif isinstance(piece, Fail):
                await self._fail(conductor, piece.failure, send)
                return
            else:
                break
        self._outcome = piece.reason
        parts.append(piece.text)
        machine = conductor.machine
        trace = None
        if self._trace:
            await conductor.settle()
            trace = trace_body(self._id, len(self._ask.prompt), machine.ledger, machine.record)
        body = completion_body(
            self._ask, self._id, self._created_s, "".join(parts), piece.reason, machine.ledger, machine.record, trace
        )
        await send_all(send, 200, body, self._headers(conductor))

    async def _fail(self, conductor: Conductor, failure: Failure, send: Send) -> None:
        self._outcome = failure.reason
        if failure.reason == "ClientGone":
            return
        status = failure.status or 502
        headers = [*self._headers(conductor)]
        if status in (429, 502, 503):
            headers.append((b"retry-after", b"2"))
        if status == 429:
            self._services.relay.refused_total += 1
        await send_all(send, status, error_body(status, failure.message, code=failure.reason), headers)

    def _headers(self, conductor: Conductor) -> Headers:
        headers = [(b"x-request-id", self._id.encode())]
        if conductor.announced is not None:
            headers.append((b"x-pdd-pipeline", conductor.announced.pipeline.value.encode()))
            headers.append((b"x-pdd-reason", conductor.announced.reason.value.encode()))
        return headers

    def log(self, conductor: Conductor) -> None:
        """Metrics and one line a request."""
        machine = conductor.machine
        record, ledger = machine.record, machine.ledger
        self._services.metrics.observe(record, ledger, self._outcome, len(self._ask.prompt))
        if len(ledger):
            prompt_tokens, output_tokens = len(self._ask.prompt), len(ledger)
            self._services.seen.add(record.arrived_s, prompt_tokens, record.cached_tokens, output_tokens)
        if not _log.isEnabledFor(logging.INFO):
            return
        plan, handoff = record.plan, record.handoff
        first_s = record.first_token_s
        fields: dict[str, object] = {
            "request_id": self._id,
            "outcome": self._outcome,
            "pipeline": record.pipeline.value if record.pipeline else None,
            "reason": record.reason.value if record.reason else None,
            "prompt_tokens": len(self._ask.prompt),
            "output_tokens": len(ledger),
            "producers": ledger.counts(),
            "ttft_ms": None if first_s is None else round((first_s - record.arrived_s) * 1000, 1),
            "total_ms": round(((record.ended_s or record.arrived_s) - record.arrived_s) * 1000, 1),
            "missing_bytes": plan.missing_bytes if plan else None,
            "wait_ms": round(plan.wait_s * 1000, 1) if plan else None,
            "handoff": None if handoff is None else handoff.mode,
            "stall_ms": None if handoff is None or handoff.stall_s is None else round(handoff.stall_s * 1000, 1),
            "engines": record.engines,
        }
        if record.retries:
            fields["retries"] = [f"{r['role']} {r['engine']}: {r['reason']}" for r in record.retries[:8]]
        _log.info("request", extra={"fields": fields})


def _seed() -> int:
    return secrets.randbits(63)
