"""Prometheus metrics of both ends, names starting with pdd_link_. Figures are collected when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdd.link.hello import LaneName
from pdd.link.http import Request, Response
from pdd.link.liveness import MemberState
from pdd.link.session import Session

if TYPE_CHECKING:
    from pdd.link.gate import Gate
    from pdd.link.members import Members

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Line(Protocol):
    """One session as the metrics see it: a gateway's member, or the endpoint's own session."""

    session: Session

    def payload_bytes(self, lane: LaneName, direction: str) -> int: ...

    def wire_bytes(self, lane: LaneName, direction: str) -> int: ...


def line_metrics(lines: Iterable[Line], directions: tuple[str, str]) -> Iterator[Metric]:
    """Families for each session; `directions` names what this end sends and receives."""
    by_lane = ["member", "lane"]
    payload = CounterMetricFamily(
        "pdd_link_payload_bytes", "Bytes of carried connections, each once", labels=[*by_lane, "direction"]
    )
    wire = CounterMetricFamily(
        "pdd_link_wire_bytes",
        "TCP payload on the line: frames, TLS and what was sent again",
        labels=[*by_lane, "direction"],
    )
    streams = GaugeMetricFamily("pdd_link_streams", "Streams in use", labels=by_lane)
    channels = GaugeMetricFamily("pdd_link_channels", "Carried connections now", labels=by_lane)
    opened = CounterMetricFamily("pdd_link_channels_opened", "Carried connections so far", labels=by_lane)
    resets = CounterMetricFamily(
        "pdd_link_channel_resets", "Carried connections that were reset", labels=[*by_lane, "reason"]
    )
    queue = GaugeMetricFamily(
        "pdd_link_queue_bytes", "Bytes that this end holds for the peer: queued or unacknowledged", labels=by_lane
    )
    resent = CounterMetricFamily("pdd_link_frames_resent", "Frames sent again after a stream died", labels=by_lane)
    duplicates = CounterMetricFamily("pdd_link_frames_duplicate", "Frames that came twice", labels=by_lane)
    corrupt = CounterMetricFamily("pdd_link_frames_corrupt", "Frames with a wrong checksum", labels=by_lane)
    state = GaugeMetricFamily("pdd_link_member_connected", "1 while connected, 0 while suspect", labels=["member"])
    per_stream = [*by_lane, "stream"]
    rtt = GaugeMetricFamily("pdd_link_stream_rtt_seconds", "Smoothed round trip, from the kernel", labels=per_stream)
    ping = GaugeMetricFamily("pdd_link_stream_ping_seconds", "Last keepalive's round trip", labels=per_stream)
    rate = GaugeMetricFamily(
        "pdd_link_stream_delivery_bytes_per_second", "Delivery rate, from the kernel", labels=per_stream
    )
    retransmits = CounterMetricFamily("pdd_link_retransmits", "TCP segments sent again", labels=by_lane)
    for line in lines:
        member = line.session.member
        state.add_metric([member], float(line.session.state is MemberState.CONNECTED))
        for name, driver in line.session.lanes.items():
            labels = [member, str(name)]
            for direction in directions:
                payload.add_metric([*labels, direction], line.payload_bytes(name, direction))
                wire.add_metric([*labels, direction], line.wire_bytes(name, direction))
            lane = driver.lane
            streams.add_metric(labels, len(driver.carriers))
            channels.add_metric(labels, len(lane.channels))
            opened.add_metric(labels, lane.counters.opened)
            for reason, count in lane.counters.resets.items():
                resets.add_metric([*labels, reason], count)
            queue.add_metric(labels, lane.queued_bytes + lane.unacked_bytes)
            resent.add_metric(labels, lane.counters.resent_frames)
            duplicates.add_metric(labels, lane.counters.duplicate_frames)
            corrupt.add_metric(labels, lane.counters.frame_errors)
            retransmits.add_metric(labels, driver.wire_totals().retransmits)
            for index, carrier in driver.carriers.items():
                info = carrier.info()
                rtt.add_metric([*labels, str(index)], info.rtt_s)
                ping.add_metric([*labels, str(index)], carrier.ping_rtt_s)
                rate.add_metric([*labels, str(index)], info.delivery_rate_bytes_per_s)
    yield from (payload, wire, streams, channels, opened, resets, queue, resent, duplicates, corrupt, state)
    yield from (rtt, ping, rate, retransmits)


class _Lines(Collector):
    def __init__(self, directions: tuple[str, str]) -> None:
        self.directions = directions
        self.lines: list[Line] = []
        self.capped_s = 0.0

    def collect(self) -> Iterator[Metric]:
        yield from line_metrics(self.lines, self.directions)
        yield CounterMetricFamily(
            "pdd_link_cap_wait_seconds", "Time during which the rate cap held bulk frames back", value=self.capped_s
        )


class GatewayMetrics:
    """Counters of the gateway, and its HTTP answers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lines = _Lines(("to_member", "from_member"))
        self._registry.register(self._lines)
        self._handshake_failures = self._counter("pdd_link_handshake_failures", "Streams refused", ["reason"])
        self._dials = self._counter("pdd_link_dials", "Connections to targets in this site, by outcome", ["outcome"])
        self._connects = self._counter("pdd_link_connects", "CONNECT requests of routers", [])
        self._connect_failures = self._counter("pdd_link_connect_failures", "Those that failed", ["code"])

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def count_handshake_failure(self, reason: str) -> None:
        self._handshake_failures.labels(reason).inc()

    def count_dial(self, outcome: str) -> None:
        self._dials.labels(outcome).inc()

    def count_connect(self) -> None:
        self._connects.inc()

    def count_connect_failure(self, code: int) -> None:
        self._connect_failures.labels(str(code)).inc()

    def answer(self, request: Request, members: Members, gate: Gate) -> Response:
        """GET /members, /metrics, /healthz."""
        path = request.target.partition("?")[0]
        if path == "/members":
            return Response(200, json.dumps(members.describe()).encode(), "application/json")
        if path == "/metrics":
            self._lines.lines = list(members.all())
            self._lines.capped_s = gate.capped_s
            return Response(200, generate_latest(self._registry), _TEXT)
        if path in ("/healthz", "/health"):
            return Response(200, b"ok\n")
        return Response(404, b"routes: /members, /metrics, /healthz, CONNECT <member>:80\n")


