"""Allow rules, greetings, back-off, sizes, what limits a line, redirect rules, request heads."""

from __future__ import annotations

import struct

import pytest

from pdd.api.config import EndpointConfig, EndpointMode, TLSFiles
from pdd.common.errors import InvalidInput
from pdd.link.allow import parse_rules, parse_target, permitted
from pdd.link.backoff import CAP_S, backoff_s
from pdd.link.frames import MAX_PAYLOAD_BYTES, Frame, FrameError, FrameType
from pdd.link.hello import (
    Hello,
    LaneName,
    Welcome,
    WelcomeStatus,
    hello_frame,
    parse_hello,
    parse_welcome,
    welcome_frame,
)
from pdd.link.http import BadRequest, parse_head
from pdd.link.limits import LimitedBy, LineSample, limited_by
from pdd.link.redirect import plan_rules
from pdd.link.sizing import bulk_limits, bulk_stream_sizes
from pdd.link.tcpinfo import parse_tcp_info

# -- allow


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        ("10.244.3.9", 8001, True),
        ("10.244.3.9", 8002, False),
        ("10.245.0.1", 8001, False),
        ("127.0.0.1", 9100, True),
        ("127.0.0.1", 9200, False),
        ("fd00::7", 80, True),
    ],
)
def test_only_named_addresses_and_ports_are_permitted(address: str, port: int, expected: bool) -> None:
    rules = parse_rules(["10.244.0.0/16:8001", "127.0.0.1/32:9000-9199", "[fd00::]/64:1-65535"])
    assert permitted(rules, address, port) is expected


def test_without_rules_nothing_is_permitted() -> None:
    assert not permitted(parse_rules([]), "127.0.0.1", 8001)


@pytest.mark.parametrize("text", ["10.0.0.0/8", "10.0.0.0/8:x", "10.0.0.0/8:9-1", "10.0.0.0/8:0-1", "nowhere:1-2"])
def test_a_bad_rule_names_its_place(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"allow\.1"):
        parse_rules(["10.0.0.0/8:1-2", text])


def test_targets() -> None:
    assert parse_target("10.0.0.7:8001") == ("10.0.0.7", 8001)
    assert parse_target("[fd00::7]:8001") == ("fd00::7", 8001)
    for bad in ("host", "host:", ":1", "host:99999", "host:x"):
        with pytest.raises(InvalidInput):
            parse_target(bad)


# -- hello

HELLO = Hello("0123456789abcdef", LaneName.BULK, 3, 4, "md-0", "tiny", "default", True)


def test_a_greeting_survives_the_wire() -> None:
    assert parse_hello(hello_frame(HELLO)) == HELLO
    assert HELLO.member == "default/tiny/md-0"
    welcome = Welcome(WelcomeStatus.UNKNOWN_SESSION, "gw")
    assert parse_welcome(welcome_frame(welcome)) == welcome


def test_another_version_is_named_on_both_ends() -> None:
    other = Frame(FrameType.HELLO, payload=b'{"version": 7, "anything": "else"}')
    with pytest.raises(FrameError, match="protocol 7, this gateway speaks 1") as caught:
        parse_hello(other)
    assert caught.value.reason == "VersionMismatch"
    with pytest.raises(FrameError, match="protocol 7, this endpoint speaks 1"):
        parse_welcome(Frame(FrameType.WELCOME, payload=b'{"version": 7, "status": "ok"}'))
    refused = parse_welcome(Frame(FrameType.WELCOME, payload=b'{"version": 7, "status": "refused", "reason": "old"}'))
    assert refused.reason == "old"


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b'{"version": 1}', b'{"version": 1, "lane": "x"}'])
def test_a_greeting_that_is_none_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        parse_hello(Frame(FrameType.HELLO, payload=payload))
    with pytest.raises(FrameError):
        parse_hello(Frame(FrameType.PING))


# -- back-off


def test_back_off_doubles_to_a_cap_and_is_spread() -> None:
    full = [backoff_s(n, 0.999999) for n in range(1, 40)]
    assert full == sorted(full)
    assert full[0] == pytest.approx(0.1, rel=0.01)
    assert full[-1] == pytest.approx(CAP_S, rel=0.01)
    assert backoff_s(30, 0.0) == CAP_S / 2


# -- sizes


@pytest.mark.parametrize(("rate", "rtt"), [(10_000_000, 5), (100_000_000, 20), (10**9, 20), (10**10, 30), (0, 20)])
def test_one_channel_can_fill_the_line(rate: int, rtt: int) -> None:
    limits = bulk_limits(rate, rtt, 256 * 1024)
    on_the_way = (rate or 10**10) / 8 * rtt / 1000
    assert limits.window_bytes >= min(64 * 2**20, 1.9 * on_the_way)
    assert 0 < limits.frame_bytes <= MAX_PAYLOAD_BYTES
    assert limits.send_low_bytes < limits.send_high_bytes
    assert limits.ack_every_bytes * 4 < limits.window_bytes


