"""Advice for a running fleet: does every stage keep up with the observed load, and what would. Analytic; milliseconds.

Nothing here acts: the operator shows the answer in `status.plan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.analytic import Prediction, StageLoad, StageName, predict
from pdd.planner.fleet import Fleet, Pool, Sla
from pdd.planner.hit_law import HIT_EDGES
from pdd.planner.load import Load
from pdd.planner.stats import WorkloadStats, summarize

TARGET = 0.8
"""Share of its capacity at which a stage of the advised fleet runs; beyond it percentiles explode."""
SHORT, ENOUGH = 1.0, 0.95
"""A stage is short from SHORT on, and enough again below ENOUGH: a load between them changes no verdict."""
FIT_ROUNDS, SLA_ROUNDS = 6, 16
STEP = 0.15
MOST_ENGINES = 1024
MOST_BPS = 1.6e12
ROWS = 512
MIN_REQUESTS = 20


@dataclass(frozen=True, slots=True)
class Report:
    """One router's. reach_s: seconds that it reaches back. rows: of requests that were served, [age_s, prompt, cached,
    output] tokens. unserved: requests that arrived beside them, refused or still open."""

    reach_s: float
    rows: Sequence[Sequence[float]]
    unserved: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """The load that routers saw. load: their requests in order of arrival; rate_per_s over the whole window."""

    load: Load
    rate_per_s: float

    @property
    def hit_rates(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(self.load.hit_tokens / np.maximum(self.load.input_tokens, 1), dtype=np.float64)

    def hit_buckets(self) -> tuple[float, ...]:
        """Shares of requests by HIT_EDGES."""
        buckets = np.searchsorted(np.array(HIT_EDGES), self.hit_rates, side="right")
        counts = np.bincount(buckets, minlength=len(HIT_EDGES) + 1)
        return tuple(float(count) for count in counts / counts.sum())


@dataclass(frozen=True, slots=True)
class Advice:
    """feasible: every stage that must keep up does, and the SLA is met. binding: the stage nearest to its capacity.
    short: it does not keep up (None: all do). missed: parts of the SLA that the prediction misses, in words.

    fleet: the advised one. meets: it keeps up and meets the SLA; False where no fleet that was tried does.
    """

    feasible: bool
    prediction: Prediction
    stats: WorkloadStats
    binding: StageLoad
    short: StageLoad | None
    missed: tuple[str, ...]
    fleet: Fleet
    meets: bool
    message: str


def merge_seen(reports: Iterable[Report]) -> Observed:
    """Of several routers' reports.

    Rates add up; of the rows those that all reports cover are taken (all, if these are too few). Raises InvalidInput
    for fewer than MIN_REQUESTS.
    """
    reports = [report for report in reports if report.reach_s > 0]
    every = np.array([row for report in reports for row in report.rows], dtype=np.float64).reshape(-1, 4)
    if len(every) < MIN_REQUESTS:
        remedy = f"the routers saw {len(every)} requests lately; advice needs {MIN_REQUESTS}"
        raise InvalidInput("requests", len(every), remedy)
    common = every[every[:, 0] <= min(report.reach_s for report in reports)]
    rows = common if len(common) >= MIN_REQUESTS else every
    rate = sum((len(report.rows) + report.unserved) / report.reach_s for report in reports)
    rows = rows[np.argsort(-rows[:, 0], kind="stable")]
    tokens = np.maximum(rows[:, 1:], 0).astype(np.int64)
    none = np.full(len(rows), -1, dtype=np.int64)
    load = Load(
        arrival_s=rows[0, 0] - rows[:, 0],
        input_tokens=np.maximum(tokens[:, 0], 1),
        output_tokens=np.maximum(tokens[:, 2], 1),
        hit_tokens=np.minimum(tokens[:, 1], tokens[:, 0]),
        session=none,
        previous=none,
        think_s=np.zeros(len(rows)),
    )
    return Observed(load, rate)


def advise(fleet: Fleet, observed: Observed, sla: Sla, *, was_short: bool = False) -> Advice:
    """The verdict on `fleet` and a fleet that would do. was_short: the last verdict, for hysteresis."""
    stats = summarize(observed.load, rows=ROWS)
    rate = observed.rate_per_s
    now = predict(fleet, stats, rate, sla)
    limit = ENOUGH if was_short else SHORT
    must = [stage for stage in now.stages if stage.name is not StageName.RELAY]
    binding = max(must, key=lambda stage: stage.utilisation)
    short = binding if binding.utilisation >= limit else None
    missed = tuple(_missed(now, sla))
    advised, meets = _find_fleet(fleet, stats, rate, sla)
    feasible = short is None and not missed
    message = _words(fleet, advised, meets, now, short, binding, missed)
    return Advice(feasible, now, stats, binding, short, missed, advised, meets, message)


def _missed(prediction: Prediction, sla: Sla) -> Iterable[str]:
    """In words, what of the SLA is missed."""
    for name, limit_s, found_s in (
        ("TTFT P90", sla.ttft_p90_s, prediction.ttft.p90_s),
        ("TTFT P99", sla.ttft_p99_s, prediction.ttft.p99_s),
        ("TPOT P99", sla.tpot_p99_s, prediction.tpot.p99_s),
    ):
        if limit_s is not None and found_s > limit_s:
            shown = f"{found_s:.3g} s" if math.isfinite(found_s) else "without bound"
            yield f"{name} is predicted {shown}, promised {limit_s:.3g} s"


def _violation(prediction: Prediction, sla: Sla) -> float:
    """How far the promise is missed: the sum of relative excesses, 0 if it is kept."""
    pairs = (
        (sla.ttft_p90_s, prediction.ttft.p90_s),
        (sla.ttft_p99_s, prediction.ttft.p99_s),
        (sla.tpot_p99_s, prediction.tpot.p99_s),
    )
    return sum(max(0.0, found / limit - 1.0) for limit, found in pairs if limit is not None and limit > 0)


def _find_fleet(fleet: Fleet, stats: WorkloadStats, rate: float, sla: Sla) -> tuple[Fleet, bool]:
    """(the advised fleet, whether it keeps up and keeps the promise): sized by utilisation, then grown step by step
    where that helps the SLA most."""
    found = fleet
    for round_ in range(FIT_ROUNDS):
        sized = _fit(found, predict(found, stats, rate, sla).stages, shrink=round_ == 0)
        if sized == found:
            break
        found = sized
    prediction = predict(found, stats, rate, sla)
    for _ in range(SLA_ROUNDS):
        excess = _violation(prediction, sla)
        if excess == 0.0 or not prediction.stable:
            break
        tried = [(candidate, predict(candidate, stats, rate, sla)) for candidate in _larger(found)]
        best, best_prediction = min(tried, key=lambda pair: _violation(pair[1], sla))
        if _violation(best_prediction, sla) >= excess * 0.999:
            break
        found, prediction = best, best_prediction
    return found, prediction.stable and _violation(prediction, sla) == 0.0


def _fit(fleet: Fleet, stages: Iterable[StageLoad], *, shrink: bool) -> Fleet:
    """Each stage at TARGET of its capacity. Engines are whole; the line is rounded up to 10 Mbit/s."""
    use = {stage.name: stage.utilisation for stage in stages}
    bps = fleet.line.capacity_bps * use.get(StageName.LINE, 0.0) / TARGET
    bps = min(MOST_BPS, max(1e7, math.ceil(bps / 1e7) * 1e7)) if math.isfinite(bps) else MOST_BPS
    return replace(
        fleet,
        prefill=_fit_pool(fleet.prefill, use.get(StageName.PREFILL, 0.0), shrink),
        relay=_fit_pool(fleet.relay, use.get(StageName.RELAY, 0.0), shrink),
        main=_fit_pool(fleet.main, use.get(StageName.MAIN, 0.0), shrink),
        line=fleet.line if bps <= fleet.line.capacity_bps and not shrink else replace(fleet.line, capacity_bps=bps),
    )


def _fit_pool(pool: Pool, utilisation: float, shrink: bool) -> Pool:
    wanted = pool.engines * utilisation / TARGET
    engines = math.ceil(wanted - 1e-9) if wanted < MOST_ENGINES else MOST_ENGINES
    return replace(pool, engines=max(1, engines if shrink else max(engines, pool.engines)))


def _larger(fleet: Fleet) -> tuple[Fleet, ...]:
    def more(pool: Pool) -> Pool:
        return replace(pool, engines=min(MOST_ENGINES, math.ceil(pool.engines * (1 + STEP))))

    return (
        replace(fleet, prefill=more(fleet.prefill)),
        replace(fleet, relay=more(fleet.relay)),
        replace(fleet, main=more(fleet.main)),
        replace(fleet, line=replace(fleet.line, capacity_bps=min(MOST_BPS, fleet.line.capacity_bps * (1 + STEP)))),
    )


def _words(
    fleet: Fleet,
    advised: Fleet,
    meets: bool,
    prediction: Prediction,
    short: StageLoad | None,
    binding: StageLoad,
    missed: Sequence[str],
) -> str:
    rate = prediction.rate_per_s
    used = ", ".join(f"{stage.name.value} {_percent(stage.utilisation)}" for stage in prediction.stages)
    if short is None and not missed:
        return f"the observed {rate:.3g} requests/s are predicted to use {used}"
    remedy = _remedy(fleet, advised) if meets else "no larger fleet that was tried would do"
    if short is not None:
        lack = f"is short by {_percent(short.utilisation - 1.0)}" if short.utilisation >= 1.0 else "is nearly full"
        bears = f"it bears {short.capacity_per_s:.3g} of {rate:.3g} requests/s"
        return f"{short.name.value} {lack}: {bears}; {remedy} (predicted use: {used})"
    return f"{'; '.join(missed)}; most used is {binding.name.value}; {remedy} (predicted use: {used})"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if math.isfinite(share) else "more than 1000 %"


def _remedy(fleet: Fleet, advised: Fleet) -> str:
    """What the advised fleet has more of."""
    parts = [
        f"{new.engines} {name} engines instead of {old.engines}"
        for name, old, new in (
            ("prefill", fleet.prefill, advised.prefill),
            ("relay decode", fleet.relay, advised.relay),
            ("main decode", fleet.main, advised.main),
        )
        if new.engines > old.engines
    ]
    if advised.line.capacity_bps > fleet.line.capacity_bps:
        mbps, before = advised.line.capacity_bps / 1e6, fleet.line.capacity_bps / 1e6
        parts.append(f"a line of {mbps:.0f} instead of {before:.0f} Mbit/s")
    return f"enough would be {' and '.join(parts)}" if parts else "it is near its limit"
