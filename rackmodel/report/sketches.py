"""Sketches of a result at any width: the timeline of its stages, its machine's tree with the use of links and memories and the axes of the
mapping, and its einsum graph with what each axis splits. Data as `Saved.shown` keeps it → (SVG inside, height)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackmodel.report.saved import Saved
from rackmodel.report.svg import bar, label, legend, node, width_of
from rackmodel.report.tables import format_percent, format_si

Sketch = tuple[str, float]
ROW = 18.0
KINDS = {"forward": "k0", "backward": "k1", "update": "k2", "exposed communication": "k5"}


def sketches_of(one: Saved, width: float) -> dict[str, tuple[str, float, str]]:
    """Name → (inside of the SVG, height, what it is) of those that a result has something for."""
    shown = one.shown
    found: dict[str, tuple[str, float, str]] = {}
    if shown.get("timeline"):
        found["timeline"] = (*timeline(shown["timeline"], width), "What the stages do over the step; grey: bubbles")
    if shown.get("tree"):
        found["tree"] = (*tree(shown["tree"], width), "The machine: memories and links, the share of the step in use, the axes")
    if shown.get("graph"):
        found["graph"] = (*graph(shown["graph"], width), "The operations in their order, what they wait for, and what each axis splits")
    return found


def timeline(data: Mapping[str, Any], width: float) -> Sketch:
    """A strip a stage: shares of each moment, stacked."""
    parts: list[str] = []
    left, y = 52.0, 4.0
    room, count = width - left, len(data["shares"][0][0])
    each = room / count
    for number, shares in zip(data["stages"], data["shares"], strict=True):
        parts += [label(f"stage {number}", 0.0, y + 12.0, left - 4.0), bar(left, y, room, ROW - 3.0, "none")]
        base = [0.0] * count
        for kind, row in zip(data["kinds"], shares, strict=True):
            top = [low + value / 1000.0 for low, value in zip(base, row, strict=True)]
            if any(row):
                parts.append(node("path", d=_area(base, top, (left, y + ROW - 3.0), (each, ROW - 3.0)), class_=KINDS[kind]))
            base = top
        y += ROW
    parts.append(label("0 s", left, y + 8.0, 40.0, kind="soft"))
    parts.append(label(format_si(data["seconds"], "s"), width, y + 8.0, room / 2, kind="soft", anchor="end"))
    hidden = data["of"] - len(data["stages"])
    parts.append(label(f"{hidden} stages between are not shown", left + 50.0, y + 8.0, room - 130.0, kind="soft") if hidden else "")
    whole = dict(zip(data["kinds"], data["whole"], strict=True))
    words = [(KINDS[kind], f"{kind} {format_percent(share)}") for kind, share in whole.items() if share > 0]
    words.append(("none", f"idle {format_percent(max(0.0, 1.0 - sum(whole.values())))}"))
    told, y = legend(words, y + 26.0, width)
    return "".join([*parts, told]), y


def _area(low: Sequence[float], high: Sequence[float], at: tuple[float, float], scale: tuple[float, float]) -> str:
    """The path between two stairs. at: its left lower corner · scale: (width of a step, height of 1)."""

    def stair(values: Sequence[float], back: bool) -> str:
        runs = [(k, value) for k, value in enumerate(values) if k == 0 or value != values[k - 1]]
        ends = [*(k for k, _ in runs[1:]), len(values)]
        steps = [(begin, end, value) for (begin, value), end in zip(runs, ends, strict=True)]
        return "".join(
            f"V{at[1] - min(value, 1.0) * scale[1]:.1f}H{at[0] + (begin if back else end) * scale[0]:.1f}"
            for begin, end, value in (reversed(steps) if back else steps)
        )

    return f"M{at[0]:.1f} {at[1]:.1f}{stair(high, False)}{stair(low, True)}Z"


def tree(levels: Sequence[Mapping[str, Any]], width: float) -> Sketch:
    """A block a level, indented: what it is, and a bar for each resource in use."""
    parts: list[str] = []
    y = 0.0
    for level in levels:
        x = 10.0 * level["depth"]
        name = f"{level['name']}{' × ' + str(level['count']) if level['count'] > 1 else ''}"
        head = width_of(name, 10.0) + 8.0
        parts += [label(name, x, y + 11.0, width - x, size=10.0), label(level["axes"], x + head, y + 11.0, width - x - head, kind="soft")]
        y += 16.0
        for use in level["uses"]:
            wide = min(120.0, width * 0.3)
            colour = {"memory": "k1", "network": "k2", "compute": "k0"}[use["what"]]
            told = f"{use['what']} {use['words']}: {format_percent(use['share'])} of the step, {use['amount']}"
            parts += [bar(x + 4.0, y, wide, 9.0, "none"), bar(x + 4.0, y, wide * min(1.0, use["share"]), 9.0, colour, told)]
            room = width - x - wide - 10.0
            words = _fitting([use["amount"], use["words"]], f"{use['what']} {format_percent(use['share'])}", room)
            parts.append(label(words, width - room, y + 8.0, room))
            y += 14.0
        y += 4.0
    return "".join(parts), y


def _fitting(more: Sequence[str], words: str, room: float) -> str:
    """Words, and as many of the others behind them as there is room for: half a number would be another one."""
    for one in filter(None, more):
        if width_of(longer := f"{words} · {one}") > room:
            break
        words = longer
    return words


def graph(ops: Sequence[Mapping[str, Any]], width: float) -> Sketch:
    """An operation a row, arcs at the left from what it waits for, at the right what each axis splits."""
    left = min(90.0, 0.22 * width)
    named = min(max((width_of(op["name"]) for op in ops), default=0.0) + 8.0, 0.4 * width)
    place = {op["name"]: number for number, op in enumerate(ops)}
    parts: list[str] = []
    for number, op in enumerate(ops):
        y = ROW * number + 9.0
        for before in op["after"]:
            start = ROW * place[before] + 9.0
            x, reach = left - 6.0, max(2.0, left - 12.0 - 5.0 * (number - place[before]))
            curve = f"M{x:.1f} {start:.1f}C{reach:.1f} {start:.1f} {reach:.1f} {y:.1f} {x:.1f} {y:.1f}"
            parts.append(node("path", d=curve, class_="link"))
        parts += [node("circle", cx=left - 6.0, cy=y, r=3.0, class_=f"k{op['stage'] % 8}"), label(op["name"], left, y + 3.0, named - 4.0)]
        parts.append(label(op["split"], left + named, y + 3.0, width - left - named, kind="soft"))
    return "".join(parts), ROW * len(ops) + 4.0
