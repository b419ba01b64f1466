"""Which addresses in A an endpoint may reach: `CIDR:low-high` rules. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from pdd.common.errors import InvalidInput

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class AllowRule:
    """Ports `low` to `high`, both included, of the addresses of `network`."""

    network: Network
    low: int
    high: int

    def permits(self, address: str, port: int) -> bool:
        return self.low <= port <= self.high and ipaddress.ip_address(address) in self.network


def parse_rules(texts: Iterable[str], field: str = "allow") -> tuple[AllowRule, ...]:
    """`10.244.0.0/16:8001-8001`, `10.0.0.7/32:8001`, `[fd00::]/64:1-65535`. Raises InvalidInput with the field."""
    return tuple(_parse(text, f"{field}.{index}") for index, text in enumerate(texts))


def permitted(rules: Iterable[AllowRule], address: str, port: int) -> bool:
    """True if any rule permits it: without rules nothing is."""
    return any(rule.permits(address, port) for rule in rules)


def parse_target(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port). Raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput("target", text, "write it as host:port")
    return host.strip("[]"), int(port)


def _parse(text: str, field: str) -> AllowRule:
    remedy = "write it as CIDR:low-high, e.g. 10.244.0.0/16:8001-8001"
    cidr, colon, ports = text.rpartition(":")
    low, _dash, high = ports.partition("-")
    if not colon or not low.isdecimal() or not (high or low).isdecimal():
        raise InvalidInput(field, text, remedy)
    first, last = int(low), int(high or low)
    if not 0 < first <= last < 65536:
        raise InvalidInput(field, text, "ports go from 1 to 65535, the lower one first")
    try:
        network = ipaddress.ip_network(cidr.replace("[", "").replace("]", ""), strict=False)
    except ValueError as error:
        raise InvalidInput(field, text, remedy) from error
    return AllowRule(network, first, last)
