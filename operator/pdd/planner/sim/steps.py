"""Prefill step by step, as engines with chunked prefill do it, compiled by numba.

A step computes at most `chunk` prompt tokens of the first `p_most` requests. Those with at most `p_short` tokens left
go first, with at most half of the chunk while longer ones want it; then the others in order of arrival. A prompt's last
tokens share their step with the next prompts' first ones. What arrives during a step waits for its end.

The closed form (`SimOptions.prefill_steps` off) needs one event a request and not one a step; it serves prompts
strictly one after the other.
"""

from __future__ import annotations

from pdd.planner.sim.compiled import compiled, constant
from pdd.planner.sim.world import Settings, World

P_STEP = constant(6)
"""Kind of the event at a step's end; who: the prefill engine."""


@compiled
def enqueue_prompt(w: World, p: int, i: int, tokens: int) -> None:
    """Request i has `tokens` to compute at engine p."""
    w.req[i].p_left = tokens
    w.req[i].link = -1
    if w.pre[p].tail >= 0:
        w.req[w.pre[p].tail].link = i
    else:
        w.pre[p].head = i
    w.pre[p].tail = i


@compiled
def plan_step(s: Settings, w: World, p: int) -> float:
    """Shares the next step out (`p_now` of each request). Returns its seconds, 0 if nothing waits."""
    long = False
    i, seen = w.pre[p].head, 0
    while i >= 0 and seen < s.p_most:
        long = long or w.req[i].p_left > s.p_short
        i, seen = w.req[i].link, seen + 1
    left = (s.chunk + 1) // 2 if long else s.chunk
    total, attention = 0, 0.0
    for short_ones in (True, False):
        if not short_ones:
            left = s.chunk - total
        i, seen = w.pre[p].head, 0
        while i >= 0 and seen < s.p_most and left > 0:
            if (w.req[i].p_left <= s.p_short) == short_ones:
                now = min(left, w.req[i].p_left)
                w.req[i].p_now = now
                left -= now
                total += now
                attention += now * (w.req[i].inputs - w.req[i].p_left + now / 2)
            i, seen = w.req[i].link, seen + 1
    if total == 0:
        return 0.0
    return s.p_fixed_s + s.p_token_s * (total + s.p_half) + s.p_attention_s * attention


@compiled
def take_done(s: Settings, w: World, p: int) -> int:
    """The first request whose last prompt token this step computed, out of the queue; -1 if there is none (any more).
    Counts down what the step did for those before it; call it until it gives -1."""
    before, i, seen = -1, w.pre[p].head, 0
    while i >= 0 and seen < s.p_most:
        w.req[i].p_left -= w.req[i].p_now
        w.req[i].p_now = 0
        after = w.req[i].link
        if w.req[i].p_left <= 0:
            if before < 0:
                w.pre[p].head = after
            else:
                w.req[before].link = after
            if after < 0:
                w.pre[p].tail = before
            w.req[i].link = -1
            found: int = i
            return found
        before, i, seen = i, after, seen + 1
    return -1
