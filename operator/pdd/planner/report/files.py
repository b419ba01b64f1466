"""A picture as a file of its own: SVG that any viewer shows, and the same as PNG."""

from __future__ import annotations

import re

from pdd.planner.report.svg import STYLE

LIGHT = {"--text": "#1b1b1b", "--dim": "#595959", "--grid": "#e0e0e0"}
GROUND = "#fff"
PNG_SCALE = 3.0
"""Pixels a unit: 1,080 across."""
_PROPERTY = re.compile(r"var\((--[\w-]+)(?:,([^()]*))?\)")


def make_svg(picture: str) -> str:
    """The picture with namespace and style. Its colours are plain ones: viewers beside browsers know no properties."""
    style = _PROPERTY.sub(lambda found: LIGHT.get(found[1]) or found[2] or "#000", STYLE)
    head, _, rest = picture.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>svg{{background:{GROUND}}}{style}</style>{rest}'


def make_png(svg: str) -> bytes:
    """A file's SVG as PNG, the same on every machine: drawn by resvg, with a font that is installed with us."""
    import resvg_py
    from font_roboto import Roboto

    made = resvg_py.svg_to_bytes(
        svg_string=svg,
        background=GROUND,
        zoom=PNG_SCALE,
        skip_system_fonts=True,
        font_files=[Roboto],
        font_family="Roboto",
        sans_serif_family="Roboto",
    )
    return bytes(made)
