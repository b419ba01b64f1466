"""The line as KV meets it: what one transfer can get, what many get at once, and how long they wait.

A transfer is striped over `streams` TCP streams; each carries at most window / RTT or, under loss, Mathis's rate. Up
to m = line / (rate of one) transfers go at their own rate; beyond, they share the line. Such processor sharing
is insensitive to the law of sizes (Poisson arrivals): the number under way is that of M/M/m, and a transfer of S bytes
takes in the mean S / rate x E[n] / a. Where `connections` bounds the transfers under way, those beyond wait in order.

Sources: Mathis et al. 1997 (rate = 1.22 MSS / (RTT sqrt(loss))); Kelly 1979 (insensitivity); slow start as RFC 6928.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pdd.planner.fleet import LineSpec
from pdd.planner.queueing import NO_WAIT, Service, Wait, compute_wait, erlang_c

Reals = npt.NDArray[np.float64]
MSS_BYTES = 1460
MATHIS = 1.22
FIRST_WINDOW_SEGMENTS = 10
STATES = 64
"""Equally likely states of the line that a transfer may meet."""


def compute_mathis_bps(rtt_s: float, loss: float) -> float:
    """Most that one loss-based TCP stream carries, bits/s; infinite without loss or round trip."""
    if loss <= 0 or rtt_s <= 0:
        return math.inf
    return MATHIS * MSS_BYTES * 8.0 / (rtt_s * math.sqrt(loss))


def flow_rate_bps(line: LineSpec) -> float:
    """Most that one transfer gets, bits/s: its streams' limits together, never more than the line carries."""
    one = min(line.flow_bps if line.flow_bps > 0 else math.inf, compute_mathis_bps(line.rtt_s, line.loss))
    return min(one * max(1, line.streams), line.capacity_bps * line.efficiency)


def compute_start_s(size_bytes: float, rate_bps: float, rtt_s: float, streams: int) -> float:
    """Seconds that slow start adds to size / rate on cold connections, their handshake (one RTT) included.

    The window doubles each RTT from 10 segments a stream until it fills rate x RTT.
    """
    first = FIRST_WINDOW_SEGMENTS * MSS_BYTES * streams
    full = rate_bps * rtt_s / 8.0
    if full <= first or rtt_s <= 0:
        return rtt_s
    rounds = min(math.log2(1.0 + size_bytes / first), math.log2(full / first))
    sent = first * (math.pow(2.0, rounds) - 1.0)
    return rtt_s + max(0.0, rounds * rtt_s - sent * 8.0 / rate_bps)


def compute_transfer_s(size_bytes: float, rate_bps: float, rtt_s: float, streams: int, slow_start: bool) -> float:
    """Seconds from the reader's request until the last of `size_bytes` has landed, at a steady rate. 0 for none."""
    if size_bytes <= 0:
        return 0.0
    start_s = compute_start_s(size_bytes, rate_bps, rtt_s, streams) if slow_start else 0.0
    return start_s + size_bytes * 8.0 / rate_bps + rtt_s


@dataclass(frozen=True, slots=True)
class LineLoad:
    """The line under a load. Rates in bits/s, per second.

    rate_bps: one transfer alone. servers: transfers that go at that rate at once (line or pool allows). utilisation:
    offered / possible bits. slowdown: mean stretch of a transfer once it is under way. states: STATES equally likely
    stretches that a transfer may meet. pool: wait for a connection. relax_s: how fast the line forgets its state.
    outstanding_bytes: mean of what is under way and has not landed; outstanding_scv: its variance / mean squared.
    """

    rate_bps: float
    servers: float
    utilisation: float
    slowdown: float
    states: Reals
    pool: Wait
    relax_s: float
    outstanding_bytes: float = 0.0
    outstanding_scv: float = 1.0

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0


