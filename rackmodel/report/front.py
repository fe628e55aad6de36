"""A Pareto front as a picture: points over two figures, the third as their colour, and the line of those that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rackmodel.report.charts import PLAIN
from rackmodel.report.drawing import BLUE, CONFIG, GREY
from rackmodel.report.tables import format_si, si_scale

FRONT = (520, 340)
Corner = tuple[int, int]


def front_chart(
    rows: Sequence[Mapping[str, Any]], x: tuple[str, str], y: tuple[str, str], title: str, subtitle: str, z: tuple[str, str] | None = None
) -> Any:
    """A Pareto front: a point a mapping, a line through those that no other beats in both figures; a third figure is the colour of a point.
    Numbers stand where no mark and no other number is. rows: number, mapping, x, y and z in SI · x, y, z: (name, unit) of the figures."""
    import altair as alt

    scales = [si_scale(max(row[key] for row in rows), unit) for key, (_, unit) in (("x", x), ("y", y))]
    best, least = set(), math.inf
    for row in sorted(rows, key=lambda one: (one["x"], one["y"])):
        if row["y"] < least:
            best.add(row["number"])
            least = row["y"]
    third = si_scale(max(row["z"] for row in rows), z[1]) if z else None
    figures = [(key, figure) for key, figure in (("x", x), ("y", y), ("z", z)) if figure is not None]
    points = [
        {"x": row["x"] / scales[0][0], "y": row["y"] / scales[1][0], "number": row["number"], "mapping": row["mapping"]}
        | {"said": ", ".join(format_si(row[key], unit) for key, (_, unit) in figures), "on": row["number"] in best}
        | ({"z": row["z"] / third[0]} if third else {})
        for row in rows
    ]
    line = sorted((point for point in points if point["on"]), key=lambda one: float(one["x"]))
    domains = [_front_domain([float(point[key]) for point in points]) for key in ("x", "y")]
    across, upward = (
        kind(f"{key}:Q", title=f"{figure[0]} ({scale[1]})", scale=alt.Scale(**domain, nice=False), axis=alt.Axis(format=PLAIN, tickCount=6))
        for kind, key, figure, scale, domain in zip((alt.X, alt.Y), "xy", (x, y), scales, domains, strict=True)
    )
    told = [alt.Tooltip("number:Q", title="#"), alt.Tooltip("mapping:N")]
    told += [alt.Tooltip("said:N", title=", ".join(name for _, (name, _) in figures))]
    stair = alt.Chart(alt.Data(values=line)).mark_line(interpolate="step-after", color=BLUE, strokeWidth=1.5).encode(x=across, y=upward)
    colour = alt.condition("datum.on", alt.value(BLUE), alt.value(GREY))
    if z and third:
        colour = alt.Color("z:Q", title=f"{z[0]} ({third[1]})", scale=alt.Scale(scheme="viridis"), legend=alt.Legend(format=PLAIN))
    marks = alt.Chart(alt.Data(values=points)).mark_point(filled=True, size=60, opacity=0.9)
    chart = stair + marks.encode(x=across, y=upward, color=colour, tooltip=told)
    for (right, up), named in _numbers_apart(points, domains).items():
        text = alt.Chart(alt.Data(values=named)).mark_text(align="left" if right > 0 else "right", dx=8 * right, dy=-8 * up, fontSize=12)
        chart += text.encode(x=across, y=upward, text="number:N")
    return chart.properties(width=FRONT[0], height=FRONT[1], title={"text": title, "subtitle": subtitle}).configure(**CONFIG)


def _front_domain(values: Sequence[float]) -> dict[str, Any]:
    """The scale of an axis of a front: of powers where the figures are a factor of four and more apart."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= 4:
        edge = (high / low) ** 0.06
        return {"type": "log", "domain": [low / edge, high * edge]}
    room = 0.06 * (high - low or abs(high) or 1.0)
    return {"type": "linear", "zero": False, "domain": [low - room, high + room]}


def _numbers_apart(points: Sequence[Mapping[str, Any]], domains: Sequence[Mapping[str, Any]]) -> dict[Corner, list[Mapping[str, Any]]]:
    """Corner of a mark (right, up) → points whose number stands there, where no mark and no other number is: the ends and the middle of
    the line first, then the rest of it, then the others."""

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        found = []
        for key, scale, size in zip("xy", domains, FRONT, strict=True):
            at = float(point[key])
            low, high = scale["domain"]
            share = math.log(at / low) / math.log(high / low) if scale["type"] == "log" else (at - low) / (high - low)
            found.append(share * size)
        return found[0], found[1]

    line = sorted((point for point in points if point["on"]), key=lambda one: float(one["x"]))
    first = [line[0], line[-1], line[len(line) // 2], *line, *points]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in map(place, points)]
    found: dict[Corner, list[Mapping[str, Any]]] = {}
    for point in {one["number"]: one for one in first}.values():
        (x, y), wide = place(point), 7.5 * len(str(point["number"]))
        for corner in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
            left, low = (x + 7 if corner[0] > 0 else x - 7 - wide), y + 8 * corner[1] - 6
            box = (left, low, left + wide, low + 12)
            if box[0] < 0 or box[2] > FRONT[0] or box[1] < 0 or box[3] > FRONT[1]:
                continue
            if all(box[2] < a[0] or a[2] < box[0] or box[3] < a[1] or a[3] < box[1] for a in taken):
                taken.append(box)
                found.setdefault(corner, []).append(point)
                break
    return found
