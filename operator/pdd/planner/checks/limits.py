"""The model's own limits: textbook queues that its functions must meet."""

from __future__ import annotations

import numpy as np

from pdd.planner.checks.check import Check, compare
from pdd.planner.fleet import LineSpec
from pdd.planner.queueing import compute_wait, erlang_b, summarize_service, wait_md1_s
from pdd.planner.wan import compute_line_load


def check_limits() -> list[Check]:
    """M/D/1 (DistServe's prefill), M/M/c, Erlang B, and processor sharing."""
    fixed = summarize_service(np.full(100, 0.5))
    shared = compute_line_load(LineSpec(8e9, 0.0, efficiency=1.0), np.full(64, 1e8), 7.0)
    return [
        compare(
            "M/D/1 wait at load 0.8 (s): R D^2 / (2 (1 - R D))",
            "DistServe, arXiv 2401.09670",
            {"rate_per_s": 1.6, "service_s": 0.5},
            compute_wait(1.6, fixed, 1).overall_s,
            wait_md1_s(1.6, 0.5),
            1e-6,
        ),
        compare(
            "Erlang B of 10 servers, 8 Erlang",
            "Erlang's table",
            {"servers": 10, "offered": 8.0},
            erlang_b(10, 8.0),
            0.1217,
            1e-3,
        ),
        compare(
            "processor sharing: a transfer takes 1 / (1 - rho) times as long",
            "textbook",
            {"line_bps": 8e9, "bytes": 1e8, "rate_per_s": 7.0},
            shared.slowdown,
            1 / (1 - 0.7),
            1e-6,
        ),
    ]
