"""Figures for a paper, from saved results: where energy and time go, what memory holds, traffic by level, every operation on the roofline,
and sketches of the stages over the step, the machine's tree and the operations.

Each in two sizes, a column (3.3 inches) and a page (7 inches), as SVG (72 points an inch) and PNG (300 dots an inch), marks and their
padding inside. Colours are Okabe and Ito's; labels stand beside bars or in legends, and on the roofline only where none lies on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackmodel.report.charts import COLOURS, OTHER
from rackmodel.report.drawing import BLUE, CONFIG, GREY, PALETTE, SHAPES, chart_png, chart_svg, svg_png
from rackmodel.report.files import make_folder, stems_of, write_whole
from rackmodel.report.png import packed
from rackmodel.report.saved import Saved
from rackmodel.report.sketches import sketches_of
from rackmodel.report.svg import paper
from rackmodel.report.tables import COMPONENTS, format_si, si_scale

WIDTHS = {"column": 238, "page": 504}
DOTS = 300.0  # of a PNG, an inch
Bars = Mapping[str, Mapping[str, float]]
"""Result → segment → value in SI."""
_SMALL = {"labelFontSize": 9, "titleFontSize": 10, "titleFontWeight": "normal", "gridColor": "#e4e4e4", "labelLimit": 200}


def write_figures(results: Sequence[Saved], names: Sequence[str], folder: Path) -> list[Path]:
    """Every figure that the results have something for, in both sizes. names: of the results, each once."""
    place, written = make_folder(folder), []
    for stem, draw in figures_of(results, names).items():
        for size, width in WIDTHS.items():
            definition = draw(width).to_dict()
            written.append(write_whole(place / f"{stem}-{size}.png", chart_png(definition, DOTS / 72)))
            written.append(write_whole(place / f"{stem}-{size}.svg", chart_svg(definition)))
    return written + _write_sketches(results, names, place)


def _write_sketches(results: Sequence[Saved], names: Sequence[str], place: Path) -> list[Path]:
    """Timeline, tree and graph of each result; names of files begin with the result's where there are several."""
    written = []
    for one, stem in zip(results, stems_of(names), strict=True):
        for size, width in WIDTHS.items():
            for name, (inside, height, _) in sketches_of(one, float(width)).items():
                text = paper(inside, float(width), height)
                path = place / f"{f'{stem}.' if len(results) > 1 else ''}{name}-{size}"
                written += [write_whole(path.with_name(f"{path.name}.svg"), text)]
                written += [write_whole(path.with_name(f"{path.name}.png"), packed(svg_png(text, DOTS / 96)))]
    return written


def figures_of(results: Sequence[Saved], names: Sequence[str]) -> dict[str, Callable[[int], Any]]:
    """Name of a figure → what draws it at a width in points."""
    named = dict(zip(names, results, strict=True))
    energy = {name: _grouped(one, "joules", "component") for name, one in named.items()}
    time = {name: _grouped(one, "exposed_seconds", "component") for name, one in named.items()}
    memory = {name: {str(k): float(v) for k, v in (one.data.get("memory") or {}).items() if v} for name, one in named.items()}
    traffic = {name: _grouped(one, "amount", "level", unit="byte") for name, one in named.items()}
    found: dict[str, Callable[[int], Any]] = {
        "energy": lambda width: stacked(energy, "energy", "J", width),
        "time": lambda width: stacked(time, "time on the critical path", "s", width),
        "memory": lambda width: stacked(memory, "memory of the fullest accelerator", "B", width),
        "traffic": lambda width: beside(traffic, "bytes moved at a level", width),
        "roofline": lambda width: roofline(named, width),
    }
    empty = {"memory": not any(memory.values()), "roofline": not any(one.shown.get("roofline") for one in results)}
    return {stem: draw for stem, draw in found.items() if not empty.get(stem)}


def _grouped(one: Saved, figure: str, column: str, **where: str) -> dict[str, float]:
    return {key[0]: value for key, value in one.ledger.where(**where).group((column,), figure).items() if value}


