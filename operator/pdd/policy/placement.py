"""Which MD serves a request: the one with the least score, seconds of predicted wait with its load counted in."""

from __future__ import annotations

SESSION_COST_S = 0.02
"""What one more session on an engine is worth in seconds of wait: a prefix that saves less than that is not followed
to an engine with more sessions."""


def score_main(wait_s: float, sessions: int) -> float:
    """Seconds. wait_s: predicted wait for what this MD lacks (`line.compute_wait_s`). sessions: requests that it has,
    those whose KV is on its way among them. Plain numbers: the simulator compiles this very function."""
    return wait_s + sessions * SESSION_COST_S
