"""What the request machine hears (events) and what it wants done (commands). Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pdd.engine.adapters import Handle, Usage
from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.ledger import Producer


class Role(StrEnum):
    """An engine's role, as labels and /internal/load name it."""

    PREFILL = "prefill"
    RELAY = "relay-decode"
    MAIN = "main-decode"


class Kind(StrEnum):
    """What a call is for.

    FIRST: P computes the next token and exports the KV; then the pipeline is chosen. RESUME: the same, to replace RLD
    while MD is still landing. HANDLE: P exports once more, for MD (token dropped). ONE: P makes the only token.
    LAND: a decode engine pulls the KV (token dropped). EXTEND: MD computes the KV of eager tokens (token dropped).
    DECODE: a stream of tokens to the end.
    """

    FIRST = "first"
    RESUME = "resume"
    HANDLE = "handle"
    ONE = "one"
    LAND = "land"
    EXTEND = "extend"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class KV:
    """A handle of P. covers: output tokens behind the prompt that its KV holds as well."""

    handle: Handle
    covers: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call ended without what it was for. status: HTTP status, 0 if none. retryable: another engine may do."""

    reason: str
    message: str
    status: int = 0
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for one request, with what it was based on (trace, log)."""

    pipeline: Pipeline
    reason: Reason
    main: str = ""
    prompt_bytes: int = 0
    missing_bytes: int = 0
    missing_tokens: int = 0
    main_cached_tokens: int = 0
    wait_s: float = 0.0


# ---- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    pass


@dataclass(frozen=True, slots=True)
class Started:
    """The call of `leg` is on its way to `engine`; body_bytes: size of its body."""

    leg: int
    engine: str
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """The whole answer of a call that does not stream."""

    leg: int
    ids: tuple[int, ...]
    finish_reason: str
    handle: Handle | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """A chunk of a stream; may carry no ids (usage only)."""

    leg: int
    ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    leg: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Decided:
    plan: Plan


@dataclass(frozen=True, slots=True)
class Woken:
    tag: str


@dataclass(frozen=True, slots=True)
class ClientGone:
    pass


@dataclass(frozen=True, slots=True)
class Expired:
    """The request's own deadline is over."""


Event = Begin | Started | Done | Tokens | Failed | Decided | Woken | ClientGone | Expired


# ---- commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartCall:
    """Call an engine of `role` with the prompt and the first `output_tokens` ids of the ledger.

    engine: exactly this one; empty: the best by load and cache. avoid: rather not these.
    """

    leg: int
    role: Role
    kind: Kind
    output_tokens: int
    max_tokens: int
    kv: KV | None = None
    engine: str = ""
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CancelCall:
    """Close the connection of `leg`: the engine aborts and frees all it holds. Its events count no more."""

    leg: int


@dataclass(frozen=True, slots=True)
class Release:
    """Nobody will read this KV: let a decode engine tell P so, or P keeps it until the lease ends."""

    kv: KV


@dataclass(frozen=True, slots=True)
class Decide:
    """Choose the pipeline for the prompt and the first `output_tokens` ids; answer with Decided."""

    output_tokens: int
    max_tokens: int
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Announce:
    """What the response's headers say. Comes before the first Deliver."""

    pipeline: Pipeline
    reason: Reason


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give these to the client, in this order, once. text may lag behind ids (UTF-8, stop strings)."""

    producer: Producer
    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """All is delivered. reason: stop or length. text: what was held back and is due now."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The request cannot be answered (any more)."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class WakeAfter:
    delay_s: float
    tag: str


@dataclass(frozen=True, slots=True)
class Learn:
    """`engine` now holds the KV of the prompt and the first `output_tokens` ids of the ledger."""

    engine: str
    role: Role
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Observe:
    """The call of `leg` found `local_cached_tokens` of its prompt in the own cache of `engine`."""

    leg: int
    engine: str
    local_cached_tokens: int


Command = StartCall | CancelCall | Release | Decide | Announce | Deliver | Finish | Fail | WakeAfter | Learn | Observe


@dataclass(slots=True)
class HandoffRecord:
    """mode and what the switch from RLD to MD took. stall_s: the client's pause at the switch; None until it is over.
    payload_bytes: all bodies sent to MD for it."""

    mode: str
    rounds: int = 0
    tokens: int = 0
    payload_bytes: int = 0
    stall_s: float | None = None


@dataclass(slots=True)
class Record:
    """What happened, for trace, log and metrics. Times in seconds on the machine's clock, None until they happen."""

    arrived_s: float = 0.0
    pipeline: Pipeline | None = None
    reason: Reason | None = None
    plan: Plan | None = None
    first_token_s: float | None = None
    second_token_s: float | None = None
    landed_s: float | None = None
    handoff_start_s: float | None = None
    handoff_end_s: float | None = None
    ended_s: float | None = None
    last_token_s: float = 0.0
    engines: dict[str, str] = field(default_factory=dict)
    handoff: HandoffRecord | None = None
    gaps_s: list[float] = field(default_factory=list)
    retries: list[dict[str, object]] = field(default_factory=list)
    cached_tokens: int = 0
    main_cached_tokens: int | None = None
    remote_bytes: int | None = None
    diverged: int = 0
