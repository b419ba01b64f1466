"""How the router's HTTP is served: uvicorn with the bounds that it lacks.

A client may take HEAD_TIMEOUT_S and HEAD_BYTES for a request's head, and may take nothing of an answer for STALL_S:
then its connection is closed. Without these a handful of clients that send or read nothing hold memory and descriptors
for as long as they like.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pdd.router.render import error_body

HEAD_TIMEOUT_S = 20.0
HEAD_BYTES = 64 * 1024
STALL_S = 60.0
KEEP_ALIVE_S = 75
"""Longer than clients and balancers keep an idle connection (httpx and aiohttp 5 and 15 s, nginx 60 s): the side that
sends must be the first to let go, or its next request meets a closed socket."""
GRACE_S = 4
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds, OpenAI-shaped errors, and hang-ups that reach a pipelined request too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._served: RequestResponseCycle | None = None

    # ---- the head -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head_bytes += len(data)  # after it: a head that begins in `data` sets the count to 0
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, f"the request's head is longer than {HEAD_BYTES} bytes")

    def _begin_head(self) -> None:
        self._end_head()
        self._in_head = True
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_expired)

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_expired(self) -> None:
        if self.transport.is_closing():
            return
        if self._head_bytes == 0:
            self.transport.close()  # opened in advance and never used: an answer could be taken for a later request's
        else:
            self._refuse(408, f"the request's head did not arrive within {HEAD_TIMEOUT_S:g} s")

    def send_400_response(self, msg: str) -> None:
        """What llhttp cannot read."""
        self._refuse(400, f"this is no HTTP/1.1 request that the router can read: {msg}")

    def _refuse(self, status: int, message: str) -> None:
        body = error_body(status, message)
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, _REASONS[status], len(body)) + body)
        self.transport.close()

    # ---- the answer -----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_stall()

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_stall()
        served = self._served
        if served is not None and served is not self.cycle and not served.response_complete:
            served.disconnected = True  # uvicorn tells the newest request only, and that one waits behind this one
            served.message_event.set()
        super().connection_lost(exc)


def uvicorn_config(app: Any, host: str, port: int, *, loop: str = "uvloop") -> uvicorn.Config:
    """The server's settings."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop=loop,
        http=BoundedProtocol,
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        date_header=False,
    )
