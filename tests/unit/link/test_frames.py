"""The wire format: what is encoded is decoded, and anything else is refused."""

from __future__ import annotations

import pytest

from pdd.link.frames import (
    HEADER_BYTES,
    MAX_ACK_RANGES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameError,
    FrameType,
    check_payload,
    decode_header,
    decode_ranges,
    encode,
    encode_header,
    encode_ranges,
)


def decode(data: bytes) -> Frame:
    header = decode_header(data[:HEADER_BYTES])
    return check_payload(header, data[HEADER_BYTES : HEADER_BYTES + header.length])


@pytest.mark.parametrize("kind", list(FrameType))
def test_a_frame_survives_the_wire(kind: FrameType) -> None:
    frame = Frame(kind, channel=2**40 + 1, seq=2**63, offset=2**50, payload=b"\x00payload\xff")
    assert decode(encode(frame)) == frame


def test_header_and_payload_can_be_sent_apart() -> None:
    payload = memoryview(bytearray(b"kv" * 1000))
    data = encode_header(FrameType.DATA, 3, 4, 5, payload) + payload
    assert decode(data) == Frame(FrameType.DATA, 3, 4, 5, bytes(payload))


def test_every_flipped_bit_is_noticed() -> None:
    data = encode(Frame(FrameType.DATA, channel=7, seq=9, offset=11, payload=b"abc"))
    checked = [at for at in range(len(data)) if not 36 <= at < 40]  # the reserved word is not covered
    for at in checked:
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(FrameError):
                header = decode_header(bytes(broken[:HEADER_BYTES]))
                check_payload(header, (bytes(broken[HEADER_BYTES:]) + bytes(1 << 12))[: header.length])


def test_a_stream_out_of_step_is_named_as_such() -> None:
    with pytest.raises(FrameError, match="out of step"):
        decode_header(b"GET / HTTP/1.1\r\nHost: gateway\r\nUser-Agent: x\r\n")


def test_a_frame_beyond_the_limit_is_refused_before_its_payload_is_read() -> None:
    head = bytearray(encode(Frame(FrameType.DATA)))
    head[4:8] = (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(FrameError, match="limit"):
        decode_header(bytes(head))


def test_an_unknown_type_asks_about_the_version() -> None:
    head = bytearray(encode(Frame(FrameType.DATA)))
    head[2] = 99
    with pytest.raises(FrameError, match="version"):
        decode_header(bytes(head))


def test_ack_ranges_survive_and_are_bounded() -> None:
    ranges = [(i * 10, i * 10 + 3) for i in range(1, 100)]
    assert decode_ranges(encode_ranges(ranges)) == ranges[:MAX_ACK_RANGES]
    with pytest.raises(FrameError):
        decode_ranges(b"x" * 15)
