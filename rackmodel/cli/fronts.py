"""A Pareto front as commands print it and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.cli.printing import echo, print_table
from rackmodel.cli.written import write_mapping
from rackmodel.report.files import csv_text, write_whole

if TYPE_CHECKING:
    from rackmodel.model.result import Result

FRONT_SHOWN, FRONT_WIDE = 12, 4
"""Mappings and figures of a front that are printed: of more figures those that were asked for; pareto.csv has all."""


def _some_of(front: Mapping[str, Any], whole: bool) -> list[int]:
    """Which mappings of a front are printed: all, or the least in every figure and others at equal steps between."""
    from rackmodel.report.beside import asked_columns

    points = front["points"]
    every = range(len(points))
    if whole or len(points) <= FRONT_SHOWN:
        return [*every]
    least = [min(every, key=lambda k, key=key: points[k][key]) for key in asked_columns(front)]  # type: ignore[misc]
    steps = FRONT_SHOWN - len(least) - 1
    return sorted({*least, *(round(k * (len(points) - 1) / steps) for k in range(steps + 1))})


def print_front(front: Mapping[str, Any], *, whole: bool = False) -> None:
    """The Pareto front as a table, by ascending first figure. front: as report.beside has it · whole: every mapping of it, else some where
    they are many."""
    from rich.table import Table

    from rackmodel.report.beside import asked_columns
    from rackmodel.report.tables import amount

    points, columns = front["points"], asked_columns(front)
    if len(columns) > FRONT_WIDE:
        columns = {key: said for key, said in columns.items() if said[0] in front["figures"]}
    title = f"Pareto front, {front['status']}: {len(points)} mapping{'s' if len(points) > 1 else ''}"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for head in ("#", "mapping", *(name for name, _ in columns.values())):
        table.add_column(head, justify="left" if head == "mapping" else "right", no_wrap=head != "mapping")
    some = _some_of(front, whole)
    for place in some:
        shown = [amount(points[place][key], unit) for key, (_, unit) in columns.items()]
        table.add_row(str(place + 1), points[place]["mapping"], *shown)
    print_table(table)
    if len(some) < len(points):
        echo(f"{len(points) - len(some)} more: -v prints them, -o DIR writes all to pareto.csv")


def write_front(results: Sequence[Result], front: Mapping[str, Any], where: Path) -> list[Path]:
    """pareto.csv, its last column the front's status, the front as points with its line, and the mapping of each (of the first 1,000).
    front: of the results, as report.beside has it; the first two of its figures are the chart's axes."""
    from rackmodel.report.beside import MOST_POINTS, asked_columns
    from rackmodel.report.drawing import save_chart
    from rackmodel.report.front import front_chart

    columns, asked, status = asked_columns(front), front["figures"], front["status"]
    numbered = list(enumerate(front["points"], start=1))
    table = [[k, point["mapping"], *(point[key] for key in columns), status] for k, point in numbered]
    path = write_whole(where / "pareto.csv", csv_text(["number", "mapping", *columns, "status"], table))
    known = {name: (key, unit) for key, (name, unit) in columns.items()}
    first, second, *others = dict.fromkeys((*asked, *known))
    third = next((name for name in others if name in asked), None)
    axes = dict(zip("xyz", (first, second, *([third] if third else [])), strict=False))
    told = [{axis: point[known[name][0]] for axis, name in axes.items()} for _, point in numbered]
    rows = [{"number": k, "mapping": point["mapping"], **own} for (k, point), own in zip(numbered, told, strict=True)]
    title = f"Pareto front ({status}), {results[0].workload} on {results[0].architecture}"
    line = f"{len(results)} mappings, numbers as in pareto.csv{'' if third else '; grey: better in another figure alone'}"
    figures = [(name, known[name][1]) for name in axes.values()]
    chart = front_chart(rows, figures[0], figures[1], title, line, *figures[2:])
    mappings = [write_mapping(one, where / f"pareto{number}.mapping.yaml") for number, one in enumerate(results[:MOST_POINTS], start=1)]
    return [path, *save_chart(chart, where, "pareto"), *mappings]
