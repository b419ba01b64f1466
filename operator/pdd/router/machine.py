"""The request machine: conducts P, RLD and MD for one request. Sans-I/O: events in, commands out, time is an argument.

    FIRST (P) ── Decide ──┬─ P-MD:      DECODE at MD with P's handle
                          ├─ P-RLD-MD:  DECODE at RLD with P's handle
                          │             beside it HANDLE (P) ─ LAND (MD) ─ [EXTEND (MD)]* ─ DECODE (MD), RLD stops
                          └─ P-RLD:     DECODE at RLD to the end
    a failure with nothing left that makes tokens: FIRST again, with prompt + ledger as the prompt

`Recovery` (what replaces what) is in recovery.py, the state that both share in state.py.
"""

from __future__ import annotations

from pdd.policy.handoff import choose_mode, choose_step
from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import (
    KV,
    Begin,
    ClientGone,
    Command,
    Decide,
    Decided,
    Done,
    Event,
    Expired,
    Failed,
    Failure,
    HandoffRecord,
    Kind,
    Learn,
    Observe,
    Plan,
    Release,
    Role,
    Started,
    Tokens,
    Woken,
)
from pdd.router.ledger import Producer
from pdd.router.recovery import Recovery
from pdd.router.state import Leg

_REFUSALS = {
    Reason.RELAY_FULL_LINE_LOST: Failure(
        "RelayFullAndLineLost", "the line to main decode is lost and every relay-decode engine is full", 429
    ),
}
DECODE_WAIT_S = 2.0
"""So long may a request wait, its first token computed but not sent, for any decode engine to answer."""
DECODE_LOOK_S = 0.2
_FINISHED = frozenset({"stop", "length"})
_NO_DECODE = Failure("NoDecodeEngine", "no decode engine can be reached (stages relay-decode and main-decode)", 503)


