"""A page of one run of `validate`: errors by data set and cell, predictions beside measurements with their intervals, what makes the
intervals wide, what each effect is worth (the errors without it), what other tools say of theirs, and what falls short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rackmodel.report.drawing import CONFIG, chart_png
from rackmodel.report.files import make_folder, write_whole
from rackmodel.validation.run import DatasetReport, ValidationReport, validate
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import words

EFFECTS = (
    ("the slowest accelerator sets the pace", ("profile.variation=0",)),
    ("kernels slow beside collectives", ("profile.overlap.contention=0",)),
    ("launches by the host", ("profile.host={}",)),
    ("eager operations as several kernels", ("profile.composites={}",)),
    ("casts for low precision", ("profile.casts={}",)),
    ("sends scattered over ranks", ("profile.hand_over=whole",)),
    ("experts launched one by one", ("profile.grouped=one",)),
    ("libraries of their time", ("profile.library=1",)),
    ("kernels below peak rates", ("profile.kernels=peak",)),
)
"""An effect → the overrides of profiles that take it away."""

OF_EFFECTS = 4
"""Rows of a data set that effects are told from, at most."""

DATA_SETS = "validation"
"""The document beside the page that explains its data sets."""

STEM = "accuracy"
"""Of the page's file."""

HEAD = ("data set", "rows", "mean %", "bar %", "median %", "max %", "bias %", "inside %", "width ±%", "widest through")


def write_page(report: ValidationReport, files: Sequence[Path], folder: Path) -> list[Path]:
    """Write the page (STEM) and its plot into a folder, which is made if need be; prices the files once more for every effect. Returns the
    paths. Raises OutputError where that cannot be done."""
    place = make_folder(folder)
    text = "\n".join(_page(report, files))
    found = [write_whole(place / f"{STEM}.md", (text + "\n").encode())]
    timed = [row for row in report.rows if not row.refused and row.unit == "s"]
    if timed:
        found.append(write_whole(place / "parity.png", chart_png(parity(timed).to_dict(), scale=1)))
    return found


def parity(rows: Sequence[ScoredRow]) -> Any:
    """Predicted over measured seconds, by what was measured; bars are the predictions' intervals."""
    import altair as alt

    points = [
        {
            "set": row.dataset,
            "measured": row.measured,
            "ratio": row.predicted / row.measured,
            "low": (row.interval.low if row.interval else row.predicted) / row.measured,
            "high": (row.interval.high if row.interval else row.predicted) / row.measured,
        }
        for row in rows
    ]
    names = sorted({row.dataset for row in rows})
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("measured:Q", title="measured, s", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g")),
        color=alt.Color("set:N", title=None, scale=alt.Scale(domain=names, scheme="tableau20")),
    )
    bars = base.mark_rule(size=0.5).encode(color=alt.value("#dddddd"), y=alt.Y("low:Q", title="predicted over measured"), y2="high:Q")
    marks = base.mark_point(size=10, filled=True, opacity=1).encode(y="ratio:Q")
    one = alt.Chart(alt.Data(values=[{"ratio": 1.0}])).mark_rule(strokeDash=[4, 3]).encode(y="ratio:Q")
    return alt.layer(one, bars, marks).properties(width=640, height=340, title="Predictions beside measurements").configure(**CONFIG)