class EndpointMetrics:
    """Counters of the endpoint, and its HTTP answers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lines = _Lines(("to_gateway", "from_gateway"))
        self._registry.register(self._lines)
        self._dials = Counter("pdd_link_line_dials", "Streams dialled", [], registry=self._registry)
        self._failures = Counter(
            "pdd_link_line_dial_failures", "Those that failed, by reason", ["reason"], registry=self._registry
        )
        self._sessions = Counter("pdd_link_sessions", "Sessions begun", [], registry=self._registry)

    def count_dial(self) -> None:
        self._dials.inc()

    def count_dial_failure(self, reason: str) -> None:
        self._failures.labels(reason).inc()

    def count_session(self) -> None:
        self._sessions.inc()

    def answer(self, request: Request, line: Line | None, gate: Gate) -> Response:
        """GET /metrics; /healthz (the process lives), /readyz (the line is up)."""
        path = request.target.partition("?")[0]
        if path == "/metrics":
            self._lines.lines = [line] if line is not None else []
            self._lines.capped_s = gate.capped_s
            return Response(200, generate_latest(self._registry), _TEXT)
        if path in ("/healthz", "/health"):
            return Response(200, b"ok\n")
        if path in ("/readyz", "/ready"):
            connected = line is not None and line.session.state is MemberState.CONNECTED
            return Response(200, b"connected\n") if connected else Response(503, b"the line is not up\n")
        return Response(404, b"routes: /metrics, /healthz, /readyz\n")
