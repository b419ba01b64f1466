"""The shell around the request machine: does its commands (calls, cancels, timers) and feeds it what comes of them.

One Conductor a request, one task a call. Machine and outbox are touched on the event loop only, without awaits between
an event and its commands, so there are no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import orjson

from pdd.common.errors import PDDError, TimedOut, Unreachable
from pdd.common.tasks import spawn
from pdd.engine.adapters import EngineCall, EventSplitter
from pdd.policy.kv import compute_missing
from pdd.policy.pipeline import Pipeline
from pdd.router.client import Reply
from pdd.router.events import (
    KV,
    Announce,
    Begin,
    CancelCall,
    ClientGone,
    Decide,
    Decided,
    Deliver,
    Done,
    Event,
    Expired,
    Fail,
    Failed,
    Failure,
    Finish,
    Kind,
    Learn,
    Observe,
    Release,
    Role,
    StartCall,
    Started,
    Tokens,
    WakeAfter,
    Woken,
)
from pdd.router.fleet import Engine
from pdd.router.machine import Machine
from pdd.router.openai import Ask
from pdd.router.prefix import NOTHING_EXPECTED, BlockChain, Expectation
from pdd.router.services import HANDLES, Run, Services
from pdd.router.state import Task
from pdd.router.text import TextAssembler

OUTBOX_HIGH = 512
"""Pieces that may wait for a slow client before its engine's stream is no longer read."""
_TAIL_TIMEOUT_S = 2.0
_PREFILL_ONLY = {"temperature": 0.0, "ignore_eos": True}
"""Sampling of a P call whose token is dropped: it must not end by EOS, or P exports nothing."""
_READERS = {Kind.RESUME: Role.RELAY, Kind.HANDLE: Role.MAIN}
"""Who comes for the KV of a P call that is made for one reader."""
Outgoing = Deliver | Finish | Fail


