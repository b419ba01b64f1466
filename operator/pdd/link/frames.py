"""The wire format of a link stream: a fixed header, then the payload.

    offset  size  field
         0     2  magic     0x5044; anything else means that the stream is out of step
         2     1  type      FrameType
         3     1  flags     0, reserved
         4     4  length    bytes of payload, at most MAX_PAYLOAD_BYTES
         8     8  channel   id within the lane, 0 for frames that belong to the stream
        16     8  seq       number within the lane of a frame that must arrive, from 1; 0 for the others
        24     8  offset    DATA: position of the payload in the channel's byte stream; FIN: its length;
                            OPEN, ACCEPT, WINDOW: the position up to which the sender of this frame will receive;
                            ACK: every seq below it has arrived
        32     4  crc32     of the first 32 bytes and the payload
        36     4  reserved  0

Frames with a seq are kept by their sender until acknowledged and sent again when their stream dies; a receiver drops
a seq that it has seen. So every frame takes effect exactly once, whatever streams come and go.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from pdd.common.errors import PDDError

Buffer = bytes | bytearray | memoryview

PROTOCOL_VERSION = 1
MAGIC = 0x5044
HEADER_BYTES = 40
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_ACK_RANGES = 64

_HEAD = struct.Struct("!HBBIQQQ")
_TAIL = struct.Struct("!II")
_RANGE = struct.Struct("!QQ")


class FrameType(IntEnum):
    HELLO = 1
    """First frame of an endpoint on a stream; JSON (see hello.py)."""
    WELCOME = 2
    """The gateway's answer to HELLO; JSON."""
    GOODBYE = 3
    """The sender ends the session on purpose; payload: why, UTF-8."""
    PING = 4
    PONG = 5
    ACK = 6
    """Payload: up to MAX_ACK_RANGES pairs (first, end) of arrived seqs above `offset`."""
    OPEN = 16
    """Opens `channel`; payload: the target, UTF-8."""
    ACCEPT = 17
    DATA = 18
    FIN = 19
    """No more bytes in this direction; the other direction stays open."""
    RESET = 20
    """The channel is gone, in both directions; payload: why, UTF-8."""
    WINDOW = 21
    NOOP = 22
    """Takes the place of a frame that became pointless but whose seq the receiver must still see."""


class FrameError(PDDError):
    """The bytes of a stream are not frames: out of step, corrupted, or from something else. The stream must die."""

    reason = "FrameError"
    retryable = True


@dataclass(frozen=True, slots=True)
class Frame:
    type: FrameType
    channel: int = 0
    seq: int = 0
    offset: int = 0
    payload: Buffer = b""


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header whose payload has not been read or checked yet."""

    type: FrameType
    channel: int
    seq: int
    offset: int
    length: int
    crc: int
    head_crc: int
    """crc32 of the header's first 32 bytes: the start value for the payload's."""


_TYPES = {int(kind): kind for kind in FrameType}


def encode_header(kind: FrameType, channel: int, seq: int, offset: int, payload: Buffer) -> bytes:
    """The 40 bytes that go before `payload` on the wire."""
    head = _HEAD.pack(MAGIC, kind, 0, len(payload), channel, seq, offset)
    return head + _TAIL.pack(crc32(payload, crc32(head)), 0)


def encode(frame: Frame) -> bytes:
    """A whole small frame in one piece."""
    return encode_header(frame.type, frame.channel, frame.seq, frame.offset, frame.payload) + bytes(frame.payload)


def decode_header(data: Buffer) -> Header:
    """Parse HEADER_BYTES bytes. Raises FrameError if they cannot be a header."""
    magic, kind, _flags, length, channel, seq, offset = _HEAD.unpack_from(data)
    crc, _reserved = _TAIL.unpack_from(data, _HEAD.size)
    if magic != MAGIC:
        raise FrameError(f"stream out of step: a frame starts with 0x{magic:04x}, not 0x{MAGIC:04x}")
    known = _TYPES.get(kind)
    if known is None:
        raise FrameError(f"unknown frame type {kind}: is the other end of another version?")
    if length > MAX_PAYLOAD_BYTES:
        raise FrameError(f"frame of {length} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    return Header(known, channel, seq, offset, length, crc, crc32(memoryview(data)[: _HEAD.size]))


def check_payload(header: Header, payload: Buffer) -> Frame:
    """Header and payload as one frame. Raises FrameError if the checksum does not match."""
    if crc32(payload, header.head_crc) != header.crc:
        raise FrameError(f"checksum mismatch in a {header.type.name} frame of {header.length} bytes")
    return Frame(header.type, header.channel, header.seq, header.offset, payload)


def encode_ranges(ranges: list[tuple[int, int]]) -> bytes:
    """The payload of an ACK: half-open (first, end) pairs of seqs, at most MAX_ACK_RANGES of them."""
    return b"".join(_RANGE.pack(first, end) for first, end in ranges[:MAX_ACK_RANGES])


def decode_ranges(payload: Buffer) -> list[tuple[int, int]]:
    """Inverse of encode_ranges. Raises FrameError on a payload that is none."""
    if len(payload) % _RANGE.size or len(payload) > MAX_ACK_RANGES * _RANGE.size:
        raise FrameError(f"an ACK with {len(payload)} bytes of ranges")
    return [(first, end) for first, end in _RANGE.iter_unpack(payload)]
