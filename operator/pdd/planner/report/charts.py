"""The pictures of a plan: Pareto set, TTFT of the three ways, one request's time line, bathtub, radar, costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from pdd.planner.answer import Answer
from pdd.planner.bathtub import BathtubSpec, compute_bathtub
from pdd.planner.fleet import Fleet
from pdd.planner.judge import meets
from pdd.planner.report.svg import COLOURS, LEFT, RIGHT, WIDTH, Axis, Plot, show, span_axis, wrap

Reals = npt.NDArray[np.float64]
POINTS = 120
CACHED_PRICES = (0.10, 0.25)
"""A cached token's price as a share of an uncached one's."""
TALLEST = 4.0
ROW = 34.0


def draw_pareto(answer: Answer) -> str:
    """BCR against TTFT P99 of everything that was simulated; the front is a line, the chosen plan is big."""
    found = answer.search
    shown = [c for c in found.simulated if c.figures.keeps_up and math.isfinite(c.p99_s)] or [found.best]
    plot = Plot(
        "BCR and TTFT P99 of the plans",
        span_axis(
            [c.bcr for c in shown], f"BCR: requests within the promise per {found.question.spec.prices.currency}"
        ),
        span_axis([c.p99_s for c in shown], "TTFT P99 in s", log=True),
    )
    plot.line([(c.bcr, c.p99_s) for c in found.front], 0, "Pareto set")
    for candidate in shown:
        span = candidate.figures.ttft_p99_s
        chosen = candidate is found.best
        colour = 2 if chosen else (0 if meets(candidate.figures, found.sla) else 1)
        low, high = (span.low, span.high) if span else (0.0, 0.0)
        plot.dot(candidate.bcr, candidate.p99_s, colour, candidate.label, big=chosen, low=low, high=high)
    limit = found.sla.ttft_p99_s
    if limit is not None and plot.y.low < limit < plot.y.high:
        plot.level(limit, "promise")
    return plot.svg()


def draw_cdfs(ways: Mapping[str, Reals], limit_s: float | None) -> str:
    """Share of requests whose tokens flow within a time, for each way; the axis is cut at P99.9."""
    values = [float(np.quantile(ttft, q)) for ttft in ways.values() if len(ttft) for q in (0.01, 0.999)]
    plot = Plot(
        "Time to first token of the three ways",
        span_axis([max(value, 1e-3) for value in values], "TTFT in s", log=True),
        Axis(0.0, 1.0, "share of requests"),
    )
    shares = np.concatenate([np.linspace(0.005, 0.9, POINTS), np.linspace(0.905, 0.999, POINTS)])
    for i, (name, ttft) in enumerate(ways.items()):
        if len(ttft):
            points = zip(np.quantile(ttft, shares).tolist(), shares.tolist(), strict=True)
            plot.line(list(points), i, name)
    if limit_s is not None and plot.x.low < limit_s < plot.x.high:
        plot.upright(limit_s, "promise")
    return plot.svg()


def draw_timeline(request: Mapping[str, float | str | None]) -> str:
    """Who works on one relayed request, and when. Seconds from its arrival, as `sim.trace_request` gives them."""

    def get(name: str, default: float) -> float:
        value = request.get(name)
        return value if isinstance(value, float) and math.isfinite(value) else default

    first, done = get("firstTokenS", 0.0), get("doneS", 0.0)
    second, landed = get("secondTokenS", first), get("landedS", done)
    end = min(done, max(landed * 2.5, second * 2, 1e-3))
    taken = min(landed, end)
    rows: list[tuple[str, float, float, str]] = [("P: queue and prefill", 0.0, first, "first token")]
    if request.get("pipeline") == "P-RLD-MD":
        rows += [
            ("line: KV to MD", first, taken, "landed"),
            ("RLD decodes", first, taken, f"{get('relayTokens', 0.0):.0f} tokens"),
            ("MD decodes", taken, end, f"handoff, pause {1000 * get('stallS', 0.0):.0f} ms"),
        ]
    else:
        rows += [("line: KV to MD", first, taken, "landed"), ("MD decodes", second, end, "")]
    height = 46.0 + ROW * len(rows)
    axis = Axis(0.0, max(end, 1e-9), "")
    width = WIDTH - LEFT - RIGHT
    parts = []
    for value in axis.ticks():
        at = LEFT + axis.place(value) * width
        parts.append(f'<path class="grid" d="M{at:.1f} 4V{height - 34:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 20:.1f}" text-anchor="middle">{show(value)} s</text>')
    for i, (name, begin, stop, note) in enumerate(rows):
        left, right = LEFT + axis.place(begin) * width, LEFT + axis.place(stop) * width
        y = 8 + ROW * i
        parts.append(
            f'<rect class="bar {COLOURS[i]}" x="{left:.1f}" y="{y + 13:.1f}" '
            f'width="{max(2.0, right - left):.1f}" height="13"/>'
        )
        text = f"{name}: {note}" if note else name
        parts.append(f'<text x="{LEFT:.1f}" y="{y + 9:.1f}">{escape(text)}</text>')
    more = "" if end >= done else f" (goes on to {done:.3g} s)"
    parts.append(
        f'<text x="{WIDTH / 2:.1f}" y="{height - 4:.1f}" text-anchor="middle">seconds from arrival{more}</text>'
    )
    return wrap("One request through the pipelines", height, parts)


def draw_bathtub(fleet: Fleet, input_tokens: float) -> str:
    """What one P of the fleet earns against the hit rate, for a prompt of that length; 1 at no hits."""
    prefill, length = fleet.prefill.times.prefill, max(2, round(input_tokens))
    curves: list[tuple[str, list[tuple[float, float]]]] = []
    for price in CACHED_PRICES:
        bathtub = compute_bathtub(BathtubSpec(prefill, (length,), price))
        if not curves:
            base = bathtub.points[0].miss_tokens_per_s
            alone = [(p.hit_rate, p.miss_tokens_per_s / base) for p in bathtub.points]
            fused = [(p.hit_rate, p.miss_tokens_per_s / base) for p in bathtub.fused]
            curves += [("uncached tokens/s", alone), ("the same with fused tails", fused)]
        earned = bathtub.points[0].revenue_per_h
        curve = [(p.hit_rate, p.revenue_per_h / earned) for p in bathtub.points]
        curves.append((f"revenue, cached token at {price:.0%}", curve))
    top = min(TALLEST, max(y for _, curve in curves for _, y in curve)) * 1.05
    plot = Plot(
        "Revenue of a prefill engine against the hit rate",
        Axis(0.0, 1.0, "hit rate"),
        Axis(0.0, top, "of that at no hits"),
    )
    for i, (name, curve) in enumerate(curves):
        plot.line([(x, y) for x, y in curve if y <= top], i, name)
    return plot.svg()


def draw_radar(scores: Mapping[str, Sequence[float]], dimensions: Sequence[str]) -> str:
    """Each chip's figures as a shape; a step outward is twice as much of it. scores: 0 to 1 for each dimension."""
    middle, reach, height = WIDTH / 2, 105.0, 300.0
    centre = 150.0

    def spot(i: int, share: float) -> tuple[float, float]:
        angle = 2 * math.pi * i / len(dimensions) - math.pi / 2
        return middle + reach * share * math.cos(angle), centre + reach * share * math.sin(angle)

    def outline(shares: Sequence[float]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*spot(i, share)) for i, share in enumerate(shares))

    parts = [f'<polygon class="axis" points="{outline([ring] * len(dimensions))}"/>' for ring in (0.25, 0.5, 0.75, 1.0)]
    for i, name in enumerate(dimensions):
        x, y = spot(i, 1.13)
        parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(name)}</text>')
    for i, (chip, shares) in enumerate(scores.items()):
        colour = COLOURS[i % 6]
        parts.append(f'<polygon class="soft {colour}" points="{outline(shares)}" stroke-width="2"/>')
        parts.append(f'<path class="line {colour}" d="M12 {20 + 16 * i}h18"/>')
        parts.append(f'<text x="36" y="{24 + 16 * i}">{escape(chip)}</text>')
    return wrap("Chips in four dimensions", height, parts)
