"""What the kernel knows of a TCP connection: `struct tcp_info` of linux/tcp.h, the fields that we use."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_SIZE = 224
_U32_AT = {"rtt": 68, "total_retrans": 100, "segs_out": 136, "min_rtt": 148}
_U64_AT = {
    "bytes_acked": 120,
    "bytes_received": 128,
    "delivery_rate": 160,
    "busy_time": 168,
    "rwnd_limited": 176,
    "sndbuf_limited": 184,
    "bytes_sent": 200,
    "bytes_retrans": 208,
}


@dataclass(frozen=True, slots=True)
class TCPInfo:
    """Times in seconds; bytes of TCP payload since the connection began; delivery_rate in bytes per second."""

    rtt_s: float = 0.0
    min_rtt_s: float = 0.0
    delivery_rate_bytes_per_s: int = 0
    retransmits: int = 0
    segments_out: int = 0
    sent_bytes: int = 0
    """Retransmissions included: what the line really carried."""
    received_bytes: int = 0
    busy_s: float = 0.0
    receiver_limited_s: float = 0.0
    buffer_limited_s: float = 0.0


def parse_tcp_info(raw: bytes) -> TCPInfo:
    """Fields that an older kernel does not give are 0."""
    raw = raw.ljust(_SIZE, b"\0")

    def u32(name: str) -> int:
        return int(struct.unpack_from("=I", raw, _U32_AT[name])[0])

    def u64(name: str) -> int:
        return int(struct.unpack_from("=Q", raw, _U64_AT[name])[0])

    min_rtt = u32("min_rtt")
    return TCPInfo(
        rtt_s=u32("rtt") / 1e6,
        min_rtt_s=0.0 if min_rtt == 0xFFFFFFFF else min_rtt / 1e6,
        delivery_rate_bytes_per_s=u64("delivery_rate"),
        retransmits=u32("total_retrans"),
        segments_out=u32("segs_out"),
        sent_bytes=u64("bytes_sent") or u64("bytes_acked"),
        received_bytes=u64("bytes_received"),
        busy_s=u64("busy_time") / 1e6,
        receiver_limited_s=u64("rwnd_limited") / 1e6,
        buffer_limited_s=u64("sndbuf_limited") / 1e6,
    )


def read_tcp_info(sock: socket.socket) -> TCPInfo:
    """The kernel's figures for `sock`; all zero once it is closed."""
    try:
        return parse_tcp_info(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE))
    except OSError:
        return TCPInfo()
