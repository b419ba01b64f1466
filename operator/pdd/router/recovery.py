"""What replaces what when an engine, or the line, fails. Mixed into the request machine.

    fails                         while                        then
    P (FIRST)                     nothing made tokens          another P, twice; MD alone; RLD alone; again, slower
    P (HANDLE), MD                RLD makes tokens             MD again later (1/2 s, doubling), or RLD to the end
    P (RESUME), RLD               MD is landing                a new RLD by way of P; MD takes over when it has landed
    RLD                           nothing else works           FIRST with prompt + ledger, and a new choice
    MD                            nothing else works           the same

Before the first token the tries are counted; after it only time counts: the client has been promised an answer.
"""

from __future__ import annotations

from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import Failure, Kind, Release, Role
from pdd.router.state import Leg, State

TRIES_BEFORE_FIRST_TOKEN = 8
RECOVERY_WINDOW_S = 90.0
"""After the first token: how long a request may stand still before it is given up."""
MAIN_RETRIES = 6
_STAGES = (Role.PREFILL, Role.PREFILL, Role.MAIN, Role.RELAY)
NO_ENGINE = "NoEngine"


class Recovery(State):
    """Failures in, replacement calls out."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._tries = 0
        self._tried_at_tokens = 0
        self._main_failures = 0
        self._relay_failures = 0
        self._last_failure = Failure(NO_ENGINE, "no engine can be reached")

    def on_failed(self, leg: Leg, failure: Failure) -> None:
        """`leg` is gone. Decide what takes its place, if anything has to."""
        self.count_failure(leg.role, leg.engine, failure)
        if leg.kv is not None and failure.reason == NO_ENGINE:
            self.out.append(Release(leg.kv))
        refused = not failure.retryable
        if refused and not (self.relay_works or self.main_works):
            self.fail(failure)
            return
        if self.task.pinned and not self.task.resumable and len(self.ledger) > 0:
            message = f"the engine was lost and this request cannot move: {failure.message}"
            self.fail(Failure("EngineLost", message, 502))
            return
        if self.task.override is Pipeline.SINGLE:
            self._single_failed(leg, failure)
        elif leg.kind is Kind.HANDLE or leg.role is Role.MAIN:
            self._main_failed(refused)
        elif leg.role is Role.RELAY or leg.kind is Kind.RESUME:
            self._relay_failed()
        else:
            self.recover()

    def on_woken(self, tag: str) -> None:
        """A delay is over: do what it was for, unless something else has taken its place."""
        if tag == "main" and self.relay_works and not self.main_works:
            self.call(Role.PREFILL, Kind.HANDLE, 0, 1)
        elif tag == "relay" and self.main_works and not self.main_streams and not self.relay_works:
            self._resume()
        elif tag == "recover" and not self.legs:
            self._recover_at_stage()

    def count_failure(self, role: Role, engine: str, failure: Failure) -> None:
        if engine:
            self.avoid[role].add(engine)
        if len(self.record.retries) < 64:
            self.record.retries.append(
                {
                    "role": role.value,
                    "engine": engine,
                    "reason": failure.reason,
                    "message": failure.message,
                    "position": len(self.ledger),
                    "at_ms": round((self.now_s - self.record.arrived_s) * 1000, 1),
                }
            )
        self._last_failure = failure

    def _single_failed(self, leg: Leg, failure: Failure) -> None:
        """One engine was asked for: RLD, else P. A run that has begun does not move, or it would prove nothing."""
        if leg.role is Role.RELAY and len(self.ledger) == 0:
            self.call(Role.PREFILL, Kind.DECODE, 0, self.task.max_tokens)
        else:
            self.fail(failure)

    def _main_failed(self, refused: bool) -> None:
        self.main_engine = ""
        if not self.relay_works:
            if not self.main_works:
                self.recover()
            return
        self._main_failures += 1
        if self.main_works or refused or self._main_failures > MAIN_RETRIES:
            return  # RLD goes on to the end
        self.wake(min(8.0, 0.25 * 2**self._main_failures), "main")

    def _relay_failed(self) -> None:
        if self.main_streams or self.relay_works:
            return
        if not self.main_works:
            self.recover()
            return
        if any(leg.role is Role.MAIN and leg.kind is not Kind.LAND for leg in self.legs.values()):
            return  # MD has the KV: its first token is nearer than a new RLD's
        self._relay_failures += 1
        if self._relay_failures == 1:
            self._resume()
        else:
            self.wake(min(2.0, 0.1 * 2**self._relay_failures), "relay")

    def _resume(self) -> None:
        self.call(Role.PREFILL, Kind.RESUME, len(self.ledger), 1)

    def recover(self) -> None:
        """Nothing makes tokens: find something that does. Stages in turn, the first round at once, then slower."""
        known = len(self.ledger)
        if known > self._tried_at_tokens:
            self._tries, self._tried_at_tokens = 0, known
        if self._given_up(known):
            last = self._last_failure
            self.fail(Failure(last.reason, f"gave up after {self._tries} tries: {last.message}", last.status or 503))
            return
        if self._tries and self._tries % len(_STAGES) == 0:
            for engines in self.avoid.values():
                engines.clear()  # whatever failed may have come back
            self.wake(min(2.0, 0.2 * 2 ** (self._tries // len(_STAGES))), "recover")
            return
        self._recover_at_stage()

    def _given_up(self, known: int) -> bool:
        if known == 0:
            return self._tries >= TRIES_BEFORE_FIRST_TOKEN
        return self.now_s - self.recovering_since_s > RECOVERY_WINDOW_S

    def _recover_at_stage(self) -> None:
        stage = _STAGES[self._tries % len(_STAGES)]
        self._tries += 1
        known = len(self.ledger)
        if stage is Role.PREFILL:
            one = self.task.max_tokens == 1
            self.call(Role.PREFILL, Kind.ONE if one else Kind.FIRST, known, 1)
            return
        # the last resort: a decode engine computes the whole prompt by itself
        pipeline = Pipeline.MD if stage is Role.MAIN else Pipeline.P_RLD
        self.announce(pipeline, Reason.PREFILL_UNAVAILABLE)
        self.call(stage, Kind.DECODE, known, self.tokens_left)