def test_streams_share_the_pace() -> None:
    assert bulk_stream_sizes(10**9, 4).pacing_bytes_per_s * 4 == pytest.approx(10**9 / 8, rel=0.2)
    assert bulk_stream_sizes(0, 4).pacing_bytes_per_s == 0


# -- what limits

BUSY = LineSample(
    elapsed_s=1.0,
    delivered_bytes=10**7,
    backlog_bytes=10**6,
    backlog_before_bytes=10**6,
    capped_s=0.0,
    receiver_limited_share=0.0,
    starved=False,
    resent_share=0.0,
    core_share=0.3,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"delivered_bytes": 0, "backlog_bytes": 0}, LimitedBy.IDLE),
        ({"capped_s": 0.8}, LimitedBy.CAP),
        ({"backlog_bytes": 0}, LimitedBy.IDLE),
        # A burst that began within the sample: its few bytes by the whole sample's time would look like a slow line.
        ({"backlog_before_bytes": 0, "delivered_bytes": 1000}, LimitedBy.IDLE),
        ({"backlog_before_bytes": 0, "starved": True}, LimitedBy.IDLE),
        ({"resent_share": 0.03}, LimitedBy.LOSS),
        ({"core_share": 0.97}, LimitedBy.CORE),
        ({"starved": True}, LimitedBy.WINDOW),
        ({"starved": True, "core_share": 0.97}, LimitedBy.WINDOW),
        ({"receiver_limited_share": 0.6, "resent_share": 0.02}, LimitedBy.LOSS),
        ({}, LimitedBy.WINDOW),
    ],
)
def test_the_nearest_cause_is_named(changes: dict[str, float], expected: LimitedBy) -> None:
    values = {field: getattr(BUSY, field) for field in BUSY.__slots__}
    assert limited_by(LineSample(**{**values, **changes})) is expected


# -- redirect

TLS = TLSFiles(cert="c", key="k", ca="a", peer_name="p")


def endpoint(**changes: object) -> EndpointConfig:
    values: dict[str, object] = {
        "name": "md-0",
        "deployment": "tiny",
        "gateway": "10.1.1.1:7443",
        "tls": TLS,
        "mode": EndpointMode.REDIRECT,
        "kv_port": 15001,
        "http_port": 8082,
        "redirect_cidrs": ("10.244.0.0/16", "10.96.0.7/32"),
        "run_as_uid": 4711,
    }
    return EndpointConfig.model_validate({**values, **changes})


def test_redirect_rules_spare_the_endpoint_and_catch_the_rest() -> None:
    lines = plan_rules(endpoint()).splitlines()
    assert lines[0] == "*nat"
    assert lines[-1] == "COMMIT"
    spare = lines.index("-A PDD_LINK -m owner --uid-owner 4711 -j RETURN")
    catch = lines.index("-A PDD_LINK -p tcp -d 10.244.0.0/16 -j REDIRECT --to-ports 15001")
    assert spare < catch
    assert "-A PDD_LINK -p tcp -d 10.96.0.7/32 -j REDIRECT --to-ports 15001" in lines


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"redirect_cidrs": ()}, "redirectCidrs"),
        ({"redirect_cidrs": ("10.0.0.0/8", "nonsense")}, r"redirectCidrs\.1"),
        ({"redirect_cidrs": ("fd00::/64",)}, "IPv4"),
        ({"redirect_cidrs": ("0.0.0.0/0",)}, "loopback"),
        ({"mode": EndpointMode.CONNECT}, "mode"),
    ],
)
def test_redirect_rules_that_cannot_work_name_their_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        plan_rules(endpoint(**changes))


# -- HTTP heads, TCP_INFO


def test_request_heads() -> None:
    request = parse_head(b"CONNECT default/tiny/md-0:80 HTTP/1.1\r\nHost: default/tiny/md-0:80")
    assert (request.method, request.target, request.keep_alive) == ("CONNECT", "default/tiny/md-0:80", True)
    assert not parse_head(b"GET / HTTP/1.1\r\nConnection: close").keep_alive
    assert not parse_head(b"GET / HTTP/1.0").keep_alive
    for bad in (b"", b"GET /", b"GET / FTP/1.0", b"GET / HTTP/1.1\r\nno colon here"):
        with pytest.raises(BadRequest):
            parse_head(bad)


def test_tcp_info_of_an_old_kernel_is_zero_where_it_says_nothing() -> None:
    raw = bytearray(104)
    struct.pack_into("=I", raw, 68, 12_345)
    info = parse_tcp_info(bytes(raw))
    assert info.rtt_s == pytest.approx(0.012345)
    assert info.delivery_rate_bytes_per_s == info.sent_bytes == 0
