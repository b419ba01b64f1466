"""Heaps and trees of the event loop, over plain arrays that numba compiles. Times in seconds."""

from __future__ import annotations

import math
from typing import Any

from pdd.planner.sim.compiled import compiled

Array = Any
"""A numpy array; numba infers its type."""


@compiled
def push_event(events: Array, size: int, at: float, kind: int, who: int) -> int:
    """One more event. Returns the new size. Ties come out in a fixed order, the same in each run."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if events[up].at <= at:
            break
        events[i] = events[up]
        i = up
    events[i].at = at
    events[i].kind = kind
    events[i].who = who
    return size + 1


@compiled
def pop_event(events: Array, size: int) -> int:
    """Removes the earliest event (read it at index 0 before). Returns the new size."""
    size -= 1
    at = events[size].at
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and events[child + 1].at < events[child].at:
            child += 1
        if events[child].at >= at:
            break
        events[i] = events[child]
        i = child
    events[i] = events[size]
    return size


@compiled
def push_target(targets: Array, whos: Array, size: int, target: float, who: int) -> int:
    """One more member of a virtual-time server, by the clock at which it is done. Returns the new size."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if targets[up] <= target:
            break
        targets[i], whos[i] = targets[up], whos[up]
        i = up
    targets[i], whos[i] = target, who
    return size + 1


@compiled
def remove_target(targets: Array, whos: Array, size: int, index: int) -> int:
    """Removes the member at `index` (0: the next to be done). Returns the new size."""
    size -= 1
    if index == size:
        return size
    target, who = targets[size], whos[size]
    i = index
    while i > 0 and targets[(i - 1) >> 1] > target:
        up = (i - 1) >> 1
        targets[i], whos[i] = targets[up], whos[up]
        i = up
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and targets[child + 1] < targets[child]:
            child += 1
        if targets[child] >= target:
            break
        targets[i], whos[i] = targets[child], whos[child]
        i = child
    targets[i], whos[i] = target, who
    return size


@compiled
def set_next(tree: Array, leaves: int, leaf: int, at: float) -> None:
    """When server `leaf` has its next event (inf: none). tree: 2 x leaves, leaves a power of two; tree[1] the least."""
    i = leaves + leaf
    tree[i] = at
    i >>= 1
    while i >= 1:
        low = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == low:
            break
        tree[i] = low
        i >>= 1


@compiled
def find_next(tree: Array, leaves: int) -> int:
    """The server whose event is next."""
    i = 1
    while i < leaves:
        i = 2 * i if tree[2 * i] <= tree[2 * i + 1] else 2 * i + 1
    return i - leaves


@compiled
def steps_within(elapsed: float, first_s: float, growth_s: float) -> float:
    """Steps that fit into `elapsed` seconds when the first takes first_s and each later one growth_s more."""
    if growth_s <= first_s * 1e-12:
        return elapsed / first_s
    linear = first_s - growth_s / 2
    return (math.sqrt(linear * linear + 2 * growth_s * elapsed) - linear) / growth_s


@compiled
def seconds_of(steps: float, first_s: float, growth_s: float) -> float:
    """Seconds of `steps` such steps: the inverse of `steps_within`."""
    return steps * (first_s - growth_s / 2) + growth_s * steps * steps / 2
