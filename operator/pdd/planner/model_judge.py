"""The judge that plans use: the analytic model for `predict`, the simulator for `simulate`, on loads drawn by seed.

Both count TTFT until tokens flow: P's own first token is out before any transfer, so what a user waits for shows in the
second. TPOT is the pace after that. A simulated fleet's utilisation is the analytic one (offered over capacity), since
an engine that always has some sequence to run is busy long before it is full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pdd.common.errors import InvalidInput
from pdd.planner.analytic import Prediction, StageName, predict
from pdd.planner.fleet import Fleet, Sla
from pdd.planner.hit_law import HitMixture
from pdd.planner.judge import Figures, Span, Stage, exact
from pdd.planner.laws import LengthLaw
from pdd.planner.load import Load
from pdd.planner.loads import with_hit_points, with_lengths, with_rate
from pdd.planner.pareto import compute_span
from pdd.planner.spec import HitLaw, LoadSpec, PlanSpec
from pdd.planner.stats import WorkloadStats, summarize
from pdd.planner.traces import read_trace
from pdd.planner.workload import Workload, generate

if TYPE_CHECKING:
    from pdd.planner.sim import Estimate, SimResult

SEEDS = 5
REQUESTS = 6_000
"""Of each seed: 54 requests beyond the P99 when the warm-up is left out."""
ROWS = 512
MIN_BEYOND = 20
"""Requests that must lie beyond a percentile before it is given."""
WARMUP = 0.1
"""Share of a run's requests that are left out, as `sim.SimOptions` has it."""
LEAST_REQUESTS = math.ceil(MIN_BEYOND * 100 / (1 - WARMUP))
_STAGES = {
    StageName.PREFILL: Stage.PREFILL,
    StageName.LOCAL: Stage.LOCAL,
    StageName.LINE: Stage.LINE,
    StageName.RELAY: Stage.RELAY,
    StageName.MAIN: Stage.MAIN,
}
MAX_TRACE = 200_000
NARROW_WIDTH = 0.05
TOP_QUANTILES = 12.0
"""Lengths are cut at so many times their mean."""


def build_workload(load: LoadSpec) -> Workload:
    """The laws of a LoadSpec without a trace."""
    low, high = max(0.0, load.hit_rate - NARROW_WIDTH), min(1.0, load.hit_rate + NARROW_WIDTH)
    hits = HitMixture.narrow(low, high) if load.hits is HitLaw.NARROW else HitMixture().with_mean(load.hit_rate)
    return Workload(
        rate_per_s=load.rate_per_s,
        input_tokens=_length("input", load.input_tokens, load.input_spread),
        output_tokens=_length("output", load.output_tokens, load.output_spread),
        hits=hits,
    )


def _length(name: str, mean: float, spread: float) -> LengthLaw:
    """No request has less than one token, so with one on the mean all are equal, whatever the spread."""
    if mean <= 1.0:
        return LengthLaw(1.0, 0.0, 1.0, 1.0)
    try:
        return LengthLaw.from_mean(mean, spread, 1.0, mean * TOP_QUANTILES)
    except InvalidInput:
        remedy = f"not possible with a spread of {spread:g} and at least one token: more of them, or {name}Spread: 0"
        raise InvalidInput(name, f"{mean:g} tokens", remedy) from None


def build_loads(spec: PlanSpec, seed: int, seeds: int = SEEDS, requests: int = REQUESTS) -> tuple[Load, ...]:
    """One load for each seed; of a trace: the trace itself, once. Raises InvalidInput that names the file's field."""
    if spec.load.trace is not None:
        load = read_trace(spec.load.trace, MAX_TRACE)
        promised = spec.sla.ttft_p99_s is not None or spec.sla.tpot_p99_s is not None
        if promised and len(load) < LEAST_REQUESTS:
            remedy = f"a P99 is promised, and it needs {LEAST_REQUESTS:,} requests: give a longer trace, or no P99"
            raise InvalidInput(spec.place("workload.trace"), f"{len(load)} requests", remedy)
        if len(load) < 2:
            raise InvalidInput(spec.place("workload.trace"), "1 request", "has no rate: give a trace of two or more")
        if spec.load.rate_per_s <= 0 and load.rate_per_s <= 0:
            remedy = "its requests all come at once: give workload.rate (or --rate)"
            raise InvalidInput(spec.place("workload.trace"), str(spec.load.trace), remedy)
        return (with_rate(load, spec.load.rate_per_s),)
    try:
        workload = build_workload(spec.load)
        return tuple(generate(workload, requests, seed * 1000 + i) for i in range(seeds))
    except InvalidInput as error:
        raise InvalidInput(f"{spec.place('workload')}: {error.field}", error.value, error.remedy) from error


