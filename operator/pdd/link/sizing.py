"""Sizes of frames, windows and buffers, derived from the line's rate and round trip. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.link.channel import INITIAL_CREDIT_BYTES

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Bounds of a lane, all in bytes but max_channels.

    Memory that a lane may hold: window_budget_bytes (plus min_window_bytes for each channel beyond it) of received
    bytes that sinks have not taken, and as much again of sent bytes that the peer has not acknowledged.
    """

    frame_bytes: int
    window_bytes: int
    send_high_bytes: int
    send_low_bytes: int
    ack_every_bytes: int
    min_window_bytes: int = INITIAL_CREDIT_BYTES
    window_budget_bytes: int = 256 * MIB
    max_channels: int = 8192


@dataclass(frozen=True, slots=True)
class StreamSizes:
    """Socket settings of one stream. notsent_lowat in bytes; pacing in bytes per second, 0 for none."""

    notsent_lowat: int
    pacing_bytes_per_s: int


def bdp_bytes(rate_bps: int, rtt_ms: int) -> int:
    """Bandwidth-delay product: what is on the way when the line is full. rate_bps 0 (uncapped) counts as 10 Gbit/s."""
    return int((rate_bps or 10_000_000_000) / 8 * rtt_ms / 1000)


def bulk_limits(rate_bps: int, rtt_ms: int, chunk_bytes: int) -> LaneLimits:
    """Limits of the bulk lane: one channel alone must be able to fill the line.

    A frame is at most what the line carries in 2 ms, so that frames of several channels interleave finely and a burst
    does not sit in front of the fast lane's packets in the line's queue.
    """
    line_2ms = int(rate_bps / 8 * 0.002) if rate_bps else chunk_bytes
    frame = max(16 * KIB, min(chunk_bytes, line_2ms))
    window = min(64 * MIB, max(MIB, 2 * bdp_bytes(rate_bps, rtt_ms + 10) + 8 * frame))
    return LaneLimits(
        frame_bytes=frame,
        window_bytes=window,
        send_high_bytes=max(256 * KIB, 4 * frame),
        send_low_bytes=max(128 * KIB, 2 * frame),
        ack_every_bytes=max(32 * KIB, min(256 * KIB, window // 16)),
    )


def fast_limits() -> LaneLimits:
    """Limits of the fast lane: small frames, so that a long prompt's body delays nobody's token for long."""
    return LaneLimits(
        frame_bytes=16 * KIB,
        window_bytes=MIB,
        send_high_bytes=256 * KIB,
        send_low_bytes=64 * KIB,
        ack_every_bytes=32 * KIB,
        window_budget_bytes=64 * MIB,
    )


def bulk_stream_sizes(rate_bps: int, streams: int) -> StreamSizes:
    """Settings for each of `streams` live streams.

    The kernel holds 30 ms of a stream's share, so that a busy moment here leaves no gap on the line, and paces it out
    hardly faster than the share, so that making up for the moment leaves no queue on the line either: the fast lane's
    packets would stand in it. The rate itself is the token bucket's.
    """
    if not rate_bps:
        return StreamSizes(notsent_lowat=512 * KIB, pacing_bytes_per_s=0)
    share = rate_bps / 8 / max(1, streams)
    return StreamSizes(
        notsent_lowat=int(min(MIB, max(16 * KIB, share * 0.03))),
        pacing_bytes_per_s=int(share * 1.1),
    )
