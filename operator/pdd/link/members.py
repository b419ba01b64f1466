"""The gateway's table of members: who is there, how their lines do, and what they have received."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pdd.api.config import LinkTuning
from pdd.common.clock import Clock, monotonic_s
from pdd.link.gate import Gate
from pdd.link.hello import Hello, LaneName
from pdd.link.limits import LimitedBy, LineSample, limited_by
from pdd.link.liveness import MemberState
from pdd.link.session import Session
from pdd.link.tcpinfo import TCPInfo

SAMPLE_S = 0.5
MAX_REMEMBERED = 1024


@dataclass(slots=True)
class Totals:
    """What a member's earlier sessions moved, so that its counters never go back. Bytes."""

    payload: dict[tuple[LaneName, str], int] = field(default_factory=dict)
    """By lane and direction (`to_member`, `from_member`)."""
    wire: dict[tuple[LaneName, str], int] = field(default_factory=dict)
    streams_opened: dict[LaneName, int] = field(default_factory=dict)


@dataclass(slots=True)
class Member:
    """One member: its present session, and what was measured of it."""

    session: Session
    hello: Hello
    totals: Totals
    goodput_bps: float = 0.0
    limited_by: LimitedBy = LimitedBy.IDLE
    last_payload: int = 0
    last_backlog: int = 0
    last_wire: TCPInfo = field(default_factory=TCPInfo)

    def payload_bytes(self, lane: LaneName, direction: str) -> int:
        """DATA payload delivered, each byte once."""
        counters = self.session.lanes[lane].lane.counters
        now = counters.sent_bytes if direction == "to_member" else counters.received_bytes
        return self.totals.payload.get((lane, direction), 0) + now

    def wire_bytes(self, lane: LaneName, direction: str) -> int:
        """TCP payload on the line: frames, TLS, and what was sent again."""
        wire = self.session.lanes[lane].wire_totals()
        now = wire.sent_bytes if direction == "to_member" else wire.received_bytes
        return self.totals.wire.get((lane, direction), 0) + now


class Members:
    """By name `namespace/deployment/pod`. start() begins the sampling task."""

    def __init__(self, gateway: str, tuning: LinkTuning, gate: Gate, clock: Clock = monotonic_s) -> None:
        self._gateway = gateway
        self._tuning = tuning
        self._gate = gate
        self._clock = clock
        self._members: dict[str, Member] = {}
        self._totals: OrderedDict[str, Totals] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._sampled_at = clock()
        self._capped_s = 0.0
        self._core_s = time.process_time()

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def add(self, session: Session, hello: Hello) -> None:
        """A session began."""
        totals = self._totals.setdefault(session.member, Totals())
        self._totals.move_to_end(session.member)
        while len(self._totals) > MAX_REMEMBERED:
            self._totals.popitem(last=False)
        self._members[session.member] = Member(session, hello, totals)

    def remove(self, session: Session) -> None:
        """A session ended; its counts stay."""
        member = self._members.get(session.member)
        if member is None or member.session is not session:
            return
        del self._members[session.member]
        for lane in LaneName:
            for direction in ("to_member", "from_member"):
                member.totals.payload[lane, direction] = member.payload_bytes(lane, direction)
                member.totals.wire[lane, direction] = member.wire_bytes(lane, direction)

    def count_stream(self, name: str, lane: LaneName) -> None:
        totals = self._totals.get(name)
        if totals is not None:
            totals.streams_opened[lane] = totals.streams_opened.get(lane, 0) + 1

    def find(self, name: str) -> Session | None:
        """The session of a member that has been complete at least once."""
        member = self._members.get(name)
        if member is None or member.session.state is MemberState.CONNECTING:
            return None
        return member.session

    def all(self) -> list[Member]:
        return list(self._members.values())

    def _sample(self) -> None:
        now = self._clock()
        elapsed = max(1e-3, now - self._sampled_at)
        core_s = time.process_time()
        for member in self._members.values():
            lane = member.session.bulk.lane
            payload = lane.counters.sent_bytes
            wire = member.session.bulk.wire_totals()
            before = member.last_wire
            busy = wire.busy_s - before.busy_s
            sent = wire.sent_bytes - before.sent_bytes
            receiver_limited_s = wire.receiver_limited_s - before.receiver_limited_s
            sample = LineSample(
                elapsed_s=elapsed,
                delivered_bytes=payload - member.last_payload,
                backlog_bytes=lane.queued_bytes + lane.unacked_bytes,
                backlog_before_bytes=member.last_backlog,
                capped_s=self._gate.capped_s - self._capped_s,
                receiver_limited_share=receiver_limited_s / busy if busy > 0 else 0.0,
                starved=lane.starved,
                resent_share=(wire.retransmits - before.retransmits) * 1448 / sent if sent > 0 else 0.0,
                core_share=(core_s - self._core_s) / elapsed,
            )
            member.goodput_bps = sample.delivered_bytes * 8 / elapsed
            member.limited_by = limited_by(sample)
            member.last_payload = payload
            member.last_backlog = sample.backlog_bytes
            member.last_wire = wire
        self._sampled_at, self._capped_s, self._core_s = now, self._gate.capped_s, core_s
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)

    def describe(self) -> dict[str, Any]:
        """The body of GET /members."""
        shown = [m for m in self._members.values() if m.session.state is not MemberState.CONNECTING]
        return {"gateway": self._gateway, "members": [self._describe(member) for member in shown]}

    def _describe(self, member: Member) -> dict[str, Any]:
        session = member.session
        bulk, fast = session.bulk, session.fast
        infos = [carrier.info() for carrier in bulk.carriers.values()]
        rtts = [info.rtt_s for info in infos if info.rtt_s]
        fast_rtts = [carrier.ping_rtt_s for carrier in fast.carriers.values() if carrier.ping_rtt_s]
        return {
            "name": session.member,
            "deployment": member.hello.deployment,
            "namespace": member.hello.namespace,
            "state": str(session.state),
            "since_s": round(self._clock() - session.liveness.since_s, 3),
            "streams": len(infos),
            "rtt_ms": round(sum(rtts) / len(rtts) * 1000, 3) if rtts else 0.0,
            "goodput_bps": round(member.goodput_bps, 1),
            "rate_bps": self._tuning.rate_bps,
            "bulk_queue_bytes": bulk.lane.queued_bytes + bulk.lane.unacked_bytes,
            "bulk_bytes_total": member.payload_bytes(LaneName.BULK, "to_member"),
            "bulk_wire_bytes_total": member.wire_bytes(LaneName.BULK, "to_member"),
            "fast_bytes_total": member.payload_bytes(LaneName.FAST, "to_member"),
            "fast_wire_bytes_total": member.wire_bytes(LaneName.FAST, "to_member"),
            "fast_rtt_ms": round(fast_rtts[0] * 1000, 3) if fast_rtts else 0.0,
            "channels": len(bulk.lane.channels) + len(fast.lane.channels),
            "limited_by": str(member.limited_by),
        }