class Conductor:
    """One request. `start`, then take from `next_piece` until Finish or Fail; `close` in any case."""

    def __init__(self, services: Services, ask: Ask, request_id: str, override: Pipeline | None = None) -> None:
        config = services.config
        self._services = services
        self._ask = ask
        self._headers = b"X-Request-Id: " + request_id.encode("latin-1") + b"\r\n"
        task = Task(
            max_tokens=ask.max_tokens,
            min_tokens=ask.min_tokens,
            stop_ids=ask.stop_ids,
            pinned=ask.pinned,
            resumable=ask.resumable,
            clamps_remote_kv=config.capabilities.clamps_remote_kv,
            overlap=config.capabilities.greedy_portable,
            handoff_mode=config.handoff_mode,
            one_shot_limit_tokens=config.one_shot_limit_tokens,
            override=override,
        )
        text = TextAssembler(services.tokenizer.detokenizer(), ask.stops, include_stop=ask.include_stop)
        self.machine = Machine(task, text)
        self.announced: Announce | None = None
        self._prompt_json = orjson.dumps(ask.prompt.tolist())[1:-1]
        self._chain = BlockChain(config.kv.block_size, ask.prompt)
        self._prompt_hashes = tuple(self._chain.hashes)
        self._chained = 0
        self._outbox: deque[Outgoing] = deque()
        self._events: deque[Event] = deque()
        self._feeding = False
        self._runs: dict[int, Run] = {}
        self._expected: dict[int, Expectation] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._tail: asyncio.Task[None] | None = None

    # ---- for the app ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. Must run in the event loop."""
        self._after(float(self._services.config.limits.request_timeout_s), Expired())
        self.feed(Begin())

    async def next_piece(self) -> Outgoing:
        """The next thing for the client. Never hangs for ever: the request's deadline ends it."""
        while not self._outbox:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._outbox.popleft()
        if len(self._outbox) < OUTBOX_HIGH // 2:
            self._room.set()
        return piece

    def ready_pieces(self) -> list[Outgoing]:
        """What else is there already, without waiting."""
        pieces = list(self._outbox)
        self._outbox.clear()
        self._room.set()
        return pieces

    def hang_up(self) -> None:
        """The client is gone: every leg ends now, and whoever waits for a piece gets the failure `ClientGone`."""
        if not self.machine.over:
            self.feed(ClientGone())
            self._put(Fail(Failure("ClientGone", "the client closed the connection", 499, retryable=False)))

    async def settle(self) -> None:
        """Until the usage behind the last token has come, but not long: for the trace."""
        if self._tail is not None and not self._tail.done():
            await asyncio.wait({self._tail}, timeout=_TAIL_TIMEOUT_S)

    def close(self) -> None:
        """Nothing is left running, whatever happened. Idempotent."""
        self.hang_up()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._room.set()

    # ---- events in, commands out ----------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Give the machine an event and do what it says, and so on for the events that this makes."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                now_s = self._services.clock()
                for command in self.machine.handle(self._events.popleft(), now_s):
                    self._do(command, now_s)
        finally:
            self._feeding = False

    def _do(self, command: object, now_s: float) -> None:
        if isinstance(command, Deliver | Finish | Fail):
            self._put(command)
        elif isinstance(command, StartCall):
            self._start_call(command, now_s)
        elif isinstance(command, CancelCall):
            self._cancel(command.leg)
        elif isinstance(command, Release):
            self._release(command.kv, now_s)
        elif isinstance(command, Decide):
            self._decide(command, now_s)
        elif isinstance(command, Announce):
            self.announced = command
        elif isinstance(command, Learn):
            self._services.fleet.index.add(command.engine, self._hashes(command.output_tokens))
        elif isinstance(command, Observe):
            self._observe(command)
        elif isinstance(command, WakeAfter):
            self._after(command.delay_s, Woken(command.tag))

    def _put(self, piece: Outgoing) -> None:
        self._outbox.append(piece)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _decide(self, command: Decide, now_s: float) -> None:
        plan = self._services.planner.plan(
            len(self._ask.prompt) + command.output_tokens,
            self._hashes(command.output_tokens),
            command.max_tokens,
            now_s,
            pinned=self._ask.pinned,
            override=self.machine.task.override if command.output_tokens == 0 else None,
            avoid=command.avoid,
        )
        self._events.append(Decided(plan))

    def _observe(self, command: Observe) -> None:
        """Compare what the engine found with what the index expected when the call began."""
        services = self._services
        expected = self._expected.pop(command.leg, NOTHING_EXPECTED)
        found = command.local_cached_tokens // services.config.kv.block_size
        dropped = services.fleet.index.correct(command.engine, expected, found)
        if dropped:
            services.metrics.index_dropped.inc(dropped)

    def _expect(self, command: StartCall, engine: Engine) -> None:
        """An engine computes at least one token, so a full last block is never found: that is no eviction."""
        limit = (len(self._ask.prompt) + command.output_tokens - 1) // self._services.config.kv.block_size
        hashes = self._hashes(command.output_tokens)[:limit]
        self._expected[command.leg] = self._services.fleet.index.expect(engine.id, hashes)

    def _hashes(self, output_tokens: int) -> tuple[int, ...] | list[int]:
        """Block hashes of the prompt and the first `output_tokens` ids; the prompt's are computed once."""
        if output_tokens == 0:
            return self._prompt_hashes
        if output_tokens > self._chained:
            self._chain.extend(self.machine.ledger.ids[self._chained : output_tokens])
            self._chained = output_tokens
        full = (len(self._ask.prompt) + output_tokens) // self._services.config.kv.block_size
        return self._chain.hashes[:full]

    def _after(self, delay_s: float, event: Event) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            self.feed(event)

        timer = asyncio.get_running_loop().call_later(delay_s, fire)
        self._timers.add(timer)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _start_call(self, command: StartCall, now_s: float) -> None:
        engine = self._pick(command, now_s)
        if engine is None:
            role = _READERS.get(command.kind, command.role)
            message = f"no {role.value} engine is ready and free"
            self._events.append(Failed(command.leg, Failure("NoEngine", message, 503)))
            return
        services = self._services
        run = Run(command, engine, self, now_s)
        if command.role is Role.MAIN and command.kv is not None:
            known = services.fleet.index.match(engine.id, self._prompt_hashes)
            missing = compute_missing(services.config.kv, len(self._ask.prompt), known)
            run.queued_bytes = missing.bytes_
            services.fleet.queue.add(now_s, services.fleet.rate_bps(engine), missing.bytes_)
        elif command.role is Role.RELAY:
            services.relay.arrivals_total += 1
        if command.role is not Role.RELAY:
            self._expect(command, engine)
        self._runs[command.leg] = run
        self._events.append(Started(command.leg, engine.id, self._launch(run)))

    def _launch(self, run: Run) -> int:
        """Start the task of a call. Returns the size of its body."""
        services, command = self._services, run.command
        body = services.adapter.encode(self._encode(command))
        run.engine.sessions += 1
        services.runs.setdefault(run.engine, set()).add(run)
        services.metrics.calls.labels(command.role.value, command.kind.value).inc()
        run.task = spawn(self._run(run, body), name=f"{command.kind.value}-{command.leg}")
        return sum(map(len, body))

    def _pick(self, command: StartCall, now_s: float) -> Engine | None:
        fleet = self._services.fleet
        reader = _READERS.get(command.kind)
        if reader is not None and fleet.pick(reader, self._prompt_hashes, frozenset(), now_s) is None:
            return None  # P would hold KV, for the time of a lease, that nobody comes for
        if command.engine:
            engine = fleet.find(command.role, command.engine)
            if engine is not None and engine.ready(now_s):
                return engine
            if command.kv is None:
                return None  # only that one has the KV
        return fleet.pick(command.role, self._prompt_hashes, command.avoid, now_s)

    def _encode(self, command: StartCall) -> EngineCall:
        kind = command.kind
        dropped = kind in (Kind.HANDLE, Kind.LAND, Kind.EXTEND) or (kind is Kind.FIRST and self._ask.pinned)
        sampling: dict[str, Any] = _PREFILL_ONLY if dropped else dict(self._ask.sampling)
        return EngineCall(
            prompt=self._prompt_json,
            extra_ids=self.machine.ledger.ids[: command.output_tokens],
            max_tokens=command.max_tokens,
            stream=kind is Kind.DECODE,
            sampling=sampling,
            min_tokens=0 if dropped else min(command.max_tokens, self._ask.min_tokens - command.output_tokens),
            wants_handle=kind in HANDLES,
            handle=command.kv.handle if command.kv is not None else None,
        )

    async def _run(self, run: Run, body: tuple[bytes, ...]) -> None:
        event: Event | None = None
        try:
            event = await self._exchange(run, body)
        except PDDError as error:
            event = Failed(run.command.leg, self._judge(run, error))
        finally:
            self._close_run(run)
        if event is not None and not run.cancelled:
            self._runs.pop(run.command.leg, None)
            self.feed(event)
        elif isinstance(event, Done) and event.handle is not None:
            self._release(KV(event.handle, run.command.output_tokens), self._services.clock())

    async def _exchange(self, run: Run, body: tuple[bytes, ...]) -> Event | None:
        services, leg = self._services, run.command.leg
        limits = services.config.limits
        first_s = float(limits.first_token_timeout_s)
        reply = run.reply = await services.client.request(
            run.engine.target, "POST", services.adapter.path, body, headers=self._headers, timeout_s=first_s,
            after_send=run.note_sent,
        )  # fmt: skip
        if reply.status != 200:
            text = services.adapter.decode_error(reply.status, await reply.read_all(5.0))
            return Failed(leg, self._judge_status(run, reply.status, text))
        pulled = run.command.kv is not None
        if run.command.kind is Kind.DECODE:
            return await self._read_stream(run, reply, pulled, first_s)
        answer = services.adapter.decode_answer(await reply.read_all(first_s), pulled=pulled)
        services.fleet.succeeded(run.engine)
        return Done(leg, answer.ids, answer.finish_reason, answer.handle, answer.usage)

    async def _read_stream(self, run: Run, reply: Reply, pulled: bool, first_s: float) -> Event | None:
        services, leg = self._services, run.command.leg
        splitter = EventSplitter()
        timeout_s = first_s
        finished = False
        while data := await reply.read(timeout_s):
            for event in splitter.feed(data):
                chunk = services.adapter.decode_event(event, pulled=pulled)
                if chunk is None:
                    continue
                if chunk.finish_reason and not finished:
                    finished = True
                    self._tail = run.task
                    services.fleet.succeeded(run.engine)
                self.feed(Tokens(leg, chunk.ids, chunk.finish_reason, chunk.usage))
                if run.cancelled:
                    return None
            if finished:
                timeout_s = _TAIL_TIMEOUT_S
                continue
            timeout_s = float(services.config.limits.token_timeout_s)
            while len(self._outbox) >= OUTBOX_HIGH and not self.machine.over:
                self._room.clear()
                await self._room.wait()
        if finished:
            return None
        return Failed(
            leg, self._judge(run, Unreachable("the stream ended without finish_reason", reason="BrokenStream"))
        )

    def _judge(self, run: Run, error: PDDError) -> Failure:
        """A transport's failure: counted against the engine, retryable elsewhere."""
        if not run.cancelled:
            unreachable = isinstance(error, Unreachable) or error.reason in ("BrokenStream", "ConnectTimedOut")
            self._services.fleet.failed(run.engine, self._services.clock(), unreachable=unreachable)
        status = 504 if isinstance(error, TimedOut) else 502
        return Failure(error.reason, error.message, status)

    def _judge_status(self, run: Run, status: int, message: str) -> Failure:
        """An HTTP error. 4xx is the request's fault and the same everywhere, except time-outs and overload."""
        if status in (408, 429):
            return Failure("EngineOverloaded", message, 429)
        if 400 <= status < 500:
            return Failure("RefusedByEngine", message, status, retryable=False)
        self._services.fleet.failed(run.engine, self._services.clock(), unreachable=status == 503)
        return Failure("EngineError", f"{run.engine.id}: {message}", 502)

    def _close_run(self, run: Run) -> None:
        """The call is over: load counts, connection, queue. Once a run, whatever happened."""
        services, engine = self._services, run.engine
        now_s = services.clock()
        engine.sessions -= 1
        runs = services.runs.get(engine)
        if runs is not None:
            runs.discard(run)
            if not runs:
                del services.runs[engine]
        if run.queued_bytes:
            services.fleet.queue.remove(now_s, services.fleet.rate_bps(engine), run.queued_bytes)
        if run.command.role is Role.RELAY and run.command.leg >= 0:
            services.relay.holding_s_sum += now_s - run.started_s
            services.relay.holding_s_count += 1
        if run.reply is not None:
            if run.cancelled:
                run.reply.abort()
            else:
                run.reply.release()

    def _release(self, kv: KV, now_s: float) -> None:
        """Send the handle to a decode engine, RLD for choice, and hang up."""
        fleet = self._services.fleet
        for role in (Role.RELAY, Role.MAIN):
            ready = fleet.candidates(role, frozenset(), now_s)
            if ready:
                command = StartCall(-1, role, Kind.LAND, kv.covers, 1, kv, ready[0].id)
                run = Run(command, ready[0], self, now_s, cancelled=True)
                self._launch(run)
                return

    def _cancel(self, leg: int) -> None:
        run = self._runs.pop(leg, None)
        if run is None:
            return
        run.cancelled = True
        # An unread handle is sent all the same and then hung up on, and an answer of P that brings one is awaited if it
        # is near (the second call is a prefix hit; of the others it must have begun) and its handle given back: else P
        # would hold that KV until the lease ends.
        if run.command.kv is not None:
            owed = not run.sent
        else:
            owed = run.sent and (run.command.kind is Kind.HANDLE or (run.wants_handle and run.reply is not None))
        if not owed:
            if run.reply is not None:
                run.reply.abort()
            if run.task is not None and run.task is not asyncio.current_task():
                run.task.cancel()
        self._room.set()

    def lose(self, run: Run, failure: Failure) -> None:
        """The link says that this run's engine is lost: end the call now instead of waiting for its time-out."""
        leg = run.command.leg
        if self._runs.get(leg) is run:
            self._cancel(leg)
            self.feed(Failed(leg, failure))
