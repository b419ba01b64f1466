"""The event loop: what happens to a request from its arrival to its last token, compiled by numba.

    arrive -> prefilled (first token) -> local network -> relay decode -> switch -> main decode -> done
                                      -> the line ------> landed ---------^   (P-RLD-MD)
                                      -> the line ------> landed -------> main decode       (P-MD, naive)

The decisions are `pdd.policy`'s own functions, compiled: the very ones that the router calls.
"""

from __future__ import annotations

import numpy as np

from pdd.planner.sim.compiled import compiled
from pdd.planner.sim.engines import advance_engine, join_engine, leave_engine, release_place
from pdd.planner.sim.handover import (
    ARRIVE,
    MAIN_JOIN,
    PREFILLED,
    RELAY_JOIN,
    SWITCH,
    admit,
    drop_relay,
    finish,
    join_main,
    landed,
    schedule,
    switch,
)
from pdd.planner.sim.line import LAND, advance_line, deliver, send
from pdd.planner.sim.picks import (
    AT_MAIN,
    AT_PREFILL,
    cached_tokens,
    keep_prompt,
    payload_of,
    pick_main,
    pick_prefill,
    pick_relay,
    predict_s,
)
from pdd.planner.sim.queues import find_next, pop_event
from pdd.planner.sim.steps import P_STEP, enqueue_prompt, plan_step, take_done
from pdd.planner.sim.world import Settings, World
from pdd.planner.timing import compute_prefill_s
from pdd.policy.pipeline import ABNORMAL, DIRECT, RELAYED, choose_route

route_of = compiled(choose_route)
prefill_of = compiled(compute_prefill_s)

ONE_TOKEN, LOCAL = 4, 5
"""Routes beside those of `pdd.policy.pipeline`: nothing left to decode; same site."""


@compiled
def arrive(s: Settings, w: World, i: int, now: float) -> None:
    w.req[i].came = now
    p = pick_prefill(s, w, i, now)
    held = min(cached_tokens(s, w, i, p, AT_PREFILL), w.req[i].inputs - 1)
    w.req[i].p_hit = held
    new = w.req[i].inputs - held
    if s.fuse_tails and w.free_at[p] > now:
        # The tail shares its forward with the next request's head: only whole chunks' worth of fixed cost is ours.
        share = new / s.chunk
        seconds = s.p_token_s * (new + s.p_half * share) + s.p_fixed_s * share
        seconds += s.p_attention_s * new * (held + new / 2)
    else:
        seconds = prefill_of(new, held, s.chunk, s.p_token_s, s.p_half, s.p_attention_s, s.p_fixed_s)
    start = max(now, w.free_at[p])
    w.free_at[p] = start + seconds
    keep_prompt(s, w, i, p, AT_PREFILL, w.req[i].inputs)
    if s.p_steps:
        enqueue_prompt(w, p, i, new)
        if w.pre[p].busy == 0:
            begin_step(s, w, p, now)
        return
    w.one[0].prefill_s += seconds
    schedule(w, start + seconds, PREFILLED, i)


@compiled
def begin_step(s: Settings, w: World, p: int, now: float) -> None:
    """Prefill engine p runs its next step, or rests."""
    seconds = plan_step(s, w, p)
    w.pre[p].busy = 1 if seconds > 0 else 0
    if seconds > 0:
        w.one[0].prefill_s += seconds
        schedule(w, now + seconds, P_STEP, p)


@compiled
def step_done(s: Settings, w: World, p: int, base: int, leaf: int, leaves: int, now: float) -> None:
    """A step of prefill engine p is over: first tokens come out, the next step begins."""
    i = take_done(s, w, p)
    while i >= 0:
        prefilled(s, w, i, base, leaf, leaves, now)
        i = take_done(s, w, p)
    begin_step(s, w, p, now)