def stacked(bars: Bars, title: str, unit: str, width: int) -> Any:
    """A bar a result, its total beside it; the smallest segments beyond seven are 'other'."""
    import altair as alt

    totals = {name: math.fsum(parts.values()) for name, parts in bars.items()}
    divisor, shown = si_scale(max(totals.values(), default=0.0), unit)
    weight: dict[str, float] = {}
    for parts in bars.values():
        for segment, value in parts.items():
            weight[segment] = max(weight.get(segment, 0.0), value)
    kept = sorted(weight, key=lambda name: -weight[name])[: len(PALETTE) - (len(weight) > len(PALETTE))]
    order = [*(name for name in COMPONENTS if name in kept), *(name for name in weight if name in kept and name not in COMPONENTS)]
    rest = [OTHER] if len(weight) > len(order) else []
    colours = [COLOURS.get(name, PALETTE[k % len(PALETTE)]) for k, name in enumerate(order)] + [GREY for _ in rest]
    rows = [
        {"bar": name, "segment": segment if segment in order else OTHER, "rank": order.index(segment) if segment in order else 99}
        | {"value": value / divisor}
        for name, parts in bars.items()
        for segment, value in parts.items()
    ]
    ends: list[dict[str, Any]] = [
        {"bar": name, "value": total / divisor, "text": format_si(total, unit, 3)} for name, total in totals.items()
    ]
    y = alt.Y("bar:N", sort=list(bars), title=None, axis=alt.Axis(labelLimit=int(width * 0.3), ticks=False, domain=False))
    top = max((end["value"] for end in ends), default=0.0) * 1.3 or 1.0
    x = alt.X("value:Q", title=f"{title} ({shown})", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=4))
    legend = alt.Legend(orient="bottom", columns=3 if width < 300 else 6, title=None, symbolType="square")
    colour = alt.Color("segment:N", scale=alt.Scale(domain=[*order, *rest], range=colours), legend=legend)
    marks = alt.Chart(alt.Data(values=rows)).mark_bar(stroke="white", strokeWidth=0.5, size=13)
    text = alt.Chart(alt.Data(values=ends)).mark_text(align="left", dx=3, fontSize=9).encode(y=y, x="value:Q", text="text:N")
    lines = math.ceil(len([*order, *rest]) / (3 if width < 300 else 6))  # of the legend
    return _sized(marks.encode(y=y, x=x, color=colour, order="rank:Q") + text, width, 62 + 14 * lines + 24 * len(bars))


