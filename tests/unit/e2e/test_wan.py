"""The line's shaping and filters, with a clock and luck of our own."""

from __future__ import annotations

import pytest
from e2e.wan.line import MIN_QUEUE_BYTES, LineSettings, Shaper
from e2e.wan.netem import build_netem, build_ruleset
from e2e.wan.packets import Filter, line_bytes, ports
from e2e.wan.server import Stop, answer

VIRTIO = bytes(10)


def tcp_packet(source: int, destination: int, payload_bytes: int = 0) -> bytes:
    """An IPv4 header of 20 bytes and a TCP header of 32 bytes, as far as the line looks at them."""
    network = bytes([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0]) + bytes(8)
    transport = source.to_bytes(2, "big") + destination.to_bytes(2, "big") + bytes(8) + bytes([0x80]) + bytes(19)
    return network + transport + bytes(payload_bytes)


class RecordingLine:
    """Takes what the server asks for and moves nothing."""

    backend = "recording"

    def __init__(self) -> None:
        self.settings = LineSettings()
        self.filter = Filter()
        self.fds: list[int] = []

    def configure(self, settings: LineSettings) -> None:
        self.settings = settings

    def restrict(self, new: Filter) -> None:
        self.filter = new

    def wait_s(self) -> float | None:
        return None

    def turn(self, readable: list[int]) -> None:
        raise AssertionError("nothing to do")

    def stats(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        raise AssertionError("not asked to")


def test_a_packet_arrives_after_its_time_on_the_link_and_the_delay() -> None:
    shaper = Shaper(LineSettings(delay_ms=10, mbps=8))  # 1 MB/s: 1000 bytes take 1 ms
    assert shaper.offer(b"first", 1000, now_s=0.0, luck=0.5, jitter=0.0)
    assert shaper.next_at_s() == pytest.approx(0.011)
    assert shaper.due(0.0109) == []
    assert shaper.due(0.0111) == [b"first"]
    assert shaper.next_at_s() is None


def test_packets_follow_one_another_at_the_rate_and_in_order_whatever_the_jitter() -> None:
    shaper = Shaper(LineSettings(delay_ms=10, jitter_ms=50, mbps=8))
    shaper.offer(b"late", 1000, now_s=0.0, luck=0.5, jitter=0.9)
    shaper.offer(b"early", 1000, now_s=0.0, luck=0.5, jitter=0.0)
    assert shaper.backlog_bytes(0.0) == pytest.approx(2000)
    assert shaper.due(1.0) == [b"late", b"early"]


def test_a_full_queue_drops_but_an_idle_line_takes_any_packet() -> None:
    shaper = Shaper(LineSettings(mbps=8, queue_bytes=1500))
    assert shaper.offer(b"", 60000, now_s=0.0, luck=0.5, jitter=0)
    assert not shaper.offer(b"", 1000, now_s=0.01, luck=0.5, jitter=0)
    assert shaper.dropped_queue == 1
    assert shaper.offer(b"", 1000, now_s=0.06, luck=0.5, jitter=0)


def test_losses_are_counted_apart_from_full_queues() -> None:
    shaper = Shaper(LineSettings(loss=0.1))
    assert not shaper.offer(b"", 100, now_s=0.0, luck=0.09, jitter=0)
    assert shaper.offer(b"", 100, now_s=0.0, luck=0.1, jitter=0)
    assert (shaper.dropped_loss, shaper.dropped_queue) == (1, 0)


def test_a_cut_loses_what_is_under_way() -> None:
    shaper = Shaper(LineSettings())
    shaper.offer(b"gone", 100, now_s=0.0, luck=0.5, jitter=0)
    assert shaper.clear() == 1
    assert shaper.due(10.0) == []


def test_the_default_queue_holds_a_fifth_of_a_second() -> None:
    assert LineSettings(mbps=1000).queue_limit_bytes == 25_000_000
    assert LineSettings(mbps=1).queue_limit_bytes == MIN_QUEUE_BYTES
    assert LineSettings(mbps=1, queue_bytes=9).queue_limit_bytes == 9


@pytest.mark.parametrize(
    ("values", "named"),
    [({"mbps": 0}, "mbps"), ({"delay_ms": -1}, "delay_ms"), ({"loss": 1}, "loss"), ({"speed": 1}, "speed"),
     ({"mbps": "fast"}, "mbps"), ({"mbps": True}, "mbps")],
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(values: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        LineSettings().changed(values)


def test_ports_are_read_behind_the_device_header() -> None:
    packet = tcp_packet(40000, 6443)
    assert ports(packet) == (40000, 6443)
    assert ports(VIRTIO + packet, len(VIRTIO)) == (40000, 6443)


def test_packets_without_ports_have_none() -> None:
    packet = bytearray(tcp_packet(1, 2))
    packet[9] = 1  # ICMP
    assert ports(bytes(packet)) is None
    fragment = bytearray(tcp_packet(1, 2))
    fragment[7] = 8
    assert ports(bytes(fragment)) is None
    assert ports(b"\x60" + bytes(60)) is None  # IPv6
    assert ports(b"") is None


def test_an_unsegmented_burst_counts_the_headers_of_each_of_its_segments() -> None:
    packet = tcp_packet(1, 2, payload_bytes=3000)
    assert line_bytes(packet, 0, segment_bytes=0) == 52 + 3000
    assert line_bytes(packet, 0, segment_bytes=1448) == 3 * 52 + 3000
    assert line_bytes(tcp_packet(1, 2), 0, segment_bytes=1448) == 52


def test_a_blocked_port_stops_both_directions_of_its_connections_only() -> None:
    blocked = Filter(blocked=frozenset({6443}))
    assert not blocked.passes((40000, 6443))
    assert not blocked.passes((6443, 40000))
    assert blocked.passes((40000, 31443))
    assert blocked.passes(None)


def test_only_lets_nothing_else_through_and_a_partition_nothing() -> None:
    only = Filter(only=frozenset({6443}))
    assert only.passes((6443, 40000))
    assert not only.passes((40000, 31443))
    assert not only.passes(None)
    assert not Filter(partitioned=True).passes((1, 2))


def test_the_control_commands_change_settings_and_filter() -> None:
    line = RecordingLine()
    assert answer(line, {"command": "set", "mbps": 100, "delay_ms": 5})["settings"]["mbps"] == 100
    answer(line, {"command": "count", "ports": [31443]})
    answer(line, {"command": "block", "ports": [6443]})
    shown = answer(line, {"command": "partition"})["filter"]
    assert shown == {"partitioned": True, "blocked": [6443], "only": [], "counted": [31443]}
    answer(line, {"command": "heal"})
    assert line.filter == Filter(counted=frozenset({31443}))
    assert line.settings == LineSettings(delay_ms=5, mbps=100)
    with pytest.raises(Stop):
        answer(line, {"command": "quit"})


@pytest.mark.parametrize(
    ("request_", "named"),
    [({"command": "cut"}, "cut"), ({}, "command"), ({"command": "block"}, "ports"),
     ({"command": "block", "ports": [0]}, "ports"), ({"command": "set", "mbps": -1}, "mbps")],
)  # fmt: skip
def test_wrong_commands_are_refused_by_name(request_: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        answer(RecordingLine(), request_)


def test_netem_gets_room_for_the_packets_on_their_way() -> None:
    words = build_netem(LineSettings(delay_ms=10, mbps=1000, loss=0.01, jitter_ms=1))
    assert words[:3] == ["netem", "limit", str((25_000_000 + 1_375_000) // 1500)]
    assert words[3:] == ["delay", "10ms", "1ms", "loss", "1%", "rate", "1000000kbit"]


def test_the_ruleset_drops_before_it_counts_and_accepts_only_what_is_named() -> None:
    text = build_ruleset(Filter(blocked=frozenset({1, 2}), only=frozenset({6443}), counted=frozenset({31443})))
    order = [text.index(part) for part in ("sport { 1, 2 }", "dport 31443 counter", "dport { 6443 } accept")]
    assert order == sorted(order)
    assert "counter port_31443 { }" in text
    assert build_ruleset(Filter()).count("drop") == 1  # the counter's declaration alone
