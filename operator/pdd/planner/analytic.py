"""One fleet under one load in closed form, in milliseconds: four stages, percentiles, and which stage binds.

Prefill is M/G/c with the service-time variance of the load's own sample; the local network, the line (`wan`) and decode
(`decode_pool`) follow. Percentiles: `tails`. What it leaves out is in docs/planner.md, "Analytic model".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from pdd.planner.decode_pool import IDLE, DecodeLoad, compute_decode_load, compute_kept_share, compute_step_rows
from pdd.planner.fleet import Fleet, Sla, Way
from pdd.planner.handoff_time import Handoff, compute_handoff
from pdd.planner.kvlaw import KVLaw
from pdd.planner.queueing import Wait, compute_wait, erlang_b, summarize_service
from pdd.planner.stats import WorkloadStats
from pdd.planner.tails import Quantiles, Reals, Tail, spread_over_rows, wait_states
from pdd.planner.timing import PrefillTime, decode_step_s
from pdd.planner.wan import STATES, LineLoad, compute_line_load, stretch_rows, transfer_rows_s

BITS = 8.0
RELAY_ROUNDS = 3
NORMAL_STATES: Reals = np.array([NormalDist().inv_cdf((i + 0.5) / STATES) for i in range(STATES)])
NO_HANDOFF = Handoff(0.0, 0.0, 0.0, ())
FULL_LINE = 0.95
FUSE_STEPS = 6
FIRST_STEPS = 1.5
"""Steps until a new sequence's token: half a step until the batch takes it, and one."""


class StageName(StrEnum):
    """The value is how people read it."""

    PREFILL = "prefill"
    LOCAL = "local transfer"
    LINE = "line"
    RELAY = "relay decode"
    MAIN = "main decode"


@dataclass(frozen=True, slots=True)
class StageLoad:
    """capacity_per_s: requests a second, of the whole load, at which the stage is full. utilisation: rate / it."""

    name: StageName
    capacity_per_s: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds, requests and bytes per second.

    ttft: until the client's tokens flow: P's wait and prefill, the transfer where nothing hides it, and the first step
    of the engine that decodes. ttft_tail, first_tail: the whole laws of ttft and of P's own token.
    tpot: mean time between tokens of a request, its handoff's pause included. relay_share: of all tokens, made by
    RLD; relayed: share of requests that an RLD serves; overflow: share of those wanted there that found it full
    and went P-MD. kept_share: of waiting prefixes, those that MD's caches keep. goodput_per_s: requests within the
    promise; 0 if a stage does not keep up. bcr: good requests per unit of money.
    """

    rate_per_s: float
    ttft: Quantiles
    tpot: Quantiles
    stages: tuple[StageLoad, ...]
    relay_share: float
    relayed: float
    overflow: float
    relay_sessions: float
    handoff: Handoff
    line_bytes_per_s: float
    payload_mean_bytes: float
    transfer: Quantiles
    kept_share: float
    main: DecodeLoad
    goodput_per_s: float
    cost_per_h: float
    bcr: float
    ttft_tail: Tail = field(repr=False, compare=False)
    first_tail: Tail = field(repr=False, compare=False)

    @property
    def first_token(self) -> Quantiles:
        """P's own token, which the router sends as soon as prefill is done."""
        return self.first_tail.quantiles()

    @property
    def stable(self) -> bool:
        """Every stage keeps up; RLD may overflow (requests then go P-MD)."""
        return all(stage.utilisation < 1.0 for stage in self.stages if stage.name is not StageName.RELAY)

    @property
    def binding(self) -> StageName:
        """The stage nearest to its capacity."""
        return max(self.stages, key=lambda stage: stage.utilisation).name

    @property
    def capacity_per_s(self) -> float:
        """Requests a second at which the first stage that must keep up is full."""
        return min(stage.capacity_per_s for stage in self.stages if stage.name is not StageName.RELAY)


@dataclass(frozen=True, slots=True)
class _Relay:
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


