"""From the line to main decode: landing, the switch from relay decode, the wait for a place; compiled by numba.

Extends of catch-up take time, but none of the main engine's: they are few tokens among a batch's steps.
"""

from __future__ import annotations

import numpy as np

from pdd.planner.sim.compiled import compiled, constant
from pdd.planner.sim.engines import (
    AT_RELAY,
    advance_engine,
    has_room,
    join_engine,
    keep_place,
    leave_engine,
    plan_engine,
    release_place,
    step_seconds,
)
from pdd.planner.sim.picks import AT_MAIN, keep_prompt
from pdd.planner.sim.queues import push_event
from pdd.planner.sim.world import Settings, World
from pdd.planner.timing import compute_extend_s
from pdd.policy.handoff import fits_one_shot, is_last_step
from pdd.policy.pipeline import RELAYED

one_shot_of = compiled(fits_one_shot)
last_step = compiled(is_last_step)
extend_of = compiled(compute_extend_s)

ARRIVE, PREFILLED, RELAY_JOIN, SWITCH, MAIN_JOIN = (constant(kind) for kind in range(5))
"""Kinds of events beside LAND and P_STEP; the ends of decoding and of transfers are in the tree."""


@compiled
def schedule(w: World, at: float, kind: int, i: int) -> None:
    w.one[0].events = push_event(w.events, w.one[0].events, at, kind, i)


@compiled
def landed(s: Settings, w: World, i: int, base: int, leaves: int, now: float) -> None:
    """The KV is complete at main decode."""
    w.req[i].landed = now
    if s.main_cache:
        keep_prompt(s, w, i, w.req[i].main_of, AT_MAIN, w.req[i].inputs + w.req[i].outputs)
    if not np.isnan(w.req[i].done):
        return  # relay decode was done first
    if w.req[i].route != RELAYED:
        schedule(w, now, MAIN_JOIN, i)
        return
    relay = w.req[i].engine
    if np.isnan(w.req[i].joined):
        # It has not even begun at relay decode: nothing to hand over.
        drop_relay(w, i, relay, now)
        schedule(w, now, MAIN_JOIN, i)
        return
    engine = base + w.req[i].main_of
    if w.eng[engine].q_head < 0 and has_room(s, w, i, engine):
        hand_over(s, w, i, engine, base, leaves, now)
    else:
        wait_main(w, i, engine)  # relay decode goes on until main decode takes the first extend


@compiled
def hand_over(s: Settings, w: World, i: int, engine: int, base: int, leaves: int, now: float) -> None:
    """Main decode has the KV and a place: it extends by what relay decode has made, once or in rounds, to take over."""
    keep_place(w, i, engine)
    relay = w.req[i].engine
    advance_engine(s, w, relay, base, now)
    plan_engine(s, w, relay, base, leaves)
    batch = 1 + int(w.eng[relay].steps - w.req[i].joined + 1e-6)
    context = w.req[i].inputs + batch
    step_s = step_seconds(s, AT_RELAY, w.eng[relay].batch, w.eng[relay].context)
    one_shot = s.one_shot == 1 or (s.one_shot == 0 and one_shot_of(batch, s.one_shot_limit))
    rounds, before, after_s = 0, -1, 0.0
    while True:
        took_s = s.rtt_s + extend_of(batch, context, s.x_fixed_s, s.x_token_s, s.x_context_s)
        if last_step(one_shot, rounds, batch, before):
            break
        after_s += took_s
        before, rounds = batch, rounds + 1
        batch = max(1, int(took_s / step_s))
    w.req[i].stall = took_s
    schedule(w, now + after_s, SWITCH, i)


@compiled
def switch(s: Settings, w: World, i: int, base: int, leaves: int, now: float) -> None:
    """Relay decode stops; main decode goes on after the last extend, which is the pause."""
    relay = w.req[i].engine
    made = leave_engine(s, w, i, relay, base, leaves, now)
    drop_relay(w, i, relay, now)
    w.req[i].relayed = made
    w.req[i].left -= made
    if w.req[i].left <= 0:
        finish(s, w, i, now)
        release_place(w, i, base + w.req[i].main_of)
        admit(s, w, base + w.req[i].main_of, base, leaves, now)
    else:
        schedule(w, now + w.req[i].stall, MAIN_JOIN, i)


@compiled
def drop_relay(w: World, i: int, relay: int, now: float) -> None:
    """The request needs no place at relay decode any more."""
    w.one[0].sessions -= 1
    w.one[0].held += 1
    w.one[0].holding_s += now - w.req[i].first
    if np.isnan(w.req[i].joined):
        w.eng[relay].q_size -= 1
        w.req[i].engine = -1


@compiled
def join_main(s: Settings, w: World, i: int, base: int, leaves: int, now: float) -> None:
    """Starts to decode at main decode, or waits there, first come, first served."""
    engine = base + w.req[i].main_of
    if w.req[i].kept or (w.eng[engine].q_head < 0 and has_room(s, w, i, engine)):
        join_engine(s, w, i, engine, base, leaves, now)
        return
    wait_main(w, i, engine)


@compiled
def wait_main(w: World, i: int, engine: int) -> None:
    """Request i is the last of those that wait for a place at a main engine."""
    if w.eng[engine].q_tail >= 0:
        w.req[w.eng[engine].q_tail].link = i
    else:
        w.eng[engine].q_head = i
    w.eng[engine].q_tail = i
    w.req[i].link = -1
    w.eng[engine].q_size += 1


@compiled
def admit(s: Settings, w: World, engine: int, base: int, leaves: int, now: float) -> None:
    """Those that waited at a main engine start as far as there is room."""
    while w.eng[engine].q_head >= 0:
        i = w.eng[engine].q_head
        if np.isnan(w.req[i].done) and not has_room(s, w, i, engine):
            return
        w.eng[engine].q_head = w.req[i].link
        if w.eng[engine].q_head < 0:
            w.eng[engine].q_tail = -1
        w.eng[engine].q_size -= 1
        if not np.isnan(w.req[i].done):
            continue  # relay decode was done first
        if w.req[i].route == RELAYED and w.req[i].engine >= 0:
            hand_over(s, w, i, engine, base, leaves, now)
        else:
            join_engine(s, w, i, engine, base, leaves, now)


@compiled
def finish(s: Settings, w: World, i: int, now: float) -> None:
    w.req[i].done = now
    w.one[0].done += 1
    if w.req[i].bound:
        w.req[i].bound = 0
        w.eng[w.eng.shape[0] - s.mains + w.req[i].main_of].bound -= 1
    if s.closed and w.req[i].child >= 0:
        schedule(w, now + w.req[w.req[i].child].think, ARRIVE, w.req[i].child)
