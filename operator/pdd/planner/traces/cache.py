"""Hits that caches of given sizes would give a load: from block hashes, or from the lengths of conversations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.load import Blocks, Load, Tokens
from pdd.planner.traces.recency import Reuse, Runs

HALVINGS = 60


def knows_hits(load: Load) -> bool:
    """False if nothing in the load says what a cache would hold (a trace without hashes and sessions)."""
    return load.blocks is not None or bool(np.any(load.hit_tokens > 0)) or bool(np.any(load.previous >= 0))


def knows_reuse(load: Load) -> bool:
    """Whether hits under caches of limited size can be found: there are hashes, or conversations."""
    return load.blocks is not None or bool(np.any(load.previous >= 0))


def measure_reuse(load: Load) -> Reuse:
    """All reuse of the load with its stack distances; O(n log n), about 1 s for 50,000 requests.

    Raises InvalidInput if the load says nothing about reuse (see `knows_reuse`).
    """
    if load.blocks is not None:
        return _measure_blocks(load, load.blocks)
    if not knows_reuse(load):
        raise InvalidInput("trace", "no hashes, no sessions", "hits of limited caches need one of both")
    return _measure_sessions(load)


def finite_hits(load: Load, cache_tokens: Sequence[float]) -> list[Tokens]:
    """Hit tokens by request, for each cache size (tokens). Exact LRU; the requests' order is that of arrival."""
    reuse = measure_reuse(load)
    return [reuse.hit_tokens(size) for size in cache_tokens]


def find_cache(reuse: Reuse, share: float) -> int | None:
    """The smallest cache, in tokens, that gives `share` of the hit tokens of an unlimited one; None without any hit."""
    top = float(reuse.distinct * reuse.unit_tokens + int(reuse.load.input_tokens.max()))
    wanted = share * int(reuse.hit_tokens(top).sum())
    if wanted <= 0:
        return None
    low, high = 0.0, top
    for _ in range(HALVINGS):
        if high - low <= reuse.unit_tokens:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if reuse.hit_tokens(middle).sum() >= wanted else (middle, high)
    return int(high)


def _measure_blocks(load: Load, blocks: Blocks) -> Reuse:
    """Ids are numbers of (prefix, block): along a prompt the last touch of the blocks never gets later."""
    runs = Runs(load)
    ids, offsets = blocks.ids.tolist(), blocks.offsets.tolist()
    last = [-1] * (int(blocks.ids.max()) + 1 if len(blocks.ids) else 0)
    for request in range(len(load)):
        path = ids[offsets[request] : offsets[request + 1]]
        reused: list[tuple[int, int]] = []
        owner, length = -1, 0
        for block in path:
            mine = last[block]
            last[block] = request
            if mine == owner:
                length += 1
                continue
            if owner >= 0:
                reused.append((owner, length))
            owner, length = mine, 1
        if owner >= 0:
            reused.append((owner, length))
        runs.touch(request, reused, len(path))
    return runs.finish(blocks.block_tokens)


def _measure_sessions(load: Load) -> Reuse:
    """A turn's hit is a prefix of the turn before it; where it is longer, of the nearest earlier turn that long.

    A turn holds its prompt, and so much of its answer as the next turn's hit needs. What no turn of the conversation
    explains comes from outside (a system prompt that many share): it is taken as given wherever the prompt fits.
    """
    runs = Runs(load)
    held = _held_tokens(load).tolist()
    parent, shared = [-1] * len(load), [0] * len(load)
    for request, (hit, before) in enumerate(zip(load.hit_tokens.tolist(), load.previous.tolist(), strict=True)):
        later, holder = [], before
        while holder >= 0 and held[holder] < hit:
            later.append(holder)
            holder = parent[holder]
        if holder < 0 <= before:
            later, holder = [], before
        depth = min(hit, held[holder]) if holder >= 0 else 0
        runs.touch(request, _split_runs(holder, later, shared, depth), max(held[request], depth))
        runs.give(request, hit - depth)
        parent[request], shared[request] = holder, depth
    return runs.finish(1)


def _held_tokens(load: Load) -> Tokens:
    needed = np.zeros(len(load), np.int64)
    later = np.flatnonzero(load.previous >= 0)
    np.maximum.at(needed, load.previous[later], load.hit_tokens[later])
    explained = needed <= load.input_tokens + load.output_tokens
    return np.where(explained, np.maximum(needed, load.input_tokens), load.input_tokens)


def _split_runs(holder: int, later: list[int], shared: list[int], depth: int) -> list[tuple[int, int]]:
    """(owner, length) from the prompt's begin: each of the turns since the holder took over what it shared with it."""
    ends, least = [(holder, depth)], depth
    for turn in reversed(later):
        least = min(least, shared[turn])
        ends.append((turn, least))
    ends.reverse()
    begins = [0, *(end for _, end in ends)]
    return [(owner, end - begin) for (owner, end), begin in zip(ends, begins, strict=False) if end > begin]
