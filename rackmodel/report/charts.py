"""Charts of results and of studies, as Altair definitions with their data; `save_chart` writes them (report.drawing).

Segments of a bar are at most 8: the smallest become 'other'. Values that are not finite never reach a chart.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from rackmodel.model.result import Result
from rackmodel.report.bars import bars_chart
from rackmodel.report.drawing import BLUE, CONFIG, DASHES, GREEN, GREY, ORANGE, PALETTE, SHAPES
from rackmodel.report.tables import COMPONENTS, format_percent, format_si, machine_words, mapping_words, several_machines, si_scale

COLOURS = dict(zip(COMPONENTS, (BLUE, ORANGE, GREEN, GREY), strict=True))
OTHER = "other"
PLAIN = ",.6~r"
"""Numbers of an axis: six digits at most (said, or each would be rounded to the step between them) and no power of ten."""
WIDE, EDGE, LINE = 8.0, 0.06, 84
T = TypeVar("T")
FIGURE_UNITS = {"joules": "J", "seconds": "s", "exposed_seconds": "s"}
FIGURE_WORDS = {"joules": "energy", "seconds": "occupancy", "exposed_seconds": "latency", "amount": "amount"}


# -- results -----------------------------------------------------------------------------------------------------------


def energy_breakdown(results: Sequence[Result], by: Iterable[str] = ("component",)) -> Any:
    """Energy of each result as a stacked bar; segments are sums of joules by ledger columns (component, level, phase)."""
    return _result_bars(results, tuple(by), "joules", "J", "Energy")


def latency_breakdown(results: Sequence[Result]) -> Any:
    """Latency of each result as a stacked bar; segments are shares of the critical path (exposed seconds)."""
    return _result_bars(results, ("component",), "exposed_seconds", "s", "Latency")


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
    x = alt.X("value:Q", title=axis, stack="zero", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=6, format=".4~r"))
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
    return (segments + halo + text).properties(width=520, height={"step": 46}, title=title).configure(**CONFIG)


def _segments(groups: Sequence[Mapping[str, float]]) -> tuple[list[str], list[str]]:
    """Names and colours of the segments: components in their own order and colour; beyond 8, the smallest become 'other';
    'none' where all are 0."""
    sums: dict[str, float] = {}
    for group in groups:
        for name, value in group.items():
            if value:
                sums[name] = sums.get(name, 0.0) + value
    if not sums:
        return ["none"], [GREY]  # (a chart without a segment has no row, and so no size)
    kept = sorted(sums, key=lambda name: (-sums[name], name))
    if len(kept) > len(PALETTE):
        kept = kept[: len(PALETTE) - 1]
    order, first = {name: place for place, name in enumerate(COMPONENTS)}, list(sums)
    names = sorted(kept, key=lambda name: (order.get(name.split(" ")[0], len(order)), first.index(name)))
    if all(name in COLOURS for name in names):
        return names, [COLOURS[name] for name in names]
    rest = [OTHER] if len(sums) > len(names) else []
    return [*names, *rest], [*PALETTE[: len(names)], *([GREY] if rest else [])]


def _labels(results: Sequence[Result]) -> list[str]:
    """'tensor' over 'tp 8', each once; 'tensor on dgx_h100 × 64' where there are several machines."""
    labels: list[str] = []
    several = several_machines(results)
    for result in results:
        place = f" on {machine_words(result)}" if several else ""
        label = f"{result.mapper}{place}\n{mapping_words(result.mapping)}"
        labels.append(label if label not in labels else f"{label} ({sum(known.startswith(label) for known in labels) + 1})")
    return labels


def _title(results: Sequence[Result], word: str, by: tuple[str, ...]) -> dict[str, Any]:
    counts = sorted({r.mapping.accelerators for r in results})
    number = "" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    profiles = ", ".join(dict.fromkeys(r.mapping.profile for r in results))
    machines: dict[str, dict[str, None]] = {}
    for r in results:
        machines.setdefault(r.workload, {})[r.architecture] = None
    where = "; ".join(f"{workload} on {', '.join(names)}" for workload, names in machines.items())
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
        x=x_axis(points, x_title or x, 480),
        y=alt.Y("value:Q", title=axis, scale=scale, axis=alt.Axis(format=PLAIN, tickCount=6)),
        color=alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(PALETTE, names)), legend=legend),
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("x:N", title=x_title or x), alt.Tooltip("text:N", title=y)],
    )
    lines = [
        base.mark_line(strokeWidth=2, strokeDash=dash).transform_filter(alt.datum.series == name)
        for name, dash in zip(names, _cycle(DASHES, names), strict=True)
    ]
    marks = base.mark_point(size=80, filled=False, strokeWidth=2, opacity=1).encode(
        shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(SHAPES, names)), legend=legend)
    )
    chart = alt.layer(*lines, marks).properties(width=480, height=300, title=_heading(title, subtitle, left_out))
    return chart.configure(**CONFIG)


def stacked_series_chart(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    stack: str | Sequence[str],
    *,
    title: str,
    subtitle: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    unit: str = "",
) -> Any:
    """Stacked bars over an ordinal x. Rows of one segment add up."""
    import altair as alt

    values = [_number(row.get(y)) for row in rows]
    left_out = sum(1 for value in values if not math.isfinite(value))
    kept = [(row, value) for row, value in zip(rows, values, strict=True) if math.isfinite(value)]
    domain, colours = _segments([{_joined(row, stack): abs(value)} for row, value in kept])
    places = {_joined(row, stack): int(row["place"]) for row, _ in kept if "place" in row}
    colours = _stable(domain, colours, places)
    cells: dict[tuple[Any, str], list[float]] = {}
    for row, value in kept:
        name = _joined(row, stack)
        cells.setdefault((_plain(row[x]), name if name in domain else OTHER), []).append(value)
    bars: dict[Any, float] = {}
    for (place, _), parts in cells.items():
        bars[place] = bars.get(place, 0.0) + math.fsum(parts)
    divisor, shown = _scale(bars.values(), unit)
    points = [
        {"x": place, "series": name, "rank": domain.index(name), "value": math.fsum(parts) / divisor}
        | {"text": format_si(math.fsum(parts), unit)}
        for (place, name), parts in cells.items()
        if name in domain
    ]
    chart = (
        alt.Chart(alt.Data(values=points))
        .mark_bar(stroke="white", strokeWidth=0.6, orient="vertical", **bar_width([point["x"] for point in points], 480))
        .encode(
            x=x_axis(points, x_title or x, 480),
            y=alt.Y("value:Q", title=_with_unit(y_title or y, shown), stack="zero", axis=alt.Axis(format=PLAIN, tickCount=6)),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=colours), legend=_legend(domain, "bottom")),
            order=alt.Order("rank:Q"),
            tooltip=[alt.Tooltip("series:N"), alt.Tooltip("x:N", title=x_title or x), alt.Tooltip("text:N", title=y)],
        )
        .properties(width=480, height=300, title=_heading(title, subtitle, left_out))
    )
    return chart.configure(**CONFIG)


def study_chart(
    rows: Sequence[Mapping[str, Any]],
    *,
    kind: str,
    x: str,
    y: str,
    title: str = "",
    log: bool = False,
    words: str = "",
    x_unit: str = "",
) -> Any:
    """A chart of a study: rows of `x`, `series` and `y`, as studies.run.chart_rows gives them. kind: line, stacked, bars or scatter ·
    x: what the x axis is called · y: the ledger column that was summed, or a metric · words: what a paper says of it · x_unit: of a
    scatter."""
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), FIGURE_UNITS.get(y, ""))
    word = FIGURE_WORDS.get(y) or (axis_words(y) if unit else y)
    if kind == "scatter":
        titles = (axis_words(x) if x_unit else x, word)
        return scatter_chart(rows, titles=titles, units=(x_unit, unit), title=title, subtitle=words, log=log)
    if kind == "bars":
        return bars_chart(rows, title=_heading(title, words, 0), x_title=x, y_title=word, unit=unit)
    if kind == "stacked":
        there = [row for row in rows if row["y"] is not None]
        return stacked_series_chart(there, "x", "y", "series", title=title, subtitle=words, x_title=x, y_title=word, unit=unit)
    return series_chart(rows, "x", "y", "series", title=title, subtitle=words, x_title=x, y_title=word, unit=unit, log=log)


def axis_words(metric: str) -> str:
    """A metric's name without the unit that ends it, which its axis has in brackets: total_carbon_g is 'total carbon'."""
    return metric.rpartition("_")[0].replace("_", " ") if metric.endswith(("_g", "_j", "_s", "_w")) else metric


