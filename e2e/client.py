"""A client of the router that keeps what it saw: every token with its producer and the time it came.

One connection a request, on the standard library's http.client: little CPU beside the system under test, and any bytes
can be sent. Thread-safe: a `Client` has no state besides its address.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


class StreamBroken(RuntimeError):
    """A stream ended without [DONE], or carried an error. `got`: what had come until then."""

    def __init__(self, message: str, got: Answer) -> None:
        super().__init__(message)
        self.got = got


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered request. For a stream: `ids[i]` came from `producers[i]` at `at_ms[i]` (ms since it was sent)."""

    status: int
    headers: Mapping[str, str]
    document: dict[str, Any]
    ids: tuple[int, ...] = ()
    producers: tuple[str, ...] = ()
    at_ms: tuple[float, ...] = ()
    text: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pipeline(self) -> str:
        return self.headers.get("x-pdd-pipeline", "")

    @property
    def ttft_ms(self) -> float:
        return self.at_ms[0]

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI-shaped error; raises KeyError when the document is none."""
        found: dict[str, Any] = self.document["error"]
        return found


class Progress:
    """What has come of one stream so far; read by other threads while it runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.ids: list[int] = []
        self.producers: list[str] = []
        self.at_ms: list[float] = []
        self.over = False

    def add(self, ids: list[int], producer: str, at_ms: float) -> None:
        with self._changed:
            self.ids += ids
            self.producers += [producer] * len(ids)
            self.at_ms += [at_ms] * len(ids)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def wait(self, reached: Callable[[Progress], bool], timeout_s: float) -> bool:
        """Waits until `reached(self)`; False if the stream is over, or time is up, before."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or reached(self), timeout_s)
            return reached(self)


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks to the router at `url`. `timeout_s` bounds each wait for bytes."""

    url: str
    timeout_s: float = 120.0

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, its whole answer. The document is {} when the answer is not JSON; `text` is the raw body."""
        connection = self._connect()
        try:
            answer = self._send(connection, method, path, body, headers)
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        try:
            document = json.loads(text)
        except ValueError:
            document = {}
        return Answer(answer.status, _headers(answer), document if isinstance(document, dict) else {}, text=text)

    def post(self, path: str, body: bytes | Mapping[str, Any], **headers: str) -> Answer:
        """POST; header names are given with underscores."""
        return self.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})

    def complete(self, path: str, body: Mapping[str, Any], override: str = "") -> Answer:
        """A request without streaming, with PDD's trace."""
        got = self.request("POST", path, body, _trace_headers(override))
        trace = got.document.get("pdd") or {}
        choices = got.document.get("choices") or [{}]
        message = choices[0].get("message") or {}
        return Answer(
            got.status,
            got.headers,
            got.document,
            ids=tuple(trace.get("token_ids") or choices[0].get("token_ids") or ()),
            text=message.get("content") or choices[0].get("text") or "",
            finish_reason=choices[0].get("finish_reason") or "",
            usage=got.document.get("usage") or {},
            trace=trace,
        )

    def stream(
        self, path: str, body: Mapping[str, Any], override: str = "", progress: Progress | None = None
    ) -> Answer:
        """A streamed request with PDD's trace. Raises StreamBroken if it does not come to its [DONE].

        An answer that is no stream (an error status) is returned with its document.
        """
        seen = progress or Progress()
        connection = self._connect()
        started = time.monotonic()
        try:
            answer = self._send(connection, "POST", path, {**body, "stream": True}, _trace_headers(override))
            if answer.status != 200:
                text = answer.read().decode(errors="replace")
                return Answer(answer.status, _headers(answer), _document(text), text=text)
            return self._events(answer, seen, started)
        finally:
            seen.end()
            connection.close()

    def _events(self, answer: http.client.HTTPResponse, seen: Progress, started: float) -> Answer:
        text: list[str] = []
        finish = ""
        usage: dict[str, Any] = {}
        trace: dict[str, Any] = {}

        def so_far() -> Answer:
            return Answer(
                answer.status,
                _headers(answer),
                {},
                tuple(seen.ids),
                tuple(seen.producers),
                tuple(seen.at_ms),
                "".join(text),
                finish,
                usage,
                trace,
            )

        try:
            while line := answer.readline():
                if not line.startswith(b"data:"):
                    continue
                payload = line[5:].strip()
                if payload == b"[DONE]":
                    return so_far()
                document = json.loads(payload)
                if "error" in document:
                    raise StreamBroken(f"an error in the stream: {document['error']}", so_far())
                part = document.get("pdd") or {}
                usage = document.get("usage") or usage
                if not document.get("choices"):
                    trace = part or trace
                    continue
                choice = document["choices"][0]
                text.append((choice.get("delta") or {}).get("content") or choice.get("text") or "")
                finish = choice.get("finish_reason") or finish
                ids = part.get("token_ids") or choice.get("token_ids") or []
                if ids:
                    seen.add(ids, str(part.get("producer", "")), (time.monotonic() - started) * 1000)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StreamBroken(f"the stream broke: {error!r}", so_far()) from error
        raise StreamBroken("the stream ended without [DONE]", so_far())

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=self.timeout_s)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if data is not None else {}
        connection.request(method, path, data, {**sent, **(headers or {})})
        return connection.getresponse()


def _trace_headers(override: str) -> dict[str, str]:
    headers = {"x-pdd-trace": "1"}
    if override:
        headers["x-pdd-pipeline-override"] = override
    return headers


def _headers(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
