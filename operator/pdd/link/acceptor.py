"""A listening socket and the tasks of what it accepts, bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from pdd.common.tasks import cancel, spawn

_log = logging.getLogger("pdd.link.acceptor")


class Acceptor:
    """Accepts in a task; each connection is handled in a task of its own, at most `limit` at once.

    Beyond the limit the kernel's backlog holds connections. A handler that hands its socket to callbacks returns, and
    no longer counts.
    """

    def __init__(
        self, sock: socket.socket, handle: Callable[[socket.socket], Awaitable[None]], *, name: str, limit: int = 512
    ) -> None:
        self._sock = sock
        self._handle = handle
        self._name = name
        self._slots = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = spawn(self._accept(), name=f"accept {name}")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as error:  # out of descriptors, or the peer was quicker: not a reason to stop serving
                self._slots.release()
                _log.warning("accept failed: %s", error, extra={"fields": {"listener": self._name}})
                await asyncio.sleep(0.05)
                continue
            task = spawn(self._run(sock), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, sock: socket.socket) -> None:
        try:
            await self._handle(sock)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Stop accepting, and end what is being handled."""
        await cancel(self._accepting)
        self._sock.close()
        await cancel(*self._tasks, timeout_s=1.0)