def predict(fleet: Fleet, stats: WorkloadStats, rate_per_s: float, sla: Sla | None = None) -> Prediction:
    """The fleet with `rate_per_s` requests a second (0: the load's own rate) that look like `stats`.

    sla: what goodput counts; None counts every request.
    """
    rate = rate_per_s if rate_per_s > 0 else stats.rate_per_s
    uncached, cached, output = (a.astype(np.float64) for a in (stats.uncached, stats.cached, stats.output))
    prompt = uncached + cached
    state_tokens = fleet.kv.state_bytes / fleet.kv.bytes_per_token if fleet.kv.bytes_per_token > 0 else 0.0
    waiting_tokens = rate * stats.waiting_prefix_token_s

    seen = _forget(uncached, cached, compute_kept_share(fleet.prefill, 0.0, 0.0, waiting_tokens))
    prefill_rows, p_wait, full_s = _prefill(fleet, rate, stats.arrival_scv, *seen)

    main = compute_decode_load(fleet.main, rate, prompt, output, state_tokens=state_tokens)
    kept = compute_kept_share(fleet.main, main.batch, main.context, waiting_tokens)
    missing, _ = _forget(uncached, cached, kept)
    payload = payload_rows_bytes(fleet.kv, missing, fleet.block_tokens)

    local_s = payload_rows_bytes(fleet.kv, prompt, fleet.block_tokens) * BITS / fleet.line.local_bps
    local_s = local_s + fleet.line.local_rtt_s
    if fleet.way is Way.SAME_SITE:
        line = compute_line_load(fleet.line, payload[:0], 0.0)
        transfer_s = payload * BITS / fleet.line.local_bps + fleet.line.local_rtt_s
        relay = _no_relay(len(prompt), crosses=False)
        local_bytes = float(payload.mean())
    else:
        line = compute_line_load(fleet.line, payload, rate)
        transfer_s = _transfer_rows(fleet, _steady(fleet, line, payload, rate), payload)
        relay = _no_relay(len(prompt), crosses=True)
        local_bytes = 0.0
        if fleet.way is Way.PDD and fleet.relay.engines > 0:
            relay, line, transfer_s = _relay(fleet, rate, prompt, output, payload, line, state_tokens)
            local_bytes = float((payload_rows_bytes(fleet.kv, prompt, fleet.block_tokens) * relay.rows).mean())
    left = np.maximum(output - relay.tokens, 0.0) * relay.crosses + output * (1.0 - relay.rows) * (1.0 - relay.crosses)
    if fleet.way is Way.SAME_SITE:
        left = output
    main = compute_decode_load(
        fleet.main,
        rate * float((left > 0).mean()),
        prompt[left > 0],
        left[left > 0],
        state_tokens=state_tokens,
        extend_s=relay.handoff.extend_s * float(relay.rows.mean()),
    )
    main_wait = _main_wait(fleet, rate, main, left)

    main_rows = compute_step_rows(fleet.main, main, left * main.step_s, spread_over_rows(NORMAL_STATES, len(left)))
    direct = prefill_rows + transfer_s + FIRST_STEPS * main_rows + spread_over_rows(main_wait, len(left))
    hidden = prefill_rows + local_s + FIRST_STEPS * relay.load.step_s
    ttft_tail = _tail(p_wait, direct, hidden, relay.rows)
    tpot_rows = _tpot_rows(output, relay, main_rows)
    stages = _stages(fleet, rate, full_s, line, local_bytes, relay, main, payload)
    stable = all(stage.utilisation < 1.0 for stage in stages if stage.name is not StageName.RELAY)
    goodput = rate * _good_share(ttft_tail, tpot_rows, sla) if stable else 0.0
    tpot = _rows_quantiles(tpot_rows)
    cost = fleet.cost_per_h
    line_bytes = payload * relay.crosses if fleet.way is not Way.SAME_SITE else payload * 0.0
    return Prediction(
        rate_per_s=rate,
        ttft=ttft_tail.quantiles() if stable else Quantiles(math.inf, math.inf, math.inf, math.inf),
        tpot=tpot,
        stages=stages,
        relay_share=float((relay.tokens * relay.rows).sum() / output.sum()),
        relayed=float(relay.rows.mean()),
        overflow=relay.overflow,
        relay_sessions=relay.sessions,
        handoff=relay.handoff,
        line_bytes_per_s=rate * float(line_bytes.mean()),
        payload_mean_bytes=float(payload.mean()),
        transfer=_rows_quantiles(transfer_s),
        kept_share=kept,
        main=main,
        goodput_per_s=goodput,
        cost_per_h=cost,
        bcr=goodput * 3600.0 / cost if cost > 0 else math.inf,
        ttft_tail=ttft_tail,
        first_tail=Tail(p_wait, prefill_rows),
    )


def _prefill(
    fleet: Fleet, rate: float, arrival_scv: float, uncached: Reals, cached: Reals
) -> tuple[Reals, Wait, float]:
    """(time of each row, wait, mean time of a full engine). A request that finds the engine busy shares the forward of
    its tail chunk with the next, so the service is a mixture whose share is P(wait): a fixed point, by bisection."""
    times = fleet.prefill.times.prefill
    alone = prefill_rows_s(times, uncached, cached)
    fused = prefill_rows_s(times, uncached, cached, fused=True)
    low, high = 0.0, 1.0
    rows, wait = fused, compute_wait(rate, summarize_service(fused), fleet.prefill.engines, arrival_scv)
    for _ in range(FUSE_STEPS if wait.overall_s < math.inf else 0):
        share = (low + high) / 2.0
        rows = alone + share * (fused - alone)
        wait = compute_wait(rate, summarize_service(rows), fleet.prefill.engines, arrival_scv)
        low, high = (share, high) if wait.probability > share else (low, share)
    if not math.isfinite(wait.overall_s):  # the last step fell on the side that does not keep up
        rows, wait = fused, compute_wait(rate, summarize_service(fused), fleet.prefill.engines, arrival_scv)
    return rows, wait, float(fused.mean())


