"""The link under faults: streams die, the line goes away, either end is replaced.

Engines see a pause, or a reset; never wrong bytes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.link_support import (
    LIMIT_S,
    MEMBER,
    Lab,
    Refused,
    close,
    echo,
    free_port,
    pattern,
    server,
    source,
    until,
)

from pdd.link import lane as lane_module
from pdd.link.emulate import EmulatedLine, LineSpec
from pdd.link.frames import Buffer, FrameType

SIZE = 12_000_000


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """A link whose line is emulated (fast, 4 ms), so that tests can cut it."""
    async with server(echo) as engine_port:
        lab = Lab(tmp_path, rate_bps=200_000_000, rtt_ms=4, dead_after_s=2)
        lab.engine_port = engine_port
        lab.dial_port = free_port()
        lab.line = EmulatedLine(LineSpec.of(4.0, 400.0), ("127.0.0.1", lab.dial_port), ("127.0.0.1", lab.line_port))
        await lab.line.start()
        await lab.start()
        try:
            yield lab
        finally:
            await lab.stop()
            await lab.line.stop()


async def read_while(lab: Lab, disturb: Callable[[int], None], size: int = SIZE) -> bytes:
    """Read an object from A, calling `disturb` with the number of bytes after each piece."""
    async with server(source(size, seed=7)) as port:
        reader, writer = await lab.connect_kv(port)
        writer.write(b"x")
        data = bytearray()
        async with asyncio.timeout(60):
            while piece := await reader.read(1 << 18):
                data += piece
                disturb(len(data))
        await close(writer)
        return bytes(data)


async def test_streams_killed_in_mid_transfer_cost_no_byte(lab: Lab) -> None:
    killed: list[int] = []

    def disturb(size: int) -> None:
        if size > (len(killed) + 1) * SIZE // 6 and lab.session("gateway").bulk.carriers:
            carriers = lab.session("gateway").bulk.carriers
            index = sorted(carriers)[len(killed) % len(carriers)]
            killed.append(index)
            socket.socket.shutdown(carriers[index].sock, socket.SHUT_RDWR)  # the TCP connection, beneath TLS

    assert await read_while(lab, disturb) == pattern(SIZE, seed=7)
    assert len(killed) >= 4
    assert lab.lane("gateway", "bulk").counters.resent_frames > 0
    await lab.up()


async def test_all_connections_reset_at_once_cost_no_byte(lab: Lab) -> None:
    resets: list[int] = []

    def disturb(size: int) -> None:
        if size > (len(resets) + 1) * SIZE // 3 and len(resets) < 2:
            resets.append(lab.line.reset_connections())

    r, w = await lab.connect_member()
    assert await read_while(lab, disturb) == pattern(SIZE, seed=7)
    assert resets == [5, 5]
    w.write(b"the fast lane too\n")
    assert await asyncio.wait_for(r.readline(), LIMIT_S) == b"the fast lane too\n"
    w.transport.abort()


async def test_the_line_is_gone_for_a_while_and_everything_goes_on(lab: Lab) -> None:
    """Longer than dead_after_s: the streams are given up on both ends, the sessions and their channels are not."""
    heal: list[asyncio.TimerHandle] = []

    def disturb(size: int) -> None:
        if size > SIZE // 3 and not heal:
            lab.line.set_partitioned(True)
            heal.append(asyncio.get_running_loop().call_later(6.0, lab.line.set_partitioned, False))

    r, w = await lab.connect_member()
    w.write(b"before\n")
    assert await asyncio.wait_for(r.readline(), LIMIT_S) == b"before\n"
    session = lab.session("endpoint").id
    transfer = asyncio.create_task(read_while(lab, disturb))
    await until(lambda: bool(heal))
    w.write(b"during\n")
    await until(lambda: lab.session("gateway").state == "suspect")
    assert (await lab.member())["state"] == "suspect"
    began = asyncio.get_running_loop().time()
    with pytest.raises(Refused) as refused:
        await lab.connect_member()
    assert refused.value.status == 502
    assert asyncio.get_running_loop().time() - began < 1.0, "a suspect member fails fast"
    assert await transfer == pattern(SIZE, seed=7)
    assert await asyncio.wait_for(r.readline(), LIMIT_S) == b"during\n"
    await lab.up()
    assert lab.session("endpoint").id == session, "the same session all the time"
    w.transport.abort()


async def test_a_session_without_hope_ends_and_a_new_one_begins(tmp_path: Path) -> None:
    async with server(echo) as engine_port:
        lab = Lab(tmp_path, rtt_ms=4, dead_after_s=1, session_retention_s=1)
        lab.engine_port = engine_port
        lab.dial_port = free_port()
        line = EmulatedLine(LineSpec.of(4.0, 0.0), ("127.0.0.1", lab.dial_port), ("127.0.0.1", lab.line_port))
        await line.start()
        await lab.start()
        try:
            r, w = await lab.connect_member()
            first = lab.session("endpoint").id
            line.set_partitioned(True)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(r.readexactly(1), LIMIT_S)
            assert lab.gateway is not None
            await until(lambda: not lab.gateway.members.describe()["members"])  # type: ignore[union-attr]
            line.set_partitioned(False)
            await lab.up()
            assert lab.session("endpoint").id != first
            w.transport.abort()
        finally:
            await lab.stop()
            await line.stop()


async def test_a_corrupted_frame_costs_its_stream_and_no_byte(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corruption within our own process: TLS does not see it, the frame's checksum does."""
    honest = lane_module.encode_header
    sent = 0

    def lie_once(kind: FrameType, channel: int, seq: int, offset: int, payload: Buffer) -> bytes:
        nonlocal sent
        head = honest(kind, channel, seq, offset, payload)
        sent += kind is FrameType.DATA
        if kind is FrameType.DATA and sent == 40:
            head = head[:32] + bytes(byte ^ 0xFF for byte in head[32:36]) + head[36:]
        return head

    monkeypatch.setattr(lane_module, "encode_header", lie_once)
    assert await read_while(lab, lambda _: None) == pattern(SIZE, seed=7)
    assert lab.lane("endpoint", "bulk").counters.frame_errors == 1
    assert lab.lane("gateway", "bulk").counters.resent_frames > 0


