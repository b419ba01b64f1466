"""The link carries connections both ways, over mTLS, on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.link_support import (
    LIMIT_S,
    MEMBER,
    Lab,
    Refused,
    close,
    connect_through,
    echo,
    free_port,
    pattern,
    read_all,
    server,
    source,
    until,
)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with server(echo) as engine_port:
        lab = Lab(tmp_path)
        lab.engine_port = engine_port
        await lab.start()
        try:
            yield lab
        finally:
            await lab.stop()


async def test_router_reaches_the_engine_through_the_fast_lane(lab: Lab) -> None:
    reader, writer = await lab.connect_member()
    for i in range(50):
        writer.write(b"token %d\n" % i)
        assert await asyncio.wait_for(reader.readline(), 5) == b"token %d\n" % i
    writer.write_eof()
    assert await read_all(reader) == b""
    await close(writer)


async def test_engine_reads_a_large_object_through_the_bulk_lane(lab: Lab) -> None:
    size = 20_000_000
    async with server(source(size)) as port:
        reader, writer = await lab.connect_kv(port)
        writer.write(b"x")
        assert await read_all(reader) == pattern(size)
        await close(writer)
    await until(lambda: lab.lane("gateway", "bulk").unacked_bytes == 0)
    member = await lab.member()
    assert member["bulk_bytes_total"] == size
    assert size < member["bulk_wire_bytes_total"] < size * 1.01
    carried = [carrier.info().sent_bytes for carrier in lab.session("gateway").bulk.carriers.values()]
    assert len(carried) == 4
    assert min(carried) > size / 100, "every stream carries a share of one object"


async def test_an_object_larger_than_all_windows_arrives_whole(lab: Lab) -> None:
    block, blocks = pattern(1 << 20), 160

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(blocks):
            writer.write(block)
            await writer.drain()
        writer.write_eof()

    expected = hashlib.sha256()
    for _ in range(blocks):
        expected.update(block)
    async with server(serve) as port:
        reader, writer = await lab.connect_kv(port)
        found = hashlib.sha256()
        async with asyncio.timeout(90):
            while data := await reader.read(1 << 18):
                found.update(data)
        await close(writer)
    assert found.digest() == expected.digest()


async def test_thousands_of_small_connections(lab: Lab) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"kv of " + await reader.readexactly(6))
        writer.write_eof()

    async with server(serve) as port:
        slots = asyncio.Semaphore(64)

        async def one(number: int) -> None:
            async with slots:
                reader, writer = await lab.connect_kv(port)
                writer.write(b"%06d" % number)
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b"kv of %06d" % number
                await close(writer)

        async with asyncio.timeout(90):
            await asyncio.gather(*(one(number) for number in range(2000)))
        await until(lambda: not lab.lane("gateway", "bulk").channels and not lab.lane("endpoint", "bulk").channels)
    assert lab.lane("gateway", "bulk").counters.opened == 2000
    assert lab.lane("gateway", "bulk").counters.resets == {}


async def test_half_close_lets_the_other_direction_go_on(lab: Lab) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(-1)  # until the reader's end of stream
        for i in range(3):
            writer.write(b"%d:" % i + asked)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write_eof()

    async with server(serve) as port:
        reader, writer = await lab.connect_kv(port)
        writer.write(b"question")
        writer.write_eof()
        assert await read_all(reader) == b"0:question1:question2:question"
        await close(writer)


async def test_a_reset_at_one_end_is_a_reset_at_the_other(lab: Lab) -> None:
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
        except OSError as error:
            seen.set_result(type(error).__name__)
            raise

    async with server(serve) as port:
        reader, writer = await lab.connect_kv(port)
        await reader.readexactly(100_000)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()
        assert await asyncio.wait_for(seen, LIMIT_S) in ("ConnectionResetError", "BrokenPipeError")
    await until(lambda: not lab.lane("gateway", "bulk").channels)


async def test_a_slow_reader_holds_its_own_source_and_nobody_else(lab: Lab) -> None:
    given = 0

    async def firehose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        while True:
            writer.write(bytes(1 << 18))
            await writer.drain()
            given += 1 << 18

    async with server(firehose) as slow_port, server(source(8_000_000)) as port:
        _, slow_writer = await lab.connect_kv(slow_port)
        await until(lambda: lab.lane("gateway", "bulk").starved)
        reader, writer = await lab.connect_kv(port)
        writer.write(b"x")
        assert await read_all(reader) == pattern(8_000_000)
        r2, w2 = await lab.connect_member()
        w2.write(b"token\n")
        assert await asyncio.wait_for(r2.readline(), 5) == b"token\n"
        held = given
        await asyncio.sleep(0.5)
        assert given - held <= 1 << 19, "back-pressure reaches the source"
        for each in (slow_writer, writer, w2):
            each.transport.abort()


async def test_refusals_say_what_to_do(lab: Lab) -> None:
    with pytest.raises(Refused) as nobody:
        await lab.connect_member("default/tiny/nobody")
    assert nobody.value.status == 502
    assert b"nobody" in nobody.value.body
    with pytest.raises(Refused) as forbidden:
        await connect_through(lab.kv_port, "127.0.0.1:80")
    assert forbidden.value.status == 403
    with pytest.raises(Refused) as closed:
        await lab.connect_kv(free_port())
    assert closed.value.status == 502
    with pytest.raises(Refused) as nonsense:
        await connect_through(lab.kv_port, "no-port-here")
    assert nonsense.value.status == 400


async def test_an_engine_that_is_not_there_is_a_502(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.engine_port = free_port()
    await lab.start()
    try:
        with pytest.raises(Refused) as refused:
            await lab.connect_member()
        assert refused.value.status == 502
        assert b"DialFailed" in refused.value.body
    finally:
        await lab.stop()


async def test_http_routes(lab: Lab) -> None:
    assert await lab.get("/healthz") == (200, b"ok\n")
    assert (await lab.get("/nonsense"))[0] == 404
    assert await lab.get("/readyz", lab.endpoint_http_port) == (200, b"connected\n")
    status, body = await lab.get("/members")
    members = json.loads(body)["members"]
    assert status == 200
    assert [member["name"] for member in members] == [MEMBER]
    expected = {"state": "connected", "deployment": "tiny", "namespace": "default", "streams": 4}
    assert expected.items() <= members[0].items()
    for port, direction in ((lab.http_port, "to_member"), (lab.endpoint_http_port, "from_gateway")):
        text = (await lab.get("/metrics", port))[1].decode()
        assert f'pdd_link_wire_bytes_total{{direction="{direction}",lane="fast",member="{MEMBER}"}}' in text
        assert f'pdd_link_streams{{lane="bulk",member="{MEMBER}"}} 4.0' in text


async def test_malformed_http_is_answered_400(lab: Lab) -> None:
    for port in (lab.http_port, lab.kv_port, lab.endpoint_http_port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), LIMIT_S)).startswith(b"HTTP/1.1 400 ")
        await close(writer)
