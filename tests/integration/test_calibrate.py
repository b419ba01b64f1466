"""`pdd calibrate` against an engine whose laws are known, and against the real reference engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdd.cli.calibration.run import CalibrateOptions, calibrate_engine
from pdd.common.errors import EngineError
from pdd.planner.calibration_file import read_engine_times
from pdd.planner.timing import DecodeTime, PrefillTime, decode_step_s, prefill_s

pytestmark = pytest.mark.alone

BLOCK = 16
PREFILL = PrefillTime(per_token_s=1e-4, chunk_tokens=128, attention_s=4e-8, fixed_s=0.01)
DECODE = DecodeTime(fixed_s=0.02, per_sequence_s=0.002)


class KnownEngine:
    """Answers as an engine does whose times follow the laws above exactly, with a prefix cache without limit.

    Its time is virtual and the client's clock reads it, so a busy machine changes nothing. Client and server share one
    event loop: a pause after each step lets every reader see the step's time.
    """

    def __init__(self, *, caches: bool = True) -> None:
        self._caches = caches
        self._held: set[tuple[int, ...]] = set()
        self.now_s = 0.0
        self._streams: list[asyncio.Queue[None]] = []
        self._stepping: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line), 0
                )
                body = json.loads(await reader.readexactly(length)) if length else {}
                await self._answer(head.split(b" ")[1].decode(), body, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the client hung up, or the test is over
        finally:
            writer.close()

    async def _answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/v1/models":
            models = [{"id": "known", "owned_by": "test", "max_model_len": 4096, "pdd": {"block_size": BLOCK}}]
            return self._json(writer, {"data": models})
        if path == "/metrics":
            return self._json(writer, {})
        prompt = body["prompt"]
        cached = self._look_up(prompt)
        self.now_s += prefill_s(PREFILL, len(prompt) - cached, cached)
        if not body["stream"]:
            usage = {"prompt_tokens_details": {"cached_tokens": cached}}
            return self._json(writer, {"choices": [{"token_ids": [1]}], "usage": usage})
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        steps: asyncio.Queue[None] = asyncio.Queue()
        self._streams.append(steps)
        if self._stepping is None:
            self._stepping = asyncio.get_running_loop().create_task(self._step())
        for _ in range(body["max_tokens"]):
            await steps.get()
            self._chunk(writer, b"data: " + json.dumps({"choices": [{"token_ids": [1]}]}).encode() + b"\n\n")
        self._streams.remove(steps)
        self._chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return None

    async def _step(self) -> None:
        await asyncio.sleep(0.05)  # until all streams of a batch have come
        while self._streams:
            self.now_s += decode_step_s(DECODE, len(self._streams), 0)
            for steps in self._streams:
                steps.put_nowait(None)
            await asyncio.sleep(0.004)
        self._stepping = None

    def _look_up(self, prompt: list[int]) -> int:
        cached, hitting = 0, self._caches
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            prefix = tuple(prompt[:end])
            hitting = hitting and prefix in self._held
            cached = end if hitting else cached
            self._held.add(prefix)
        return min(cached, len(prompt) - 1)

    def _json(self, writer: asyncio.StreamWriter, document: object) -> None:
        data = json.dumps(document).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def calibrate(engine: KnownEngine, **options: int) -> Any:
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 24)
    async with server:
        port = server.sockets[0].getsockname()[1]
        chosen = CalibrateOptions(max_tokens=768, max_sequences=4, repeats=1, **options)
        return await calibrate_engine(f"http://127.0.0.1:{port}", chosen, lambda _: None, clock=lambda: engine.now_s)


async def test_the_laws_of_an_engine_are_found_through_its_http() -> None:
    found = await calibrate(KnownEngine(), chunk_tokens=128)
    assert found.request_s == pytest.approx(0, abs=1e-6)
    for new, cached in ((100, 0), (400, 0), (768, 0), (128, 640)):
        assert found.laws.prefill_alone_s(new, cached) == pytest.approx(prefill_s(PREFILL, new, cached), rel=0.001)
    for batch in (1, 4):
        expected_s = decode_step_s(DECODE, batch, 0)
        assert decode_step_s(found.times.decode, batch, 0) == pytest.approx(expected_s, rel=0.05)
    assert {s.cached for s in found.samples.extend} >= {128, 384}, "hits are as the engine reports them"


async def test_an_engine_that_keeps_no_prefix_is_said_so() -> None:
    with pytest.raises(EngineError, match="prefix cache"):
        await calibrate(KnownEngine(caches=False), chunk_tokens=128)


def test_the_command_calibrates_a_reference_engine_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "engine.json"
    command = [
        *(sys.executable, "-m", "pdd.cli.main", "calibrate", "--engine-arg=--step-ms=30", "--chunk-tokens", "128"),
        *("--max-sequences", "2", "--max-tokens", "512", "--repeats", "1", "--out", str(out), "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "EngineCalibration" and document["engine"] == "reference"
    times = read_engine_times(out)
    assert times.prefill.chunk_tokens == 128 and times.max_sequences == 2
    assert times.kv_capacity_tokens == 4096 * 16
    # A busy machine makes steps longer, never shorter.
    assert 0.029 < times.decode.fixed_s + times.decode.per_sequence_s < 0.3
    assert 0.115 < document["request_s"] + prefill_s(times.prefill, 512, 0) < 1.5, "four steps of 30 ms"
    assert document["request_s"] + prefill_s(times.prefill, 1, 500) < prefill_s(times.prefill, 512, 0), "hits are less"
    assert document["kv_bytes_per_token"] == 4096


def test_an_engine_that_is_not_there_is_unreachable() -> None:
    command = [sys.executable, "-m", "pdd.cli.main", "calibrate", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1:9" in done.stderr and "Traceback" not in done.stderr
