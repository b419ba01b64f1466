"""The event loop: what happens to a request from its arrival to its last token, compiled by numba.

    arrive -> prefilled (first token) -> local network -> relay decode -> switch -> main decode -> done
                                      -> the line ------> landed ---------^   (P-RLD-MD)
                                      -> the line ------> landed -------> main decode       (P-MD, naive)

The decisions are `pdd.policy`'s own functions, compiled: the very ones that the router calls.
"""

from __future__ import annotations

import numpy as np

from pdd.planner.kvlaw import compute_payload_bytes
from pdd.planner.sim.caches import find_session, keep_blocks, keep_session, match_blocks
from pdd.planner.sim.compiled import compiled
from pdd.planner.sim.engines import advance_engine, has_room, join_engine, leave_engine, plan_engine, step_seconds
from pdd.planner.sim.line import LAND, advance_line, deliver, send
from pdd.planner.sim.queues import find_next, pop_event, push_event
from pdd.planner.sim.world import BLOCKS, SESSIONS, Settings, World
from pdd.planner.timing import compute_chunk_s, compute_extend_s, compute_prefill_s
from pdd.policy.handoff import is_last_step
from pdd.policy.line import predict_wait_s
from pdd.policy.pipeline import ABNORMAL, DIRECT, RELAYED, choose_route

route_of = compiled(choose_route)
wait_of = compiled(predict_wait_s)
last_step = compiled(is_last_step)
payload_of = compiled(compute_payload_bytes)
prefill_of = compiled(compute_prefill_s)
chunk_of = compiled(compute_chunk_s)
extend_of = compiled(compute_extend_s)

ARRIVE, PREFILLED, RELAY_JOIN, SWITCH, MAIN_JOIN = 0, 1, 2, 3, 4
"""Kinds of events beside LAND; the ends of decoding and of transfers are in the tree."""
ONE_TOKEN, LOCAL = 4, 5
"""Routes beside those of `pdd.policy.pipeline`: nothing left to decode; same site."""
OVERLOAD_FACTOR = 1.5


@compiled
def schedule(w: World, at: float, kind: int, i: int) -> None:
    w.one[0].events = push_event(w.events, w.one[0].events, at, kind, i)


@compiled
def cached_tokens(s: Settings, w: World, i: int, engine: int, main: bool) -> int:
    """Tokens of the prompt that an engine's prefix cache holds."""
    if s.cache_kind == BLOCKS:
        after = w.m_after if main else w.p_after
        blocks = match_blocks(after, s.stride, engine, w.ids, w.offsets[i], w.offsets[i + 1])
        whole: int = min(blocks * s.block, w.req[i].inputs)
        return whole
    if s.cache_kind == SESSIONS:
        if main:
            return find_session(w.m_home, w.m_held, w.first_hit, w.req[i].session, engine, w.req[i].hits)
        return find_session(w.p_home, w.p_held, w.first_hit, w.req[i].session, engine, w.req[i].hits)
    hits: int = w.req[i].hits
    return hits


