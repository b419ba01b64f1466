"""The link carries connections both ways, over mTLS, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.link_support import Lab, close, echo, pattern, read_all, server, source


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
    member = await lab.member()
    assert member["bulk_bytes_total"] == size
    assert size < member["bulk_wire_bytes_total"] < size * 1.01
