"""The KV pull protocol's frames. No I/O here.

A frame is `u32 length, u8 kind, body` (network order, length counts kind and body). Control bodies are JSON; a BLOCK's
body is `u32 index, u64 checksum, bytes`, the index counting the ranges of the READ that it answers.

    reader -> owner   READ {version, engine_id, handle, reader, fingerprint, ranges: [[block, start, end], ...]}
                      HOLD {version, engine_id, handle, reader, fingerprint}   the reader still queues: keep the lease
                      DONE {version, engine_id, handle, reader, fingerprint}   the owner may forget the handle
    owner -> reader   BLOCK ... for each range in order, then OK {}; OK {} to HOLD and DONE; ERROR {message} to any

The reader dials, the owner never does. `block` counts the handle's blocks from 0, start and end are tokens within it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import xxhash

PROTOCOL_VERSION = 1
MAX_CONTROL_BYTES = 4 << 20
_HEAD = struct.Struct(">IB")
_BLOCK = struct.Struct(">IQ")
HEAD_BYTES = _HEAD.size
BLOCK_HEAD_BYTES = _BLOCK.size


class Kind(IntEnum):
    READ = 1
    HOLD = 2
    DONE = 3
    OK = 4
    ERROR = 5
    BLOCK = 6


class WireError(Exception):
    """The peer does not speak this protocol, or bytes were damaged."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A reader's request. ranges is empty for HOLD and DONE."""

    kind: Kind
    engine_id: str
    handle: str
    reader: str
    fingerprint: str
    ranges: tuple[tuple[int, int, int], ...] = ()


def encode_frame(kind: Kind, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


def decode_head(head: bytes | memoryview, max_bytes: int) -> tuple[Kind, int]:
    """(kind, length of the body). Raises WireError when the length is out of bounds."""
    length, kind = _HEAD.unpack(head)
    if not 1 <= length <= max_bytes + 1:
        raise WireError(f"frame of {length} bytes (limit {max_bytes}): the peer does not speak the KV pull protocol")
    try:
        return Kind(kind), length - 1
    except ValueError:
        raise WireError(f"frame of unknown kind {kind}: the peer runs another version") from None


def encode_json(kind: Kind, body: dict[str, Any]) -> bytes:
    return encode_frame(kind, json.dumps(body, separators=(",", ":")).encode())


def encode_ask(ask: Ask) -> bytes:
    body: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "engine_id": ask.engine_id,
        "handle": ask.handle,
        "reader": ask.reader,
        "fingerprint": ask.fingerprint,
    }
    if ask.kind is Kind.READ:
        body["ranges"] = [list(r) for r in ask.ranges]
    return encode_json(ask.kind, body)


def decode_ask(kind: Kind, body: bytes) -> Ask:
    """Raises WireError on anything that is not an ask of this version."""
    if kind not in (Kind.READ, Kind.HOLD, Kind.DONE):
        raise WireError(f"unexpected frame {kind.name}")
    try:
        raw = json.loads(body)
        if raw["version"] != PROTOCOL_VERSION:
            raise WireError(f"protocol version {raw['version']}, ours is {PROTOCOL_VERSION}: upgrade the older engine")
        ranges = tuple((int(b), int(s), int(e)) for b, s, e in raw.get("ranges", ()))
        return Ask(kind, str(raw["engine_id"]), str(raw["handle"]), str(raw["reader"]), str(raw["fingerprint"]), ranges)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"malformed {kind.name}: {error!r}") from error


def decode_error(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (KeyError, TypeError, ValueError):
        return "the owner refused without saying why"


def encode_block_head(index: int, payload: bytes | memoryview) -> bytes:
    """What goes before the payload of a BLOCK; the payload itself is sent from where it is."""
    head = _HEAD.pack(_BLOCK.size + len(payload) + 1, Kind.BLOCK)
    return head + _BLOCK.pack(index, xxhash.xxh3_64_intdigest(payload))


def decode_block(body: memoryview, index: int, expected_bytes: int) -> memoryview:
    """The payload of the `index`-th range. Raises WireError on a wrong order, length or checksum."""
    if len(body) != _BLOCK.size + expected_bytes:
        raise WireError(f"block {index} has {len(body) - _BLOCK.size} bytes, {expected_bytes} were asked for")
    got, checksum = _BLOCK.unpack_from(body)
    payload = body[_BLOCK.size :]
    if got != index:
        raise WireError(f"block {got} came where block {index} was due")
    if xxhash.xxh3_64_intdigest(payload) != checksum:
        raise WireError(f"block {index} does not match its checksum")
    return payload


def check_ranges(ranges: Sequence[tuple[int, int, int]], num_blocks: int, num_tokens: int, block_size: int) -> None:
    """Raise WireError unless every range lies within the exported tokens."""
    if len(ranges) > num_blocks:
        raise WireError(f"{len(ranges)} ranges of a handle of {num_blocks} blocks")
    for block, start, end in ranges:
        filled = min(block_size, num_tokens - block * block_size)
        if not (0 <= block < num_blocks and 0 <= start < end <= filled):
            raise WireError(f"range {block}:{start}-{end} is outside the handle's {num_tokens} tokens")