def compute_line_load(line: LineSpec, sizes_bytes: Reals, rate_per_s: float) -> LineLoad:
    """The line with `rate_per_s` transfers a second of sizes drawn from `sizes_bytes` (equal weights; may be empty)."""
    rate_bps = flow_rate_bps(line)
    useful_bps = line.capacity_bps * line.efficiency
    connections = line.connections if line.connections > 0 else 1 << 30
    servers = min(useful_bps / rate_bps, float(connections))
    if not len(sizes_bytes) or rate_per_s <= 0:
        return LineLoad(rate_bps, servers, 0.0, 1.0, np.ones(STATES), NO_WAIT, 0.0)
    own_s = sizes_bytes * 8.0 / rate_bps
    mean_s = float(own_s.mean())
    offered = rate_per_s * mean_s
    utilisation = offered / servers
    if utilisation >= 1.0:
        return LineLoad(rate_bps, servers, utilisation, math.inf, np.ones(STATES), Wait(1.0, math.inf, 1.0), math.inf)
    whole = max(1, round(servers))
    offered_whole = utilisation * whole
    busy = erlang_c(whole, offered_whole)
    slots = max(0, connections - whole)
    waiting = _pool_wait(rate_per_s, own_s, whole, utilisation, busy, slots)
    # Transfers under way beyond `whole` share the line; those beyond the pool do not count as under way.
    extra = busy * utilisation / (1.0 - utilisation) * (1.0 - utilisation ** min(slots, 10_000))
    slowdown = 1.0 + extra / offered_whole
    relax_s = mean_s / whole / (1.0 - utilisation) ** 2
    # Each of the transfers under way has a residual size to go (inspection paradox); their number is about Poisson.
    size = float(sizes_bytes.mean())
    residual = float((sizes_bytes * sizes_bytes).mean()) / (2.0 * size)
    square = float((sizes_bytes**3).mean()) / (3.0 * size)
    active = offered * slowdown
    outstanding = active * residual + rate_per_s * waiting.overall_s * size
    states = _states(whole, utilisation, busy, slots)
    scv = square / (residual * residual * active)
    return LineLoad(rate_bps, servers, utilisation, slowdown, states, waiting, relax_s, outstanding, scv)


def _pool_wait(rate_per_s: float, own_s: Reals, whole: int, load: float, busy: float, slots: int) -> Wait:
    """Wait for a connection: P(all `whole` + slots taken) x the wait of a queue behind servers of the line's speed."""
    if slots > 10_000:
        return NO_WAIT
    mean = float(own_s.mean())
    second = float((own_s * own_s).mean())
    service = Service(mean, max(0.0, second / mean**2 - 1.0), float((own_s**3).mean()))
    wait = compute_wait(load * whole / mean, service, whole)
    return Wait(busy * load**slots, wait.mean_s, wait.scv)


def _states(whole: int, load: float, busy: float, slots: int) -> Reals:
    """Stretch max(1, (n + 1) / m) met by an arrival, n from M/M/m: geometric (`load`) beyond m, cut at the pool."""
    place = (np.arange(STATES) + 0.5) / STATES
    beyond = np.zeros(STATES)
    late = place > 1.0 - busy
    if busy > 0 and load > 0:
        beyond[late] = np.floor(np.log(np.maximum((1.0 - place[late]) / busy, 1e-12)) / math.log(load)) + 1.0
    return np.maximum(1.0, (whole + np.minimum(beyond, float(slots))) / whole)


def stretch_rows(load: LineLoad, own_s: Reals, dealt: Reals) -> Reals:
    """Stretch of each transfer: short ones meet the state that they find (`dealt`), long ones the mean over time."""
    if load.relax_s <= 0:
        return np.ones_like(own_s)
    weight = np.exp(-own_s / load.relax_s)
    return weight * dealt + (1.0 - weight) * load.slowdown


def transfer_rows_s(line: LineSpec, sizes_bytes: Reals, rate_bps: float) -> Reals:
    """`compute_transfer_s` for an array of sizes."""
    own = sizes_bytes * 8.0 / rate_bps + line.rtt_s
    if line.slow_start:
        first = FIRST_WINDOW_SEGMENTS * MSS_BYTES * max(1, line.streams)
        full = rate_bps * line.rtt_s / 8.0
        own = own + line.rtt_s
        if full > first:
            rounds = np.minimum(np.log2(1.0 + sizes_bytes / first), math.log2(full / first))
            own = own + np.maximum(0.0, rounds * line.rtt_s - first * (2.0**rounds - 1.0) * 8.0 / rate_bps)
    return np.where(sizes_bytes > 0, own, 0.0)
