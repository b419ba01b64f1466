"""A's end of the line: endpoints dial in, the router dials members through it, and it dials P for the endpoints."""

from __future__ import annotations

import asyncio
import logging
import socket

from pdd.api.config import GatewayConfig
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import Forbidden, InvalidInput, PDDError, TimedOut, Unreachable
from pdd.common.tasks import spawn
from pdd.link.acceptor import Acceptor
from pdd.link.allow import parse_rules, parse_target, permitted
from pdd.link.frames import FrameError
from pdd.link.gate import Gate
from pdd.link.hello import Hello, LaneName, Welcome, WelcomeStatus, parse_hello, welcome_frame
from pdd.link.http import CONNECTED_REPLY, Request, Response, refusal, serve_connection
from pdd.link.lines import read_frame, send_frame
from pdd.link.liveness import MemberState
from pdd.link.members import Members
from pdd.link.metrics import GatewayMetrics
from pdd.link.plug import Plug
from pdd.link.session import Session, SessionEnd
from pdd.link.sockets import dial, listen
from pdd.link.tls import TLSContexts, handshake

_log = logging.getLogger("pdd.link.gateway")

HELLO_TIMEOUT_S = 10.0
DIAL_TIMEOUT_S = 5.0
ENGINE_TARGET = "engine"
"""Target of the channels that the gateway opens: the member's engine, wherever the endpoint has it."""


