"""Which packets a line lets through: all, none, or by TCP or UDP port. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TCP, UDP = 6, 17


def ports(packet: bytes, offset: int = 0) -> tuple[int, int] | None:
    """Source and destination port of the IPv4 packet at `offset`; None if it has none (ICMP, fragments)."""
    if len(packet) < offset + 24 or packet[offset] >> 4 != 4 or packet[offset + 9] not in (TCP, UDP):
        return None
    if (packet[offset + 6] & 0x1F) or packet[offset + 7]:
        return None
    start = offset + (packet[offset] & 0x0F) * 4
    head = packet[start : start + 4]
    if len(head) < 4:
        return None
    return int.from_bytes(head[:2], "big"), int.from_bytes(head[2:], "big")


def line_bytes(packet: bytes, offset: int, segment_bytes: int) -> int:
    """What the line carries for an IPv4 packet that the kernel left unsegmented: each segment gets its own headers."""
    size = len(packet) - offset
    if not segment_bytes or packet[offset + 9] != TCP:
        return size
    network = (packet[offset] & 0x0F) * 4
    headers = network + (packet[offset + network + 12] >> 4) * 4
    segments = -(-(size - headers) // segment_bytes)
    return size + max(0, segments - 1) * headers


@dataclass(frozen=True, slots=True)
class Filter:
    """`blocked` ports never pass; with `only` set, nothing else than those ports passes; a partition stops everything.

    A packet belongs to a port if it is its source or its destination port: both directions of a connection match.
    `counted` ports are counted apart.
    """

    partitioned: bool = False
    blocked: frozenset[int] = frozenset()
    only: frozenset[int] = frozenset()
    counted: frozenset[int] = frozenset()

    @property
    def looks_at_ports(self) -> bool:
        return bool(self.blocked or self.only or self.counted)

    def passes(self, pair: tuple[int, int] | None) -> bool:
        if self.partitioned:
            return False
        if pair is None:
            return not self.only
        if pair[0] in self.blocked or pair[1] in self.blocked:
            return False
        return not self.only or pair[0] in self.only or pair[1] in self.only
