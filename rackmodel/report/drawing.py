"""From an Altair definition to files: PNG and SVG for papers, one HTML page for sharing, the same bytes for the same input.

Colours are Okabe and Ito's (2008), told apart by colour-blind readers; lines differ in their dashes and
points as well, so that one shows under another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackmodel.report.files import make_folder, write_whole
from rackmodel.report.page import html_page, vegalite_version
from rackmodel.report.png import packed

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
DASHES = ([1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [5, 5], [12, 4], [3, 6], [8, 2, 2, 2, 2, 2])
CONFIG = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "title": {
        "fontSize": 16, "subtitleFontSize": 13, "subtitlePadding": 5, "subtitleColor": "#444",
        "anchor": "start", "offset": 14, "frame": "bounds",
    },
    "axis": {
        "labelFontSize": 13, "titleFontSize": 14, "titleFontWeight": "normal", "titlePadding": 10,
        "gridColor": "#e4e4e4", "labelLimit": 300,
    },
    "legend": {"labelFontSize": 13, "titleFontSize": 13, "symbolSize": 130, "labelLimit": 300, "titleFontWeight": "normal"},
    "header": {"labelFontSize": 13, "titleFontSize": 13},
}  # fmt: skip


def save_chart(chart: Any, folder: Path | str, stem: str) -> list[Path]:
    """Write stem.png, stem.svg and stem.html (self-contained) into `folder`, which is made if need be. Returns the paths.

    Raises OutputError where that cannot be done.
    """
    definition = chart.to_dict()
    title = definition.get("title")
    heading = title["text"] if isinstance(title, dict) else str(title or stem)
    drawn = _drawn(definition)  # once: the picture in points is that of the drawing
    written: list[tuple[str, bytes]] = [
        ("png", packed(svg_png(drawn))),
        ("svg", _numbered(drawn).encode()),
        ("html", html_page(heading, [definition]).encode()),
    ]
    place = make_folder(Path(folder))
    return [write_whole(place / f"{stem}.{suffix}", content) for suffix, content in written]


def chart_png(definition: Mapping[str, Any], scale: float = 2) -> bytes:
    """A PNG at `scale` times the size in points: twice for print."""
    return packed(svg_png(_drawn(definition), scale))


def svg_png(text: str, scale: float = 2) -> bytes:
    """An SVG's PNG at `scale` times its size: twice for print."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(text, scale=scale))


def chart_svg(definition: Mapping[str, Any]) -> str:
    """An SVG; identifiers are numbered from 0."""
    return _numbered(_drawn(definition))


def _drawn(definition: Mapping[str, Any]) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(dict(definition), vl_version=vegalite_version()))


def _numbered(text: str) -> str:
    """Identifiers numbered from 0: the renderer goes on counting from chart to chart."""
    numbers: dict[str, int] = {}
    return re.sub(r'((?:id="|url\(#)(clip|gradient_))(\d+)', lambda m: m[1] + str(numbers.setdefault(m[2] + m[3], len(numbers))), text)
