"""The line itself: the rate cap, shares between members, the fast lane beside saturated bulk, and the emulated line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.link_support import (
    LIMIT_S,
    Lab,
    close,
    connect_through,
    echo,
    free_port,
    now,
    pattern,
    read_all,
    server,
    source,
    until,
)

from pdd.link.emulate import EmulatedLine, LineSpec
from pdd.link.endpoint import Endpoint

pytestmark = pytest.mark.alone

RATE = 80_000_000
SIZE = 10_000_000


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Capped at 80 Mbit/s, nothing between the ends."""
    async with server(echo) as engine_port:
        lab = Lab(tmp_path, rate_bps=RATE, rtt_ms=5)
        lab.engine_port = engine_port
        await lab.start()
        try:
            yield lab
        finally:
            await lab.stop()


async def read_object(lab_port: int, port: int, size: int) -> float:
    """Seconds for one object."""
    reader, writer = await connect_through(lab_port, f"127.0.0.1:{port}")
    began = now()
    writer.write(b"x")
    assert await read_all(reader) == pattern(size)
    took = now() - began
    await close(writer)
    return took


async def test_the_cap_is_never_exceeded_and_limits(lab: Lab) -> None:
    async with server(source(SIZE)) as port:
        reading = asyncio.create_task(read_object(lab.kv_port, port, SIZE))
        seen = set()
        while not reading.done():
            seen.add((await lab.member())["limited_by"])
            await asyncio.sleep(0.1)
        took = await reading
    assert took > SIZE * 8 / RATE * 0.97, "faster than the cap permits"
    assert "cap" in seen
    assert "loss" not in seen
    assert (await lab.get("/metrics"))[1].decode().count("pdd_link_cap_wait_seconds_total") >= 1


async def test_members_share_the_cap(lab: Lab) -> None:
    config = lab.endpoint_config(name="md-1", kv_port=free_port(), http_port=free_port())
    other = Endpoint(config)
    await other.start()
    try:
        assert lab.gateway is not None
        await until(lambda: len(lab.gateway.members.describe()["members"]) == 2)  # type: ignore[union-attr]
        await until(lambda: len(lab.gateway.members.find("default/tiny/md-1").bulk.carriers) == 4)  # type: ignore[union-attr]
        async with server(source(SIZE // 2)) as port:
            times = await asyncio.gather(
                read_object(lab.kv_port, port, SIZE // 2), read_object(config.kv_port, port, SIZE // 2)
            )
        total = max(times)
        assert total > SIZE * 8 / RATE * 0.97
        assert min(times) > 0.75 * total, "neither was served before the other"
    finally:
        await other.stop()


async def test_the_fast_lane_never_waits_for_bulk(lab: Lab) -> None:
    """At 80 Mbit/s the bulk backlog below is worth a second; a token must not queue behind it."""
    r, w = await lab.connect_member()
    async with server(source(SIZE)) as port:
        reading = [asyncio.create_task(read_object(lab.kv_port, port, SIZE)) for _ in range(3)]
        await until(lambda: lab.lane("gateway", "bulk").queued_bytes > 500_000)
        times = []
        for _ in range(40):
            began = now()
            w.write(b"token\n")
            await asyncio.wait_for(r.readline(), 5)
            times.append(now() - began)
        assert lab.lane("gateway", "bulk").queued_bytes > 500_000, "bulk was saturated all the while"
        assert sorted(times)[len(times) // 2] < 0.05
        await asyncio.gather(*reading)
    await close(w)


# -- the emulated line


async def emulated(rtt_ms: float, mbps: float, to: int) -> EmulatedLine:
    line = EmulatedLine(LineSpec.of(rtt_ms, mbps), ("127.0.0.1", free_port()), ("127.0.0.1", to), free_port())
    await line.start()
    return line


async def test_the_emulated_line_delays_and_paces() -> None:
    async with server(source(2_000_000)) as port:
        line = await emulated(40.0, 40.0, port)
        try:
            began = now()
            reader, writer = await asyncio.open_connection(*line._listen_at)
            writer.write(b"x")
            first = await asyncio.wait_for(reader.readexactly(1), LIMIT_S)
            first_at = now() - began
            rest = await read_all(reader)
            took = now() - began
            assert first + rest == pattern(2_000_000)
            assert first_at >= 0.080 - 0.002, "one round trip to connect, one for the answer"
            assert took >= 2_000_000 * 8 / 40e6 + 0.08 - 0.01
            await close(writer)
            await until(lambda: not line.a_to_b.halves and not line.b_to_a.halves)
        finally:
            await line.stop()


async def test_connections_share_the_emulated_rate() -> None:
    async with server(source(1_000_000)) as port:
        line = await emulated(4.0, 40.0, port)
        try:

            async def one() -> None:
                reader, writer = await asyncio.open_connection(*line._listen_at)
                writer.write(b"x")
                assert await read_all(reader) == pattern(1_000_000)
                await close(writer)

            began = now()
            await asyncio.gather(*(one() for _ in range(4)))
            assert now() - began >= 4_000_000 * 8 / 40e6 - 0.01
            assert line.a_to_b.bytes_total == 4_000_000
        finally:
            await line.stop()


async def test_a_partition_holds_bytes_and_breaks_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    async with server(echo) as port:
        line = await emulated(2.0, 0.0, port)
        try:
            reader, writer = await asyncio.open_connection(*line._listen_at)
            writer.write(b"one\n")
            assert await asyncio.wait_for(reader.readline(), LIMIT_S) == b"one\n"
            stats = json.loads((await post(lab, line._control_port, "/partition"))[1])
            assert stats["partitioned"] is True
            writer.write(b"two\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.3)
            await post(lab, line._control_port, "/heal")
            assert await asyncio.wait_for(reader.readline(), LIMIT_S) == b"two\n"
            status, body = await lab.get("/stats", line._control_port)
            assert (status, json.loads(body)["bytes_b_to_a"]) == (200, 8)
            await post(lab, line._control_port, "/reset")
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.readexactly(1), LIMIT_S)
            writer.transport.abort()
        finally:
            await line.stop()


async def post(lab: Lab, port: int, path: str) -> tuple[int, bytes]:
    return await lab.get(path, port, method="POST")