def prefill_rows_s(times: PrefillTime, uncached: Reals, cached: Reals, fused: bool = False) -> Reals:
    """`timing.compute_prefill_s` for arrays. fused: the tail chunk pays only its share of a forward."""
    new = np.maximum(uncached, 1.0)
    chunks = new / times.chunk_tokens if fused else np.ceil(new / times.chunk_tokens)
    linear = times.per_token_s * (new + times.half_tokens * chunks) + times.fixed_s * chunks
    return linear + times.attention_s * new * (cached + new / 2.0)


def payload_rows_bytes(law: KVLaw, tokens: Reals, block_tokens: int) -> Reals:
    """`kvlaw.payload_bytes` for arrays; whole blocks cross."""
    whole = np.ceil(tokens / block_tokens) * block_tokens
    window = law.window_bytes_per_token * np.minimum(whole, law.window_tokens)
    return np.where(tokens > 0, law.bytes_per_token * whole + window + law.state_bytes, 0.0)


def _forget(uncached: Reals, cached: Reals, kept: float) -> tuple[Reals, Reals]:
    """(uncached, cached) where caches keep only a share of the prefixes: the others' hits are lost as a whole."""
    if kept >= 1.0:
        return uncached, cached
    lost = (np.arange(len(cached)) * 0.6180339887498949) % 1.0 >= kept
    return np.where(lost, uncached + cached, uncached), np.where(lost, 0.0, cached)


def _steady(fleet: Fleet, line: LineLoad, crossing: Reals, rate: float) -> LineLoad:
    """`line`, or, if it does not keep up and has no steady state, the same line at FULL_LINE: the other stages see that
    one, so that what binds is the line and not what waits for it."""
    if line.stable:
        return line
    return compute_line_load(fleet.line, crossing, rate * FULL_LINE / line.utilisation)


def _transfer_rows(fleet: Fleet, line: LineLoad, payload: Reals) -> Reals:
    """Seconds over the line for each row, the wait for a connection and the stretch by others included."""
    own_s = transfer_rows_s(fleet.line, payload, line.rate_bps)
    stretch = stretch_rows(line, own_s, spread_over_rows(line.states, len(payload)))
    waited = spread_over_rows(wait_states(line.pool, STATES)[::-1], len(payload))
    stretched_s = own_s + (stretch - 1.0) * payload * BITS / line.rate_bps
    return stretched_s + np.where(payload > 0, waited, 0.0)


def _predicted_rows(fleet: Fleet, line: LineLoad, payload: Reals) -> Reals:
    """What the router predicts (`policy.line.predict_wait_s`): bytes under way over the line's rate, own bytes at the
    rate that one transfer gets, one RTT. It is what the choice of the pipeline looks at, not what happens."""
    queue_s = line.outstanding_bytes * BITS / (fleet.line.capacity_bps * fleet.line.efficiency)
    dealt = spread_over_rows(wait_states(Wait(1.0, queue_s, line.outstanding_scv), STATES), len(payload))
    return np.where(payload > 0, dealt + payload * BITS / line.rate_bps + fleet.line.rtt_s, 0.0)


def _no_relay(rows: int, crosses: bool) -> _Relay:
    zero = np.zeros(rows)
    return _Relay(zero, zero, zero, np.full(rows, float(crosses)), 0.0, 0.0, math.inf, IDLE, NO_HANDOFF)