def _page(report: ValidationReport, files: Sequence[Path]) -> Iterator[str]:
    scored = [one for one in report.datasets if one.score is not None]
    rows = sum(one.score.n for one in scored if one.score is not None)
    yield "# Accuracy: predictions beside measurements"
    yield ""
    yield f"{rows} of {len(report.rows)} measured rows are predicted here ({date.today().isoformat()}); the others are refused, with the"
    yield "reason. Nothing was fitted to a whole run: kernels and collectives are fitted to component measurements, runs are predicted."
    yield f"How a row becomes a prediction, and what the data sets are: [{DATA_SETS}.md]({DATA_SETS}.md). This page is written by"
    yield "`rackmodel validate FILE... -o DIR`."
    yield ""
    yield "- *mean, median, max*: absolute error in percent; *bias*: mean error with its sign, negative where predicted steps are too short"
    yield "- *bar*: the mean error that a data set may not exceed"
    yield "- *inside*: share of rows whose measurement lies in the interval of its prediction (nine of ten are aimed at)"
    yield "- *width*: median half width of those intervals; *widest through*: the uncertain fact that makes most of it"
    yield ""
    yield "![predicted over measured](parity.png)"
    yield ""
    yield from _table(HEAD, [_line(one, report) for one in scored])
    yield ""
    yield "## By cell"
    yield ""
    cells = [(one.name, name, cell) for one in scored for name, cell in one.cells.items() if len(one.cells) > 1]
    lines = [(name, cell, str(score.n), f"{score.mean:.1f}", f"{score.bias:.1f}") for name, cell, score in cells]
    yield from _table(("data set", "cell", "rows", "mean %", "bias %"), lines)
    yield ""
    yield "## What each effect is worth"
    yield ""
    yield f"Mean error in percent if one effect of the profiles is left out, on at most {OF_EFFECTS} rows of a data set, evenly spaced."
    yield ""
    yield from _effects(files)
    yield ""
    yield "## Beside other tools"
    yield ""
    yield "Errors that other tools state of themselves, or that were measured with them; on other rows than these, but for the first two."
    yield ""
    yield from _table(
        ("tool", "predicts", "mean error", "from"), [(one.tool, one.on, one.error, one.source or "") for one in words().rivals]
    )
    yield ""
    yield "## What was refused"
    yield ""
    refused = [(one.name, str(count), why) for one in report.datasets for why, count in one.refused.items()]
    yield from _table(("data set", "rows", "why"), refused)
    yield ""
    yield "## What falls short, and why"
    yield ""
    yield from _table(("what", "how far off", "what is known of it"), [(one.what, one.off, one.why) for one in words().falls_short])


def _line(one: DatasetReport, report: ValidationReport) -> tuple[str, ...]:
    score = one.score
    assert score is not None
    figures = (score.median, score.worst, score.bias)
    asked = "" if one.bar is None else f"{one.bar:g}{' **missed**' if one.missed else ''}"
    inside = "" if score.coverage is None else f"{100 * score.coverage:.0f}"
    width = "" if score.width is None else f"{score.width:.0f}"
    rest = (f"{value:.1f}" for value in figures)
    return (one.name, str(score.n), f"{score.mean:.1f}", asked, *rest, inside, width, _widest(one.name, report))


def _widest(name: str, report: ValidationReport) -> str:
    """The fact that makes most of a data set's widths, with its mean share."""
    own = [row.interval for row in report.rows if row.dataset == name and not row.refused and row.interval is not None]
    sums: dict[str, float] = {}
    for interval in own:
        for fact, share in interval.owed.items():
            sums[fact] = sums.get(fact, 0.0) + share / len(own)
    fact = max(sums, key=lambda one: sums[one], default="")
    return f"{fact} ({100 * sums[fact]:.0f} %)" if fact else ""


def _effects(files: Sequence[Path]) -> Iterator[str]:
    """Data sets of training runs, one a row: that is what profiles change."""
    columns: dict[str, dict[str, DatasetReport]] = {}
    for name, sets in (("as it is", ()), *EFFECTS):
        found = validate(files, sets=sets, intervals=False, most=OF_EFFECTS)
        columns[name] = {one.name: one for one in found.datasets if one.score is not None}
    names = [
        name for name in columns["as it is"] if any(_mean(own.get(name)) != _mean(columns["as it is"][name]) for own in columns.values())
    ]
    yield from _table(("data set", *columns), [(name, *(_mean(own.get(name)) for own in columns.values())) for name in names])


def _mean(one: DatasetReport | None) -> str:
    return "" if one is None or one.score is None else f"{one.score.mean:.1f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"
