"""Pictures as SVG text: for a page, whose style knows the classes, and for a paper, with a style of its own.

A label has a box of its own: what stands beside it is placed beyond its estimated width, and what has no room is cut with '…'.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

WIDE = 0.62  # width of a character over the size of the letters: of a wide face, more than Arial's mean
SIZE = 9.0
FILLS = ("#0072b2", "#d55e00", "#009e73", "#999999", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#b0b0b0")
"""Colours of the classes k0 to k8 on paper, as page.css has them in light: told apart by the colour-blind."""


def node(name: str, inside: str = "", **attributes: object) -> str:
    """An element. attributes: '_' stands for '-', a trailing one is left out (class_)."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(_plain(value))}"' for key, value in attributes.items())
    return f"<{name}{said}>{inside}</{name}>" if inside else f"<{name}{said}/>"


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def width_of(words: str, size: float = SIZE) -> float:
    """About how wide a label is."""
    return WIDE * size * len(words)


def label(words: str, x: float, y: float, room: float, *, size: float = SIZE, kind: str = "", anchor: str = "start") -> str:
    """Words that have so much room, cut where they need more."""
    most = int(room / (WIDE * size))
    shown = words if len(words) <= most else f"{words[: most - 1]}…" if most > 0 else ""
    told = node("title", html.escape(words)) if shown != words else ""
    more = {"class_": kind} if kind else {}
    text = html.escape(shown)
    return node("text", f"{told}{text}", x=x, y=y, font_size=size, text_anchor=anchor, **more) if shown else ""


def bar(x: float, y: float, width: float, height: float, kind: str, told: str = "") -> str:
    """A rectangle; told: what it is, when one points at it."""
    return node("rect", node("title", html.escape(told)) if told else "", x=x, y=y, width=max(width, 0.0), height=height, class_=kind)


def legend(words: Sequence[tuple[str, str]], y: float, width: float) -> tuple[str, float]:
    """(a swatch and a label each, in lines of that width; where the next line would be). words: (class, label)."""
    parts, x = [], 0.0
    for kind, name in words:
        need = 12.0 + width_of(name) + 8.0
        if x and x + need > width:
            x, y = 0.0, y + 14.0
        parts += [bar(x, y - 8.0, 8.0, 8.0, kind), label(name, x + 12.0, y, need)]
        x += need
    return "".join(parts), y + 14.0


def picture(inside: str, width: float, height: float, name: str) -> str:
    """A picture for a page."""
    return node("svg", inside, viewBox=f"0 0 {_plain(width)} {_plain(height)}", role="img", aria_label=name, class_="picture")


def paper(inside: str, width: float, height: float) -> str:
    """The same picture as a file of its own, in points."""
    fills = " ".join(f".k{number} {{ fill: {colour} }}" for number, colour in enumerate(FILLS))
    words = "text { font-family: Arial, Helvetica, sans-serif; fill: #1a1a1a } text.soft { fill: #595959 }"
    style = f"{words} .link {{ stroke: #888888; fill: none }} .none {{ fill: #dddddd }} {fills}"
    ground = node("rect", width="100%", height="100%", fill="#ffffff")
    sizes = {"width": f"{_plain(width)}pt", "height": f"{_plain(height)}pt", "viewBox": f"0 0 {_plain(width)} {_plain(height)}"}
    return node("svg", f"<style>{style}</style>{ground}{inside}", xmlns="http://www.w3.org/2000/svg", **sizes) + "\n"
