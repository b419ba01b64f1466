"""The state of one run as arrays: what the event loop reads and changes. Seconds, bytes, bits, tokens."""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

import numpy as np

from pdd.api.config import HandoffMode
from pdd.common.errors import InvalidInput
from pdd.planner.fleet import Fleet, Way
from pdd.planner.load import Load
from pdd.planner.wan import flow_rate_bps

Array = Any
NO_CACHE, SESSIONS, BLOCKS = 0, 1, 2
MAX_CACHE_NODES = 400_000_000
"""Engines x different blocks: 8 bytes each."""


class Settings(NamedTuple):
    """What does not change in a run. Coefficients as in `pdd.planner.timing`."""

    way: int  # 0 same site, 1 naive, 2 PDD
    prefills: int
    relays: int
    mains: int
    chunk: int
    p_token_s: float
    p_half: float
    p_attention_s: float
    p_fixed_s: float
    fuse_tails: bool
    r_fixed_s: float
    r_sequence_s: float
    r_context_s: float
    m_fixed_s: float
    m_sequence_s: float
    m_context_s: float
    x_fixed_s: float
    x_token_s: float
    x_context_s: float
    r_most: int
    m_most: int
    m_room: int
    r_room: int
    capacity_bps: float
    flow_bps: float
    rtt_s: float
    start_rtts: bool
    streams: int
    connections: int
    local_bps: float
    local_rtt_s: float
    kappa: float
    sigma: float
    window: int
    state_bytes: float
    threshold_s: float
    abnormal: bool
    abnormal_tokens: int
    abnormal_s: float
    one_shot: int  # 1 always, 0 by limit, -1 never
    one_shot_limit: int
    cache_kind: int
    p_room: int
    main_cache: bool
    block: int
    sessions: int
    stride: int
    closed: bool
    affinity_s: float
    p_steps: bool  # prefill goes step by step (see pdd.planner.sim.steps)
    p_short: int
    p_most: int


class World(NamedTuple):
    """What changes: a few arrays, most of them of records, since numba copies every array's descriptor in a call.

    req: [n] of REQUEST. eng: [E] of ENGINE, relay engines first, then main. targets, members: [E, most], each row the
    heap of one engine. tree: when each server has its next event. events: the heap of EVENT. free_at: [P]. l_targets,
    l_members: the line's heap. p_*, m_*: the prefix caches (`pdd.planner.sim.caches`). one: [1] of ONE.
    pre: [P] of PREFILL.
    """

    req: Array
    eng: Array
    targets: Array
    members: Array
    tree: Array
    events: Array
    free_at: Array
    l_targets: Array
    l_members: Array
    offsets: Array
    ids: Array
    p_home: Array
    p_held: Array
    p_total: Array
    p_after: Array
    p_before: Array
    m_home: Array
    m_held: Array
    m_total: Array
    m_after: Array
    m_before: Array
    first_hit: Array
    one: Array
    pre: Array


REQUEST = np.dtype(
    [(name, np.float64) for name in (
        "arrival", "think", "came", "first", "second", "done", "stall", "landed", "payload", "joined")]
    + [(name, np.int64) for name in (
        "inputs", "outputs", "hits", "session", "previous", "child", "relayed", "p_hit", "m_hit", "main_of", "engine",
        "left", "link", "kept", "bound", "route", "p_left", "p_now")],
    align=True,
)  # fmt: skip
"""One request: the load, what came of it (seconds; NaN: has not happened), where it is now."""
ENGINE = np.dtype(
    [("steps", np.float64), ("since", np.float64), ("context", np.float64), ("batch", np.int64), ("used", np.int64),
     ("kept", np.int64), ("bound", np.int64),
     ("q_head", np.int64), ("q_tail", np.int64), ("q_size", np.int64)], align=True
)  # fmt: skip
PREFILL = np.dtype([("head", np.int64), ("tail", np.int64), ("busy", np.int64)], align=True)
"""A prefill engine that goes step by step: its prompts, linked in order of arrival, and whether a step is under way."""
EVENT = np.dtype([("at", np.float64), ("kind", np.int64), ("who", np.int64)], align=True)
ONE = np.dtype(
    [(name, np.int64) for name in (
        "events", "next", "line", "q_head", "q_tail", "q_size", "done", "relays", "previous", "refused", "arrived",
        "held", "sessions")]
    + [(name, np.float64) for name in (
        "prefill_s", "relay_s", "main_s", "line_s", "holding_s", "relay_seq_s", "main_seq_s", "clock_bits", "clock_s",
        "outstanding")],
    align=True,
)  # fmt: skip
"""Counters, busy seconds of all engines of a stage together, and the line's clock."""


