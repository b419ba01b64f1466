"""The engine's thread: what it does when it cannot go on."""

from __future__ import annotations

import asyncio

import pytest

from pdd.engine.reference.runner import EngineThread
from pdd.engine.reference.sequence import Output, Request

from .conftest import Bench, MakeBench

PROMPT = tuple(b"The line is long.")


async def fail_in_a_step(bench: Bench, fault: BaseException) -> tuple[list[Output], bool]:
    """(what the request was told, whether the thread still counts as alive) once the thread has said that it died."""
    died = asyncio.Event()
    told: list[Output] = []
    thread = EngineThread(
        bench.core, loop=asyncio.get_running_loop(), clock=bench.clock, step_s=0, max_queued=8, on_died=died.set
    )

    def step() -> None:
        raise fault

    bench.core.step = step  # type: ignore[assignment, method-assign]
    thread.submit(Request("a", PROMPT, 3, ignore_eos=True), told.append)
    thread.start()
    await asyncio.wait_for(died.wait(), 5)
    return told, thread.alive


@pytest.mark.parametrize("fault", [MemoryError("no block"), ValueError("a bug"), SystemExit(1)])
def test_a_fault_tells_every_request_and_then_the_process(make_bench: MakeBench, fault: BaseException) -> None:
    told, alive = asyncio.run(fail_in_a_step(make_bench(), fault))
    assert not alive
    assert [output.finish_reason for output in told] == ["error"]
