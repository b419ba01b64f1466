"""Time as an argument: shells pass `monotonic_s`, tests pass a fake."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]
"""Seconds from an arbitrary origin, never going back."""

monotonic_s: Clock = time.monotonic


def rfc3339(at: datetime | None = None) -> str:
    """`at` (now if None) as Kubernetes writes times: UTC, whole seconds, `Z`."""
    return (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
