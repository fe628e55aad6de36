"""The tables that `validate` prints: a line a data set, its cells, what was refused, and where a bar is missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rackmodel.validation.run import DatasetReport, ValidationReport
from rackmodel.validation.score import Score

HEADS = ("rows", "mean %", "median %", "p90 %", "max %", "bias %", "rank", "inside %", "width %", "bar %")
MOST_WRITTEN_OUT = 1e6
"""Per cent from which a figure has an exponent: of a row in another unit it may have hundreds of digits."""
Line = tuple[str, Score, str]


def report_lines(report: ValidationReport) -> Iterator[str]:
    """Everything, line by line, as wide as the names are."""
    scored: list[Line] = [(one.name, one.score, _bar(one)) for one in report.datasets if one.score is not None]
    several = [one for one in report.datasets if len(one.cells) > 1]
    cells: list[Line] = [(f"{one.name}: {name}", cell, "") for one in several for name, cell in one.cells.items()]
    if report.anchors:
        yield f"anchored at {', '.join(report.anchors)}: calibrated on those rows, which are left out"
    for head, lines in (("data set", scored), ("cell", cells)):
        if lines:
            yield from _table(head, lines)
    yield from _ordered(report)
    yield from _chosen(report)
    over = sum(row.over_capacity for row in report.rows)
    if over:
        yield f"more than the memory held: {over} of {len(report.rows)} rows; priced as if they fitted"
    first = {(row.dataset, row.refused): row.id for row in reversed(report.rows)}
    for one in report.datasets:
        for why, count in one.refused.items():
            rows = f"{count} row{'s' if count > 1 else ''}"
            yield f"refused {one.name}: {rows}, {why} ({'first ' if count > 1 else ''}{first[one.name, why]})"
    for one in report.missed:
        yield f"missed {one.name}: its mean is above its bar of {one.bar:g} %"
    yield from _assumed(report)


def _ordered(report: ValidationReport) -> Iterator[str]:
    """How well rows of one curve are ordered."""
    for one in report.datasets:
        if one.score is not None and one.score.curve_ranks:
            said = one.score.to_dict()
            mean, median = said["curve_rank_correlation"], said["median_curve_rank_correlation"]
            yield f"rank inside a curve, {one.name}: mean {mean:.3f}, median {median:.3f} of {said['curves']} curves"


def _chosen(report: ValidationReport) -> Iterator[str]:
    """What following the predictions loses of the measured throughput (choices.py)."""
    for one in report.choices:
        said, under = one.to_dict(), "all limits of TPOT" if one.limit_s is None else f"TPOT <= {1e3 * one.limit_s:g} ms"
        lost = ", ".join(f"{word} {said[f'{word}_lost_pct']:.1f} %" for word in ("median", "p90", "mean"))
        held = "" if said["p90_lost_where_held_pct"] is None else f", p90 {said['p90_lost_where_held_pct']:.1f} % of the others"
        beyond = f"{one.beyond} choices measured beyond the limit{held}, {one.unanswered} questions with no choice"
        yield f"throughput lost by the choice, {one.dataset}, {under}: {lost} of {len(one.lost)} questions ({beyond})"


def _bar(one: DatasetReport) -> str:
    return "" if one.bar is None else f"{one.bar:g}{' MISSED' if one.missed else ''}"


def _table(head: str, lines: list[Line]) -> list[str]:
    rows = [(head, *HEADS), *((name, *_figures(score), bar) for name, score, bar in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _figures(score: Score) -> list[str]:
    figures = (score.mean, score.median, score.p90, score.worst, score.bias)
    rank = "" if score.rank_correlation is None else f"{score.rank_correlation:.3f}"
    inside = None if score.coverage is None else 100.0 * score.coverage
    interval = ["" if share is None else f"{share:.0f}" for share in (inside, score.width)]
    return [str(score.n), *(f"{value:.1f}" if abs(value) < MOST_WRITTEN_OUT else f"{value:.1e}" for value in figures), rank, *interval]


def _assumed(report: ValidationReport) -> list[str]:
    """What was assumed, and of how many rows; each row's are in --json."""
    counts = Counter((row.dataset, note) for row in report.rows for note in row.assumptions)
    return [f"assumed {dataset}: {note} ({count} rows)" for (dataset, note), count in counts.items()]
