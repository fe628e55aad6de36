"""Bars side by side: one figure of several things, a bar for each series, its value written at its end."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rackmodel.report.drawing import CONFIG, PALETTE
from rackmodel.report.tables import format_number, format_si, si_scale

WRAP, THICK, WIDTH = 44, 17, 420
"""Letters of a line beside the bars; points of a bar and of the longest."""


def bars_chart(rows: Sequence[Mapping[str, Any]], *, title: Any, x_title: str, y_title: str, unit: str = "") -> Any:
    """Horizontal bars, a group for each x (words keep their order). rows: `x`, `series`, `y`; those without y are left out."""
    import altair as alt

    kept = [row for row in rows if row["y"] is not None and math.isfinite(row["y"])]
    top = max((abs(row["y"]) for row in kept), default=0.0)
    low, high = (end((0.0, *(row["y"] for row in kept))) for end in (min, max))
    divisor, shown = si_scale(top, unit) if unit else (1.0, "")
    points = [_point(row, divisor, unit) for row in kept]
    names = {name: number for number, name in enumerate(dict.fromkeys(row["series"] for row in kept))}
    places, domain = list(dict.fromkeys(point["x"] for point in points)), list(names)
    legend = alt.Legend(orient="bottom", columns=1 if max(map(len, domain), default=0) > 30 else 3) if domain not in ([""], []) else None
    axis = alt.Axis(labelExpr="split(datum.label, '\\n')", ticks=False, domain=False, labelPadding=8, titleAngle=-90)
    base = alt.Chart(alt.Data(values=points)).encode(
        y=alt.Y("x:N", sort=places, title=x_title or None, axis=axis, scale=alt.Scale(paddingInner=0.25)),
        yOffset=alt.YOffset("series:N", sort=domain),
        x=alt.X(
            "value:Q",
            title=f"{y_title} ({shown})" if shown else y_title,
            scale=alt.Scale(domain=[1.16 * low / divisor, 1.16 * high / divisor or 1.0], nice=False),
            axis=alt.Axis(format=",.6~r", tickCount=6),
        ),
        tooltip=[alt.Tooltip("x:N"), alt.Tooltip("series:N"), alt.Tooltip("text:N", title=y_title)],
    )
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=domain, range=[PALETTE[n % len(PALETTE)] for n in names.values()]))
    bars = base.mark_bar().encode(color=colour.legend(legend))
    ends = base.mark_text(align="left", dx=4, fontSize=12).encode(text="text:N")
    step = alt.Step(max(1, len(domain)) * THICK + 8, **{"for": "position"})
    return (bars + ends).properties(width=WIDTH, height=step, title=title).configure(**CONFIG)


def _point(row: Mapping[str, Any], divisor: float, unit: str) -> dict[str, Any]:
    text = format_si(row["y"], unit) if unit else _plain(row["y"])
    return {"x": _wrapped(row["x"]), "series": row["series"], "value": row["y"] / divisor, "text": text}


def _plain(value: float) -> str:
    """Four digits without a power of ten: 1,675,000,000."""
    return f"{float(f'{value:.3e}'):,.0f}" if abs(value) >= 1e4 else format_number(value)


def _wrapped(x: Any) -> str:
    """Words in lines that fit beside the bars."""
    return "\n".join(textwrap.wrap(x, WRAP)) if isinstance(x, str) else format_number(x)
