"""What the router says to any engine and hears from it, without saying how it is written on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Handle = Mapping[str, Any]
"""What P gives out so that one reader may pull the prompt's KV; opaque to the router, passed on verbatim."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call, in token ids.

    prompt: JSON of the ids without the brackets (`1,2,3`), made once a request and used by every call.
    extra_ids: ids after them (ledger). max_tokens, min_tokens: of this call. wants_handle: P is to export its KV.
    handle: pull the KV of (a prefix of) the prompt with it. sampling: fields of the body, verbatim.
    """

    prompt: bytes
    extra_ids: Sequence[int]
    max_tokens: int
    stream: bool
    sampling: Mapping[str, Any]
    min_tokens: int = 0
    wants_handle: bool = False
    handle: Handle | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call. local_cached_tokens: found in the engine's own prefix cache (not pulled); None if the
    engine does not tell. remote_tokens, remote_bytes: pulled by this call; None if it does not tell."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    local_cached_tokens: int | None
    remote_tokens: int | None = None
    remote_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer of a call without streaming."""

    ids: tuple[int, ...]
    finish_reason: str
    handle: Handle | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream. finish_reason is None until the last with ids."""

    ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage | None


class Adapter(Protocol):
    """How one type of engine is spoken to. Pure: bytes in, values out."""

    path: bytes

    def encode(self, call: EngineCall) -> tuple[bytes, ...]:
        """The body, in pieces to be written one after another."""

    def decode_answer(self, body: bytes, *, pulled: bool) -> Answer:
        """A body with status 200. pulled: the call had a handle. Raises EngineError if it is not what was promised."""

    def decode_event(self, data: bytes, *, pulled: bool) -> Chunk | None:
        """The data of one server-sent event; None for `[DONE]`. Raises EngineError."""

    def decode_error(self, status: int, body: bytes) -> str:
        """What the engine says is wrong, in one line."""
