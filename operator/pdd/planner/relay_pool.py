"""Relay decode and the line together: who is relayed, for how long, and what each transfer takes.

The choice of the pipeline is the router's (`pdd.policy`): its own prediction of the wait, not what then happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdd.planner.decode_pool import IDLE, DecodeLoad, compute_decode_load
from pdd.planner.fleet import Fleet
from pdd.planner.handoff_time import Handoff, compute_handoff
from pdd.planner.kvlaw import KVLaw
from pdd.planner.queueing import Wait, erlang_b
from pdd.planner.tails import Reals, spread_over_rows, wait_states
from pdd.planner.timing import decode_step_s
from pdd.planner.wan import STATES, LineLoad, compute_line_load, stretch_rows, transfer_rows_s

BITS = 8.0
RELAY_ROUNDS = 3
FULL_LINE = 0.95
NO_HANDOFF = Handoff(0.0, 0.0, 0.0, ())
MAX_SLOTS = 100_000


@dataclass(frozen=True, slots=True)
class RelayLoad:
    """RLD's part. rows: probability that a request is relayed; hold_s: how long; tokens: made there; overflow: see
    Prediction; crosses: probability that its KV crosses the line."""

    rows: Reals
    hold_s: Reals
    tokens: Reals
    crosses: Reals
    overflow: float
    sessions: float
    capacity_per_s: float
    load: DecodeLoad
    handoff: Handoff


def payload_rows_bytes(law: KVLaw, tokens: Reals, block_tokens: int) -> Reals:
    """`kvlaw.payload_bytes` for arrays; whole blocks cross."""
    whole = np.ceil(tokens / block_tokens) * block_tokens
    window = law.window_bytes_per_token * np.minimum(whole, law.window_tokens)
    return np.where(tokens > 0, law.bytes_per_token * whole + window + law.state_bytes, 0.0)


def steady_line(fleet: Fleet, line: LineLoad, crossing: Reals, rate: float) -> LineLoad:
    """`line`, or, if it does not keep up and has no steady state, the same line at FULL_LINE: the other stages see that
    one, so that what binds is the line and not what waits for it."""
    if line.stable:
        return line
    return compute_line_load(fleet.line, crossing, rate * FULL_LINE / line.utilisation)


def compute_transfer_rows(fleet: Fleet, line: LineLoad, payload: Reals) -> Reals:
    """Seconds over the line for each row, the wait for a connection and the stretch by others included."""
    own_s = transfer_rows_s(fleet.line, payload, line.rate_bps)
    stretch = stretch_rows(line, own_s, spread_over_rows(line.states, len(payload)))
    waited = spread_over_rows(wait_states(line.pool, STATES)[::-1], len(payload))
    stretched_s = own_s + (stretch - 1.0) * payload * BITS / line.rate_bps
    return stretched_s + np.where(payload > 0, waited, 0.0)


def compute_predicted_rows(fleet: Fleet, line: LineLoad, payload: Reals) -> Reals:
    """What the router predicts (`policy.line.predict_wait_s`): bytes under way over the line's rate, own bytes at the
    rate that one transfer gets, one RTT. It is what the choice of the pipeline looks at, not what happens."""
    queue_s = line.outstanding_bytes * BITS / (fleet.line.capacity_bps * fleet.line.efficiency)
    dealt = spread_over_rows(wait_states(Wait(1.0, queue_s, line.outstanding_scv), STATES), len(payload))
    return np.where(payload > 0, dealt + payload * BITS / line.rate_bps + fleet.line.rtt_s, 0.0)


def no_relay(rows: int, crosses: bool) -> RelayLoad:
    zero = np.zeros(rows)
    return RelayLoad(zero, zero, zero, np.full(rows, float(crosses)), 0.0, 0.0, math.inf, IDLE, NO_HANDOFF)


def compute_relay(
    fleet: Fleet,
    rate: float,
    prompt: Reals,
    output: Reals,
    payload: Reals,
    line: LineLoad,
    state_tokens: float,
) -> tuple[RelayLoad, LineLoad, Reals]:
    """Who is relayed and for how long: RLD's step, its sessions and the line settle in a few rounds."""
    rules, pool = fleet.rules, fleet.relay
    step_s = decode_step_s(pool.times.decode, 1.0, float(prompt.mean()))
    steady = steady_line(fleet, line, payload, rate)
    transfer_s = compute_transfer_rows(fleet, steady, payload)
    predicted_s = compute_predicted_rows(fleet, steady, payload)
    handoff = NO_HANDOFF
    for _ in range(RELAY_ROUNDS):
        odd = np.zeros(len(payload), dtype=bool)
        if rules.abnormal_enabled:
            odd = (output <= rules.abnormal_max_output_tokens) & (predicted_s >= rules.abnormal_min_transfer_s)
        wanted = odd | (predicted_s > rules.relay_threshold_s)
        if odd.any():
            crossing, crossing_rate = payload[~odd], rate * float((~odd).mean())
            line = compute_line_load(fleet.line, crossing, crossing_rate)
            steady = steady_line(fleet, line, crossing, crossing_rate)
            transfer_s = compute_transfer_rows(fleet, steady, payload)
            predicted_s = compute_predicted_rows(fleet, steady, payload)
        eager = np.minimum(output, transfer_s / step_s)
        if (wanted & ~odd).any():
            handoff = compute_handoff(
                rules,
                fleet.main.times.extend,
                fleet.line.rtt_s,
                step_s,
                float(eager[wanted & ~odd].mean()),
                float(prompt[wanted & ~odd].mean()),
            )
        tokens = np.where(odd, output, np.minimum(output, eager + (handoff.seconds - handoff.stall_s) / step_s))
        share = float(wanted.mean())
        load = compute_decode_load(
            pool,
            rate * share,
            prompt[wanted],
            tokens[wanted],
            state_tokens=state_tokens,
            cap=rules.relay_sessions_per_engine,
        )
        step_s = load.step_s if load.step_s > 0 and math.isfinite(load.step_s) else step_s
    hold_s = np.where(wanted, tokens * step_s, 0.0)
    sessions = rate * float(hold_s.mean())
    slots = int(load.limit * pool.engines) if share > 0 else 0
    overflow = erlang_b(min(slots, MAX_SLOTS), sessions) if share > 0 else 0.0
    capacity = rate * slots / sessions if sessions > 0 else math.inf
    rows = wanted.astype(np.float64) * (1.0 - overflow)
    crosses = np.where(odd, overflow, 1.0)
    made = np.where(wanted, tokens, 0.0)
    return RelayLoad(rows, hold_s, made, crosses, overflow, sessions, capacity, load, handoff), line, transfer_s
