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
from pdd.planner.report.svg import COLOURS, WIDTH, Axis, Plot, show, span_axis, wrap

Reals = npt.NDArray[np.float64]
POINTS = 120
CACHED_PRICES = (0.10, 0.25)
"""A cached token's price as a share of an uncached one's."""
TALLEST = 4.0
EDGE, ROW, HEAD = 14.0, 34.0, 20.0
"""Of the time line: room at both sides, height of a bar with its words, height of a group's name."""
NEAR = 4.0
"""A promise up to so many times the slowest plan's P99 is shown."""
OCTAVES = 6
"""Rings of the radar: each is twice the one before."""

Request = Mapping[str, float | int | str | None]
Bar = tuple[str, float, float, str, int]
"""Name, begin and end in seconds, note, colour."""


def draw_pareto(answer: Answer) -> str:
    """BCR against TTFT P99 of everything that was simulated; the front is a line, the chosen plan is big."""
    found = answer.search
    shown = [c for c in found.simulated if c.figures.keeps_up and math.isfinite(c.p99_s)] or [found.best]
    heights, limit = [c.p99_s for c in shown], found.sla.ttft_p99_s
    near = [limit] if limit is not None and limit < NEAR * max(heights) else []
    plot = Plot(
        "BCR and TTFT P99 of the plans",
        span_axis(
            [c.bcr for c in shown], f"BCR: requests within the promise per {found.question.spec.prices.currency}"
        ),
        span_axis([*heights, *near], "TTFT P99 in s", log=True),
    )
    best = found.best
    plot.told = f"{len(shown)} plans; chosen: {best.label}, BCR {best.bcr:.3g}, TTFT P99 {best.p99_s:.3g} s."
    plot.line([(c.bcr, c.p99_s) for c in found.front], 0, "Pareto set")
    for candidate in sorted(shown, key=lambda c: c is best):
        span = candidate.figures.ttft_p99_s
        kept = meets(candidate.figures, found.sla)
        colour = 2 if candidate is best else (0 if kept else 1)
        low, high = (span.low, span.high) if span else (0.0, 0.0)
        title = f"{candidate.label}: BCR {candidate.bcr:.3g}, TTFT P99 {candidate.p99_s:.3g} s"
        plot.dot(
            candidate.bcr, candidate.p99_s, colour, title, big=candidate is best, hollow=not kept, low=low, high=high
        )
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
    middles = [f"{name} {np.quantile(ttft, 0.5):.3g} s" for name, ttft in ways.items() if len(ttft)]
    plot.told = f"Half of the requests within: {', '.join(middles)}."
    if limit_s is not None and plot.x.low < limit_s < plot.x.high:
        plot.upright(limit_s, "promise")
    return plot.svg()


def draw_timeline(request: Request, without: Request | None = None) -> str:
    """Who works on one request, and when; below, if given, the same request without relay decode.

    Seconds from its arrival, as `sim.trace_request` gives them.
    """
    groups = [("with PDD", request)] + ([("naive", without)] if without else [])
    heads = [f"{name}: {each.get('pipeline', '')}" for name, each in groups]
    end = max(_shown_end(each) for _, each in groups)
    drawn = [_find_bars(each, end) for _, each in groups]
    height = 8 + HEAD * len(groups) + ROW * sum(map(len, drawn)) + 40
    axis = Axis(0.0, max(end, 1e-9), "")
    width = WIDTH - 2 * EDGE
    parts = []
    for value in axis.ticks():
        at = EDGE + axis.place(value) * width
        parts.append(f'<path class="grid" d="M{at:.1f} 4V{height - 36:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 22:.1f}" text-anchor="middle">{show(value)}</text>')
    y = 6.0
    for head, bars in zip(heads, drawn, strict=True):
        parts.append(f'<text class="head" x="{EDGE:.1f}" y="{y + 13:.1f}">{escape(head)}</text>')
        y += HEAD
        for name, begin, stop, note, colour in bars:
            left, right = EDGE + axis.place(begin) * width, EDGE + axis.place(stop) * width
            parts.append(
                f'<rect class="bar {COLOURS[colour]}" x="{left:.1f}" y="{y + 15:.1f}" '
                f'width="{max(2.0, right - left):.1f}" height="12"/>'
            )
            text = f"{name}: {note}" if note else name
            parts.append(f'<text x="{EDGE:.1f}" y="{y + 11:.1f}">{escape(text)}</text>')
            y += ROW
    done = _get(request, "doneS", end)
    more = f" (decode goes on to {done:.3g} s)" if done > end else ""
    parts.append(
        f'<text x="{WIDTH / 2:.1f}" y="{height - 4:.1f}" text-anchor="middle">seconds from arrival{more}</text>'
    )
    told = [
        f"{head}: {', '.join(f'{bar[0]} {bar[1]:.3g} to {bar[2]:.3g} s' for bar in bars)}."
        for head, bars in zip(heads, drawn, strict=True)
    ]
    return wrap("One request through the pipelines", height, parts, " ".join(told))


