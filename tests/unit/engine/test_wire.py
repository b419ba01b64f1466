"""Frames of the KV pull protocol."""

from __future__ import annotations

import pytest

from pdd.engine.reference import wire
from pdd.engine.reference.wire import Ask, Kind, WireError

ASK = Ask(Kind.READ, "engine", "handle", "reader", "print", ((0, 0, 16), (1, 2, 5)))


def split(frame: bytes, limit: int = 1 << 20) -> tuple[Kind, bytes]:
    kind, size = wire.decode_head(frame[: wire.HEAD_BYTES], limit)
    assert len(frame) == wire.HEAD_BYTES + size
    return kind, frame[wire.HEAD_BYTES :]


def test_asks_survive() -> None:
    assert wire.decode_ask(*split(wire.encode_ask(ASK))) == ASK
    done = Ask(Kind.DONE, "e", "h", "r", "f")
    assert wire.decode_ask(*split(wire.encode_ask(done))) == done


def block(index: int, payload: bytes) -> memoryview:
    kind, body = split(wire.encode_block_head(index, payload) + payload)
    assert kind is Kind.BLOCK
    return memoryview(body)


def test_blocks_survive() -> None:
    body = block(3, b"x" * 100)
    assert bytes(wire.decode_block(body, 3, 100)) == b"x" * 100


@pytest.mark.parametrize("at", [0, 4, 11, 12, 50, 111])
def test_any_flipped_byte_of_a_block_is_noticed(at: int) -> None:
    body = block(3, bytes(range(100)))
    damaged = bytearray(body)
    damaged[at] ^= 1
    with pytest.raises(WireError):
        wire.decode_block(memoryview(damaged), 3, 100)


def test_a_short_block_is_noticed() -> None:
    body = block(0, b"x" * 99)
    with pytest.raises(WireError, match="99 bytes, 100"):
        wire.decode_block(body, 0, 100)


@pytest.mark.parametrize("head", [b"HTTP/", b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x05\x63"])
def test_other_protocols_are_noticed(head: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode_head(head, 1 << 16)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":1}',
        b'{"version":1,"engine_id":"e","handle":"h","reader":"r","fingerprint":"f","ranges":[[1,2]]}',
    ],
)
def test_malformed_asks_are_noticed(body: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode_ask(Kind.READ, body)


def test_another_version_is_named() -> None:
    body = wire.encode_ask(ASK)[wire.HEAD_BYTES :].replace(b'"version":1', b'"version":9')
    with pytest.raises(WireError, match="version 9, ours is 1"):
        wire.decode_ask(Kind.READ, body)


@pytest.mark.parametrize(
    "ranges", [((2, 0, 1),), ((0, 0, 17),), ((1, 0, 5),), ((0, 5, 5),), ((-1, 0, 1),), ((0, 0, 1),) * 3]
)
def test_ranges_outside_the_export_are_refused(ranges: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(WireError):
        wire.check_ranges(ranges, 2, 20, 16)


def test_ranges_inside_are_fine() -> None:
    wire.check_ranges(((0, 3, 16), (1, 0, 4)), 2, 20, 16)
