"""Benefit-cost ratio and its parts: goodput over price, a table of what a fleet costs, and two fleets compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdd.common.errors import InvalidInput
from pdd.planner.fleet import Fleet, Way

SECONDS_PER_H = 3600.0


@dataclass(frozen=True, slots=True)
class CostLine:
    """One row of a bill, money an hour. share: of the whole."""

    what: str
    count: float
    each_per_h: float
    total_per_h: float
    share: float


@dataclass(frozen=True, slots=True)
class Gain:
    """One fleet against another; 0.1 is +10 %. cost_per_good: change of the cost of a good request (or token)."""

    goodput: float
    cost: float
    bcr: float
    cost_per_good: float


def compute_bcr(goodput_per_s: float, cost_per_h: float) -> float:
    """Good requests per unit of money; infinite if it costs nothing."""
    if cost_per_h < 0:
        raise InvalidInput("cost_per_h", cost_per_h, "prices must not be negative")
    return goodput_per_s * SECONDS_PER_H / cost_per_h if cost_per_h > 0 else math.inf


def compare_costs(goodput: float, cost: float, base_goodput: float, base_cost: float) -> Gain:
    """How goodput, cost and their ratio change from the base. A ratio r higher makes each good request 1/r as dear:
    BCR +37.5 % is 27.3 % less for a token, not 37.5 %."""
    more, dearer = goodput / base_goodput, cost / base_cost
    return Gain(more - 1.0, dearer - 1.0, more / dearer - 1.0, dearer / more - 1.0)


def list_costs(fleet: Fleet) -> tuple[CostLine, ...]:
    """The bill of a fleet: each role that has engines, and the line where one is used."""
    rows = [
        (name, float(pool.engines), pool.price_per_h)
        for name, pool in (("prefill", fleet.prefill), ("relay decode", fleet.relay), ("main decode", fleet.main))
        if pool.engines
    ]
    if fleet.way is not Way.SAME_SITE:
        rows.append(("line", 1.0, fleet.line.price_per_h))
    total = sum(count * each for _, count, each in rows)
    return tuple(CostLine(w, n, each, n * each, n * each / total if total > 0 else 0.0) for w, n, each in rows)


def compute_cost_per_million(cost_per_h: float, tokens_per_s: float) -> float:
    """Money for a million tokens; infinite for no tokens."""
    return cost_per_h / SECONDS_PER_H / tokens_per_s * 1e6 if tokens_per_s > 0 else math.inf
