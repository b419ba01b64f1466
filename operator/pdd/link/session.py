"""One endpoint's session at one end: two lanes over their streams, alive as long as any hope of a stream is left."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from enum import StrEnum

from pdd.api.config import LinkTuning
from pdd.common.clock import Clock, monotonic_s
from pdd.link.carrier import Carrier
from pdd.link.driver import LaneDriver
from pdd.link.frames import Frame, FrameType
from pdd.link.gate import Gate
from pdd.link.hello import LaneName
from pdd.link.lane import Lane
from pdd.link.liveness import Liveness, MemberState
from pdd.link.sizing import bulk_limits, bulk_stream_sizes, fast_limits
from pdd.link.sockets import pace, tune_bulk, tune_fast

_log = logging.getLogger("pdd.link.session")

OnOpen = Callable[["Session", LaneName, int, str], None]


class SessionEnd(StrEnum):
    """Why a session ended."""

    LOST = "lost"
    """No stream for longer than the retention."""
    BROKEN = "broken"
    """The peer broke the protocol, or said goodbye."""
    CLOSED = "closed"
    """We ended it."""


class Session:
    """Two lanes. on_open: the peer opened a channel. on_end: called once; every channel has been reset by then."""

    def __init__(
        self,
        session_id: str,
        member: str,
        tuning: LinkTuning,
        gate: Gate,
        *,
        initiator: bool,
        on_open: OnOpen,
        on_end: Callable[[Session, SessionEnd, str], None],
        clock: Clock = monotonic_s,
    ) -> None:
        self.id = session_id
        self.member = member
        self.ended = False
        self.tuning = tuning
        self.gate = gate
        self._clock = clock
        self._on_end = on_end
        self.liveness = Liveness(
            keepalive_s=tuning.keepalive_s, retention_s=tuning.dead_after_s + tuning.session_retention_s, now_s=clock()
        )
        limits = {
            LaneName.FAST: fast_limits(),
            LaneName.BULK: bulk_limits(tuning.rate_bps, tuning.rtt_ms, tuning.chunk_bytes),
        }
        self.lanes: dict[LaneName, LaneDriver] = {}
        for name in LaneName:
            self.lanes[name] = LaneDriver(
                name,
                Lane(limits[name], initiator=initiator),
                on_open=self._opener(on_open, name),
                on_broken=self._broken,
                on_change=self._note_streams,
                clock=clock,
            )
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    @property
    def fast(self) -> LaneDriver:
        return self.lanes[LaneName.FAST]

    @property
    def bulk(self) -> LaneDriver:
        return self.lanes[LaneName.BULK]

    @property
    def state(self) -> MemberState:
        return self.liveness.state

    def _opener(self, on_open: OnOpen, name: LaneName) -> Callable[[int, str], None]:
        return lambda channel, target: on_open(self, name, channel, target)

    def add_stream(self, sock: ssl.SSLSocket, lane: LaneName, index: int) -> Carrier:
        """Take a welcomed stream into use."""
        driver = self.lanes[lane]
        if lane is LaneName.FAST:
            tune_fast(sock, self.tuning.fast_dscp, self.tuning.dead_after_s)
        else:
            sizes = bulk_stream_sizes(self.tuning.rate_bps, self.tuning.streams)
            tune_bulk(sock, sizes, self.tuning.congestion_control, self.tuning.dead_after_s)
        carrier = Carrier(
            sock,
            index,
            driver.next_number(),
            driver,
            member=self.member,
            gate=self.gate,
            paced=lane is LaneName.BULK,
            clock=self._clock,
        )
        driver.add_carrier(carrier)
        carrier.ping()
        return carrier

    def _note_streams(self) -> None:
        self.liveness.note_streams(fast=bool(self.fast.carriers), bulk=len(self.bulk.carriers), now_s=self._clock())
        sizes = bulk_stream_sizes(self.tuning.rate_bps, len(self.bulk.carriers))
        for carrier in self.bulk.carriers.values():
            if not carrier.closed:
                pace(carrier.sock, sizes)

    def _tick(self) -> None:
        """Keepalives, dead streams, and the session's own end."""
        if self.ended:
            return
        now = self._clock()
        for driver in self.lanes.values():
            for carrier in list(driver.carriers.values()):
                if now - carrier.heard_at_s > self.tuning.dead_after_s:
                    carrier.fail(f"silent for {self.tuning.dead_after_s} s")
                else:
                    carrier.ping()
        heard = max((carrier.heard_at_s for carrier in self.fast.carriers.values()), default=None)
        if heard is not None:
            self.liveness.note_heard(heard)
        if self.liveness.update(now):
            _log.info("member is now %s", self.state, extra={"fields": {"member": self.member}})
        if self.liveness.expired(now):
            self.end(SessionEnd.LOST, f"no stream for {self.liveness.retention_s:g} s")
            return
        self._timer = asyncio.get_running_loop().call_later(self.tuning.keepalive_s / 2, self._tick)

    def _broken(self, reason: str) -> None:
        self.end(SessionEnd.BROKEN, reason)

    def goodbye(self, reason: str) -> None:
        """Tell the peer that the session ends on purpose."""
        for driver in self.lanes.values():
            for carrier in list(driver.carriers.values()):
                carrier.send_own(Frame(FrameType.GOODBYE, payload=reason.encode()))

    def end(self, how: SessionEnd, reason: str) -> None:
        """Close all streams and reset all channels. Does nothing the second time."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        for driver in self.lanes.values():
            driver.close()
            driver.reset_all("SessionLost")
        self._on_end(self, how, reason)
