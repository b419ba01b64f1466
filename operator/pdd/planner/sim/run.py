"""`simulate`: one fleet under one load, deterministic, about a microsecond of work for each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pdd.common.errors import InvalidInput, PDDError
from pdd.planner.fleet import Fleet, Sla, Way
from pdd.planner.load import Load
from pdd.planner.sim import precompile
from pdd.planner.sim.loop import run_until
from pdd.planner.sim.result import Columns, SimResult, build_result
from pdd.planner.sim.scaling import RelayScaler
from pdd.planner.sim.world import Settings, World, make_settings, make_world, pack
from pdd.policy.scaling import ScalingLaw

Progress = Callable[[int, int], None]
"""(requests done, requests in all)."""
SLICES = 50
COLUMNS = (
    "came", "first", "second", "done", "landed", "stall", "inputs", "outputs", "p_hit", "m_hit", "relayed", "route",
    "payload",
)  # fmt: skip
"""Of a request's record, in the order of `Columns`."""


@dataclass(frozen=True, slots=True)
class SimOptions:
    """How a run is made.

    seed: names the run; the loop itself draws nothing, equal loads give equal runs. closed_loop: a request of a session
    comes `think_s` after the answer before it, not at its time in the trace. caches: finite prefix caches (block hashes
    where the load has them, else sessions); False: every hit of the load is a hit. main_cache: MD keeps prefixes (DRC).
    fuse_tails: a last partial chunk shares its forward with the next request. slow_start: connections on the line are
    cold. affinity_s: so much later may the prefill engine be that holds the prefix. overhead_s: added to each forward.
    warmup_share: share of the requests, from the first, whose figures are left out. scaling: the law for relay decode
    (None: fixed). progress: told now and then. prefill_steps: prompts share each step of prefill as engines do it,
    those with at most short_tokens left first (`pdd.planner.sim.steps`); else one after the other, which is faster.
    """

    seed: int = 0
    closed_loop: bool = False
    caches: bool = True
    main_cache: bool = True
    fuse_tails: bool = True
    slow_start: bool = False
    affinity_s: float = 0.5
    overhead_s: float = 0.0
    warmup_share: float = 0.1
    scaling: ScalingLaw | None = None
    scaling_interval_s: float = 5.0
    engine_start_s: float = 30.0
    sla: Sla = field(default_factory=Sla)
    progress: Progress | None = None
    prefill_steps: bool = False
    short_tokens: int = 0


def simulate(fleet: Fleet, load: Load, options: SimOptions | None = None) -> SimResult:
    """Runs the load through the fleet to the last token.

    Raises InvalidInput for an empty load, a fleet without an engine that it needs, or options out of range.
    """
    options = options or SimOptions()
    if len(load) == 0:
        raise InvalidInput("load", "no requests", "give at least one request")
    if not 0 <= options.warmup_share < 1:
        raise InvalidInput("warmup_share", options.warmup_share, "use a share from 0 to below 1")
    settings = make_settings(
        fleet, load, fuse_tails=options.fuse_tails, caches=options.caches, main_cache=options.main_cache,
        closed=options.closed_loop, slow_start=options.slow_start, affinity_s=options.affinity_s,
        overhead_s=options.overhead_s, prefill_steps=options.prefill_steps, short_tokens=options.short_tokens,
    )  # fmt: skip
    scaled = options.scaling is not None and fleet.way is Way.PDD
    law = options.scaling
    most = law.max_replicas if scaled and law is not None else settings.relays
    world = make_world(settings, load, most)
    scaler = RelayScaler(law, options.scaling_interval_s, options.engine_start_s) if scaled and law else None
    precompile.finish()
    _run(settings, world, load, options, scaler)
    precompile.mark_complete()
    done = int(world.one[0]["done"])
    if done != len(load):
        raise PDDError(f"{len(load) - done} requests never ended: a fault of the simulator")
    return _result(fleet, settings, world, options, scaler, most)


def _run(settings: Settings, world: World, load: Load, options: SimOptions, scaler: RelayScaler | None) -> None:
    packed = pack(settings)
    total, start, end = len(load), float(load.arrival_s[0]), float(load.arrival_s[-1])
    if scaler is not None:
        scaler.start(world, start)
        now = start
        while world.one[0]["done"] < total:
            now += options.scaling_interval_s
            run_until(packed, world, now)
            scaler.look(settings, world, now)
            if options.progress is not None:
                options.progress(int(world.one[0]["done"]), total)
        return
    if options.progress is not None and end > start:
        for part in range(1, SLICES):
            run_until(packed, world, start + (end - start) * part / SLICES)
            options.progress(int(world.one[0]["done"]), total)
    run_until(packed, world, float("inf"))
    if options.progress is not None:
        options.progress(total, total)


def _result(
    fleet: Fleet, s: Settings, w: World, options: SimOptions, scaler: RelayScaler | None, relays: int
) -> SimResult:
    req, one = w.req, w.one[0]
    skipped = int(options.warmup_share * len(req))
    # Column by column: a whole record is 25 numbers, of which the figures want 13.
    chosen = np.argsort(req["came"], kind="stable")[skipped:] if options.closed_loop else slice(skipped, None)
    columns = Columns(*(np.ascontiguousarray(req[name][chosen]) for name in COLUMNS))
    span_s = max(1e-9, float(req["done"].max() - req["came"].min()))
    utilisation = {"prefill": one["prefill_s"] / (span_s * s.prefills), "main": one["main_s"] / (span_s * s.mains)}
    if relays:
        utilisation["relay"] = one["relay_s"] / (span_s * relays)
    if fleet.way is not Way.SAME_SITE:
        utilisation["line"] = one["line_s"] / span_s
    changes: tuple[tuple[float, int, str], ...] = ()
    if scaler is not None:
        changes = tuple((at, decision.replicas, decision.reason.value) for at, decision in scaler.decisions)
    crossed = np.isin(req["route"], (0, 1, 3))
    return build_result(
        fleet.way, columns, options.sla, {k: float(v) for k, v in utilisation.items()},
        {"relay": float(one["relay_seq_s"]) / span_s, "main": float(one["main_seq_s"]) / span_s},
        float(req["payload"][crossed].sum()), changes,
    )  # fmt: skip