def scatter_chart(
    rows: Sequence[Mapping[str, Any]],
    *,
    titles: tuple[str, str],
    units: tuple[str, str],
    title: str = "",
    subtitle: str = "",
    log: bool = False,
) -> Any:
    """Points between two figures, a colour and mark a series. Rows without one of the two are left out and counted in the subtitle."""
    import altair as alt

    kept = [row for row in rows if all(math.isfinite(_number(row[axis])) for axis in ("x", "y"))]
    scales = [_scale((float(row[axis]) for row in kept), unit) for axis, unit in zip(("x", "y"), units, strict=True)]
    points = [
        {"x": float(row["x"]) / scales[0][0], "y": float(row["y"]) / scales[1][0], "series": row["series"]}
        | {"here": format_si(row["x"], units[0]), "there": format_si(row["y"], units[1])}
        for row in kept
    ]
    names = {name: number for number, name in enumerate(dict.fromkeys(point["series"] for point in points))}
    domain = list(names)
    legend = _legend(domain, "bottom") if domain not in ([""], []) else None
    scale = alt.Scale(type="log", nice=True) if log else alt.Scale(zero=False, nice=True)
    axes = [_with_unit(word, shown) for word, (_, shown) in zip(titles, scales, strict=True)]
    chart = (
        alt.Chart(alt.Data(values=points))
        .mark_point(size=60, filled=False, strokeWidth=2, opacity=1)
        .encode(
            x=alt.X("x:Q", title=axes[0], scale=scale, axis=alt.Axis(format=PLAIN, tickCount=6)),
            y=alt.Y("y:Q", title=axes[1], scale=scale, axis=alt.Axis(format=PLAIN, tickCount=6)),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(PALETTE, names)), legend=legend),
            shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=domain, range=_cycle(SHAPES, names)), legend=legend),
            tooltip=[alt.Tooltip("series:N"), alt.Tooltip("here:N", title=titles[0]), alt.Tooltip("there:N", title=titles[1])],
        )
        .properties(width=480, height=300, title=_heading(title, subtitle, len(rows) - len(kept)))
    )
    return chart.configure(**CONFIG)


