"""Free TCP ports on loopback."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

_LOW, _HIGH = 20_000, 32_000
"""Below the kernel's ephemeral range (32768 and up): no outgoing connection takes a port between choice and use."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether `host:port` can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, rng: random.Random | None = None, taken: Iterable[int] = ()) -> list[int]:
    """`count` different ports that can be bound on loopback now. Raises OSError when there are not enough.

    They start at a random place, so that two runners that start together seldom meet.
    """
    rng = rng or random.Random()
    used = set(taken)
    start = rng.randrange(_LOW, _HIGH)
    found: list[int] = []
    for offset in range(_HIGH - _LOW):
        if len(found) == count:
            break
        port = _LOW + (start - _LOW + offset) % (_HIGH - _LOW)
        if port not in used and is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"only {len(found)} of {count} free ports between {_LOW} and {_HIGH} on 127.0.0.1")
    return found


def next_free_port(preferred: int, tries: int = 100) -> int:
    """`preferred`, or the next free one after it within `tries`."""
    for port in range(preferred, min(preferred + tries, 65_536)):
        if is_free(port):
            return port
    raise OSError(f"no free port between {preferred} and {preferred + tries - 1} on 127.0.0.1")
