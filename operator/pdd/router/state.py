"""What the request machine remembers, and the small steps that conduct and recovery share."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.api.config import HandoffMode
from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import (
    KV,
    Announce,
    CancelCall,
    Command,
    Deliver,
    Fail,
    Failure,
    Finish,
    Kind,
    Learn,
    Record,
    Release,
    Role,
    StartCall,
    WakeAfter,
)
from pdd.router.ledger import Ledger, Producer
from pdd.router.text import TextAssembler

_PRODUCER = {Role.PREFILL: Producer.P, Role.RELAY: Producer.RLD, Role.MAIN: Producer.MD}


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, as far as the conduct depends on it.

    stop_ids: ids that end the output (EOS unless ignored, stop_token_ids). pinned: one engine must make every token, so
    P's is dropped. resumable: another engine may go on from the ledger if that one dies (False: penalties and the like,
    which count output tokens). clamps_remote_kv: see EngineCapabilities. overlap: RLD may go on until MD's first token
    has come, since both make the same tokens.
    """

    max_tokens: int
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    pinned: bool = False
    resumable: bool = True
    clamps_remote_kv: bool = True
    overlap: bool = True
    handoff_mode: HandoffMode = HandoffMode.AUTO
    one_shot_limit_tokens: int = 64
    override: Pipeline | None = None


@dataclass(slots=True)
class Leg:
    """One call in flight. next_position: ledger position of the next id of its stream."""

    number: int
    role: Role
    kind: Kind
    output_tokens: int
    next_position: int
    kv: KV | None
    engine: str = ""
    spoke: bool = False
    ended: bool = False
    observed: bool = False

    @property
    def producer(self) -> Producer:
        return _PRODUCER[self.role]


class State:
    """State of one request. `out` collects the commands of the event being handled."""

    def __init__(self, task: Task, text: TextAssembler) -> None:
        self.task = task
        self.text = text
        self.ledger = Ledger()
        self.record = Record()
        self.legs: dict[int, Leg] = {}
        self.out: list[Command] = []
        self.now_s = 0.0
        self.over = False
        self.avoid: dict[Role, set[str]] = {role: set() for role in Role}
        self.main_engine = ""
        self.recovering_since_s = 0.0
        self._numbers = 0
        self._tail: Leg | None = None
        self._first: tuple[KV, int] | None = None
        self._decided_after_s: float | None = None
        self._main_has = 0
        self._rounds = 0
        self._batch_tokens: int | None = None
        self._mode = task.handoff_mode

    @property
    def tokens_left(self) -> int:
        return self.task.max_tokens - len(self.ledger)

    @property
    def relay_streams(self) -> bool:
        """RLD makes tokens, or pulls the KV to do so."""
        return any(leg.role is Role.RELAY for leg in self.legs.values())

    @property
    def relay_works(self) -> bool:
        """RLD makes tokens, or P is about to hand over to a new one."""
        return any(leg.role is Role.RELAY or leg.kind is Kind.RESUME for leg in self.legs.values())

    @property
    def main_streams(self) -> bool:
        """MD has taken over."""
        return any(leg.role is Role.MAIN and leg.spoke for leg in self.legs.values())

    @property
    def main_works(self) -> bool:
        """Something is on its way that ends in MD making tokens."""
        return any(leg.role is Role.MAIN or leg.kind is Kind.HANDLE for leg in self.legs.values())

    # ---- legs -----------------------------------------------------------------------------------------------------

    def call(
        self, role: Role, kind: Kind, output_tokens: int, max_tokens: int, kv: KV | None = None, engine: str = ""
    ) -> None:
        """Start a call with the prompt and the first `output_tokens` ids of the ledger."""
        self._numbers += 1
        leg = Leg(self._numbers, role, kind, output_tokens, output_tokens, kv, engine)
        self.legs[leg.number] = leg
        self.out.append(
            StartCall(leg.number, role, kind, output_tokens, max_tokens, kv, engine, frozenset(self.avoid[role]))
        )

    def decode_at(self, role: Role, kv: KV, engine: str = "") -> None:
        """A stream to the end at `role` from P's handle: one call where the engine clamps or lacks no token, else the
        pull first (a longer prompt with the handle makes stock vLLM compute wrong tokens, or die)."""
        known = len(self.ledger)
        if self.task.clamps_remote_kv or known == kv.covers:
            self.call(role, Kind.DECODE, known, self.tokens_left, kv=kv, engine=engine)
        else:
            self.call(role, Kind.LAND, kv.covers, 1, kv=kv, engine=engine)

    def cancel(self, leg: Leg) -> None:
        if self.legs.pop(leg.number, None) is not None and not leg.ended:
            self.out.append(CancelCall(leg.number))

    def cancel_role(self, role: Role) -> None:
        for leg in [leg for leg in self.legs.values() if leg.role is role]:
            self.cancel(leg)

    def cancel_kind(self, kind: Kind) -> None:
        for leg in [leg for leg in self.legs.values() if leg.kind is kind]:
            self.cancel(leg)

    def wake(self, delay_s: float, tag: str) -> None:
        self.out.append(WakeAfter(delay_s, tag))

    # ---- towards the client ---------------------------------------------------------------------------------------

    def announce(self, pipeline: Pipeline, reason: Reason) -> None:
        """What the response's headers say: the last announcement before the first token counts; later decisions are in
        the record's retries."""
        if len(self.ledger) == 0:
            self.record.pipeline = pipeline
            self.record.reason = reason
            self.out.append(Announce(pipeline, reason))

    def deliver(self, producer: Producer, before: int, text: str) -> None:
        """The ledger's ids from position `before` on are new: hand them out and note when."""
        ids = tuple(self.ledger.ids[before:])
        record = self.record
        if before == 0:
            record.first_token_s = self.now_s
        else:
            record.gaps_s.append(self.now_s - record.last_token_s)
        if record.second_token_s is None and before + len(ids) > 1:
            record.second_token_s = self.now_s
        record.gaps_s.extend([0.0] * (len(ids) - 1))
        handoff = record.handoff
        if handoff is not None and handoff.stall_s is None and producer is Producer.MD:
            handoff.stall_s = self.now_s - record.last_token_s
        record.last_token_s = self.recovering_since_s = self.now_s
        self.out.append(Deliver(producer, ids, text))

    def finish(self, reason: str, leg: Leg | None) -> None:
        """All is there. A leg that ended by itself is left to close its stream in order."""
        main = leg if leg is not None and leg.role is Role.MAIN else None
        if main is not None and main.engine:
            self.out.append(Learn(main.engine, Role.MAIN, max(0, len(self.ledger) - 1)))
        text = self.text.flush()
        self.out.append(Finish(reason, text))
        self.end(leg)

    def fail(self, failure: Failure) -> None:
        self.out.append(Fail(failure))
        self.end(None)

    def end(self, leg: Leg | None) -> None:
        """Over: every other leg ends now, and KV that waits for a decision is let go."""
        for other in list(self.legs.values()):
            if other is not leg or not other.ended:
                self.cancel(other)
        self.legs.clear()
        if self._first is not None:
            self.out.append(Release(self._first[0]))
            self._first = None
        self._tail = leg
        self.over = True
        self.record.ended_s = self.now_s
