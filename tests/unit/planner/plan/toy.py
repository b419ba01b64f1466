"""A judge made of three closed formulas, for tests of the search alone: what it should find can be worked out by hand.

It is a double of the two real models, which have tests of their own; the plan as a whole is tested with those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdd.planner.candidates import Question, Shape
from pdd.planner.fleet import Fleet, Pool, Sla, Way
from pdd.planner.judge import Figures, Judge, Span, Stage, exact
from pdd.planner.kvlaw import KVLaw
from pdd.planner.spec import PlanSpec
from pdd.planner.spec_file import read_plan_text
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

TEXT = """\
model: toy
workload: {rate: 10/s, input: 10K, output: 100, hitRate: 90 %}
sla: {ttftP99: 2 s, tpotP99: 100 ms}
sites:
  a: {chips: [A]}
  b: {chips: [B]}
  line: {sizes: [1 Gbit/s, 10 Gbit/s], rtt: 20 ms}
prices:
  chips: {A: 2/h, B: 1/h}
  line: {perGbit: 0.1/h}
"""


def spec_of(text: str = TEXT) -> PlanSpec:
    return read_plan_text("toy.yaml", text)


def question_of(spec: PlanSpec) -> Question:
    """P serves 2 requests a second on chip A for 2/h and 0.2 on B for 1/h; decode serves 5 on either."""

    def pool(chip: str) -> Pool:
        times = EngineTimes(
            PrefillTime(0.0005, 8192), DecodeTime(0.02, 0.0001), ExtendTime(0.02, 0.0001), max_sequences=64
        )
        return Pool(1, times, chip, 8, spec.prices.chips[chip])

    first, second = spec.site_a.chips[0], spec.site_b.chips[0]
    shape = Shape(pool(first), pool(first), pool(second))
    return Question(spec, (shape,), KVLaw(10_000.0), {first: pool(first), second: pool(second)}, 1e9, 32768)


@dataclass
class ToyJudge:
    """TTFT P99 = 0.5 s + 0.1 s / (1 - utilisation), 20 % longer in simulation; a naive way waits for the line too."""

    hit_rate: float = 0.9
    input_tokens: float = 10_000.0
    output_tokens: float = 100.0
    predictions: int = 0
    simulations: int = 0
    least_ttft_s: float = 0.5

    def predict(self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0) -> Figures:
        self.predictions += 1
        return self._figures(fleet, rate_per_s, 1.0)

    def simulate(
        self, fleet: Fleet, sla: Sla, rate_per_s: float = 0.0, *, seeds: int = 0, requests: int = 0
    ) -> Figures:
        self.simulations += 1
        return replace(self._figures(fleet, rate_per_s, 1.2), requests=1000, seeds=3, by_seed=(1.0, 1.1, 0.9))

    def vary(self, *, hit_points: float = 0.0, input_factor: float = 1.0, output_factor: float = 1.0) -> Judge:
        return ToyJudge(
            self.hit_rate + hit_points, self.input_tokens * input_factor, self.output_tokens * output_factor
        )

    def _figures(self, fleet: Fleet, rate: float, factor: float) -> Figures:
        uncached = self.input_tokens * (1 - self.hit_rate)
        slow = 5.0 if fleet.prefill.chip == "B" else 0.5
        payload = uncached * fleet.kv.bytes_per_token
        used = {
            Stage.PREFILL: rate * uncached / 1000 * slow / max(1, fleet.prefill.engines),
            Stage.MAIN: rate * self.output_tokens / 100 * 0.2 / max(1, fleet.main.engines),
        }
        wait = payload * 8 / fleet.line.capacity_bps
        if fleet.way is not Way.SAME_SITE:
            used[Stage.LINE] = rate * payload * 8 / fleet.line.capacity_bps
        if fleet.way is Way.PDD:
            used[Stage.RELAY] = rate * wait / 2 / fleet.relay.engines
        top = max(used.values())
        tail = 0.1 / (1 - top) if top < 1 else float("inf")
        ttft = factor * (self.least_ttft_s + tail + (5.0 * wait if fleet.way is Way.NAIVE else 0.0))
        good = rate if top < 1 else 0.0
        spread = Span(ttft, ttft * 0.95, ttft * 1.05)
        return Figures(exact(ttft / 4), exact(ttft / 2), spread, exact(0.03), exact(good), used, 0.2, rate * payload)