async def test_a_byte_flipped_on_the_line_costs_its_stream_and_no_byte(lab: Lab) -> None:
    honest = lab.line.a_to_b.push
    flipped = 0

    def flip(half: object, data: bytes | None) -> None:
        nonlocal flipped
        if data is not None and len(data) > 10_000 and lab.line.a_to_b.bytes_total > SIZE // 3 and not flipped:
            flipped += 1
            data = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
        honest(half, data)  # type: ignore[arg-type]

    lab.line.a_to_b.push = flip  # type: ignore[method-assign, assignment]
    assert await read_while(lab, lambda _: None) == pattern(SIZE, seed=7)
    assert flipped == 1


async def test_a_peer_that_breaks_the_protocol_loses_its_session_not_the_process(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    r, w = await lab.connect_member()
    first = lab.session("endpoint").id
    lane = lab.lane("endpoint", "fast")
    channel = next(iter(lane.channels.values()))
    channel.sent += 1 << 30  # bytes far beyond what was granted
    channel.credit += 1 << 31
    w.write(b"x")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(r.readexactly(2), LIMIT_S)
    await until(lambda: lab.session("endpoint").id != first)
    await lab.up()
    w.transport.abort()


async def test_the_gateway_is_restarted(lab: Lab) -> None:
    r, w = await lab.connect_member()
    assert lab.gateway is not None
    await lab.gateway.stop()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(r.readexactly(1), LIMIT_S)
    await lab.start_gateway()
    began = asyncio.get_running_loop().time()
    await lab.up()
    assert asyncio.get_running_loop().time() - began < 8
    assert await read_while(lab, lambda _: None, size=1_000_000) == pattern(1_000_000, seed=7)
    w.transport.abort()


async def test_the_gateway_is_killed_without_a_word(lab: Lab) -> None:
    """No goodbye: the endpoint learns from `unknown-session` that its channels are lost, and begins anew."""
    async with server(source(100_000_000)) as port:
        reader, writer = await lab.connect_kv(port)
        writer.write(b"x")
        await reader.readexactly(100_000)
        assert lab.gateway is not None
        for session in lab.gateway.sessions.values():
            session.goodbye = lambda reason: None  # type: ignore[method-assign]
        await lab.gateway.stop()
        await lab.start_gateway()
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(LIMIT_S):
                while await reader.read(1 << 20):
                    pass
        writer.transport.abort()
    await lab.up()


async def test_the_endpoint_is_restarted_and_its_counts_stay(lab: Lab) -> None:
    assert await read_while(lab, lambda _: None, size=1_000_000) == pattern(1_000_000, seed=7)
    await until(lambda: lab.lane("gateway", "bulk").unacked_bytes == 0)
    r, w = await lab.connect_member()
    assert lab.endpoint is not None
    await lab.endpoint.stop()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(r.readexactly(1), LIMIT_S)
    assert (await lab.get("/members"))[1] == b'{"gateway": "gw", "members": []}'
    await lab.start_endpoint()
    await lab.up()
    assert (await lab.member())["bulk_bytes_total"] == 1_000_000
    w.transport.abort()


async def test_an_endpoint_that_died_without_a_word_is_replaced_by_its_successor(lab: Lab) -> None:
    r, w = await lab.connect_member()
    first = lab.endpoint
    assert first is not None
    first_session = lab.session("gateway").id
    for task in first._dialers:
        task.cancel()
    lab.kv_port, lab.endpoint_http_port = free_port(), free_port()
    await lab.start_endpoint()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(r.readexactly(1), LIMIT_S)
    await lab.up()
    assert lab.session("gateway").id != first_session
    assert len(lab.gateway.sessions) == 1  # type: ignore[union-attr]
    assert (await lab.member())["name"] == MEMBER
    await first.stop()
    w.transport.abort()


async def test_a_stream_that_goes_silent_is_given_up_and_dialled_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A middlebox that drops one connection's packets: no reset comes, only silence."""
    victim = lab.session("endpoint").bulk.carriers[1]
    near = next(half for half in lab.line.b_to_a.halves if _port(half) == victim.sock.getsockname()[1])
    assert near.peer is not None
    for half in (near, near.peer):
        monkeypatch.setattr(half, "_take", lambda data: None)
    await until(lambda: lab.session("endpoint").bulk.carriers.get(1) not in (None, victim))
    await lab.up()


def _port(half: object) -> int:
    transport = half.transport  # type: ignore[attr-defined]
    return int(transport.get_extra_info("peername")[1])