def pack(s: Settings) -> Any:
    """The settings as one record, which compiled functions take as one argument."""
    kinds = {int: np.int64, float: np.float64, bool: np.bool_}
    kind = np.dtype([(name, kinds[type_]) for name, type_ in get_type_hints(Settings).items()], align=True)
    return np.array([tuple(s)], kind)[0]


def make_settings(fleet: Fleet, load: Load, *, fuse_tails: bool, caches: bool, main_cache: bool, closed: bool,
                  slow_start: bool, affinity_s: float, overhead_s: float, prefill_steps: bool = False,
                  short_tokens: int = 0) -> Settings:  # fmt: skip
    """The fleet and the options as plain numbers. Raises InvalidInput for a fleet that lacks an engine it needs."""
    for name, pool in (("prefill", fleet.prefill), ("main", fleet.main)):
        if pool.engines < 1:
            raise InvalidInput(f"fleet.{name}.engines", pool.engines, "give at least one engine")
    prefill, relay, main = fleet.prefill.times, fleet.relay.times, fleet.main.times
    line, rules = fleet.line, fleet.rules
    relays = fleet.relay.engines if fleet.way is Way.PDD else 0
    kind = NO_CACHE if not caches else BLOCKS if load.blocks is not None else SESSIONS
    p_room, m_room = prefill.kv_capacity_tokens, main.kv_capacity_tokens
    block = load.blocks.block_tokens if load.blocks is not None else max(1, fleet.block_tokens)
    mode = rules.handoff_mode
    return Settings(
        way={Way.SAME_SITE: 0, Way.NAIVE: 1, Way.PDD: 2}[fleet.way],
        prefills=fleet.prefill.engines, relays=relays, mains=fleet.main.engines,
        chunk=prefill.prefill.chunk_tokens, p_token_s=prefill.prefill.per_token_s,
        p_half=prefill.prefill.half_tokens, p_attention_s=prefill.prefill.attention_s,
        p_fixed_s=prefill.prefill.fixed_s + overhead_s, fuse_tails=fuse_tails,
        r_fixed_s=relay.decode.fixed_s, r_sequence_s=relay.decode.per_sequence_s,
        r_context_s=relay.decode.per_context_token_s,
        m_fixed_s=main.decode.fixed_s, m_sequence_s=main.decode.per_sequence_s,
        m_context_s=main.decode.per_context_token_s,
        x_fixed_s=main.extend.fixed_s, x_token_s=main.extend.per_token_s, x_context_s=main.extend.per_context_token_s,
        r_most=max(1, min(relay.max_sequences, rules.relay_sessions_per_engine)), m_most=max(1, main.max_sequences),
        m_room=m_room, r_room=relay.kv_capacity_tokens, capacity_bps=line.capacity_bps * line.efficiency,
        flow_bps=flow_rate_bps(line), rtt_s=line.rtt_s, start_rtts=slow_start or line.slow_start,
        streams=max(1, line.streams),
        connections=line.connections, local_bps=line.local_bps, local_rtt_s=line.local_rtt_s,
        kappa=fleet.kv.bytes_per_token, sigma=fleet.kv.window_bytes_per_token, window=fleet.kv.window_tokens,
        state_bytes=fleet.kv.state_bytes, threshold_s=rules.relay_threshold_s, abnormal=rules.abnormal_enabled,
        abnormal_tokens=rules.abnormal_max_output_tokens, abnormal_s=rules.abnormal_min_transfer_s,
        one_shot={HandoffMode.ONE_SHOT: 1, HandoffMode.AUTO: 0, HandoffMode.CATCH_UP: -1}[mode],
        one_shot_limit=rules.one_shot_limit_tokens, cache_kind=kind, p_room=p_room, main_cache=main_cache, block=block,
        sessions=int(load.session.max()) + 1 if len(load) else 0,
        stride=(int(load.blocks.ids.max()) + 2 if load.blocks is not None and len(load.blocks.ids) else 1),
        closed=closed, affinity_s=affinity_s, p_steps=prefill_steps, p_short=short_tokens,
        p_most=max(1, prefill.max_sequences),
    )  # fmt: skip


