"""The line as a processor-sharing server in virtual time, compiled by numba.

Every active transfer gets min(flow, capacity / n) bits a second, so the line's clock is the bits that each active one
has received; a transfer of b bits that starts at clock v is done at v + b. A connection pool holds back those beyond
it, first come, first served.
"""

from __future__ import annotations

import numpy as np

from pdd.planner.sim.compiled import compiled, constant
from pdd.planner.sim.queues import push_event, push_target, remove_target, set_next
from pdd.planner.sim.world import Settings, World
from pdd.planner.wan import compute_start_s

start_of = compiled(compute_start_s)
LAND = constant(5)


@compiled
def line_rate(s: Settings, active: int) -> float:
    """Bits a second of each of `active` transfers."""
    return min(s.flow_bps, s.capacity_bps / max(1, active))


@compiled
def advance_line(s: Settings, w: World, now: float) -> None:
    """Brings the line's clock to `now`."""
    active = w.one[0].line
    elapsed = now - w.one[0].clock_s
    w.one[0].clock_s = now
    if active == 0 or elapsed <= 0:
        return
    rate = line_rate(s, active)
    w.one[0].clock_bits += rate * elapsed
    moved = rate * elapsed * active
    w.one[0].line_s += moved / s.capacity_bps
    w.one[0].outstanding = max(0.0, w.one[0].outstanding - moved / 8)


@compiled
def plan_line(s: Settings, w: World, leaf: int, leaves: int) -> None:
    """When the next transfer is done."""
    active = w.one[0].line
    if active == 0:
        set_next(w.tree, leaves, leaf, np.inf)
        return
    rest = max(0.0, w.l_targets[0] - w.one[0].clock_bits)
    set_next(w.tree, leaves, leaf, w.one[0].clock_s + rest / line_rate(s, active))


@compiled
def start_delay_s(s: Settings, bits: float) -> float:
    """The reader's request and the last byte's way, and slow start where connections are not kept warm."""
    if not s.start_rtts:
        return s.rtt_s
    return s.rtt_s + start_of(bits / 8, s.flow_bps, s.rtt_s, s.streams)


@compiled
def activate(s: Settings, w: World, i: int) -> None:
    """Transfer i is on the line. The clock must be at now."""
    w.one[0].line = push_target(w.l_targets, w.l_members, w.one[0].line, w.one[0].clock_bits + w.req[i].payload * 8, i)


@compiled
def send(s: Settings, w: World, i: int, leaf: int, leaves: int, now: float) -> None:
    """The KV of request i sets out; nothing missing means that only the request itself crosses."""
    if w.req[i].payload <= 0:
        w.one[0].events = push_event(w.events, w.one[0].events, now + s.rtt_s / 2, LAND, i)
        return
    advance_line(s, w, now)
    w.one[0].outstanding += w.req[i].payload
    if s.connections > 0 and w.one[0].line >= s.connections:
        if w.one[0].q_tail >= 0:
            w.req[w.one[0].q_tail].link = i
        else:
            w.one[0].q_head = i
        w.one[0].q_tail = i
        w.req[i].link = -1
        w.one[0].q_size += 1
        return
    activate(s, w, i)
    plan_line(s, w, leaf, leaves)


@compiled
def deliver(s: Settings, w: World, leaf: int, leaves: int, now: float) -> None:
    """The transfer that is done leaves the line, and one that waited starts."""
    advance_line(s, w, now)
    i = w.l_members[0]
    w.one[0].clock_bits = max(w.one[0].clock_bits, w.l_targets[0])
    w.one[0].line = remove_target(w.l_targets, w.l_members, w.one[0].line, 0)
    if w.one[0].line == 0:
        w.one[0].clock_bits = 0.0
    at = now + start_delay_s(s, w.req[i].payload * 8)
    w.one[0].events = push_event(w.events, w.one[0].events, at, LAND, i)
    head = w.one[0].q_head
    if head >= 0 and w.one[0].line < s.connections:
        w.one[0].q_head = w.req[head].link
        if w.one[0].q_head < 0:
            w.one[0].q_tail = -1
        w.one[0].q_size -= 1
        activate(s, w, head)
    plan_line(s, w, leaf, leaves)