def flip_chart(rows: Sequence[Mapping[str, Any]], finding: str, varied: str) -> Any:
    """How far a finding is from its other verdict over an input: above 0 it agrees. rows: `x` (a number or a choice) and `y`."""
    title = f"{finding} over {varied}"
    return series_chart(rows, "x", "y", title=title, subtitle="above 0 the claim agrees", x_title=varied, y_title="margin")


def _points(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    series: str | Sequence[str] | None,
    unit: str,
    log: bool,
    y_title: str | None,
) -> tuple[list[dict[str, Any]], dict[str, int], str, int]:
    """Plain rows for a line chart; name of a series → its number among all (so that colours stay when one is left out);
    the title of the y axis; how many rows have no place."""
    values = [_number(row.get(y)) for row in rows]
    fits = [math.isfinite(value) and (value > 0 or not log) for value in values]
    divisor, shown = _scale((value for value, ok in zip(values, fits, strict=True) if ok), unit)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(_joined(row, series) for row in rows))}
    numbers |= {_joined(row, series): int(row["place"]) for row in rows if "place" in row}
    points = [
        {"x": _plain(row[x]), "series": _joined(row, series), "value": value / divisor if ok else None, "text": format_si(value, unit)}
        for row, value, ok in zip(rows, values, fits, strict=True)
        if ok or row.get(y) is None or not any(fits)  # what is not there is a gap in its line
    ]
    found = {point["series"] for point in points if point["value"] is not None} or set(numbers)  # (a chart without a point has no size)
    points = [point for point in points if point["series"] in found]
    kept = {name: number for name, number in numbers.items() if name in found}
    return points, kept, _with_unit(y_title or y, shown), fits.count(False)


def _scale(values: Iterable[float], unit: str) -> tuple[float, str]:
    """One divisor and unit for an axis; a count keeps its size."""
    return si_scale(max(map(abs, values), default=0.0), unit) if unit else (1.0, "")


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _plain(value: Any) -> int | float | str:
    if isinstance(value, str):
        return value
    number = float(value)
    return int(number) if number.is_integer() else number