def _relay(
    fleet: Fleet,
    rate: float,
    prompt: Reals,
    output: Reals,
    payload: Reals,
    line: LineLoad,
    state_tokens: float,
) -> tuple[_Relay, LineLoad, Reals]:
    """Who is relayed and for how long: RLD's step, its sessions and the line settle in a few rounds."""
    rules, pool = fleet.rules, fleet.relay
    step_s = decode_step_s(pool.times.decode, 1.0, float(prompt.mean()))
    steady = _steady(fleet, line, payload, rate)
    transfer_s = _transfer_rows(fleet, steady, payload)
    predicted_s = _predicted_rows(fleet, steady, payload)
    handoff = NO_HANDOFF
    for _ in range(RELAY_ROUNDS):
        odd = np.zeros(len(payload), dtype=bool)
        if rules.abnormal_enabled:
            odd = (output <= rules.abnormal_max_output_tokens) & (predicted_s >= rules.abnormal_min_transfer_s)
        wanted = odd | (predicted_s > rules.relay_threshold_s)
        if odd.any():
            crossing, crossing_rate = payload[~odd], rate * float((~odd).mean())
            line = compute_line_load(fleet.line, crossing, crossing_rate)
            steady = _steady(fleet, line, crossing, crossing_rate)
            transfer_s = _transfer_rows(fleet, steady, payload)
            predicted_s = _predicted_rows(fleet, steady, payload)
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
    overflow = erlang_b(min(slots, 100_000), sessions) if share > 0 else 0.0
    capacity = rate * slots / sessions if sessions > 0 else math.inf
    rows = wanted.astype(np.float64) * (1.0 - overflow)
    crosses = np.where(odd, overflow, 1.0)
    made = np.where(wanted, tokens, 0.0)
    return _Relay(rows, hold_s, made, crosses, overflow, sessions, capacity, load, handoff), line, transfer_s


def _main_wait(fleet: Fleet, rate: float, main: DecodeLoad, left: Reals) -> Reals:
    """States of the wait for a place in a batch of the main pool."""
    slots = int(main.limit * fleet.main.engines)
    if main.utilisation >= 1.0 or slots < 1:
        return np.full(STATES, math.inf if main.utilisation >= 1.0 else 0.0)
    # Offered so that the pool's utilisation is right although steps grow with the batch.
    hold = left[left > 0] * main.step_s
    service = summarize_service(hold)
    return wait_states(compute_wait(main.utilisation * slots / service.mean_s, service, min(slots, 100_000)), STATES)


def _tail(wait: Wait, direct: Reals, hidden: Reals, relayed: Reals) -> Tail:
    """TTFT over rows that go either way: a row relayed with probability r counts as relayed in r of its weight."""
    certain = (relayed <= 1e-3) | (relayed >= 1.0 - 1e-3)
    if certain.all():
        return Tail(wait, np.where(relayed > 0.5, hidden, direct))
    picks = (np.arange(len(direct)) * 0.7548776662466927) % 1.0 < relayed
    return Tail(wait, np.where(picks, hidden, direct))


def _tpot_rows(output: Reals, relay: _Relay, main_rows: Reals) -> Reals:
    """Mean time between tokens of each row."""
    made = relay.tokens * relay.rows
    stall_s = np.where(made < output, relay.rows * relay.handoff.stall_s, 0.0)
    return (made * relay.load.step_s + np.maximum(output - made, 0.0) * main_rows + stall_s) / output


def _stages(
    fleet: Fleet,
    rate: float,
    prefill_s: float,
    line: LineLoad,
    local_bytes: float,
    relay: _Relay,
    main: DecodeLoad,
    payload: Reals,
) -> tuple[StageLoad, ...]:
    stages = [_stage(StageName.PREFILL, rate, fleet.prefill.engines / prefill_s)]
    if local_bytes > 0:
        capacity = fleet.line.local_bps * fleet.prefill.engines / (local_bytes * BITS)
        stages.append(_stage(StageName.LOCAL, rate, capacity))
    if fleet.way is not Way.SAME_SITE:
        stages.append(StageLoad(StageName.LINE, _divide(rate, line.utilisation), line.utilisation))
    if fleet.way is Way.PDD and fleet.relay.engines > 0:
        stages.append(_stage(StageName.RELAY, rate, relay.capacity_per_s))
    stages.append(StageLoad(StageName.MAIN, _divide(rate, main.utilisation), main.utilisation))
    return tuple(stages)


def _stage(name: StageName, rate: float, capacity_per_s: float) -> StageLoad:
    return StageLoad(name, capacity_per_s, _divide(rate, capacity_per_s))


def _divide(a: float, b: float) -> float:
    if b > 0:
        return a / b
    return math.inf if a > 0 else 0.0


def _good_share(tail: Tail, tpot_rows: Reals, sla: Sla | None) -> float:
    """Share of requests within the promise: TTFT within its P99 limit (else P90's), TPOT within its own."""
    if sla is None:
        return 1.0
    limit_s = sla.ttft_p99_s if sla.ttft_p99_s is not None else sla.ttft_p90_s
    share = 1.0 if limit_s is None else 1.0 - float(tail.survival(np.array([limit_s]))[0])
    return share if sla.tpot_p99_s is None else share * float((tpot_rows <= sla.tpot_p99_s).mean())


def _rows_quantiles(rows: Reals) -> Quantiles:
    if not np.isfinite(rows).all():
        return Quantiles(math.inf, math.inf, math.inf, math.inf)
    p50, p90, p99 = (float(q) for q in np.quantile(rows, (0.5, 0.9, 0.99)))
    return Quantiles(float(rows.mean()), p50, p90, p99)
