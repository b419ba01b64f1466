"""The fleets that are worth a look: chips per role x line x threshold x engines of each role, pruned by bounds.

The bound of a role is the least number of engines that keeps its utilisation below TARGET at the offered load, from
one probe of the analytic model for each (chips, line, threshold). Numbers are tried within 30 % of it, never below
what keeps up at all. A line that could not carry the load is left out whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from pdd.planner.fleet import Fleet, Pool, Sla, Way
from pdd.planner.judge import Figures, Judge, Stage
from pdd.planner.kvlaw import KVLaw
from pdd.planner.spec import PlanSpec

TARGET: Mapping[Stage, float] = {Stage.PREFILL: 0.8, Stage.MAIN: 0.85, Stage.RELAY: 0.7}
WIDTH = 0.3
LIMIT = 0.97
"""Above it a stage is as good as lost: a P99 there is longer than any promise."""
MOST_VALUES = 5
"""Numbers of engines tried for one role at most; a wide range is thinned evenly."""
PROBE_ENGINES = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """One choice of chips: pools of one engine for each role, with times and price."""

    prefill: Pool
    relay: Pool
    main: Pool

    @property
    def chips(self) -> str:
        """As people read it."""
        return f"P {self.prefill.chip}, RLD {self.relay.chip}, MD {self.main.chip}"


@dataclass(frozen=True, slots=True)
class Question:
    """A PlanSpec with the catalogue looked up: what can be bought, and what the model's KV weighs.

    engines: one engine of each chip that the file names, for fleets of one chip at one site. weight_bytes: of the
    model. context_tokens: the longest prompt with its answer that the load holds. precision: of the weights ("": not
    known). shapes: the first is the one that a PDDDeployment states.
    """

    spec: PlanSpec
    shapes: tuple[Shape, ...]
    kv: KVLaw
    engines: Mapping[str, Pool] = field(default_factory=dict)
    weight_bytes: float = 0.0
    context_tokens: int = 16384
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """One (shape, line, threshold) and the engines it needs. figures: of the probe, many engines of each role."""

    shape: Shape
    size_bps: float
    threshold_s: float
    figures: Figures
    max_a: int
    max_b: int

    def need(self, stage: Stage, share: float) -> int:
        """Engines of the stage that keep its utilisation at or below `share`, at least 1."""
        load = self.figures.utilisation.get(stage, 0.0) * PROBE_ENGINES
        return max(1, math.ceil(load / share - 1e-9))


def build_fleet(question: Question, shape: Shape, size_bps: float, threshold_s: float, counts: Sequence[int]) -> Fleet:
    """The PDD fleet of (P, RLD, MD) engines."""
    spec = question.spec
    prefill, relay, main = counts
    return Fleet(
        way=Way.PDD,
        prefill=replace(shape.prefill, engines=prefill),
        relay=replace(shape.relay, engines=relay),
        main=replace(shape.main, engines=main),
        line=spec.line_spec(size_bps),
        kv=question.kv,
        rules=replace(spec.rules, relay_threshold_s=threshold_s),
        block_tokens=spec.block_tokens,
    )


def compute_bounds(question: Question, judge: Judge, sla: Sla, rate_per_s: float) -> list[Bound]:
    """One probe for each shape, line and threshold; also of lines that cannot carry the load (the caller prunes)."""
    spec = question.spec
    bounds = []
    for shape, size, threshold in product(question.shapes, spec.line.sizes_bps, spec.thresholds_s):
        probe = build_fleet(question, shape, size, threshold, (PROBE_ENGINES,) * 3)
        figures = judge.predict(probe, sla, rate_per_s)
        bounds.append(Bound(shape, size, threshold, figures, spec.site_a.max_engines, spec.site_b.max_engines))
    return bounds


def line_carries(bound: Bound) -> bool:
    """The line has room for the load's KV."""
    return bound.figures.utilisation.get(Stage.LINE, 0.0) < LIMIT


def enumerate_counts(bound: Bound, *, wide: bool = False) -> Iterator[tuple[int, int, int]]:
    """(P, RLD, MD) within 30 % of the bounds, or up to four times them if `wide`."""
    values = []
    for stage, most in ((Stage.PREFILL, bound.max_a), (Stage.RELAY, bound.max_a), (Stage.MAIN, bound.max_b)):
        least, near = bound.need(stage, LIMIT), bound.need(stage, TARGET[stage])
        top = 4 * near if wide else max(least + 1, math.ceil((1 + WIDTH) * near))
        low = near if wide else max(least, math.floor((1 - WIDTH) * near))
        values.append(thin(low, min(top, most), 3 if stage is Stage.RELAY else MOST_VALUES))
    yield from product(*values)


def thin(low: int, high: int, most: int) -> list[int]:
    """At most `most` whole numbers from low to high, both ends included, evenly spread; empty if low > high."""
    if high - low + 1 <= most:
        return list(range(low, high + 1))
    return sorted({round(low + (high - low) * i / (most - 1)) for i in range(most)})
