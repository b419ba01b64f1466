"""How many relay decode engines: Little's law over the handoff load, with windows that keep it from swinging. Pure.

    sessions needed = arrival rate of relayed requests x holding time        (Little)
    holding time    = max(measured mean, predicted wait on the line)
    engines         = ceil(sessions needed / (sessions per engine x target utilisation))

A slower line lengthens the holding time before it lengthens any queue, so relay decode grows first. Growing waits for
the lowest need of the up window, shrinking for the highest of the down window; in a panic (a short window needs twice
what there is, or requests were refused) growing is immediate and nothing shrinks for a while.

Silence is no load: without a complete look at all routers the number is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

RATE_WINDOW_S = 60.0
PANIC_WINDOW_S = 10.0
PANIC_FACTOR = 2.0
PANIC_HOLD_S = 60.0
NEED_BUCKETS = 60
"""The needs of a window are kept as the maxima and minima of at most so many parts of it."""
MAX_SAMPLES = 128
MIN_HOLDING_S = 0.05


class ScaleReason(StrEnum):
    STEADY = "Steady"
    LOAD_UP = "LoadUp"
    LOAD_DOWN = "LoadDown"
    PANIC = "Panic"
    STABILIZING = "Stabilizing"
    DRAINING = "Draining"
    DRAINED = "Drained"
    DRAIN_TIMEOUT = "DrainTimeout"
    BOUNDS = "Bounds"
    NO_DATA = "NoData"


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """Bounds and windows. Times in seconds, target 0 to 1."""

    min_replicas: int
    max_replicas: int
    sessions_per_replica: int
    target: float
    up_stabilization_s: float = 0.0
    up_max_step: int = 4
    down_stabilization_s: float = 300.0
    down_max_step: int = 1
    drain_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Counters:
    """What one router counts since its start. `uptime_s` tells a restart."""

    arrivals: float
    holding_s_sum: float
    holding_count: float
    refused: float
    uptime_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Sums over all routers, monotone over their restarts. sessions: now; line_wait_s: predicted wait on the line."""

    at_s: float
    arrivals: float
    holding_s_sum: float
    holding_count: float
    refused: float
    sessions: int
    line_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """The extreme of the engines needed during one part of a window, which begins at `at_s`."""

    at_s: float
    engines: int


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What the law remembers. Start with `begin`."""

    samples: tuple[Sample, ...] = ()
    lows: tuple[Need, ...] = ()
    """Lowest needs, over the up window."""
    highs: tuple[Need, ...] = ()
    """Highest needs, over the down window."""
    panic_until_s: float = float("-inf")
    drain_from: int | None = None
    """Ordinals from here on are being drained."""
    drain_since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """replicas: what to run now. drain_from: ordinals from here up get no new sessions (None: none are drained)."""

    replicas: int
    reason: ScaleReason
    message: str
    drain_from: int | None = None
    sessions: int = 0
    holding_ms: int = 0


def begin(replicas: int, now_s: float) -> ScalingState:
    """The state of a fresh observer: what runs now counts as needed until a whole window has been seen."""
    start = (Need(now_s, replicas),)
    return ScalingState(lows=start, highs=start)


def add_counters(total: Counters, last: Mapping[str, Counters], now: Mapping[str, Counters]) -> Counters:
    """`total` plus what each router has counted since `last`. A router that restarted counts from 0 again."""
    arrivals, holding, count, refused = total.arrivals, total.holding_s_sum, total.holding_count, total.refused
    for name, new in now.items():
        old = last.get(name)
        if old is not None and new.uptime_s >= old.uptime_s and new.arrivals >= old.arrivals:
            arrivals += new.arrivals - old.arrivals
            holding += max(0.0, new.holding_s_sum - old.holding_s_sum)
            count += max(0.0, new.holding_count - old.holding_count)
            refused += max(0.0, new.refused - old.refused)
        elif old is not None:
            arrivals, holding = arrivals + new.arrivals, holding + new.holding_s_sum
            count, refused = count + new.holding_count, refused + new.refused
        # One that is seen for the first time has a past that is not ours: it counts from now on.
    return Counters(arrivals, holding, count, refused, total.uptime_s)


def compute_load(samples: tuple[Sample, ...], now_s: float, window_s: float) -> tuple[float, float, float]:
    """(sessions needed, arrivals a second, holding seconds) over the last `window_s` seconds."""
    inside = [s for s in samples if now_s - s.at_s <= window_s]
    if not inside:
        return 0.0, 0.0, 0.0
    first, last = inside[0], inside[-1]
    span_s = last.at_s - first.at_s
    mean_sessions = sum(s.sessions for s in inside) / len(inside)
    if span_s <= 0:
        return mean_sessions, 0.0, 0.0
    rate = (last.arrivals - first.arrivals) / span_s
    ended = last.holding_count - first.holding_count
    measured_s = (last.holding_s_sum - first.holding_s_sum) / ended if ended > 0 else 0.0
    holding_s = max(measured_s, last.line_wait_s, MIN_HOLDING_S)
    return max(rate * holding_s, mean_sessions), rate, holding_s


def engines_for(sessions: float, law: ScalingLaw) -> int:
    """Engines that hold so many sessions at the target utilisation, within the bounds."""
    per_engine = law.sessions_per_replica * law.target
    # The small allowance keeps 14.0000001 sessions of 14 from asking for a second engine.
    wanted = math.ceil(sessions / per_engine - 1e-6)
    return max(law.min_replicas, min(law.max_replicas, wanted))


def step(
    state: ScalingState, law: ScalingLaw, sample: Sample | None, replicas: int, busy: Mapping[int, int], now_s: float
) -> tuple[ScalingState, Decision]:
    """One look. sample None: not all routers answered. busy: sessions and leases by ordinal, as far as known.

    replicas: what runs now. Returns the new state and what to do.
    """
    if replicas < law.min_replicas or replicas > law.max_replicas:
        bounded = max(law.min_replicas, min(law.max_replicas, replicas))
        if bounded > replicas:
            return replace(state, drain_from=None), Decision(
                bounded, ScaleReason.BOUNDS, f"minReplicas is {law.min_replicas}"
            )
    if sample is None:
        return replace(state, drain_from=None), Decision(
            replicas, ScaleReason.NO_DATA, "not every router answers: the number is held"
        )
    samples = tuple(s for s in (*state.samples, sample) if now_s - s.at_s <= RATE_WINDOW_S)[-MAX_SAMPLES:]
    sessions, rate, holding_s = compute_load(samples, now_s, RATE_WINDOW_S)
    needed = engines_for(sessions, law)
    lows = _remember(state.lows, needed, law.up_stabilization_s, now_s, min)
    highs = _remember(state.highs, needed, law.down_stabilization_s, now_s, max)
    state = replace(state, samples=samples, lows=lows, highs=highs)
    panic = _panic(samples, law, replicas, now_s)
    if panic is not None:
        state = replace(state, panic_until_s=now_s + PANIC_HOLD_S, drain_from=None)
    numbers = {"sessions": math.ceil(sessions), "holding_ms": round(holding_s * 1000)}
    words = f"{rate:.2f} relayed requests/s x {holding_s:.2f} s = {sessions:.1f} sessions need {needed} engines"
    if panic is not None and panic > replicas:
        return state, Decision(panic, ScaleReason.PANIC, f"panic: {words}", **numbers)
    up_to = min(need.engines for need in lows)
    if up_to > replicas:
        target = min(up_to, replicas + law.up_max_step)
        return replace(state, drain_from=None), Decision(target, ScaleReason.LOAD_UP, words, **numbers)
    if needed > replicas:
        return state, Decision(replicas, ScaleReason.STABILIZING, f"waiting to grow: {words}", **numbers)
    down_to = max(need.engines for need in highs)
    if down_to < replicas and now_s >= state.panic_until_s:
        return _shrink(state, law, replicas, down_to, busy, now_s, words, numbers)
    state = replace(state, drain_from=None)
    if needed < replicas:
        return state, Decision(replicas, ScaleReason.STABILIZING, f"waiting to shrink: {words}", **numbers)
    return state, Decision(replicas, ScaleReason.STEADY, words, **numbers)


def _shrink(
    state: ScalingState,
    law: ScalingLaw,
    replicas: int,
    down_to: int,
    busy: Mapping[int, int],
    now_s: float,
    words: str,
    numbers: dict[str, int],
) -> tuple[ScalingState, Decision]:
    """First drain the highest ordinals, then, when they are idle (or the time is up), run fewer."""
    first = max(down_to, replicas - law.down_max_step)
    if state.drain_from is None or state.drain_from > replicas:
        state = replace(state, drain_from=first, drain_since_s=now_s)
    first = max(first, min(state.drain_from or first, replicas - 1))
    state = replace(state, drain_from=first)
    draining = range(first, replicas)
    # An ordinal that nobody knows about is not idle: only a look at it can say so.
    left = {ordinal: busy.get(ordinal) for ordinal in draining}
    waited_s = now_s - state.drain_since_s
    if waited_s > 0 and all(count == 0 for count in left.values()):
        return replace(state, drain_from=None), Decision(
            first,
            ScaleReason.DRAINED,
            f"engines {first}..{replicas - 1} are idle; {words}",
            drain_from=first,
            **numbers,
        )
    if waited_s >= law.drain_timeout_s:
        return replace(state, drain_from=None), Decision(
            first, ScaleReason.DRAIN_TIMEOUT, f"sessions left after {waited_s:.0f} s move to other engines; {words}",
            drain_from=first, **numbers,
        )  # fmt: skip
    rest = sum(count or 0 for count in left.values())
    return state, Decision(
        replicas, ScaleReason.DRAINING, f"engines {first}..{replicas - 1} get no new sessions, {rest} left; {words}",
        drain_from=first, **numbers,
    )  # fmt: skip


def _panic(samples: tuple[Sample, ...], law: ScalingLaw, replicas: int, now_s: float) -> int | None:
    """Engines that a panic asks for; None if there is none."""
    inside = [s for s in samples if now_s - s.at_s <= PANIC_WINDOW_S]
    if len(inside) < 2:
        return None
    sessions, _, _ = compute_load(tuple(inside), now_s, PANIC_WINDOW_S)
    refused = inside[-1].refused > inside[0].refused
    needed = engines_for(sessions, law)
    if refused:
        needed = max(needed, min(law.max_replicas, replicas + 1))
    return needed if refused or needed >= PANIC_FACTOR * replicas else None


def _remember(
    needs: tuple[Need, ...], needed: int, window_s: float, now_s: float, extreme: Callable[[int, int], int]
) -> tuple[Need, ...]:
    """The needs with one more, merged into parts of the window, those before the window dropped. Never empty."""
    kept = [need for need in needs if now_s - need.at_s <= window_s]
    if kept and now_s - kept[-1].at_s < window_s / NEED_BUCKETS:
        last = kept.pop()
        kept.append(Need(last.at_s, extreme(last.engines, needed)))
    elif not kept or now_s > kept[-1].at_s:
        kept.append(Need(now_s, needed))
    else:
        kept[-1] = Need(now_s, needed)
    return tuple(kept[-(NEED_BUCKETS + 2) :])