def beside(bars: Bars, title: str, width: int) -> Any:
    """A bar a level and result, on a scale of powers of ten."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {"bar": name, "level": level, "value": value} for name, parts in bars.items() for level, value in parts.items() if value > 0
    ]
    levels = list(dict.fromkeys(row["level"] for row in rows))
    axis = alt.Axis(tickCount=5, format="~s", labelOverlap="greedy")
    least = 10.0 ** math.floor(math.log10(min((float(row["value"]) for row in rows), default=10.0)) - 0.01)
    rows = [row | {"from": least} for row in rows]  # a logarithmic axis has no zero that a bar could begin at
    x = alt.X("value:Q", title=f"{title} (B)", scale=alt.Scale(type="log", domainMin=least), axis=axis)
    names, colours = list(bars), [PALETTE[k % len(PALETTE)] for k in range(len(bars))]
    legend = alt.Legend(orient="bottom", columns=2 if width < 300 else 4, title=None, symbolType="square") if len(bars) > 1 else None
    colour = alt.Color("bar:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    y = alt.Y("level:N", sort=levels, title=None, axis=alt.Axis(ticks=False))
    marks = alt.Chart(alt.Data(values=rows)).mark_bar()
    return _sized(marks.encode(y=y, x=x, x2="from:Q", color=colour, yOffset=alt.YOffset("bar:N", sort=names)), width, 60 + 12 * len(rows))


def roofline(named: Mapping[str, Saved], width: int) -> Any:
    """Every operation, a shape a result; names stand where no mark and no other name is."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {"result": name, "x": point["intensity"], "y": point["rate"], "name": point["einsum"], "weight": point["exposed"]}
        for name, one in named.items()
        for point in one.shown.get("roofline") or []
    ]
    roofs = [
        (peak / one.data["accelerators"], wide)
        for one in named.values()
        if (peak := one.shown.get("peak_flop_per_s")) and (wide := (one.shown.get("memory") or {}).get("bandwidth_bytes_per_s"))
    ]
    ends = _edges([row["x"] for row in rows] + [peak / wide for peak, wide in roofs])
    high = _edges([row["y"] for row in rows] + [peak for peak, _ in roofs])
    lines = [{"roof": k, "x": x, "y": min(peak, x * wide)} for k, (peak, wide) in enumerate(roofs) for x in (ends[0], peak / wide, ends[1])]
    height = int(width * (0.8 if width < 300 else 0.55))
    labels = _apart(rows, ends, high, (width - 55.0, height - 60.0))
    axis = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy")
    x = alt.X("x:Q", title="FLOP / byte of memory", scale=alt.Scale(type="log", domain=ends, nice=False), axis=axis)
    y = alt.Y("y:Q", title="FLOP/s an accelerator", scale=alt.Scale(type="log", domain=high, nice=False), axis=axis)
    legend = alt.Legend(orient="bottom", title=None, columns=2) if len(named) > 1 else None
    ranges = ([cycle[k % len(cycle)] for k in range(len(named))] for cycle in (PALETTE, SHAPES))
    scales = [alt.Scale(domain=list(named), range=one) for one in ranges]
    colour, shape = alt.Color("result:N", scale=scales[0], legend=legend), alt.Shape("result:N", scale=scales[1], legend=legend)
    roof = alt.Chart(alt.Data(values=lines)).mark_line(color="#444", strokeWidth=1, clip=True).encode(x=x, y=y, detail="roof:N")
    marks = alt.Chart(alt.Data(values=rows)).mark_point(size=28, filled=True, opacity=0.85)
    text = alt.Chart(alt.Data(values=labels)).mark_text(align="left", dx=5, fontSize=8)
    text = text.encode(x=x, y=y, text="name:N")
    return _sized(roof + marks.encode(x=x, y=y, color=colour, shape=shape) + text, width, height)


def _edges(values: Sequence[float]) -> list[float]:
    """A domain of a logarithmic axis with room beside the first and the last."""
    return [min(values) / 2, max(values) * 3]


def _apart(
    rows: Sequence[Mapping[str, Any]], across: Sequence[float], up: Sequence[float], size: tuple[float, float]
) -> list[Mapping[str, Any]]:
    """Rows whose names have room, those that take most time first."""

    def place(row: Mapping[str, Any]) -> tuple[float, float]:
        x, y = (math.log(row[key] / edge[0]) / math.log(edge[1] / edge[0]) for key, edge in (("x", across), ("y", up)))
        return x * size[0], y * size[1]

    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in map(place, rows)]
    found = []
    for row in sorted(rows, key=lambda one: -one["weight"]):
        x, y = place(row)
        box = (x + 4.5, y - 5, x + 6 + 4.8 * len(row["name"]), y + 5)
        if box[2] < size[0] and all(box[2] < a[0] or a[2] < box[0] or box[3] < a[1] or a[3] < box[1] for a in taken):
            taken.append(box)
            found.append(row)
    return found


def _sized(chart: Any, width: int, height: int) -> Any:
    """A chart as wide as a column or a page with all that belongs to it."""
    fit = {"type": "fit", "contains": "padding"}
    config = CONFIG | {"axis": _SMALL, "legend": {"labelFontSize": 9, "symbolSize": 60, "labelLimit": 150}, "mark": {"color": BLUE}}
    return chart.properties(width=width, height=height, autosize=fit, padding=2).configure(**config)
