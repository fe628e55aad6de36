"""The tables that `validate` prints: a line a data set, its cells, what was refused, and where a bar is missed."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from rackmodel.report.tables import console
from rackmodel.validation.run import DatasetReport, ValidationReport
from rackmodel.validation.score import Score

HEADS = ("rows", "mean %", "median %", "p90 %", "max %", "bias %", "rank", "bar %")


def print_report(report: ValidationReport) -> None:
    """Everything, on stdout."""
    out = console()
    if report.anchors:
        out.print(f"anchored at {', '.join(report.anchors)}: calibrated on those rows, which are left out", markup=False, soft_wrap=True)
    scored = [one for one in report.datasets if one.score is not None]
    if scored:
        out.print(_table("data set", [(one.name, one.score, _bar(one)) for one in scored]))
        cells = [(f"{one.name}: {name}", cell, "") for one in scored if len(one.cells) > 1 for name, cell in one.cells.items()]
        if cells:
            out.print(_table("cell", cells))
    over = sum(row.over_capacity for row in report.rows)
    lines = [f"{over} rows do not fit the memory they ran in, priced as if they did"] if over else []
    for one in report.datasets:
        lines += [f"refused {one.name}: {count} rows, {why}" for why, count in one.refused.items()]
    lines += [f"missed {one.name}: mean {one.score.mean:.1f} %, its bar is {one.bar:g} %" for one in report.missed if one.score]
    lines += _assumed(report)
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _bar(one: DatasetReport) -> str:
    return "" if one.bar is None else f"{one.bar:g}{' MISSED' if one.missed else ''}"


def _table(head: str, rows: list[tuple[str, Score | None, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(head, overflow="fold")
    for name in HEADS:
        table.add_column(name, justify="right", no_wrap=True)
    for name, score, bar in rows:
        if score is not None:
            table.add_row(name, *_cells(score), bar)
    return table


def _cells(score: Score) -> list[str]:
    figures = (score.mean, score.median, score.p90, score.worst, score.bias)
    rank = "" if score.rank_correlation is None else f"{score.rank_correlation:.3f}"
    return [str(score.n), *(f"{value:.1f}" for value in figures), rank]


def _assumed(report: ValidationReport) -> list[str]:
    """What was assumed, and of how many rows; each row's are in --json."""
    counts = Counter((row.dataset, note) for row in report.rows for note in row.assumptions)
    return [f"assumed {dataset}: {note} ({count} rows)" for (dataset, note), count in counts.items()]
