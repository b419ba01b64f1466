"""Background tasks are neither lost nor silent."""

import asyncio
import gc
import logging

import pytest

from pdd.common.tasks import cancel, spawn


async def test_a_spawned_task_survives_garbage_collection() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    spawn(work(), name="work")
    gc.collect()
    await asyncio.wait_for(done.wait(), 1)


async def test_a_failure_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("lost otherwise")

    with caplog.at_level(logging.ERROR, logger="pdd.tasks"):
        task = spawn(fail(), name="doomed")
        await asyncio.wait([task], timeout=1)
        await asyncio.sleep(0)
    assert "doomed" in caplog.text and "lost otherwise" in caplog.text


async def test_cancel_ends_tasks_within_the_bound() -> None:
    task = spawn(asyncio.sleep(60), name="sleeper")
    await cancel(task, timeout_s=1)
    assert task.cancelled()
