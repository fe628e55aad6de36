"""Charts: one Altair definition → PNG and SVG for papers, one HTML page for sharing, the same bytes for the same input.

Colours are Okabe and Ito's (2008), told apart by colour-blind readers; lines differ in their points' shapes as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackmodel.model.result import Result
from rackmodel.report.page import html_page
from rackmodel.report.tables import COMPONENTS, format_percent, format_si, mapping_words, si_scale

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
COLOURS = dict(zip(COMPONENTS, (BLUE, ORANGE, GREEN, GREY), strict=True))
OTHER = "other"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_CONFIG = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "title": {
        "fontSize": 16, "subtitleFontSize": 13, "subtitlePadding": 5, "subtitleColor": "#444", "anchor": "start", "offset": 14, "frame": "bounds",
    },
    "axis": {
        "labelFontSize": 13, "titleFontSize": 14, "titleFontWeight": "normal", "titlePadding": 10, "gridColor": "#e4e4e4", "labelLimit": 300,
    },
    "legend": {"labelFontSize": 13, "titleFontSize": 13, "symbolSize": 130, "labelLimit": 300, "titleFontWeight": "normal"},
    "header": {"labelFontSize": 13, "titleFontSize": 13},
}  # fmt: skip


# -- results -----------------------------------------------------------------------------------------------------------


def energy_breakdown(results: Sequence[Result], by: Iterable[str] = ("component",)) -> Any:
    """Energy of each result as a stacked bar; segments are sums of joules by ledger columns (component, level, phase)."""
    return _result_bars(results, tuple(by), "joules", "J", "Energy")


def latency_breakdown(results: Sequence[Result], by: Iterable[str] = ("component",)) -> Any:
    """Latency of each result as a stacked bar; segments are shares of the critical path (exposed seconds)."""
    return _result_bars(results, tuple(by), "exposed_seconds", "s", "Latency")


def _result_bars(results: Sequence[Result], by: tuple[str, ...], figure: str, unit: str, word: str) -> Any:
    groups = [_named(result.ledger.group(by, figure)) for result in results]
    totals = [r.ledger.total(figure) for r in results]
    domain, colours = _segments(groups)
    divisor, shown = si_scale(max(totals, default=0.0), unit)
    labels = _labels(results)
    rows, ends = [], []
    for label, group, total in zip(labels, groups, totals, strict=True):
        for rank, segment in enumerate(domain):
            value = math.fsum(v for name, v in group.items() if (name if name in domain else OTHER) == segment)
            told = {"text": format_si(value, unit), "share": format_percent(value / total if total else None)}
            rows.append({"bar": label, "segment": segment, "rank": rank, "value": value / divisor, **told})
        ends.append({"bar": label, "value": total / divisor, "text": format_si(total, unit)})
    return _bars(rows, ends, labels, (domain, colours), f"{word} ({shown})", _title(results, word, by))


def _named(group: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """('memory', 'gpu') → 'memory gpu'; groups that charge nothing are left out."""
    return {" ".join(part for part in key if part): value for key, value in group.items() if value}


def _bars(
    rows: list[dict[str, Any]],
    ends: list[dict[str, Any]],
    labels: list[str],
    scale: tuple[list[str], list[str]],
    axis: str,
    title: dict[str, Any],
) -> Any:
    import altair as alt

    names, colours = scale
    top = max((end["value"] for end in ends), default=0.0) * 1.16 or 1.0
    two_lines = alt.Axis(labelExpr="split(datum.label, '\\n')", labelOffset=-8, ticks=False, domain=False, labelPadding=8)
    y = alt.Y("bar:N", sort=labels, title=None, axis=two_lines)
    x = alt.X("value:Q", title=axis, stack="zero", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=6, format="~g"))
    colour = alt.Color("segment:N", title=None, scale=alt.Scale(domain=names, range=colours), legend=_legend(names, "top", "square"))
    told = [alt.Tooltip("bar:N", title="mapper"), alt.Tooltip("segment:N"), alt.Tooltip("text:N", title="value"), alt.Tooltip("share:N")]
    segments = alt.Chart(alt.Data(values=rows)).mark_bar(size=30, stroke="white", strokeWidth=0.6)
    segments = segments.encode(y=y, x=x, color=colour, order=alt.Order("rank:Q"), tooltip=told)
    halo, text = (
        alt.Chart(alt.Data(values=ends))
        .mark_text(align="left", dx=5, fontSize=13, **style)
        .encode(y=alt.Y("bar:N", sort=labels), x=alt.X("value:Q"), text="text:N")
        for style in ({"stroke": "white", "strokeWidth": 5}, {})
    )
    return (segments + halo + text).properties(width=520, height={"step": 46}, title=title).configure(**_CONFIG)


def _segments(groups: Sequence[Mapping[str, float]]) -> tuple[list[str], list[str]]:
    """Names and colours of the segments: components in their own order and colour; beyond 8, the smallest become 'other'."""
    sums: dict[str, float] = {}
    for group in groups:
        for name, value in group.items():
            sums[name] = sums.get(name, 0.0) + value
    kept = sorted(sums, key=lambda name: (-sums[name], name))
    if len(kept) > len(PALETTE):
        kept = kept[: len(PALETTE) - 1]
    order = {component: place for place, component in enumerate(COMPONENTS)}
    names = sorted(kept, key=lambda name: (order.get(name.split(" ")[0], len(order)), name))
    if all(name in COLOURS for name in names):
        return names, [COLOURS[name] for name in names]
    rest = [OTHER] if len(sums) > len(names) else []
    return [*names, *rest], [*PALETTE[: len(names)], *([GREY] if rest else [])]


def _labels(results: Sequence[Result]) -> list[str]:
    """'tensor' over 'tp 8', each once."""
    labels: list[str] = []
    for result in results:
        label = f"{result.mapper}\n{mapping_words(result.mapping)}"
        labels.append(label if label not in labels else f"{label} ({sum(known.startswith(label) for known in labels) + 1})")
    return labels


def _title(results: Sequence[Result], word: str, by: tuple[str, ...]) -> dict[str, Any]:
    counts = sorted({r.mapping.accelerators for r in results})
    number = "" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    profiles = ", ".join(dict.fromkeys(r.mapping.profile for r in results))
    where = ", ".join(dict.fromkeys(f"{r.workload} on {r.architecture}" for r in results))
    plural = "" if number == "1" else "s"
    return {"text": f"{word}: {where}", "subtitle": f"{number} accelerator{plural}, by {', '.join(by)}, profile {profiles}"}


# -- studies -----------------------------------------------------------------------------------------------------------


def series_chart(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    series: str | Sequence[str] | None = None,
    *,
    title: str,
    subtitle: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    unit: str = "",
    log: bool = False,
) -> Any:
    """Lines with points. rows: dicts · x: column of an ordinal axis (accelerators) · y: column in SI `unit` ('J', 's') ·
    series: column or columns whose values name a line. Points that are not finite, or not positive on a log axis, are left
    out and counted in the subtitle. Raises ValueError where a line has two values at one x.
    """
    import altair as alt

    points, names, axis, left_out = _points(rows, x, y, series, unit, log, y_title)
    places = [(point["x"], point["series"]) for point in points]
    if len(set(places)) < len(places):
        raise ValueError(f"two values of '{y}' at one '{x}' of one line: name the columns that tell them apart in series")
    domain = list(names)
    legend = _legend(domain, "bottom") if domain != [""] else None
    scale = alt.Scale(type="log", nice=True) if log else alt.Scale(zero=True, nice=True)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("x:O", sort=_order(points), title=x_title or x, axis=alt.Axis(labelAngle=0, grid=False)),
        y=alt.Y("value:Q", title=axis, scale=scale, axis=alt.Axis(format="~g", tickCount=6)),
        color=alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(PALETTE, names)), legend=legend),
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("x:O", title=x_title or x), alt.Tooltip("text:N", title=y)],
    )
    marks = base.mark_point(size=70, filled=True, opacity=1).encode(
        shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(SHAPES, names)), legend=legend)
    )
    chart = (base.mark_line(strokeWidth=2) + marks).properties(width=480, height=300, title=_heading(title, subtitle, left_out))
    return chart.configure(**_CONFIG)


def stacked_series_chart(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    stack: str | Sequence[str],
    facet: str | Sequence[str] | None = None,
    *,
    title: str,
    subtitle: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    unit: str = "",
) -> Any:
    """Stacked bars over an ordinal x, a panel for each value of `facet` (one scale for all). Rows of one segment add up."""
    import altair as alt

    points, names, axis, left_out = _points(rows, x, y, stack, unit, False, y_title, facet)
    if set(names) <= set(COMPONENTS):
        domain = [name for name in COMPONENTS if name in names]
        colours = [COLOURS[name] for name in domain]
    else:
        domain, colours = list(names), _cycle(PALETTE, names)
    panels = list(dict.fromkeys(point["panel"] for point in points))
    chart = (
        alt.Chart(alt.Data(values=[{**point, "rank": domain.index(point["series"])} for point in points]))
        .mark_bar(stroke="white", strokeWidth=0.6)
        .encode(
            x=alt.X("x:O", sort=_order(points), title=x_title or x, axis=alt.Axis(labelAngle=0, grid=False)),
            y=alt.Y("sum(value):Q", title=axis, stack="zero", axis=alt.Axis(format="~g", tickCount=6)),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=colours), legend=_legend(domain, "bottom")),
            order=alt.Order("rank:Q"),
            tooltip=[alt.Tooltip("series:N"), alt.Tooltip("x:O", title=x_title or x), alt.Tooltip("text:N", title=y)],
        )
        .properties(width=480 if len(panels) < 2 else 230, height=300 if len(panels) < 2 else 220)
    )
    if len(panels) > 1:
        chart = chart.facet(facet=alt.Facet("panel:N", sort=panels, title=None), columns=3)
    return chart.properties(title=_heading(title, subtitle, left_out)).configure(**_CONFIG)


def _points(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    series: str | Sequence[str] | None,
    unit: str,
    log: bool,
    y_title: str | None,
    facet: str | Sequence[str] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, int], str, int]:
    """Plain rows for a chart; name of a series → its number among all (so that colours stay when one is left out); the
    title of the y axis; how many rows have no place."""
    values = [float(row[y]) if row.get(y) is not None else math.nan for row in rows]
    fits = [math.isfinite(value) and (value > 0 or not log) for value in values]
    divisor, shown = si_scale(max((abs(v) for v, ok in zip(values, fits, strict=True) if ok), default=0.0), unit)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(_joined(row, series) for row in rows))}
    points = []
    for row, value, ok in zip(rows, values, fits, strict=True):
        if ok:
            names = {"series": _joined(row, series), "panel": _joined(row, facet)}
            points.append({"x": _plain(row[x]), **names, "value": value / divisor, "text": format_si(value, unit)})
    found = {point["series"] for point in points}
    axis = f"{y_title or y} ({shown})" if shown else y_title or y
    return points, {name: number for name, number in numbers.items() if name in found}, axis, fits.count(False)


def _plain(value: Any) -> int | float | str:
    if isinstance(value, str):
        return value
    number = float(value)
    return int(number) if number.is_integer() else number


def _joined(row: Mapping[str, Any], columns: str | Sequence[str] | None) -> str:
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    return ", ".join(str(row[name]) for name in names)


def _order(points: Sequence[Mapping[str, Any]]) -> list[Any]:
    found = list(dict.fromkeys(point["x"] for point in points))
    return found if any(isinstance(value, str) for value in found) else sorted(found)


def _cycle(values: Sequence[str], names: Mapping[str, int]) -> list[str]:
    return [values[number % len(values)] for number in names.values()]


def _legend(names: Sequence[str], orient: str, symbol: str | None = None) -> Any:
    """A legend that is about as wide as the chart."""
    import altair as alt

    longest = max(map(len, names), default=0)
    shape = {} if symbol is None else {"symbolType": symbol}
    return alt.Legend(orient=orient, columns=4 if longest <= 14 else 3 if longest <= 21 else 2, symbolOpacity=1, **shape)


def _heading(title: str, subtitle: str, left_out: int) -> dict[str, Any]:
    missing = f"{left_out} point{'s' if left_out > 1 else ''} without a place on the axes left out" if left_out else ""
    below = "; ".join(part for part in (subtitle, missing) if part)
    return {"text": title, "subtitle": below} if below else {"text": title}


# -- files -------------------------------------------------------------------------------------------------------------


def save_chart(chart: Any, folder: Path | str, stem: str) -> list[Path]:
    """Write stem.png, stem.svg and stem.html (self-contained) into `folder`, which is made if need be. Returns the paths."""
    definition = chart.to_dict()
    title = definition.get("title")
    heading = title["text"] if isinstance(title, dict) else str(title or stem)
    written: list[tuple[str, bytes]] = [
        ("png", chart_png(definition)),
        ("svg", chart_svg(definition).encode()),
        ("html", html_page(heading, [definition]).encode()),
    ]
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{stem}.{suffix}" for suffix, _ in written]
    for path, (_, content) in zip(paths, written, strict=True):
        path.write_bytes(content)
    return paths


def chart_png(definition: Mapping[str, Any]) -> bytes:
    """A PNG at twice the size in points, for print."""
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(dict(definition), vl_version=vegalite_version(), scale=2))


def chart_svg(definition: Mapping[str, Any]) -> str:
    """An SVG; identifiers are numbered from 0 (the renderer goes on counting from chart to chart)."""
    import vl_convert

    text = str(vl_convert.vegalite_to_svg(dict(definition), vl_version=vegalite_version()))
    numbers: dict[str, int] = {}
    return re.sub(r'((?:id="|url\(#)(clip|gradient_))(\d+)', lambda m: m[1] + str(numbers.setdefault(m[2] + m[3], len(numbers))), text)


def vegalite_version() -> str:
    """The Vega-Lite that Altair writes, if the renderer has it, else the renderer's newest."""
    import altair as alt
    import vl_convert

    version = ".".join(str(alt.SCHEMA_VERSION).removeprefix("v").split(".")[:2])
    known = [str(name) for name in vl_convert.get_vegalite_versions()]
    return version if version in known else known[-1]
