"""Which engine serves a request, and what its prefix cache holds; compiled by numba."""

from __future__ import annotations

import numpy as np

from pdd.planner.kvlaw import compute_payload_bytes
from pdd.planner.sim.caches import find_session, keep_blocks, keep_session, match_blocks
from pdd.planner.sim.compiled import compiled, constant
from pdd.planner.sim.world import BLOCKS, SESSIONS, Settings, World
from pdd.policy.line import predict_wait_s
from pdd.policy.placement import score_main

wait_of = compiled(predict_wait_s)
payload_of = compiled(compute_payload_bytes)
score_of = compiled(score_main)

AT_MAIN, AT_PREFILL = constant(True), constant(False)
"""Whose cache `cached_tokens` and `keep_prompt` mean."""


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
            keep_blocks(w.m_after, w.m_before, w.m_total, s.stride, engine, w.ids, w.offsets[i], w.offsets[i + 1], room)
        else:
            room = max(1, s.p_room // s.block) if s.p_room > 0 else 0
            keep_blocks(w.p_after, w.p_before, w.p_total, s.stride, engine, w.ids, w.offsets[i], w.offsets[i + 1], room)
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
def predict_s(s: Settings, w: World, i: int, missing: int) -> float:
    """Seconds until `missing` tokens of KV would have landed, as the router predicts them."""
    size = payload_of(missing, s.kappa, s.sigma, s.window, s.state_bytes)
    if s.way == 0:
        return size * 8 / s.local_bps + s.local_rtt_s
    return wait_of(size, s.capacity_bps, w.one[0].outstanding, s.rtt_s, min(1.0, s.flow_bps / s.capacity_bps))


@compiled
def pick_main(s: Settings, w: World, i: int, base: int) -> int:
    """The engine with the least score, as the router finds it: predicted wait and sessions together."""
    best, least = 0, np.inf
    if s.main_cache and s.cache_kind == BLOCKS:
        for m in range(s.mains):
            held = match_blocks(w.m_after, s.stride, m, w.ids, w.offsets[i], w.offsets[i + 1]) * s.block
            score = score_of(predict_s(s, w, i, max(1, w.req[i].inputs - held)), w.eng[base + m].bound)
            if score < least:
                best, least = m, score
        return best
    for m in range(s.mains):  # all but one hold the same of it: only their sessions differ
        if w.eng[base + m].bound < least:
            best, least = m, float(w.eng[base + m].bound)
    if s.main_cache and s.cache_kind == SESSIONS and w.req[i].session >= 0:
        home: int = w.m_home[w.req[i].session]
        if home >= 0:
            here = max(1, w.req[i].inputs - cached_tokens(s, w, i, home, AT_MAIN))
            there = max(1, w.req[i].inputs - cached_tokens(s, w, i, best, AT_MAIN))
            stay = score_of(predict_s(s, w, i, here), w.eng[base + home].bound)
            if stay <= score_of(predict_s(s, w, i, there), w.eng[base + best].bound):
                return home
    return best


@compiled
def pick_relay(s: Settings, w: World, i: int) -> int:
    """The relay engine with the fewest sessions, -1 if all are full or lack the KV for prompt and answer."""
    best, least = -1, s.r_most
    need = w.req[i].inputs + w.req[i].outputs
    for r in range(w.one[0].relays):
        load = w.eng[r].batch + w.eng[r].q_size
        if load < least and (s.r_room <= 0 or w.eng[r].used + need <= s.r_room):
            best, least = r, load
    return best
