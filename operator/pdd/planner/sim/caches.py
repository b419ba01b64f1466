"""Prefix caches with exact LRU eviction, over plain arrays that numba compiles.

Sessions: one entry for each conversation at the engine that served it last, as long as its prefix; eviction drops whole
entries, least recently used first. Blocks: every block by its hash, as engines keep them; a prompt's match ends at the
first block that is missing, and a prompt's last blocks are evicted before its first ones.

A list is doubly linked through `after` and `before`; each engine has a sentinel of its own.
"""

from __future__ import annotations

from typing import Any

from pdd.planner.sim.compiled import compiled

Array = Any


@compiled
def unlink(after: Array, before: Array, node: int) -> None:
    """Takes `node` out of its list."""
    a, b = after[node], before[node]
    before[a], after[b] = b, a
    after[node] = before[node] = -1


@compiled
def link_last(after: Array, before: Array, sentinel: int, node: int) -> None:
    """Puts `node` where it is evicted last."""
    last = before[sentinel]
    after[last] = node
    before[node] = last
    after[node] = sentinel
    before[sentinel] = node


@compiled
def find_session(home: Array, held: Array, first_hit: Array, session: int, engine: int, hit: int) -> int:
    """Tokens of a prompt that `engine` holds. hit: what a cache without limit would hold.

    Without a session, and for the first turn of one, the hit is a prefix that many share: it is always held.
    """
    if session < 0:
        return hit
    shared: int = min(first_hit[session], hit)
    if home[session] != engine:
        return shared
    best: int = max(shared, min(hit, held[session]))
    return best


@compiled
def keep_session(
    home: Array, held: Array, total: Array, after: Array, before: Array, sessions: int, session: int, engine: int,
    tokens: int, room: int,
) -> None:  # fmt: skip
    """`engine` now holds `tokens` of the session, and drops others' until all fit `room` tokens (0: no limit)."""
    if session < 0:
        return
    old = home[session]
    if old >= 0:
        total[old] -= held[session]
        unlink(after, before, session)
    home[session], held[session] = engine, tokens
    total[engine] += tokens
    sentinel = sessions + engine
    link_last(after, before, sentinel, session)
    if room <= 0:
        return
    while total[engine] > room:
        victim = after[sentinel]
        if victim == sentinel:
            break
        total[engine] -= held[victim]
        unlink(after, before, victim)
        home[victim], held[victim] = -1, 0


@compiled
def match_blocks(after: Array, stride: int, engine: int, ids: Array, first: int, last: int) -> int:
    """Leading blocks of ids[first:last] that `engine` holds."""
    base = engine * stride
    at = first
    while at < last and after[base + ids[at]] >= 0:
        at += 1
    return at - first


@compiled
def keep_blocks(
    after: Array, before: Array, total: Array, stride: int, engine: int, ids: Array, first: int, last: int, room: int
) -> None:
    """`engine` now holds ids[first:last]; the least recently used go until all fit `room` blocks (0: no limit)."""
    base = engine * stride
    sentinel = base + stride - 1
    at = last - 1
    while at >= first:
        node = base + ids[at]
        if after[node] >= 0:
            unlink(after, before, node)
        else:
            total[engine] += 1
        link_last(after, before, sentinel, node)
        at -= 1
    if room <= 0:
        return
    while total[engine] > room:
        victim = after[sentinel]
        if victim == sentinel:
            break
        unlink(after, before, victim)
        total[engine] -= 1