@compiled
def keep_prompt(s: Settings, w: World, i: int, engine: int, main: bool, tokens: int) -> None:
    """The engine's cache holds the prompt from now on."""
    if s.cache_kind == BLOCKS:
        if main:
            room = max(1, (s.m_room - w.eng[w.eng.shape[0] - s.mains + engine].used) // s.block) if s.m_room > 0 else 0
            keep_blocks(
                w.m_after, w.m_before, w.m_total, s.stride, engine, w.ids, w.offsets[i], w.offsets[i + 1], room
            )
        else:
            room = max(1, s.p_room // s.block) if s.p_room > 0 else 0
            keep_blocks(
                w.p_after, w.p_before, w.p_total, s.stride, engine, w.ids, w.offsets[i], w.offsets[i + 1], room
            )
    elif s.cache_kind == SESSIONS:
        if main:
            room = max(1, s.m_room - w.eng[w.eng.shape[0] - s.mains + engine].used) if s.m_room > 0 else 0
            keep_session(
                w.m_home, w.m_held, w.m_total, w.m_after, w.m_before, s.sessions, w.req[i].session, engine, tokens, room
            )
        else:
            keep_session(
                w.p_home, w.p_held, w.p_total, w.p_after, w.p_before, s.sessions, w.req[i].session, engine, tokens,
                s.p_room,
            )  # fmt: skip


@compiled
def pick_prefill(s: Settings, w: World, i: int, now: float) -> int:
    """The engine that is free first, or the one that holds the prefix if it is not much later."""
    best = 0
    for p in range(1, s.prefills):
        if w.free_at[p] < w.free_at[best]:
            best = p
    home = -1
    if s.cache_kind == SESSIONS and w.req[i].session >= 0:
        home = w.p_home[w.req[i].session]
    elif s.cache_kind == BLOCKS:
        most = 0
        for p in range(s.prefills):
            held = match_blocks(w.p_after, s.stride, p, w.ids, w.offsets[i], w.offsets[i + 1])
            if held > most:
                most, home = held, p
    if home >= 0 and max(now, w.free_at[home]) <= max(now, w.free_at[best]) + s.affinity_s:
        return home
    return best


@compiled
def pick_main(s: Settings, w: World, i: int, base: int) -> int:
    """The engine with the fewest sequences, or the one that holds the prefix if it has not many more."""
    best, least = 0, 1 << 60
    for m in range(s.mains):
        load = w.eng[base + m].batch + w.eng[base + m].q_size
        if load < least:
            best, least = m, load
    home = -1
    if s.main_cache and s.cache_kind == SESSIONS and w.req[i].session >= 0:
        home = w.m_home[w.req[i].session]
    elif s.main_cache and s.cache_kind == BLOCKS:
        most = 0
        for m in range(s.mains):
            held = match_blocks(w.m_after, s.stride, m, w.ids, w.offsets[i], w.offsets[i + 1])
            if held > most:
                most, home = held, m
    if home >= 0 and w.eng[base + home].batch + w.eng[base + home].q_size <= OVERLOAD_FACTOR * least + 1:
        return home
    return best


@compiled
def arrive(s: Settings, w: World, i: int, now: float) -> None:
    w.req[i].came = now
    p = pick_prefill(s, w, i, now)
    held = min(cached_tokens(s, w, i, p, False), w.req[i].inputs - 1)
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
    w.one[0].prefill_s += seconds
    keep_prompt(s, w, i, p, False, w.req[i].inputs)
    schedule(w, start + seconds, PREFILLED, i)


@compiled
def prefilled(s: Settings, w: World, i: int, base: int, leaf: int, leaves: int, now: float) -> None:
    """The first token is out; the rest is decoded somewhere."""
    w.req[i].first = now
    w.req[i].left = w.req[i].outputs - 1
    if w.req[i].left <= 0:
        w.req[i].route = ONE_TOKEN
        finish(s, w, i, now)
        return
    m = pick_main(s, w, i, base)
    w.req[i].main_of = m
    held = min(cached_tokens(s, w, i, m, True), w.req[i].inputs - 1) if s.main_cache else 0
    w.req[i].m_hit = held
    missing = w.req[i].inputs - held
    size = payload_of(missing, s.kappa, s.sigma, s.window, s.state_bytes)
    w.req[i].payload = size
    if s.way == 0:
        w.req[i].route = LOCAL
        schedule(w, now + size * 8 / s.local_bps + s.local_rtt_s, LAND, i)
        return
    if s.way == 1:
        w.req[i].route = DIRECT
        send(s, w, i, leaf, leaves, now)
        return
    advance_line(s, w, now)
    share = min(1.0, s.flow_bps / s.capacity_bps)
    wait_s = wait_of(size, s.capacity_bps, w.one[0].outstanding, s.rtt_s, share)
    relay = pick_relay(s, w)
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


@compiled
def pick_relay(s: Settings, w: World) -> int:
    """The relay engine with the fewest sessions, -1 if all are full."""
    best, least = -1, s.r_most
    for r in range(w.one[0].relays):
        load = w.eng[r].batch + w.eng[r].q_size
        if load < least:
            best, least = r, load
    return best


@compiled
def landed(s: Settings, w: World, i: int, base: int, leaves: int, now: float) -> None:
    """The KV is complete at main decode."""
    w.req[i].landed = now
    if s.main_cache:
        keep_prompt(s, w, i, w.req[i].main_of, True, w.req[i].inputs + w.req[i].outputs)
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
    advance_engine(s, w, relay, base, now)
    plan_engine(s, w, relay, base, leaves)
    batch = 1 + int(w.eng[relay].steps - w.req[i].joined + 1e-6)
    context = w.req[i].inputs + batch
    step_s = step_seconds(s, True, w.eng[relay].batch, w.eng[relay].context)
    one_shot = s.one_shot == 1 or (s.one_shot == 0 and batch <= s.one_shot_limit)
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
    if w.eng[engine].q_head < 0 and has_room(s, w, i, engine):
        join_engine(s, w, i, engine, base, leaves, now)
        return
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
    while w.eng[engine].q_head >= 0 and has_room(s, w, w.eng[engine].q_head, engine):
        i = w.eng[engine].q_head
        w.eng[engine].q_head = w.req[i].link
        if w.eng[engine].q_head < 0:
            w.eng[engine].q_tail = -1
        w.eng[engine].q_size -= 1
        join_engine(s, w, i, engine, base, leaves, now)


@compiled
def finish(s: Settings, w: World, i: int, now: float) -> None:
    w.req[i].done = now
    w.one[0].done += 1
    if s.closed and w.req[i].child >= 0:
        schedule(w, now + w.req[w.req[i].child].think, ARRIVE, w.req[i].child)


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
    if not relay:
        admit(s, w, engine, base, leaves, now)


@compiled
def handle(s: Settings, w: World, kind: int, i: int, base: int, leaf: int, leaves: int, now: float) -> None:
    if kind == ARRIVE:
        arrive(s, w, i, now)
    elif kind == PREFILLED:
        prefilled(s, w, i, base, leaf, leaves, now)
    elif kind == LAND:
        landed(s, w, i, base, leaves, now)
    elif kind == MAIN_JOIN:
        join_main(s, w, i, base, leaves, now)
    elif kind == RELAY_JOIN:
        if w.req[i].engine >= 0 and np.isnan(w.req[i].joined):
            w.eng[w.req[i].engine].q_size -= 1
            join_engine(s, w, i, w.req[i].engine, base, leaves, now)
    elif kind == SWITCH and np.isnan(w.req[i].done):
        relay = w.req[i].engine
        made = leave_engine(s, w, i, relay, base, leaves, now)
        drop_relay(w, i, relay, now)
        w.req[i].relayed = made
        w.req[i].left -= made
        if w.req[i].left <= 0:
            finish(s, w, i, now)
        else:
            schedule(w, now + w.req[i].stall, MAIN_JOIN, i)


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
