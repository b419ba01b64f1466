"""What both models say of one fleet, in one form: the search asks a `Judge` and does not care which model answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pdd.planner.fleet import Fleet, Sla


class Stage(StrEnum):
    """What can run short. The value is how people read it."""

    PREFILL = "prefill"
    RELAY = "relay decode"
    MAIN = "main decode"
    LINE = "line"
    LOCAL = "local transfer"


@dataclass(frozen=True, slots=True)
class Span:
    """A figure with its 95 % confidence interval; low = high = value for a figure that was computed, not sampled."""

    value: float
    low: float
    high: float


def exact(value: float) -> Span:
    """A computed figure."""
    return Span(value, value, value)


@dataclass(frozen=True, slots=True)
class Figures:
    """One fleet under one load.

    Seconds and requests per second. ttft: until tokens flow, a transfer that nothing hides included; tpot: after that.
    utilisation: offered work over capacity of each stage that the fleet has; 1 or more does not keep up. P99 None: too
    few requests to say. by_seed: TTFT P99 of each seed, for paired differences. relay_share: of tokens, made by RLD.
    first_p99_s: P99 of P's own token, queue and prefill alone; 0: not known.
    """

    ttft_p50_s: Span
    ttft_p90_s: Span
    ttft_p99_s: Span | None
    tpot_p99_s: Span | None
    goodput_per_s: Span
    utilisation: Mapping[Stage, float]
    relay_share: float = 0.0
    line_bytes_per_s: float = 0.0
    requests: int = 0
    seeds: int = 0
    by_seed: tuple[float, ...] = ()
    first_p99_s: float = 0.0

    @property
    def keeps_up(self) -> bool:
        """No stage is offered more than it can do. Relay decode may be: what finds it full goes P-MD."""
        return all(share < 1.0 for stage, share in self.utilisation.items() if stage is not Stage.RELAY)

    @property
    def binding(self) -> Stage:
        """The stage nearest to its capacity."""
        return max(self.utilisation, key=lambda stage: self.utilisation[stage])


class Judge(Protocol):
    """A model of the whole way. `rate_per_s` 0: the load's own rate."""

    def predict(self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0) -> Figures:
        """By the analytic model: milliseconds."""
        ...

    def simulate(
        self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0, *, seeds: int = 0, requests: int = 0
    ) -> Figures:
        """By events, with common random numbers: every fleet meets the same requests. 0: the judge's own number."""
        ...

    def vary(self, *, hit_points: float = 0.0, input_factor: float = 1.0, output_factor: float = 1.0) -> Judge:
        """A judge of the same load with another hit rate (points of 1 added to the mean) or other lengths."""
        ...


@dataclass(frozen=True, slots=True)
class Miss:
    """One promise and what is predicted instead. ratio > 1: broken. Seconds."""

    promise: str
    limit_s: float
    value_s: float

    @property
    def ratio(self) -> float:
        return self.value_s / self.limit_s


def compute_misses(figures: Figures, sla: Sla, bias: float = 1.0) -> tuple[Miss, ...]:
    """The promises that the figures break, worst first; empty if all hold. An unknown P99 breaks its promise.

    bias: true TTFT over the figures', where known; it multiplies TTFT.
    """
    pairs = (
        ("ttftP90", sla.ttft_p90_s, figures.ttft_p90_s, bias),
        ("ttftP99", sla.ttft_p99_s, figures.ttft_p99_s, bias),
        ("tpotP99", sla.tpot_p99_s, figures.tpot_p99_s, 1.0),
    )
    misses = [
        Miss(name, limit, span.value * factor if span else math.inf)
        for name, limit, span, factor in pairs
        if limit is not None and (span is None or span.value * factor > limit)
    ]
    return tuple(sorted(misses, key=lambda miss: -miss.ratio))


def meets(figures: Figures, sla: Sla) -> bool:
    """The fleet keeps up and breaks no promise."""
    return figures.keeps_up and not compute_misses(figures, sla)


def surely_meets(figures: Figures, sla: Sla) -> bool:
    """As `meets`, with the upper ends of the intervals: chance in the sample does not decide."""
    pairs = (
        (sla.ttft_p90_s, figures.ttft_p90_s),
        (sla.ttft_p99_s, figures.ttft_p99_s),
        (sla.tpot_p99_s, figures.tpot_p99_s),
    )
    return figures.keeps_up and all(limit is None or (span is not None and span.high <= limit) for limit, span in pairs)
