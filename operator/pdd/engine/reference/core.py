"""The engine without threads or sockets: requests in, one step of the model at a time, outputs out.

Every method is called on one thread. The clock is an argument. `LoadPort` is how the core asks for a remote engine's
KV; the answer comes back as `finish_load`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from pdd.common.clock import Clock
from pdd.engine.reference.counters import Counters
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.leases import LeaseTable
from pdd.engine.reference.model import Model, Segment
from pdd.engine.reference.numerics import Floats
from pdd.engine.reference.residency import Refusal, Residency
from pdd.engine.reference.sampling import choose
from pdd.engine.reference.sequence import (
    BlockRange,
    Lease,
    Output,
    RemoteHandle,
    Request,
    Sequence,
    Sink,
    Status,
    Usage,
)

_log = logging.getLogger("pdd.engine.core")
SHORT_TOKENS = 64
"""A request that has no more than this to compute goes before longer ones: it costs hardly more than a decode step."""
_UNBOUNDED_TOKENS = 1 << 62


class LoadPort(Protocol):
    """Reads remote KV into local blocks. Calls return at once."""

    def start(self, request_id: str, handle: RemoteHandle, ranges: tuple[BlockRange, ...]) -> None:
        """Read `ranges`; later the core's finish_load is called exactly once for this request."""

    def cancel(self, request_id: str) -> None:
        """Stop reading; finish_load still follows, and no block is written after it."""

    def release(self, request_id: str, handle: RemoteHandle) -> None:
        """Nothing (more) is wanted of this handle: tell its owner."""


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """Bounds of the scheduler. chunk_tokens is how many prompt tokens one step computes at most, over all requests."""

    max_num_seqs: int = 16
    chunk_tokens: int = 512
    recompute_on_load_failure: bool = False


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did. ran is false when no request could go on."""

    ran: bool
    decode_tokens: int = 0
    prefill_tokens: int = 0


class EngineCore:
    """Continuous batching over a paged store with a prefix cache.

    Invariant: positions below `Sequence.computed` hold the KV of `Sequence.tokens`, and those bits depend on these
    tokens alone. So preemption, sharing, copying and remote reading never change an output.
    """

    def __init__(
        self,
        model: Model,
        store: KVStore,
        leases: LeaseTable,
        loads: LoadPort,
        limits: CoreLimits,
        *,
        eos_token_id: int,
        clock: Clock,
    ) -> None:
        self.model = model
        self.store = store
        self.residency = Residency(store, bytes.fromhex(model.weights.fingerprint))
        self.blocks = self.residency.blocks
        self.leases = leases
        self.limits = limits
        self.counters = Counters()
        self._loads = loads
        self._eos = eos_token_id
        self._clock = clock
        self._arrivals = 0
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._loading: dict[str, Sequence] = {}
        self._news: list[tuple[Sink, Output]] = []

    # -- requests ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def loading(self) -> int:
        return len(self._loading)

    @property
    def deferred(self) -> int:
        """Waiting requests whose next block another request is about to hold."""
        return sum(1 for s in self._waiting if s.deferred)

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._running or self._loading)

    def add(self, request: Request, sink: Sink) -> None:
        self._arrivals += 1
        sequence = Sequence(request, self._arrivals, self._clock(), sink, tokens=list(request.prompt))
        sequence.remote_done = request.remote is None
        self._waiting.append(sequence)

    def abort(self, request_id: str) -> None:
        """Forget the request; its blocks go at once, or as soon as the reading into them has stopped.

        One that has just ended, and whose asker left before the answer, leaves no lease behind either."""
        for sequence in self._everyone():
            if sequence.request.request_id == request_id:
                self._end(sequence, "abort")
                return
        if self.leases.withdraw(request_id):
            self.reclaim()

    def abort_all(self, reason: str) -> None:
        """End every request with an error, as when the process goes away."""
        for sequence in self._everyone():
            self._news.append((sequence.sink, Output((), "error", error=reason)))
            self._end(sequence, "abort")

    def _everyone(self) -> list[Sequence]:
        loading = [s for s in self._loading.values() if s.status is Status.LOADING]
        return [*self._waiting, *self._running, *loading]

    def take_news(self) -> list[tuple[Sink, Output]]:
        """Outputs since the last call, in order."""
        news, self._news = self._news, []
        return news

    # -- steps ------------------------------------------------------------------------------------------------------

    def reclaim(self) -> None:
        """Free the blocks of leases that were read or have expired."""
        for lease in self.leases.take_ended(self._clock()):
            self.blocks.release(lease.blocks)

    def step(self) -> StepReport:
        """Admit what fits, then run the model once over every running request."""
        self.reclaim()
        self._admit()
        plan = self._plan()
        if not plan:
            return StepReport(False)
        segments = [
            Segment(s.tokens[s.computed : s.computed + n], s.computed, s.table, s.computed + n == len(s.tokens))
            for s, n in plan
        ]
        logits = self.model.forward(self.store, segments)
        decoded = sum(n for s, n in plan if not s.prefilling)
        prefilled = sum(n for s, n in plan if s.prefilling)
        row = 0
        for (sequence, count), segment in zip(plan, segments, strict=True):
            sequence.computed += count
            self.residency.register_whole(sequence)
            if segment.want_logits:
                self._choose(sequence, logits[row])
                row += 1
        return StepReport(True, decoded, prefilled)

    def _plan(self) -> list[tuple[Sequence, int]]:
        """Which requests run how many tokens: every decode, then prompts within the chunk.

        Short rests of prompts go first, with at most half of the chunk while long ones want it.
        """
        decoding = [s for s in self._running if not s.prefilling]
        plan = [(s, 1) for s in decoding if s.status is Status.RUNNING and self._make_room(s)]
        prompts = [s for s in self._running if s.prefilling]
        short = [s for s in prompts if s.missing <= SHORT_TOKENS]
        long = [s for s in prompts if s.missing > SHORT_TOKENS]
        chunk = self.limits.chunk_tokens
        spent = _share_out(plan, short, -(-chunk // 2) if long else chunk)
        _share_out(plan, long, chunk - spent)
        return plan

    def _make_room(self, sequence: Sequence) -> bool:
        """A block for the next token; if there is none the youngest running request gives way. False: this one did."""
        while not self.residency.grow(sequence):
            victim = max(self._running, key=lambda s: s.arrival)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue with all its tokens; what it computed stays cached as long as nobody needs the room."""
        self.counters.preemptions += 1
        self._running.remove(sequence)
        self.residency.leave(sequence)
        sequence.status = Status.WAITING
        self._waiting.append(sequence)
        self._waiting.sort(key=lambda s: s.arrival)

    # -- admission --------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Take in waiting requests in order, but let those pass that need next to nothing.

        A call for one token whose prompt is cached (a second reader's handle, a batch of a handoff) must not wait
        behind long prompts: when slots or blocks are short it is still taken in, into slots of its own.
        """
        limit = self.limits.max_num_seqs
        at_most_new = _UNBOUNDED_TOKENS
        for sequence in list(self._waiting):
            active = len(self._running) + len(self._loading)
            if active >= 2 * limit:
                return
            if active >= limit:
                at_most_new = SHORT_TOKENS
            if at_most_new == SHORT_TOKENS and not sequence.may_pass:
                continue
            cached = self.residency.settle(sequence, reserve=len(self._running), at_most_new=at_most_new)
            sequence.checked = True
            sequence.deferred = cached is Refusal.DEFERRED
            if cached is Refusal.NO_ROOM:
                at_most_new = SHORT_TOKENS
            if not isinstance(cached, Refusal):
                self._waiting.remove(sequence)
                self._start(sequence, cached)

    def _start(self, sequence: Sequence, cached: int) -> None:
        request, length = sequence.request, len(sequence.tokens)
        remote = 0
        handle = request.remote
        if handle is not None and not sequence.remote_done:
            remote = max(0, min(handle.num_tokens, sequence.prompt_len) - cached)
            if remote == 0:
                sequence.remote_done = True
                self._loads.release(request.request_id, handle)
        if not remote:
            cached = min(cached, length - 1)
        if sequence.usage is None:
            sequence.admitted_s = self._clock()
            spent = remote * self.model.config.bytes_per_token
            sequence.usage = Usage(cached, remote, spent, sequence.prompt_len - cached - remote)
            self.counters.admitted(sequence.usage, sequence.prompt_len, sequence.admitted_s - sequence.arrived_s)
        if remote and handle is not None:
            sequence.status = Status.LOADING
            sequence.computed = cached
            self._loading[request.request_id] = sequence
            self._loads.start(request.request_id, handle, self.residency.ranges(sequence, cached, cached + remote))
        else:
            sequence.status = Status.RUNNING
            sequence.computed = cached
            self._insert_running(sequence)

    def _insert_running(self, sequence: Sequence) -> None:
        self._running.append(sequence)
        self._running.sort(key=lambda s: s.arrival)

    def finish_load(self, request_id: str, landed_tokens: int, error: str | None) -> None:
        """The reading for this request is over: `landed_tokens` leading tokens of what was asked are here, checked."""
        sequence = self._loading.pop(request_id, None)
        if sequence is None:
            return
        landed_bytes = landed_tokens * self.model.config.bytes_per_token
        sequence.computed += landed_tokens
        self.residency.register_whole(sequence)
        sequence.remote_done = True
        if sequence.status is Status.FINISHED:
            self.residency.leave(sequence)
        elif error is None or self.limits.recompute_on_load_failure:
            if error is not None:
                _log.warning("reading KV failed; computing it here", extra={"fields": {"id": request_id, "why": error}})
                sequence.usage = _landed_usage(sequence, landed_tokens, landed_bytes)
            self.counters.loaded(landed_bytes, self._clock() - sequence.admitted_s, failed=error is not None)
            sequence.computed = min(sequence.computed, len(sequence.tokens) - 1)
            sequence.status = Status.RUNNING
            self._insert_running(sequence)
        else:
            self.counters.loaded(landed_bytes, self._clock() - sequence.admitted_s, failed=True)
            self._news.append((sequence.sink, Output((), "error", error=f"reading the prompt's KV failed: {error}")))
            self._end(sequence, "error")

    # -- outputs ----------------------------------------------------------------------------------------------------

    def _choose(self, sequence: Sequence, logits: Floats) -> None:
        """The next token. What a request's own parameters break ends that request, and never the engine."""
        try:
            token = choose(logits, sequence.request.sampling, len(sequence.tokens))
        except (ArithmeticError, ValueError, IndexError, TypeError) as error:
            _log.exception("no token could be chosen", extra={"fields": {"id": sequence.request.request_id}})
            self._news.append((sequence.sink, Output((), "error", error=f"choosing a token failed: {error!r}")))
            self._end(sequence, "error")
            return
        self._emit(sequence, token)

    def _emit(self, sequence: Sequence, token: int) -> None:
        request = sequence.request
        sequence.tokens.append(token)
        now_s = self._clock()
        self.counters.emitted(now_s - (sequence.last_token_s or sequence.arrived_s), first=sequence.output_len == 1)
        sequence.last_token_s = now_s
        sequence.first_token_s = sequence.first_token_s or now_s
        reason = None
        if token in request.stop_token_ids or (token == self._eos and not request.ignore_eos):
            reason = "stop"
        elif sequence.output_len >= request.max_tokens:
            reason = "length"
        if reason:
            self.counters.phases(sequence.first_token_s - sequence.admitted_s, now_s - sequence.first_token_s)
        lease = self._end(sequence, reason) if reason else None
        self._news.append((sequence.sink, Output((token,), reason, sequence.usage, lease)))

    def _end(self, sequence: Sequence, reason: str) -> Lease | None:
        """Take the request out. Its blocks become a lease if it asked for one and ran to its length."""
        if sequence.status is Status.LOADING and sequence.request.request_id in self._loading:
            sequence.status = Status.FINISHED
            self.counters.finished(reason)
            self._loads.cancel(sequence.request.request_id)
            return None
        if sequence.status is Status.WAITING:
            self._waiting.remove(sequence)
            if sequence.request.remote is not None and not sequence.remote_done:
                self._loads.release(sequence.request.request_id, sequence.request.remote)
        elif sequence.status is Status.RUNNING:
            self._running.remove(sequence)
        sequence.status = Status.FINISHED
        self.counters.finished(reason)
        lease = None
        if sequence.request.export and reason == "length":
            covering = -(-sequence.computed // self.store.block_size)
            lease = Lease(sequence.request.request_id, tuple(sequence.blocks[:covering]), sequence.computed)
            self.blocks.retain(lease.blocks)
            self.leases.grant(lease, self._clock())
        self.residency.leave(sequence)
        return lease


def _share_out(plan: list[tuple[Sequence, int]], prompts: list[Sequence], budget: int) -> int:
    """Add as many tokens of `prompts`, in order, to the plan as the budget allows. Returns how many."""
    left = budget
    for sequence in prompts:
        count = min(left, sequence.missing)
        if count > 0:
            plan.append((sequence, count))
            left -= count
    return budget - left


def _landed_usage(sequence: Sequence, landed_tokens: int, landed_bytes: int) -> Usage:
    """What a read that broke off leaves to compute."""
    local = sequence.usage.local_cached_tokens if sequence.usage is not None else 0
    return Usage(local, landed_tokens, landed_bytes, sequence.prompt_len - local - landed_tokens)
