"""How long to wait before the next try. Pure: the random number is an argument."""

from __future__ import annotations

FIRST_S = 0.1
CAP_S = 3.0


def backoff_s(failures: int, jitter: float) -> float:
    """Wait in seconds after `failures` failures in a row (from 1): doubling from FIRST_S, at most CAP_S.

    `jitter` in [0, 1) spreads it over the upper half, so that many endpoints do not return in step.
    """
    full = min(CAP_S, FIRST_S * 2.0 ** (min(failures, 16) - 1))
    return full * (0.5 + jitter / 2)
