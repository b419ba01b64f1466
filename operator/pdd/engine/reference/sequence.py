"""One request inside the engine, and what it tells the outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from pdd.engine.reference.kvstore import BlockIds
from pdd.engine.reference.sampling import GREEDY, Sampling


class Status(StrEnum):
    WAITING = "waiting"
    LOADING = "loading"
    """Blocks are allocated and a remote engine's KV is being read into them."""
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RemoteHandle:
    """A prefill engine's `kv_transfer_params`: where the KV of a prompt's first num_tokens can be read, once."""

    engine_id: str
    request_id: str
    host: str
    port: int
    num_tokens: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for. `export` keeps the blocks under a lease after the end, for one reader."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = GREEDY
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    export: bool = False
    remote: RemoteHandle | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the prompt's KV came from; local_cached + remote + computed = prompt tokens."""

    local_cached_tokens: int = 0
    remote_tokens: int = 0
    remote_bytes: int = 0
    computed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """An exported prompt. Blocks are in order; num_tokens of them hold KV."""

    lease_id: str
    blocks: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Output:
    """News of a request: new tokens, and at the end why. `error` says what failed if finish_reason is "error"."""

    tokens: tuple[int, ...]
    finish_reason: str | None = None
    usage: Usage | None = None
    lease: Lease | None = None
    error: str | None = None


Sink = Callable[[Output], None]
"""Called on the engine's thread; must not block."""


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Tokens start .. end of the owner's `index`-th block, wanted in local block `target`."""

    index: int
    start: int
    end: int
    target: int


@dataclass(slots=True)
class Sequence:
    """A request's changing state. tokens holds prompt and output; positions below `computed` have KV in `blocks`."""

    request: Request
    arrival: int
    arrived_s: float
    sink: Sink
    status: Status = Status.WAITING
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    table: BlockIds = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    computed: int = 0
    digests: list[bytes] = field(default_factory=list)
    """Digests of whole blocks of `tokens`, as far as known."""
    registered: int = 0
    """Whole blocks already offered to the prefix cache."""
    usage: Usage | None = None
    checked: bool = False
    """Its prefix has been looked up at least once."""
    deferred: bool = False
    """Another request is about to hold its next block."""
    remote_done: bool = False
    """The remote handle has been used up (or never was); what is missing now is computed here."""
    admitted_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt)

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def missing(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.computed

    @property
    def may_pass(self) -> bool:
        """Whether looking for its prefix (again) may let it go before those that wait longer."""
        return self.request.max_tokens == 1 and (self.deferred or not self.checked)

    @property
    def prefilling(self) -> bool:
        return self.missing > 1 or self.output_len == 0

    def add_blocks(self, blocks: list[int]) -> None:
        self.blocks.extend(blocks)
        self.table = np.array(self.blocks, dtype=np.int64)

    def drop_blocks(self) -> None:
        """Forget the blocks and what was computed in them."""
        self.blocks = []
        self.table = np.empty(0, dtype=np.int64)
        self.computed = self.registered = 0
