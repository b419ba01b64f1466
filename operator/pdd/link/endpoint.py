"""B's end of the line, beside one MD engine: dials the gateway and carries connections both ways."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from pdd.api.config import EndpointConfig, EndpointMode
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import Forbidden, InvalidInput, PDDError, TimedOut, Unreachable
from pdd.common.tasks import cancel, spawn
from pdd.link.acceptor import Acceptor
from pdd.link.allow import parse_target
from pdd.link.backoff import backoff_s
from pdd.link.carrier import Carrier
from pdd.link.gate import Gate
from pdd.link.hello import Hello, LaneName, WelcomeStatus, hello_frame, parse_welcome
from pdd.link.http import CONNECTED_REPLY, BadRequest, Request, Response, read_request, refusal, serve_connection
from pdd.link.lines import read_frame, send_frame
from pdd.link.metrics import EndpointMetrics
from pdd.link.plug import Plug
from pdd.link.session import Session, SessionEnd
from pdd.link.sockets import dial, listen, original_destination, tune_local
from pdd.link.tls import TLSContexts, handshake

_log = logging.getLogger("pdd.link.endpoint")

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 5.0
ENGINE_DIAL_TIMEOUT_S = 3.0
TARGET_TIMEOUT_S = 15.0


@dataclass(slots=True)
class _OwnLine:
    """The endpoint's session for its metrics."""

    session: Session

    def payload_bytes(self, lane: LaneName, direction: str) -> int:
        counters = self.session.lanes[lane].lane.counters
        return counters.sent_bytes if direction == "to_gateway" else counters.received_bytes

    def wire_bytes(self, lane: LaneName, direction: str) -> int:
        wire = self.session.lanes[lane].wire_totals()
        return wire.sent_bytes if direction == "to_gateway" else wire.received_bytes