class Machine(Recovery):
    """One request. Feed events with `handle`; do the commands that it returns, in their order."""

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Advance by one event at `now_s`. Events of a leg that was cancelled or is over are ignored."""
        self.now_s = now_s
        out = self.out = []
        if self.over:
            if isinstance(event, Tokens) and self._tail is not None and event.leg == self._tail.number:
                self._observe(self._tail, event)  # usage comes behind the last token
            return out
        if isinstance(event, Tokens):
            leg = self.legs.get(event.leg)
            if leg is not None:
                self._on_tokens(leg, event)
        elif isinstance(event, Done):
            leg = self.legs.pop(event.leg, None)
            if leg is not None:
                self._on_done(leg, event)
        elif isinstance(event, Failed):
            leg = self.legs.pop(event.leg, None)
            if leg is not None:
                self.on_failed(leg, event.failure)
        else:
            self._on_other(event)
        return out

    def _on_other(self, event: Event) -> None:
        if isinstance(event, Started):
            self._on_started(event)
        elif isinstance(event, Decided):
            self._on_decided(event.plan)
        elif isinstance(event, Begin):
            self.record.arrived_s = self.recovering_since_s = self.now_s
            self._begin()
        elif isinstance(event, Woken):
            self.on_woken(event.tag)
        elif isinstance(event, ClientGone):
            self.end(None)
        elif isinstance(event, Expired):
            self.fail(Failure("RequestTimedOut", "the request took longer than the router allows", 504))

    # ---- before the decode ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.task.override is Pipeline.SINGLE:
            self.announce(Pipeline.SINGLE, Reason.OVERRIDE)
            self.call(Role.RELAY, Kind.DECODE, 0, self.task.max_tokens)
        elif self.task.max_tokens == 1:
            self.announce(Pipeline.P, Reason.ONE_TOKEN)
            self.recover()
        else:
            self.recover()

    def _on_started(self, event: Started) -> None:
        leg = self.legs.get(event.leg)
        if leg is None:
            return
        leg.engine = event.engine
        self.record.engines[leg.producer.value] = event.engine
        handoff = self.record.handoff
        if handoff is not None and leg.role is Role.MAIN and leg.kind in (Kind.EXTEND, Kind.DECODE):
            handoff.payload_bytes += event.body_bytes

    def _on_done(self, leg: Leg, event: Done) -> None:
        self._observe(leg, event)
        if leg.role is Role.PREFILL:
            self.out.append(Learn(leg.engine, leg.role, leg.output_tokens))
            self._on_prefilled(leg, event)
        elif leg.kind is Kind.LAND and leg.role is Role.RELAY:
            self.call(Role.RELAY, Kind.DECODE, len(self.ledger), self.tokens_left, engine=leg.engine)
        elif leg.kind is Kind.LAND:
            self._on_landed(leg)
        elif leg.kind is Kind.EXTEND:
            self._on_extended(leg)

    def _on_prefilled(self, leg: Leg, event: Done) -> None:
        if not event.ids:
            self.on_failed(leg, Failure("EmptyAnswer", "prefill answered no token"))
            return
        if leg.kind is Kind.ONE:
            self._accept(Producer.P, leg.output_tokens, event.ids, event.finish_reason or "length")
            return
        ends = not self.task.pinned and self._ends(leg.output_tokens, event.ids[0], event.finish_reason)
        if leg.kind is not Kind.HANDLE and ends:
            self.announce(Pipeline.P, Reason.STOPPED_AT_FIRST_TOKEN)
            self._accept(Producer.P, leg.output_tokens, event.ids[:1], "stop")
            return
        if event.handle is None:
            self.on_failed(leg, Failure("NoHandle", "prefill exported no KV: its answer has no kv_transfer_params"))
            return
        kv = KV(event.handle, leg.output_tokens)
        if leg.kind is Kind.HANDLE:
            self._land(kv)
        elif leg.kind is Kind.RESUME:
            self._accept(Producer.P, leg.output_tokens, event.ids[:1], None)
            if not self.over and not self.main_streams:
                self.decode_at(Role.RELAY, kv)
            else:
                self.out.append(Release(kv))
        else:
            self._first = (kv, event.ids[0])
            self._decide()

    def _decide(self) -> None:
        if self._first is not None:
            known = self._first[0].covers
            self.out.append(Decide(known, self.task.max_tokens - known, frozenset(self.avoid[Role.MAIN])))

    def _on_decided(self, plan: Plan) -> None:
        if self._first is None:
            return
        if self._waits_for_decode(plan):
            self.wake(DECODE_LOOK_S, "decide")
            return
        kv, first_id = self._first
        self._first = None
        if plan.pipeline is Pipeline.REFUSED:
            self.out.append(Release(kv))
            self._refused(plan)
            return
        if self.record.plan is None:
            self.record.plan = plan
        self.announce(plan.pipeline, plan.reason)
        if not self.task.pinned:
            self._accept(Producer.P, kv.covers, (first_id,), None)
            if self.over:
                self.out.append(Release(kv))
                return
        if plan.pipeline in (Pipeline.P_RLD, Pipeline.P_RLD_MD) or (self.task.pinned and not plan.main):
            self.decode_at(Role.RELAY, kv)
            if plan.pipeline is Pipeline.P_RLD_MD:
                self.main_engine = plan.main
                self.call(Role.PREFILL, Kind.HANDLE, kv.covers, 1)
        else:
            self.decode_at(Role.MAIN, kv, engine=plan.main)

    def _waits_for_decode(self, plan: Plan) -> bool:
        """No decode engine answers right now: one that missed a few looks is back soon, and the client has time."""
        if plan.pipeline is not Pipeline.REFUSED or plan.reason in _REFUSALS or len(self.ledger) > 0:
            return False
        if self._decided_after_s is None:
            self._decided_after_s = self.now_s
        return self.now_s - self._decided_after_s < DECODE_WAIT_S

    def on_woken(self, tag: str) -> None:
        """A delay is over."""
        if tag == "decide":
            self._decide()
        else:
            super().on_woken(tag)

    def _refused(self, plan: Plan) -> None:
        failure = _REFUSALS.get(plan.reason, _NO_DECODE)
        override = self.task.override
        if override is not None and len(self.ledger) == 0:
            message = (
                f"pipeline {override.value} was asked for (x-pdd-pipeline-override), and an engine that it needs "
                "cannot be reached or is full: leave the header out"
            )
            failure = Failure("NoDecodeEngine", message, 503)
        if len(self.ledger) == 0:
            self.announce(plan.pipeline, plan.reason)
            self.fail(failure)
        else:  # mid-stream: an engine may come back within the recovery window
            self.count_failure(Role.RELAY, "", failure)
            self.recover()

    # ---- the handoff ----------------------------------------------------------------------------------------------

    def _land(self, kv: KV) -> None:
        """MD pulls the prompt's KV while RLD goes on (or, if nothing streams any more, decodes at once)."""
        if self.relay_works or not self.task.clamps_remote_kv:
            self.call(Role.MAIN, Kind.LAND, kv.covers, 1, kv=kv, engine=self.main_engine)
            self.main_engine = ""  # a retry may go elsewhere
        else:
            self.decode_at(Role.MAIN, kv, engine=self.main_engine)

    def _on_landed(self, leg: Leg) -> None:
        self.out.append(Learn(leg.engine, leg.role, leg.output_tokens))
        self.record.landed_s = self.now_s
        self.main_engine = leg.engine
        self._main_has = leg.output_tokens
        self._rounds = 0
        self._batch_tokens = None
        if self.relay_streams:
            self.record.handoff_start_s = self.now_s
            mode = choose_mode(
                self.task.handoff_mode, len(self.ledger) - leg.output_tokens, self.task.one_shot_limit_tokens
            )
            self.record.handoff = HandoffRecord(mode.value)
            self._mode = mode
        self._step()

    def _on_extended(self, leg: Leg) -> None:
        self._rounds += 1
        self._batch_tokens = leg.output_tokens - self._main_has
        self._main_has = leg.output_tokens
        if self.record.handoff is not None:
            self.record.handoff.rounds = self._rounds
        self._step()

    def _step(self) -> None:
        """Give MD the tokens that it lacks: one more catch-up round, or the switch."""
        known = len(self.ledger)
        last = True
        if self.relay_streams:
            last = choose_step(self._mode, self._rounds, known - self._main_has, self._batch_tokens).last
        if not last:
            self.call(Role.MAIN, Kind.EXTEND, known, 1, engine=self.main_engine)
            return
        if not self.task.overlap:
            self.cancel_role(Role.RELAY)
        if self.record.handoff is not None:
            self.record.handoff.tokens = known
            self.record.handoff.rounds = self._rounds + 1
        self.call(Role.MAIN, Kind.DECODE, known, self.tokens_left, engine=self.main_engine)

    # ---- tokens ---------------------------------------------------------------------------------------------------

    def _on_tokens(self, leg: Leg, event: Tokens) -> None:
        if event.usage is not None:
            self._observe(leg, event)
        ids = event.ids
        finish = event.finish_reason
        if finish is not None and finish not in _FINISHED:
            self._broke_off(leg, event)
            return
        leg.ended = finish is not None
        if ids:
            if not leg.spoke:
                leg.spoke = True
                if leg.role is Role.MAIN:
                    self._take_over(leg)
            position = leg.next_position
            leg.next_position += len(ids)
            self._accept(leg.producer, position, ids, finish, leg)
        elif finish:
            self.finish(finish, leg)

    def _broke_off(self, leg: Leg, event: Tokens) -> None:
        """The engine ended a stream on its own account (`abort` and the like): keep its tokens, replace it."""
        if event.ids:
            self._on_tokens(leg, Tokens(event.leg, event.ids, None))
        if self.legs.pop(leg.number, None) is not None:
            self.on_failed(leg, Failure("Aborted", f"the engine ended the stream: {event.finish_reason}"))

    def _take_over(self, leg: Leg) -> None:
        """MD's first token: RLD stops."""
        self.main_engine = leg.engine
        self.out.append(Learn(leg.engine, leg.role, leg.output_tokens))
        if self.record.landed_s is None:
            self.record.landed_s = self.now_s
        if self.record.handoff is not None and self.record.handoff_end_s is None:
            self.record.handoff_end_s = self.now_s
        self.cancel_role(Role.RELAY)
        self.cancel_kind(Kind.RESUME)

    def _accept(
        self, producer: Producer, position: int, ids: tuple[int, ...], finish: str | None, leg: Leg | None = None
    ) -> None:
        """Enter ids into the ledger and deliver what is new. `finish`: what the engine said, stop or length."""
        ids = ids[: max(0, self.task.max_tokens - position)]
        for count, one in enumerate(ids, start=1):
            if one in self.task.stop_ids and position + count > self.task.min_tokens:
                ids, finish = ids[:count], "stop"
                break
        before = len(self.ledger)
        offer = self.ledger.offer(producer, position, ids)
        if offer.diverged_at is not None:
            self._on_diverged(leg)
            return
        if offer.fresh:
            silent = finish == "stop" and offer.fresh[-1] in self.task.stop_ids
            fed = self.text.feed(offer.fresh[:-1] if silent else offer.fresh)
            if fed.stopped_after is not None:
                self.ledger.truncate(before + fed.stopped_after)
                finish = "stop"
            self.deliver(producer, before, fed.text)
        if finish == "stop":
            self.finish("stop", leg)
        elif finish or len(self.ledger) >= self.task.max_tokens:
            self.finish("length", leg)

    def _on_diverged(self, leg: Leg | None) -> None:
        """Another id for a position that the client has: what was delivered stands. The engine that said otherwise
        starts anew from the ledger, alone."""
        self.record.diverged += 1
        if leg is None:
            return
        self.cancel(leg)
        self.cancel_role(Role.RELAY)
        self.call(leg.role, leg.kind, len(self.ledger), self.tokens_left, engine=leg.engine)

    def _ends(self, position: int, one: int, finish_reason: str) -> bool:
        stops = one in self.task.stop_ids and position + 1 > self.task.min_tokens
        return stops or finish_reason == "stop"

    def _observe(self, leg: Leg, event: Done | Tokens) -> None:
        usage = event.usage
        if usage is None:
            return
        if leg.role is Role.PREFILL and leg.kind in (Kind.FIRST, Kind.ONE) and leg.output_tokens == 0:
            self.record.cached_tokens = usage.cached_tokens or 0
        pulled = leg.kv is not None
        if leg.role is Role.MAIN and pulled:
            if self.record.main_cached_tokens is None:
                self.record.main_cached_tokens = usage.local_cached_tokens
            if usage.remote_bytes is not None:
                self.record.remote_bytes = (self.record.remote_bytes or 0) + usage.remote_bytes
        if usage.local_cached_tokens is not None and (pulled or leg.role is Role.PREFILL) and not leg.observed:
            leg.observed = True
            self.out.append(Observe(leg.number, leg.engine, usage.local_cached_tokens))