def _joined(row: Mapping[str, Any], columns: str | Sequence[str] | None) -> str:
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    return ", ".join(str(row[name]) for name in names)


def with_places(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of a study's charts in which every series has its place among all, so that it has one colour in all of them."""
    names = dict.fromkeys(row["series"] for rows in tables.values() for row in rows)
    places = {name: place for place, name in enumerate(names)}
    return {chart: [{**row, "place": places[row["series"]]} for row in rows] for chart, rows in tables.items()}


def _stable(domain: Sequence[str], colours: list[str], places: Mapping[str, int]) -> list[str]:
    """Colours of segments by their place in the study; a colour that is taken goes to none twice."""
    if not places or set(domain) <= set(COLOURS):
        return colours
    found: dict[str, str] = {OTHER: GREY} if OTHER in domain else {}
    for name in domain:
        if name in places:
            start = places[name] % len(PALETTE)
            free = (colour for colour in (*PALETTE[start:], *PALETTE[:start]) if colour not in found.values())
            found[name] = next(free, PALETTE[start])
    return [found.get(name, GREY) for name in domain]


def _numeric(found: Sequence[Any]) -> bool:
    """Whether values have distances: several numbers."""
    return len(set(found)) > 1 and not any(isinstance(value, str) for value in found)


def _wide(found: Sequence[float]) -> bool:
    """Whether numbers are read on a logarithmic axis: above 0 and at least a factor of eight apart."""
    return min(found) > 0 and max(found) / min(found) >= WIDE


def bar_width(found: Sequence[Any], width: int) -> dict[str, float]:
    """Of bars over numbers: two thirds of the least distance between two; nothing to say of words, which have bands."""
    if not _numeric(found):
        return {}
    places = sorted({math.log(value) if _wide(found) else float(value) for value in found})
    span = (places[-1] - places[0]) * (1 + 2 * EDGE)
    return {"size": min(48.0, max(3.0, 0.66 * width * min(b - a for a, b in pairwise(places)) / span))}


def x_axis(points: Sequence[Mapping[str, Any]], title: str, width: int) -> Any:
    """The x axis: numbers at their distances with a tick at each, words as they come, slanted where they would touch."""
    import altair as alt

    found = list(dict.fromkeys(point["x"] for point in points))
    if _numeric(found):
        low, high = min(found), max(found)
        if _wide(found):
            edge = (high / low) ** EDGE
            scale = alt.Scale(type="log", domain=[low / edge, high * edge], nice=False)
        else:
            scale = alt.Scale(domain=[low - EDGE * (high - low), high + EDGE * (high - low)], nice=False, zero=False)
        ticks = alt.Axis(values=sorted(found), format=PLAIN, labelOverlap="greedy", grid=False)
        return alt.X("x:Q", scale=scale, title=title, axis=ticks)
    order = found if any(isinstance(value, str) for value in found) else sorted(found)
    touching = max((len(str(value)) for value in found), default=0) * 7.5 > width / max(len(found), 1)
    axis = alt.Axis(labelAngle=-30, labelAlign="right", grid=False) if touching else alt.Axis(labelAngle=0, grid=False)
    return alt.X("x:O", sort=order, title=title, axis=axis)


def _cycle(values: Sequence[T], names: Mapping[str, int]) -> list[T]:
    """One a series by its place; from the second round on dashes and points go on by one, so that no two series have all three alike."""
    step = 0 if values is PALETTE else 1
    return [values[(number + step * (number // len(PALETTE))) % len(values)] for number in names.values()]


def _legend(names: Sequence[str], orient: str, symbol: str | None = None) -> Any:
    """A legend that is about as wide as the chart."""
    import altair as alt

    longest = max(map(len, names), default=0)
    shape = {} if symbol is None else {"symbolType": symbol}
    return alt.Legend(orient=orient, columns=4 if longest <= 14 else 3 if longest <= 21 else 2, symbolOpacity=1, **shape)


def _heading(title: str, subtitle: str, left_out: int) -> dict[str, Any]:
    missing = f"{left_out} point{'s' if left_out > 1 else ''} without a place on the axes left out" if left_out else ""
    below = "; ".join(part for part in (subtitle, missing) if part)
    lines = textwrap.wrap(below, LINE)
    return {"text": title, "subtitle": lines[0] if len(lines) == 1 else lines} if below else {"text": title}