@compiled
def prefilled(s: Settings, w: World, i: int, base: int, leaf: int, leaves: int, now: float) -> None:
    """The first token is out; the rest is decoded somewhere."""
    w.req[i].first = now
    w.req[i].left = w.req[i].outputs - 1
    if w.req[i].left <= 0:
        w.req[i].route = ONE_TOKEN
        finish(s, w, i, now)
        return
    advance_line(s, w, now)
    m = pick_main(s, w, i, base)
    w.req[i].main_of = m
    held = min(cached_tokens(s, w, i, m, AT_MAIN), w.req[i].inputs - 1) if s.main_cache else 0
    w.req[i].m_hit = held
    missing = w.req[i].inputs - held
    size = payload_of(missing, s.kappa, s.sigma, s.window, s.state_bytes)
    w.req[i].payload = size
    w.req[i].bound = 1
    w.eng[base + m].bound += 1
    if s.way == 0:
        w.req[i].route = LOCAL
        schedule(w, now + size * 8 / s.local_bps + s.local_rtt_s, LAND, i)
        return
    if s.way == 1:
        w.req[i].route = DIRECT
        send(s, w, i, leaf, leaves, now)
        return
    wait_s = predict_s(s, w, i, missing)
    relay = pick_relay(s, w, i)
    route = route_of(
        wait_s, w.req[i].outputs, relay >= 0, w.one[0].previous, s.threshold_s, s.abnormal, s.abnormal_tokens,
        s.abnormal_s,
    )  # fmt: skip
    w.req[i].route = route
    if route in (RELAYED, ABNORMAL):
        w.req[i].engine = relay
        w.one[0].sessions += 1
        w.one[0].arrived += 1
        w.eng[relay].q_size += 1  # reserved until it joins
        whole = payload_of(w.req[i].inputs, s.kappa, s.sigma, s.window, s.state_bytes)
        schedule(w, now + whole * 8 / s.local_bps + s.local_rtt_s, RELAY_JOIN, i)
    else:
        w.one[0].refused += route != DIRECT
    if route in (RELAYED, DIRECT):
        w.one[0].previous = route
    if route != ABNORMAL:
        send(s, w, i, leaf, leaves, now)
    else:
        w.req[i].bound = 0
        w.eng[base + m].bound -= 1


@compiled
def decoded(s: Settings, w: World, engine: int, base: int, leaves: int, now: float) -> None:
    """The engine's next sequence has all its tokens."""
    i = w.members[engine, 0]
    advance_engine(s, w, engine, base, now)
    w.eng[engine].steps = max(w.eng[engine].steps, w.targets[engine, 0])
    relay = engine < base
    if relay:
        w.req[i].relayed = w.req[i].left
    leave_engine(s, w, i, engine, base, leaves, now)
    w.req[i].left = 0
    if relay:
        drop_relay(w, i, engine, now)
    finish(s, w, i, now)
    if relay and w.req[i].kept:
        release_place(w, i, base + w.req[i].main_of)
        admit(s, w, base + w.req[i].main_of, base, leaves, now)
    if not relay:
        admit(s, w, engine, base, leaves, now)


@compiled
def handle(s: Settings, w: World, kind: int, i: int, base: int, leaf: int, leaves: int, now: float) -> None:
    if kind == ARRIVE:
        arrive(s, w, i, now)
    elif kind == PREFILLED:
        prefilled(s, w, i, base, leaf, leaves, now)
    elif kind == P_STEP:
        step_done(s, w, i, base, leaf, leaves, now)
    elif kind == LAND:
        landed(s, w, i, base, leaves, now)
    elif kind == MAIN_JOIN:
        join_main(s, w, i, base, leaves, now)
    elif kind == RELAY_JOIN:
        if w.req[i].engine >= 0 and np.isnan(w.req[i].joined):
            w.eng[w.req[i].engine].q_size -= 1
            join_engine(s, w, i, w.req[i].engine, base, leaves, now)
    elif kind == SWITCH and np.isnan(w.req[i].done):
        switch(s, w, i, base, leaves, now)


@compiled
def run_until(s: Settings, w: World, until: float) -> float:
    """Handles all events up to `until` (inf: to the end). Returns the time of the last one handled."""
    n = w.req.shape[0]
    base = w.eng.shape[0] - s.mains
    leaf = w.eng.shape[0]
    leaves = w.tree.shape[0] // 2
    now = -np.inf
    while True:
        while s.closed and w.one[0].next < n and w.req[w.one[0].next].previous >= 0:
            w.one[0].next += 1  # it comes when the one before it is done
        at, source = np.inf, -1
        if w.one[0].next < n:
            at, source = w.req[w.one[0].next].arrival, 0
        if w.one[0].events > 0 and w.events[0].at < at:
            at, source = w.events[0].at, 1
        if w.tree[1] < at:
            at, source = w.tree[1], 2
        if source < 0 or at > until:
            return now
        now = at
        if source == 0:
            i = w.one[0].next
            w.one[0].next += 1
            arrive(s, w, i, now)
        elif source == 1:
            kind, i = w.events[0].kind, w.events[0].who
            w.one[0].events = pop_event(w.events, w.one[0].events)
            handle(s, w, kind, i, base, leaf, leaves, now)
        else:
            server = find_next(w.tree, leaves)
            if server == leaf:
                deliver(s, w, leaf, leaves, now)
            else:
                decoded(s, w, server, base, leaves, now)