class Endpoint:
    """Start with `await start()`, end with `await stop()`. Raises InvalidInput on a configuration that cannot work."""

    def __init__(self, config: EndpointConfig, clock: Clock = monotonic_s) -> None:
        self.config = config
        self.tls = TLSContexts(config.tls, server=False)
        self.clock = clock
        try:
            self._gateway = parse_target(config.gateway)
        except InvalidInput as error:
            raise InvalidInput("gateway", config.gateway, error.remedy) from error
        engine = urlsplit(config.engine_url)
        if engine.scheme != "http" or not engine.hostname:
            raise InvalidInput("engineUrl", config.engine_url, "write it as http://127.0.0.1:8000")
        self._engine = (engine.hostname, engine.port or 80)
        self.metrics = EndpointMetrics()
        self.gate = Gate(config.tuning.rate_bps, clock)
        self.session: Session | None = None
        self._welcomed = ""
        """The session that the gateway has said yes to."""
        self._acceptors: list[Acceptor] = []
        self._dialers: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        config = self.config
        kv = listen(config.kv_host, config.kv_port, "kvPort")
        web = listen(config.http_host, config.http_port, "httpPort")
        self._begin_session()
        on_kv = self._on_proxy if config.mode is EndpointMode.CONNECT else self._on_redirected
        self._acceptors = [Acceptor(kv, on_kv, name="kv"), Acceptor(web, self._on_http, name="http")]
        self._dialers = [
            spawn(self._keep_stream(LaneName.FAST, 0), name="dial fast"),
            *(spawn(self._keep_stream(LaneName.BULK, i), name=f"dial bulk {i}") for i in range(config.tuning.streams)),
        ]
        fields = {"gateway": config.gateway, "kv": config.kv_port, "mode": str(config.mode)}
        _log.info("endpoint serves", extra={"fields": fields})

    async def stop(self) -> None:
        self._stopping = True
        await cancel(*self._dialers)
        if self.session is not None:
            self.session.goodbye("the endpoint shuts down")
        for acceptor in self._acceptors:
            await acceptor.close()
        if self.session is not None:
            self.session.end(SessionEnd.CLOSED, "the endpoint shuts down")
        self.gate.close()

    # -- the line -------------------------------------------------------------------------------------------------

    def _begin_session(self) -> None:
        config = self.config
        self.metrics.count_session()
        self.session = Session(
            secrets.token_hex(16),
            f"{config.namespace}/{config.deployment}/{config.name}",
            config.tuning,
            self.gate,
            initiator=True,
            on_open=self._on_open,
            on_end=self._on_session_end,
            clock=self.clock,
        )

    def _on_session_end(self, session: Session, how: SessionEnd, reason: str) -> None:
        if not self._stopping and session is self.session:
            _log.warning("session ended, a new one begins", extra={"fields": {"how": str(how), "reason": reason}})
            self._begin_session()

    async def _keep_stream(self, lane: LaneName, index: int) -> None:
        """Dial, serve until the stream dies, and again: for ever, with a back-off that is bounded and jittered."""
        failures = 0
        last_message = ""
        while True:
            self.metrics.count_dial()
            try:
                carrier = await self._dial_stream(lane, index)
            except PDDError as error:
                failures += 1
                self.metrics.count_dial_failure(error.reason)
                if error.message != last_message:  # not the same line each second of an outage
                    last_message = error.message
                    fields = {"lane": str(lane), "stream": index, "gateway": self.config.gateway}
                    _log.warning("no stream: %s", error, extra={"fields": fields})
                await asyncio.sleep(backoff_s(failures, random.random()))
                continue
            if carrier is None:  # a new session has begun: at once
                await asyncio.sleep(0.01)
                continue
            _log.info("stream up", extra={"fields": {"lane": str(lane), "stream": index}})
            failures, last_message = 0, ""
            began = self.clock()
            await carrier.ended
            if self.clock() - began < 1.0:  # welcomed and dropped at once: do not spin
                failures = 1
                await asyncio.sleep(backoff_s(failures, random.random()))

    async def _dial_stream(self, lane: LaneName, index: int) -> Carrier | None:
        """One try. None if the gateway does not know the session, which is then replaced. Raises PDDError."""
        session = self.session
        assert session is not None
        raw = await dial(*self._gateway, timeout_s=CONNECT_TIMEOUT_S)
        sock = await handshake(raw, self.tls, server=False, timeout_s=ANSWER_TIMEOUT_S)
        if session.ended:
            sock.close()
            return None
        config = self.config
        hello = Hello(
            session=session.id,
            lane=lane,
            index=index,
            streams=config.tuning.streams,
            name=config.name,
            deployment=config.deployment,
            namespace=config.namespace,
            fresh=session.id != self._welcomed,
        )
        try:
            await send_frame(sock, hello_frame(hello), ANSWER_TIMEOUT_S)
            welcome = parse_welcome(await read_frame(sock, ANSWER_TIMEOUT_S))
            if welcome.status is WelcomeStatus.REFUSED:
                raise Forbidden(f"the gateway refuses the stream: {welcome.reason}", reason="StreamRefused")
        except BaseException:
            sock.close()
            raise
        if session is not self.session or session.ended:
            sock.close()
            return None
        if welcome.status is WelcomeStatus.UNKNOWN_SESSION:
            sock.close()
            session.end(SessionEnd.LOST, "the gateway does not know it any more")
            return None
        self._welcomed = session.id
        return session.add_stream(sock, lane, index)

    # -- A reaches the engine -------------------------------------------------------------------------------------

    def _on_open(self, session: Session, lane: LaneName, channel: int, target: str) -> None:
        """The router wants a connection to the engine."""
        plug = Plug(session.lanes[lane], channel, chunk_bytes=64 * 1024)
        if target != "engine":
            plug.refuse("Unsupported")
            return
        spawn(self._dial_engine(session, lane, channel, plug), name="dial engine")

    async def _dial_engine(self, session: Session, lane: LaneName, channel: int, plug: Plug) -> None:
        try:
            sock = await dial(*self._engine, timeout_s=ENGINE_DIAL_TIMEOUT_S)
        except (Unreachable, TimedOut) as error:
            _log.warning("the engine cannot be reached: %s", error)
            plug.refuse("DialTimedOut" if isinstance(error, TimedOut) else "DialFailed")
            return
        session.lanes[lane].lane.accept(channel)
        plug.connect(sock)

    # -- the engine reaches A -------------------------------------------------------------------------------------

    async def _on_proxy(self, sock: socket.socket) -> None:
        """A CONNECT of the engine."""
        tune_local(sock)
        loop = asyncio.get_running_loop()
        try:
            request = await read_request(sock)
            if request is None:
                sock.close()
                return
            if request.method != "CONNECT":
                raise BadRequest("this is a CONNECT proxy: send CONNECT host:port HTTP/1.1")
            try:
                parse_target(request.target)
            except InvalidInput as error:
                raise BadRequest(str(error)) from error
        except BadRequest as error:
            await asyncio.wait_for(loop.sock_sendall(sock, refusal(400, str(error))), 5)
            sock.close()
            return
        except OSError:
            sock.close()
            return
        self._carry(sock, request.target, early=request.rest, proxy=True)

    async def _on_redirected(self, sock: socket.socket) -> None:
        """A connection of the engine that iptables sent here."""
        tune_local(sock)
        found = original_destination(sock)
        if found is None:
            _log.warning("a connection to kvPort that was not redirected is refused", extra={"fields": {}})
            sock.close()
            return
        self._carry(sock, f"{found[0]}:{found[1]}", early=b"", proxy=False)

    def _carry(self, sock: socket.socket, target: str, *, early: bytes, proxy: bool) -> None:
        session = self.session
        assert session is not None
        driver = session.bulk
        channel = driver.lane.open(target)
        plug = Plug(
            driver,
            channel,
            chunk_bytes=self.config.tuning.chunk_bytes,
            accept_reply=CONNECTED_REPLY if proxy else b"",
            refuse_reply=_refuse_target if proxy else None,
        )
        # A redirected engine believes that it is connected: its bytes may go at once. A line that is down must not
        # look like a refusal either: the wait is bounded by the session's retention, not by a dial's.
        timeout_s = TARGET_TIMEOUT_S + self.config.tuning.session_retention_s if proxy else None
        plug.connect(sock, early=early, await_accept=proxy, timeout_s=timeout_s)

    async def _on_http(self, sock: socket.socket) -> None:
        await serve_connection(sock, self._answer)

    def _answer(self, request: Request) -> Response:
        return self.metrics.answer(request, _OwnLine(self.session) if self.session else None, self.gate)


def _refuse_target(reason: str) -> bytes:
    status = {"NotAllowed": 403, "DialTimedOut": 504}.get(reason, 502)
    return refusal(status, f"the target in the other site cannot be reached: {reason}")
