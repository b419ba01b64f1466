"""A playbook for the request machine: feed events at a fake time, look at the commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pdd.engine.adapters import Usage
from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import (
    Announce,
    Begin,
    CancelCall,
    Command,
    Decide,
    Decided,
    Deliver,
    Done,
    Event,
    Fail,
    Failed,
    Failure,
    Finish,
    Kind,
    Plan,
    Role,
    StartCall,
    Started,
    Tokens,
    WakeAfter,
    Woken,
)
from pdd.router.machine import Machine
from pdd.router.state import Task
from pdd.router.text import TextAssembler

C = TypeVar("C")
HANDLE = {"remote_request_id": "h"}
LOST = Failure("BrokenStream", "gone")


class Letters:
    """A detokenizer: id n is the n-th letter; ids from 26 on have no text."""

    def feed(self, ids: Iterable[int]) -> str:
        return "".join(chr(97 + i) for i in ids if i < 26)

    def flush(self) -> str:
        return ""


class Play:
    """One request played by hand. Time advances by 10 ms an event."""

    def __init__(self, max_tokens: int = 100, stops: tuple[str, ...] = (), **task: Any) -> None:
        self.machine = Machine(Task(max_tokens=max_tokens, **task), TextAssembler(Letters(), stops))
        self.now_s = 100.0
        self.plan = Plan(Pipeline.P_RLD_MD, Reason.LONG_TRANSFER, main="md-0", missing_bytes=1)
        self.calls: dict[tuple[Role, Kind], StartCall] = {}
        self.delivered: list[int] = []
        self.text = ""
        self.cancelled: list[StartCall] = []
        self.live: dict[int, StartCall] = {}
        self.finished: str | None = None
        self.failed: Failure | None = None
        self.announced: Announce | None = None
        self.wakes: list[WakeAfter] = []
        self.out: list[Command] = []

    def feed(self, event: Event) -> list[Command]:
        """Feed one event; decisions and starts are answered at once, as the shell does."""
        self.now_s += 0.01
        self.out = []
        queue: list[Event] = [event]
        while queue:
            for command in self.machine.handle(queue.pop(0), self.now_s):
                self.out.append(command)
                self._note(command, queue)
        return self.out

    def _note(self, command: Command, queue: list[Event]) -> None:
        if isinstance(command, StartCall):
            self.calls[command.role, command.kind] = command
            self.live[command.leg] = command
            queue.append(Started(command.leg, command.engine or f"{command.role.value}-0", 100))
        elif isinstance(command, CancelCall):
            self.cancelled.append(self.live.pop(command.leg))
        elif isinstance(command, Decide):
            queue.append(Decided(self.plan))
        elif isinstance(command, Deliver):
            self.delivered += command.ids
            self.text += command.text
        elif isinstance(command, Finish):
            self.finished = command.reason
            self.text += command.text
        elif isinstance(command, Fail):
            self.failed = command.failure
        elif isinstance(command, Announce):
            self.announced = command
        elif isinstance(command, WakeAfter):
            self.wakes.append(command)

    # ---- what happens ---------------------------------------------------------------------------------------------

    def begin(self) -> Play:
        self.feed(Begin())
        return self

    def leg(self, role: Role, kind: Kind) -> StartCall:
        """The live call of that role and kind. Fails the test if there is none, or are two."""
        found = [call for call in self.live.values() if (call.role, call.kind) == (role, kind)]
        assert len(found) == 1, f"{role.value} {kind.value}: {found}; live: {list(self.live.values())}"
        return found[0]

    def has(self, role: Role, kind: Kind | None = None) -> bool:
        return any(call.role is role and kind in (None, call.kind) for call in self.live.values())

    def prefilled(
        self, token: int, kind: Kind = Kind.FIRST, finish: str = "length", handle: Any = HANDLE
    ) -> list[Command]:
        call = self.leg(Role.PREFILL, kind)
        del self.live[call.leg]
        return self.feed(Done(call.leg, (token,), finish, handle, Usage(10, 1, 0, 0)))

    def done(self, role: Role, kind: Kind) -> list[Command]:
        """A call whose token is dropped has answered."""
        call = self.leg(role, kind)
        del self.live[call.leg]
        return self.feed(Done(call.leg, (9,), "length", None, None))

    def tokens(self, role: Role, *ids: int, finish: str | None = None) -> list[Command]:
        call = self.leg(role, Kind.DECODE)
        if finish:
            del self.live[call.leg]
        return self.feed(Tokens(call.leg, ids, finish))

    def lose(self, role: Role, kind: Kind, failure: Failure = LOST) -> list[Command]:
        call = self.leg(role, kind)
        del self.live[call.leg]
        return self.feed(Failed(call.leg, failure))

    def wake(self, tag: str) -> list[Command]:
        assert any(wake.tag == tag for wake in self.wakes), f"no {tag} among {self.wakes}"
        self.wakes = [wake for wake in self.wakes if wake.tag != tag]
        return self.feed(Woken(tag))

    def only(self, kind: type[C]) -> C:
        """The one command of that type in the last answer."""
        found = [command for command in self.out if isinstance(command, kind)]
        assert len(found) == 1, self.out
        return found[0]


def relaying(**task: Any) -> Play:
    """A request that RLD relays: the first token (0) is out, RLD decodes, P is asked for MD's handle."""
    play = Play(**task).begin()
    play.prefilled(0)
    assert play.delivered == [0]
    return play


def landing(**task: Any) -> Play:
    """... and MD pulls the KV."""
    play = relaying(**task)
    play.prefilled(0, Kind.HANDLE)
    assert play.has(Role.MAIN, Kind.LAND)
    return play
