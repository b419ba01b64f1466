"""Small pictures as SVG text, made here: axes, lines, points, bars. Colours are the page's (light and dark).

A picture is WIDTH units wide, about as wide as a phone, and scales with the page: its text is never much smaller than
drawn. Lines differ by their dashes too, for who does not tell the colours apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 360.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 12.0, 12.0, 44.0
KEY = 17.0
"""Height of one line of the legend, which stands below the axes, where it hides nothing."""
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")
PALETTE = ("#1f77b4", "#c65102", "#14805f", "#b0359c", "#8a6a00", "#666")
STYLE = (
    """
svg{width:100%;height:auto;display:block;font-family:system-ui,sans-serif;font-size:12.5px}
svg text{fill:var(--text)}svg .axis{stroke:var(--dim);stroke-width:1;fill:none}
svg .grid{stroke:var(--grid);stroke-width:1}svg .line{fill:none;stroke-width:2.2}
"""
    + "".join(
        f"svg .{name}{{stroke:var(--{name},{shade})}}"
        f"svg .dot.{name},svg .bar.{name},svg .soft.{name}{{fill:var(--{name},{shade})}}\n"
        for name, shade in zip(COLOURS, PALETTE, strict=True)
    )
    + """svg .line.c1{stroke-dasharray:8 3}svg .line.c2{stroke-dasharray:2 2.5}svg .line.c3{stroke-dasharray:9 3 2 3}
svg .hollow{fill:var(--card,#fff);stroke-width:2}
svg .soft{fill-opacity:.1}svg .strong{stroke-width:2}svg .head{font-weight:600}
svg .limit{stroke:var(--limit,#c00);stroke-dasharray:5 4}
"""
)
DARK = "--c0:#5aa9e6;--c1:#ff9a4d;--c2:#3fcf9f;--c3:#e884d8;--c4:#d9b84a;--c5:#aaa;--limit:#ff7070"
"""The same colours on a dark ground, as properties of the page."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From low to high, linear or logarithmic; `label` with the unit."""

    low: float
    high: float
    label: str
    log: bool = False

    def place(self, value: float) -> float:
        """0 at low, 1 at high; values outside are cut."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = math.log10(max(value, self.low)) if self.log else value
        return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5

    def ticks(self) -> list[float]:
        """About five round values."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1.0,) if last - first > 3 else (1.0, 2.0, 5.0)
            values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            found = [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) >= 3:
                return found
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        raw = span / 5
        step = next(
            s * 10.0 ** math.floor(math.log10(raw))
            for s in (1, 2, 5, 10)
            if s * 10.0 ** math.floor(math.log10(raw)) >= raw
        )
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def span_axis(values: Sequence[float], label: str, *, log: bool = False, zero: bool = False) -> Axis:
    """An axis that holds the finite values with a little room."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
    low, high = min(known), max(known)
    if log:
        return Axis(low / 1.15, high * 1.15 if high > low else low * 2, label, True)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return Axis(0.0 if zero else low - room, high + room, label)


@dataclass(slots=True)
class Plot:
    """A picture with two axes that is filled piece by piece; `svg()` gives the text.

    height: of the axes with their labels, without the legend. told: what it shows, for who does not see it.
    """

    title: str
    x: Axis
    y: Axis
    height: float = 240.0
    parts: list[str] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)
    told: str = ""

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where the values stand in the picture."""
        width, height = WIDTH - LEFT - RIGHT, self.height - TOP - BOTTOM
        return LEFT + self.x.place(x) * width, TOP + (1 - self.y.place(y)) * height

    def line(self, points: Sequence[tuple[float, float]], colour: int, name: str = "") -> None:
        """A line through the points."""
        path = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in points if math.isfinite(x + y))
        self.parts.append(f'<polyline class="line {COLOURS[colour % 6]}" points="{path}"/>')
        if name:
            self.legend.append((name, COLOURS[colour % 6]))

    def dot(
        self,
        x: float,
        y: float,
        colour: int,
        title: str,
        *,
        big: bool = False,
        hollow: bool = False,
        low: float = 0.0,
        high: float = 0.0,
    ) -> None:
        """A point that says `title` when it is touched; low and high: an upright interval."""
        px, py = self.at(x, y)
        if high > low:
            (_, top), (_, bottom) = self.at(x, high), self.at(x, low)
            self.parts.append(f'<path class="{COLOURS[colour % 6]}" d="M{px:.1f} {top:.1f}V{bottom:.1f}"/>')
        size, kind = 6.5 if big else 4, "hollow" if hollow else "dot"
        self.parts.append(
            f'<circle class="{kind} {COLOURS[colour % 6]}" cx="{px:.1f}" cy="{py:.1f}" r="{size}">'
            f"<title>{escape(title)}</title></circle>"
        )

    def level(self, y: float, text: str) -> None:
        """A broken red line across, for a limit."""
        (left, at), (right, _) = self.at(self.x.low, y), self.at(self.x.high, y)
        self.parts.append(f'<path class="limit" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
        self.parts.append(f'<text x="{right - 4:.1f}" y="{at - 4:.1f}" text-anchor="end">{escape(text)}</text>')

    def upright(self, x: float, text: str) -> None:
        """A broken red line upwards, for a limit."""
        (at, top), (_, bottom) = self.at(x, self.y.high), self.at(x, self.y.low)
        self.parts.append(f'<path class="limit" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>')
        self.parts.append(f'<text x="{at - 4:.1f}" y="{bottom - 6:.1f}" text-anchor="end">{escape(text)}</text>')

    def svg(self) -> str:
        """The picture."""
        (left, bottom), (right, top) = self.at(self.x.low, self.y.low), self.at(self.x.high, self.y.high)
        drawn = []
        for value in self.x.ticks():
            at, _ = self.at(value, self.y.low)
            drawn.append(f'<path class="grid" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>')
            drawn.append(f'<text x="{at:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{show(value)}</text>')
        for value in self.y.ticks():
            _, at = self.at(self.x.low, value)
            drawn.append(f'<path class="grid" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
            drawn.append(f'<text x="{left - 5:.1f}" y="{at + 4:.1f}" text-anchor="end">{show(value)}</text>')
        drawn.append(f'<path class="axis" d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}"/>')
        middle = (left + right) / 2
        drawn.append(
            f'<text x="{middle:.1f}" y="{self.height - 10:.1f}" text-anchor="middle">{escape(self.x.label)}</text>'
        )
        drawn.append(
            f'<text transform="translate(13 {(top + bottom) / 2:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y.label)}</text>"
        )
        keys = []
        for i, (name, colour) in enumerate(self.legend):
            y = self.height + KEY * (i + 0.5)
            keys.append(f'<path class="line {colour}" d="M{left:.1f} {y - 4:.1f}h26"/>')
            keys.append(f'<text x="{left + 33:.1f}" y="{y:.1f}">{escape(name)}</text>')
        height = self.height + KEY * len(self.legend)
        return wrap(self.title, height, [*drawn, *self.parts, *keys], self.told)


def wrap(title: str, height: float, parts: Sequence[str], told: str = "") -> str:
    """The <svg> around the parts. told: the picture in words, for screen readers."""
    label = f"{title}. {told}" if told else title
    head = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}">'
    words = f"<title>{escape(title)}</title>" + (f"<desc>{escape(told)}</desc>" if told else "")
    return head + words + "".join(parts) + "</svg>"


def show(value: float) -> str:
    """A number of an axis: short."""
    if value == 0:
        return "0"
    return (
        f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
        if abs(value) >= 1e5 or abs(value) < 1e-3
        else f"{value:.4g}"
    )