def _get(request: Request, name: str, default: float) -> float:
    value = request.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else default


def _shown_end(request: Request) -> float:
    """Decode may go on for long after what the picture is about: the end is cut."""
    first, done = _get(request, "firstTokenS", 0.0), _get(request, "doneS", 0.0)
    second, landed = _get(request, "secondTokenS", first), _get(request, "landedS", first)
    return min(done, max(landed * 1.6, second * 1.6, 1e-3))


def _find_bars(request: Request, end: float) -> list[Bar]:
    first, done = _get(request, "firstTokenS", 0.0), _get(request, "doneS", 0.0)
    second = _get(request, "secondTokenS", first)
    landed = min(_get(request, "landedS", second), end)
    bars: list[Bar] = [("P queues and prefills", 0.0, first, f"first token at {first:.3g} s", 0)]
    stop = min(done, end)
    if request.get("pipeline") == "P-RLD-MD":
        pause = _get(request, "stallS", 0.0)
        return [
            *bars,
            ("line carries KV", first, landed, f"landed at {landed:.3g} s", 1),
            (
                "RLD decodes meanwhile",
                min(second, landed),
                landed,
                f"{_get(request, 'relayTokens', 0.0):.0f} tokens",
                2,
            ),
            ("MD decodes", landed, stop, f"pause at the handoff {1000 * pause:.0f} ms", 3),
        ]
    if request.get("pipeline") == "P-RLD":
        return [*bars, ("RLD decodes", second, stop, f"second token at {second:.3g} s", 2)]
    return [
        *bars,
        ("line carries KV, the user waits", first, second, f"{second - first:.3g} s", 1),
        ("MD decodes", min(second, stop), stop, f"second token at {second:.3g} s", 3),
    ]


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
    plot.told = f"For prompts of {length:,} tokens in chunks of {prefill.chunk_tokens:,}."
    return plot.svg()


def draw_radar(scores: Mapping[str, Sequence[float]], dimensions: Sequence[str], reference: float = 4 / 6) -> str:
    """Each chip's figures as a shape; a ring outward is twice as much. scores: 0 to 1 for each dimension.

    reference: where the reference chip lies, a bold ring. Chips are told apart by colour, dashes and the legend.
    """
    middle, reach, centre = WIDTH / 2, 96.0, 118.0
    height = 240.0 + 17.0 * len(scores)

    def spot(i: int, share: float) -> tuple[float, float]:
        angle = 2 * math.pi * i / len(dimensions) - math.pi / 2
        return middle + reach * share * math.cos(angle), centre + reach * share * math.sin(angle)

    def outline(shares: Sequence[float]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*spot(i, share)) for i, share in enumerate(shares))

    def ring(share: float, name: str) -> str:
        return f'<polygon class="{name}" points="{outline([share] * len(dimensions))}" fill="none"/>'

    parts = [ring(step / OCTAVES, "grid") for step in range(1, OCTAVES + 1)] + [ring(reference, "axis strong")]
    for i, name in enumerate(dimensions):
        x, y = spot(i, 1.06)
        side = "middle" if abs(x - middle) < 1 else ("start" if x > middle else "end")
        lift = 4.0 if side != "middle" else (11.0 if y > centre else -1.0)
        # Beside the rings a long name would leave the picture: it turns.
        words = f'text-anchor="middle" transform="rotate({-90 if side == "end" else 90} {x:.1f} {y:.1f})"'
        place = words if side != "middle" else 'text-anchor="middle"'
        parts.append(f'<text x="{x:.1f}" y="{y + (lift if side == "middle" else 0):.1f}" {place}>{escape(name)}</text>')
    for i, (chip, shares) in enumerate(scores.items()):
        colour = COLOURS[i % 6]
        parts.append(f'<polygon class="soft {colour}" points="{outline(shares)}" stroke="none"/>')
        parts.append(f'<polygon class="line {colour}" points="{outline(shares)}"/>')
        parts.append(f'<path class="line {colour}" d="M54 {240 + 17 * i}h26"/>')
        parts.append(f'<text x="87" y="{244 + 17 * i}">{escape(chip)}</text>')
    told = []
    for chip, shares in scores.items():
        times = [2 ** (OCTAVES * (share - reference)) for share in shares]
        told.append(f"{chip}: {', '.join(f'{name} {x:.2g}' for name, x in zip(dimensions, times, strict=True))}")
    return wrap("Chips in four dimensions", height, parts, "Times the reference: " + "; ".join(told) + ".")