def make_world(s: Settings, load: Load, max_relays: int) -> World:
    """Fresh state for one run. max_relays: engines that scaling may reach."""
    n = len(load)
    engines = max_relays + s.mains
    most = max(s.r_most, s.m_most)
    leaves = 1
    while leaves < engines + 1:
        leaves *= 2
    i64, f64 = np.int64, np.float64
    blocks = load.blocks
    first_hit = np.zeros(max(1, s.sessions), i64)
    if s.cache_kind == SESSIONS and s.sessions:
        names, at = np.unique(load.session, return_index=True)
        own = names >= 0
        first_hit[names[own]] = load.hit_tokens[at[own]]

    def cache(count: int) -> tuple[Array, Array, Array, Array, Array]:
        if s.cache_kind == BLOCKS:
            nodes, home = count * s.stride, 1
            if nodes > MAX_CACHE_NODES:
                raise InvalidInput(
                    "fleet", f"{count} engines x {s.stride} blocks", "fewer engines or a shorter part of the trace"
                )
            ends = np.arange(count, dtype=i64) * s.stride + s.stride - 1
        else:
            nodes, home = max(1, s.sessions) + count, max(1, s.sessions)
            ends = max(0, s.sessions) + np.arange(count, dtype=i64)
            if not s.sessions:
                ends = ends + 1
        after, before = np.full(nodes, -1, i64), np.full(nodes, -1, i64)
        after[ends] = ends
        before[ends] = ends
        return np.full(home, -1, i64), np.zeros(home, i64), np.zeros(count, i64), after, before

    p = cache(s.prefills)
    m = cache(s.mains)
    return World(
        _requests(load), _engines(engines), np.zeros((engines, most), f64), np.zeros((engines, most), i64),
        np.full(2 * leaves, np.inf, f64), np.zeros(2 * n + 16 + s.prefills, EVENT), np.zeros(s.prefills, f64),
        np.zeros(n + 1, f64), np.zeros(n + 1, i64),
        blocks.offsets.astype(i64) if blocks is not None else np.zeros(1, i64),
        blocks.ids.astype(i64) if blocks is not None else np.zeros(1, i64),
        *p, *m, first_hit, _one(max_relays), _prefills(s.prefills),
    )  # fmt: skip


def _requests(load: Load) -> Array:
    req = np.zeros(len(load), REQUEST)
    for name in ("came", "first", "second", "done", "stall", "landed", "joined"):
        req[name] = np.nan
    for name in ("engine", "main_of", "child", "link", "route"):
        req[name] = -1
    req["arrival"], req["think"] = load.arrival_s, load.think_s
    req["inputs"], req["outputs"], req["hits"] = load.input_tokens, load.output_tokens, load.hit_tokens
    req["session"], req["previous"] = load.session, load.previous
    has = load.previous >= 0
    req["child"][load.previous[has]] = np.flatnonzero(has)
    return req


def _engines(count: int) -> Array:
    eng = np.zeros(count, ENGINE)
    eng["q_head"] = eng["q_tail"] = -1
    return eng


def _prefills(count: int) -> Array:
    pre = np.zeros(count, PREFILL)
    pre["head"] = pre["tail"] = -1
    return pre


def _one(relays: int) -> Array:
    one = np.zeros(1, ONE)
    one["q_head"] = one["q_tail"] = one["previous"] = -1
    one["relays"] = relays
    return one
