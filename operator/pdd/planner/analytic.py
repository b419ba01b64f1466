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

from pdd.planner.decode_pool import DecodeLoad, compute_decode_load, compute_kept_share, compute_step_rows
from pdd.planner.fleet import Fleet, Sla, Way
from pdd.planner.handoff_time import Handoff
from pdd.planner.prefill_pool import compute_prefill
from pdd.planner.queueing import Wait, compute_wait, summarize_service
from pdd.planner.relay_pool import (
    BITS,
    MAX_SLOTS,
    RelayLoad,
    compute_relay,
    compute_transfer_rows,
    no_relay,
    payload_rows_bytes,
    steady_line,
)
from pdd.planner.stats import WorkloadStats
from pdd.planner.tails import Quantiles, Reals, Tail, spread_over_rows, wait_states
from pdd.planner.wan import STATES, LineLoad, compute_line_load

NORMAL_STATES: Reals = np.array([NormalDist().inv_cdf((i + 0.5) / STATES) for i in range(STATES)])
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
    prefill_rows, p_wait, full_s = compute_prefill(fleet, rate, stats.arrival_scv, *seen)

    main = compute_decode_load(fleet.main, rate, prompt, output, state_tokens=state_tokens)
    kept = compute_kept_share(fleet.main, main.batch, main.context, waiting_tokens)
    missing, _ = _forget(uncached, cached, kept)
    payload = payload_rows_bytes(fleet.kv, missing, fleet.block_tokens)

    local_s = payload_rows_bytes(fleet.kv, prompt, fleet.block_tokens) * BITS / fleet.line.local_bps
    local_s = local_s + fleet.line.local_rtt_s
    if fleet.way is Way.SAME_SITE:
        line = compute_line_load(fleet.line, payload[:0], 0.0)
        transfer_s = payload * BITS / fleet.line.local_bps + fleet.line.local_rtt_s
        relay = no_relay(len(prompt), crosses=False)
        local_bytes = float(payload.mean())
    else:
        line = compute_line_load(fleet.line, payload, rate)
        transfer_s = compute_transfer_rows(fleet, steady_line(fleet, line, payload, rate), payload)
        relay = no_relay(len(prompt), crosses=True)
        local_bytes = 0.0
        if fleet.way is Way.PDD and fleet.relay.engines > 0:
            relay, line, transfer_s = compute_relay(fleet, rate, prompt, output, payload, line, state_tokens)
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


def _forget(uncached: Reals, cached: Reals, kept: float) -> tuple[Reals, Reals]:
    """(uncached, cached) where caches keep only a share of the prefixes: the others' hits are lost as a whole."""
    if kept >= 1.0:
        return uncached, cached
    lost = (np.arange(len(cached)) * 0.6180339887498949) % 1.0 >= kept
    return np.where(lost, uncached + cached, uncached), np.where(lost, 0.0, cached)


def _main_wait(fleet: Fleet, rate: float, main: DecodeLoad, left: Reals) -> Reals:
    """States of the wait for a place in a batch of the main pool."""
    slots = int(main.limit * fleet.main.engines)
    if main.utilisation >= 1.0 or slots < 1:
        return np.full(STATES, math.inf if main.utilisation >= 1.0 else 0.0)
    # Offered so that the pool's utilisation is right although steps grow with the batch.
    hold = left[left > 0] * main.step_s
    service = summarize_service(hold)
    return wait_states(compute_wait(main.utilisation * slots / service.mean_s, service, min(slots, MAX_SLOTS)), STATES)


def _tail(wait: Wait, direct: Reals, hidden: Reals, relayed: Reals) -> Tail:
    """TTFT over rows that go either way: a row relayed with probability r counts as relayed in r of its weight."""
    certain = (relayed <= 1e-3) | (relayed >= 1.0 - 1e-3)
    if certain.all():
        return Tail(wait, np.where(relayed > 0.5, hidden, direct))
    picks = (np.arange(len(direct)) * 0.7548776662466927) % 1.0 < relayed
    return Tail(wait, np.where(picks, hidden, direct))


def _tpot_rows(output: Reals, relay: RelayLoad, main_rows: Reals) -> Reals:
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
    relay: RelayLoad,
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
