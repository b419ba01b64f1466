"""A run that works with numba's compiler switched off, for comparison and to see what the compiler is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.unit.planner.sim.fleets import fleet, load, times

import pdd.planner.sim.run as run
from pdd.planner.fleet import LineSpec, Way
from pdd.planner.sim import simulate


def allow_plain_python() -> None:
    """Fields of plain numpy records have no attributes; those of record arrays do, slowly."""
    make_world, pack = run.make_world, run.pack

    def view(array: Any) -> Any:
        return array.view(np.recarray) if array.dtype.names else array

    def world(*args: Any) -> Any:
        made = make_world(*args)
        return type(made)(*(view(array) for array in made))

    run.make_world = world  # type: ignore[assignment]
    run.pack = lambda settings: view(np.array([pack(settings)]))[0]  # type: ignore[assignment]


def print_run(requests: int = 150) -> None:
    """Stamps of a mixed load in all three ways, a line a way. Numba's own record types take no record arrays."""
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        allow_plain_python()
    rng = np.random.default_rng(9)
    source = load(
        requests, rate=6, inputs=rng.lognormal(9.5, 1.0, requests).astype(int) + 2,
        outputs=rng.geometric(1 / 150, requests), hits=1, session=rng.integers(0, 20, requests),
    )  # fmt: skip
    engine = times(token_s=1e-5, fixed_s=0.01, chunk=4096, step_s=0.02, context_s=1e-8, most=12, kv=500_000)
    for way in Way:
        line = LineSpec(2e9, rtt_s=0.03, flow_bps=3e8, loss=1e-6, slow_start=True, connections=4)
        made = simulate(
            fleet(way, prefills=2, mains=2, prefill=engine, relay=engine, main=engine, line=line, bytes_per_token=5000),
            source,
        )
        stamps = np.concatenate([made.columns.first_s, made.columns.second_s, made.columns.done_s])
        print(way.value, made.pipelines, np.round(np.nan_to_num(stamps), 6).tolist())