@dataclass
class ModelJudge:
    """Implements `judge.Judge`. loads: one for each seed; all fleets meet the same."""

    loads: tuple[Load, ...]
    change: Callable[[Load], Load] | None = None
    _stats: WorkloadStats | None = field(default=None, repr=False)
    predictions: int = 0
    simulated_requests: int = 0

    @property
    def longest_tokens(self) -> int:
        """The longest prompt with its answer."""
        return max(int((load.input_tokens + load.output_tokens).max()) for load in self.loads)

    @property
    def rate_per_s(self) -> float:
        """Mean rate of the first load."""
        return self.loads[0].rate_per_s

    @property
    def stats(self) -> WorkloadStats:
        """Of the first load, summed up once."""
        if self._stats is None:
            self._stats = summarize(self._load(0), ROWS)
        return self._stats

    def vary(self, *, hit_points: float = 0.0, input_factor: float = 1.0, output_factor: float = 1.0) -> ModelJudge:
        """The same requests with other hits or lengths."""

        def change(load: Load) -> Load:
            return with_lengths(with_hit_points(load, hit_points), input_factor, output_factor)

        return ModelJudge(self.loads, change)

    def predict(self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0) -> Figures:
        """By the analytic model."""
        self.predictions += 1
        said = predict(fleet, self.stats, rate_per_s or self.rate_per_s, sla)
        return Figures(
            ttft_p50_s=exact(said.ttft.p50_s),
            ttft_p90_s=exact(said.ttft.p90_s),
            ttft_p99_s=exact(said.ttft.p99_s),
            tpot_p99_s=exact(said.tpot.p99_s),
            goodput_per_s=exact(said.goodput_per_s),
            utilisation=_utilisation(said),
            relay_share=said.relay_share,
            line_bytes_per_s=said.line_bytes_per_s,
            first_p99_s=said.first_token.p99_s,
        )

    def simulate(
        self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0, *, seeds: int = 0, requests: int = 0
    ) -> Figures:
        """By events, once for each seed. Fewer seeds or requests where asked."""
        rate = rate_per_s or self.rate_per_s
        chosen = range(min(len(self.loads), seeds or len(self.loads)))
        results = [self.run(fleet, sla, rate, i, requests) for i in chosen]
        runs = [measure(result, sla, rate) for result in results]
        said = predict(fleet, self.stats, rate, sla)
        tails = tuple(run.ttft[2] for run in runs)
        known, only = all(run.tail for run in runs), results[0] if len(results) == 1 else None
        return Figures(
            ttft_p50_s=_span([run.ttft[0] for run in runs], only.ttft[0.5] if only else None),
            ttft_p90_s=_span([run.ttft[1] for run in runs], only.ttft[0.9] if only else None),
            ttft_p99_s=_span(tails, only.ttft[0.99] if only else None) if known else None,
            tpot_p99_s=_span([run.tpot for run in runs], only.tpot[0.99] if only else None) if known else None,
            goodput_per_s=_span([run.goodput_per_s for run in runs]),
            utilisation=_utilisation(said),
            relay_share=float(np.mean([result.relay_token_share for result in results])),
            line_bytes_per_s=float(np.mean([run.line_bytes_per_s for run in runs])),
            requests=sum(result.requests for result in results),
            seeds=len(results),
            by_seed=tails,
            first_p99_s=float(np.mean([np.quantile(result.columns.first_token_s, 0.99) for result in results])),
        )

    def run(self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0, seed: int = 0, requests: int = 0) -> SimResult:
        """One run of the simulator on the load of that seed, with the requests themselves (for pictures)."""
        from pdd.planner.sim import SimOptions, simulate

        load = _head(self._load(seed), requests)
        self.simulated_requests += len(load)
        return simulate(
            fleet, with_rate(load, rate_per_s or self.rate_per_s), SimOptions(seed=seed, sla=sla, warmup_share=WARMUP)
        )

    def _load(self, index: int) -> Load:
        load = self.loads[index]
        return self.change(load) if self.change else load


def build_judge(spec: PlanSpec, seed: int) -> tuple[ModelJudge, PlanSpec]:
    """The judge of a question, and the question with the trace's own rate if the file left it to the trace."""
    judge = ModelJudge(build_loads(spec, seed))
    if spec.load.rate_per_s <= 0:
        spec = replace(spec, load=replace(spec.load, rate_per_s=judge.rate_per_s))
    return judge, spec


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: TTFT P50, P90, P99 and TPOT P99 in seconds; tail: enough requests to say a P99."""

    ttft: tuple[float, float, float]
    tpot: float
    tail: bool
    goodput_per_s: float
    line_bytes_per_s: float


def measure(result: SimResult, sla: Sla, rate_per_s: float) -> Measured:
    """What one run shows. Goodput: the share of requests within the promise's P99 limits times the arrival rate."""
    columns = result.columns
    ttft, tpot = columns.ttft_s, columns.tpot_s
    good: Any = np.ones(len(ttft), bool)
    limit = sla.ttft_p99_s if sla.ttft_p99_s is not None else sla.ttft_p90_s
    if limit is not None:
        good &= ttft <= limit
    if sla.tpot_p99_s is not None:
        good[columns.output_tokens > 2] &= tpot <= sla.tpot_p99_s
    shares = np.quantile(ttft, (0.5, 0.9, 0.99))
    return Measured(
        (float(shares[0]), float(shares[1]), float(shares[2])),
        float(np.quantile(tpot, 0.99)) if len(tpot) else 0.0,
        len(ttft) >= MIN_BEYOND * 100,
        float(good.mean()) * rate_per_s,
        float(columns.payload_bytes[np.isfinite(columns.landed_s)].sum()) / (len(ttft) / rate_per_s),
    )


def _utilisation(said: Prediction) -> dict[Stage, float]:
    return {_STAGES[stage.name]: float(stage.utilisation) for stage in said.stages}


def _span(values: Sequence[float], only: Estimate | None = None) -> Span:
    """Over seeds by Student's t; of a single run its own interval (batch means), where it has one."""
    if only is not None and only.low is not None and only.high is not None:
        return Span(only.value, only.low, only.high)
    return Span(*compute_span(values))


def _head(load: Load, requests: int) -> Load:
    """The first requests; of a load with blocks all, since hashes hang together."""
    if requests <= 0 or requests >= len(load) or load.blocks is not None:
        return load
    return Load(
        *(getattr(load, name)[:requests] for name in ("arrival_s", "input_tokens", "output_tokens", "hit_tokens")),
        *(getattr(load, name)[:requests] for name in ("session", "previous", "think_s")),
    )
