"""Decode engines as servers in virtual time, compiled by numba.

A decode engine's clock counts steps. Between two changes of its batch of B sequences a step takes
fixed + per_sequence x B + per_context_token x (sum of contexts), and the contexts grow by B a step, so the seconds of k
steps are a quadratic in k. A sequence that joins at clock v with n tokens to make is done at v + n: one heap an engine,
one event at a time, nothing is simulated token by token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdd.planner.sim.compiled import compiled, constant
from pdd.planner.sim.queues import push_target, remove_target, seconds_of, set_next, steps_within
from pdd.planner.sim.world import Settings, World
from pdd.planner.timing import compute_decode_step_s

decode_step_s = compiled(compute_decode_step_s)
Array = Any
AT_RELAY = constant(True)
"""Whose step `step_seconds` tells."""


@compiled
def step_seconds(s: Settings, relay: bool, batch: float, context: float) -> float:
    """Seconds of the engine's next step."""
    if relay:
        return decode_step_s(batch, context, s.r_fixed_s, s.r_sequence_s, s.r_context_s)
    return decode_step_s(batch, context, s.m_fixed_s, s.m_sequence_s, s.m_context_s)


@compiled
def advance_engine(s: Settings, w: World, engine: int, base: int, now: float) -> None:
    """Brings the engine's clock to `now`."""
    elapsed = now - w.eng[engine].since
    w.eng[engine].since = now
    batch = w.eng[engine].batch
    if batch == 0 or elapsed <= 0:
        return
    relay = engine < base
    if relay:
        w.one[0].relay_s += elapsed
        w.one[0].relay_seq_s += elapsed * batch
    else:
        w.one[0].main_s += elapsed
        w.one[0].main_seq_s += elapsed * batch
    growth = (s.r_context_s if relay else s.m_context_s) * batch
    steps = steps_within(elapsed, step_seconds(s, relay, batch, w.eng[engine].context), growth)
    w.eng[engine].steps += steps
    w.eng[engine].context += steps * batch


@compiled
def plan_engine(s: Settings, w: World, engine: int, base: int, leaves: int) -> None:
    """When the engine's next sequence is done, as things are now."""
    batch = w.eng[engine].batch
    if batch == 0:
        set_next(w.tree, leaves, engine, np.inf)
        return
    relay = engine < base
    steps = max(0.0, w.targets[engine, 0] - w.eng[engine].steps)
    growth = (s.r_context_s if relay else s.m_context_s) * batch
    first = step_seconds(s, relay, batch, w.eng[engine].context)
    set_next(w.tree, leaves, engine, w.eng[engine].since + seconds_of(steps, first, growth))


@compiled
def keep_place(w: World, i: int, engine: int) -> None:
    """A main engine keeps a place for request i, which still decodes at relay decode."""
    w.req[i].kept = 1
    w.eng[engine].kept += 1
    w.eng[engine].used += w.req[i].inputs + w.req[i].outputs


@compiled
def release_place(w: World, i: int, engine: int) -> None:
    """The place is taken or not needed any more."""
    if w.req[i].kept:
        w.req[i].kept = 0
        w.eng[engine].kept -= 1
        w.eng[engine].used -= w.req[i].inputs + w.req[i].outputs


@compiled
def join_engine(s: Settings, w: World, i: int, engine: int, base: int, leaves: int, now: float) -> None:
    """Request i decodes `w.req[i].left` tokens here from now on."""
    release_place(w, i, engine)
    advance_engine(s, w, engine, base, now)
    made = w.req[i].outputs - w.req[i].left
    w.req[i].engine = engine
    w.req[i].joined = w.eng[engine].steps
    w.eng[engine].context += w.req[i].inputs + made
    w.eng[engine].used += w.req[i].inputs + w.req[i].outputs
    target = w.eng[engine].steps + w.req[i].left
    w.eng[engine].batch = push_target(w.targets[engine], w.members[engine], w.eng[engine].batch, target, i)
    if np.isnan(w.req[i].second):
        w.req[i].second = now + step_seconds(s, engine < base, w.eng[engine].batch, w.eng[engine].context)
    plan_engine(s, w, engine, base, leaves)


@compiled
def leave_engine(s: Settings, w: World, i: int, engine: int, base: int, leaves: int, now: float) -> int:
    """Request i stops here. Returns the tokens that it made on this engine."""
    advance_engine(s, w, engine, base, now)
    members = w.members[engine]
    at = 0
    while members[at] != i:
        at += 1
    made: int = min(w.req[i].left, int(w.eng[engine].steps - w.req[i].joined + 1e-6))
    here = w.eng[engine].steps - w.req[i].joined
    w.eng[engine].context -= w.req[i].inputs + w.req[i].outputs - w.req[i].left + here
    w.eng[engine].used -= w.req[i].inputs + w.req[i].outputs
    w.eng[engine].batch = remove_target(w.targets[engine], members, w.eng[engine].batch, at)
    if w.eng[engine].batch == 0:
        w.eng[engine].context = 0.0  # rounding must not pile up over a million sequences
    w.req[i].engine = -1
    plan_engine(s, w, engine, base, leaves)
    return made


@compiled
def has_room(s: Settings, w: World, i: int, engine: int) -> bool:
    """Whether a main engine may start one more sequence: a place in the batch, and KV for prompt and answer."""
    running = w.eng[engine].batch + w.eng[engine].kept
    if running >= s.m_most:
        return False
    need = w.req[i].inputs + w.req[i].outputs
    # One that would never fit alone is let in alone, and not kept waiting for ever.
    return s.m_room <= 0 or running == 0 or w.eng[engine].used + need <= s.m_room