class Gateway:
    """Start with `await start()`, end with `await stop()`. Raises InvalidInput on a configuration that cannot work."""

    def __init__(self, config: GatewayConfig, clock: Clock = monotonic_s) -> None:
        self.config = config
        self.rules = parse_rules(config.allow)
        self.tls = TLSContexts(config.tls, server=True)
        self.clock = clock
        self.sessions: dict[str, Session] = {}
        self.metrics = GatewayMetrics()
        self._gate = Gate(config.tuning.rate_bps, clock)
        self.members = Members(config.name, config.tuning, self._gate, clock)
        self._acceptors: list[Acceptor] = []

    async def start(self) -> None:
        config = self.config
        line = listen(config.host, config.line_port, "linePort")
        web = listen(config.host, config.http_port, "httpPort")
        self._acceptors = [
            Acceptor(line, self._on_line, name="line", limit=128),
            Acceptor(web, self._on_http, name="http"),
        ]
        self.members.start()
        _log.info("gateway serves", extra={"fields": {"line": config.line_port, "http": config.http_port}})

    async def stop(self) -> None:
        for session in list(self.sessions.values()):
            session.goodbye("the gateway shuts down")
        for acceptor in self._acceptors:
            await acceptor.close()
        for session in list(self.sessions.values()):
            session.end(SessionEnd.CLOSED, "the gateway shuts down")
        await self.members.stop()
        self._gate.close()

    # -- the line -------------------------------------------------------------------------------------------------

    async def _on_line(self, raw: socket.socket) -> None:
        """One incoming stream: TLS, HELLO, WELCOME; then its session has it."""
        peer = _peer(raw)
        raw.setblocking(False)
        try:
            sock = await handshake(raw, self.tls, server=True, timeout_s=HELLO_TIMEOUT_S)
        except PDDError as error:
            self.metrics.count_handshake_failure(error.reason)
            level = logging.INFO if isinstance(error, Unreachable) else logging.WARNING  # a port probe, usually
            _log.log(level, "stream refused: %s", error, extra={"fields": {"peer": peer}})
            return
        try:
            try:
                hello = parse_hello(await read_frame(sock, HELLO_TIMEOUT_S))
            except FrameError as error:
                await send_frame(sock, welcome_frame(self._refusal(str(error))), HELLO_TIMEOUT_S)
                raise
            session, welcome = self._find_session(hello)
            await send_frame(sock, welcome_frame(welcome), HELLO_TIMEOUT_S)
        except BaseException as error:
            sock.close()
            if not isinstance(error, PDDError):
                raise
            self.metrics.count_handshake_failure(error.reason)
            _log.warning("stream refused: %s", error, extra={"fields": {"peer": peer}})
            return
        if session is None or session.ended:
            sock.close()
            return
        session.add_stream(sock, hello.lane, hello.index)
        self.members.count_stream(session.member, hello.lane)

    def _refusal(self, reason: str) -> Welcome:
        return Welcome(WelcomeStatus.REFUSED, self.config.name, reason)

    def _find_session(self, hello: Hello) -> tuple[Session | None, Welcome]:
        """The session that the stream belongs to, made if the endpoint begins one; and the answer to its HELLO."""
        session = self.sessions.get(hello.session)
        if session is not None:
            if session.member != hello.member:
                return None, self._refusal(f"session {hello.session} belongs to {session.member}")
            return session, Welcome(WelcomeStatus.OK, self.config.name)
        if not hello.fresh:
            return None, Welcome(WelcomeStatus.UNKNOWN_SESSION, self.config.name)
        for old in [other for other in self.sessions.values() if other.member == hello.member]:
            _log.info("member begins anew", extra={"fields": {"member": hello.member}})
            old.end(SessionEnd.CLOSED, "its endpoint began a new session")
        session = Session(
            hello.session,
            hello.member,
            self.config.tuning,
            self._gate,
            initiator=False,
            on_open=self._on_open,
            on_end=self._on_session_end,
            clock=self.clock,
        )
        self.sessions[hello.session] = session
        self.members.add(session, hello)
        return session, Welcome(WelcomeStatus.OK, self.config.name)

    def _on_session_end(self, session: Session, how: SessionEnd, reason: str) -> None:
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
            self.members.remove(session)
        fields = {"member": session.member, "how": str(how), "reason": reason}
        _log.warning("session ended", extra={"fields": fields})

    # -- endpoints reach P ----------------------------------------------------------------------------------------

    def _on_open(self, session: Session, lane: LaneName, channel: int, target: str) -> None:
        """An engine in B wants a connection to `target` in A."""
        driver = session.lanes[lane]
        plug = Plug(driver, channel, chunk_bytes=self.config.tuning.chunk_bytes)
        spawn(self._dial_for(session, lane, channel, target, plug), name=f"dial {target}")

    async def _dial_for(self, session: Session, lane: LaneName, channel: int, target: str, plug: Plug) -> None:
        try:
            sock = await self._dial_allowed(target)
        except Forbidden as error:
            _log.warning("target refused: %s", error, extra={"fields": {"member": session.member}})
            self.metrics.count_dial("NotAllowed")
            plug.refuse("NotAllowed")
        except (Unreachable, TimedOut, InvalidInput) as error:
            reason = "DialTimedOut" if isinstance(error, TimedOut) else "DialFailed"
            _log.warning("dial failed: %s", error, extra={"fields": {"member": session.member, "target": target}})
            self.metrics.count_dial(reason)
            plug.refuse(reason)
        else:
            self.metrics.count_dial("OK")
            session.lanes[lane].lane.accept(channel)
            plug.connect(sock)

    async def _dial_allowed(self, target: str) -> socket.socket:
        """Dial an address that the rules permit: the very address that was checked. Raises Forbidden and dial's."""
        host, port = parse_target(target)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise TimedOut(f"{host}: its name was not resolved within {DIAL_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise Unreachable(f"{host}: {error.strerror or error}") from error
        addresses = [str(address[0]) for *_, address in found]
        allowed = [address for address in addresses if permitted(self.rules, address, port)]
        if not allowed:
            rules = ", ".join(self.config.allow) or "empty"
            message = f"{target} ({', '.join(addresses)}) matches no rule of `allow`: {rules}"
            raise Forbidden(message, reason="NotAllowed")
        return await dial(allowed[0], port, DIAL_TIMEOUT_S)

    # -- the router reaches members -------------------------------------------------------------------------------

    async def _on_http(self, sock: socket.socket) -> None:
        await serve_connection(sock, self._answer, self._connect)

    def _answer(self, request: Request) -> Response:
        return self.metrics.answer(request, self.members, self._gate)

    async def _connect(self, request: Request, sock: socket.socket) -> bool:
        """CONNECT member:port. Fails fast when the member is not there, so that the router can go local."""
        member = request.target.rpartition(":")[0] or request.target
        session = self.members.find(member)
        status, message = 0, ""
        if session is None:
            status, message = 502, f"member {member!r} is not known here; see GET /members"
        elif session.state is not MemberState.CONNECTED:
            status, message = 502, f"member {member!r} is {session.state}: the line to it does not answer"
        self.metrics.count_connect()
        if session is None or status:
            self.metrics.count_connect_failure(status)
            await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(sock, refusal(status, message)), 5)
            return False
        driver = session.fast
        channel = driver.lane.open(ENGINE_TARGET)
        plug = Plug(
            driver, channel, chunk_bytes=64 * 1024, accept_reply=CONNECTED_REPLY, refuse_reply=self._refuse_connect
        )
        plug.connect(sock, early=request.rest, await_accept=True, timeout_s=DIAL_TIMEOUT_S)
        return True

    def _refuse_connect(self, reason: str) -> bytes:
        status = 504 if reason == "DialTimedOut" else 502
        self.metrics.count_connect_failure(status)
        return refusal(status, f"the member's engine cannot be reached: {reason}")


def _peer(sock: socket.socket) -> str:
    try:
        address = sock.getpeername()
    except OSError:
        return "gone"
    return f"{address[0]}:{address[1]}"
