"""What the commands print: tables on stdout, plain when piped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rackmodel.model.result import Result
from rackmodel.report.nests import nest_lines
from rackmodel.report.runners_up import top_rows
from rackmodel.report.tables import (
    breakdown_table,
    comparison_table,
    console,
    format_number,
    format_objective,
    format_si,
    limits_table,
    result_lines,
    wrapped,
)

SHOWN = 1  # loop nests printed on the terminal
UNITS = {"joules": "J", "seconds": "s", "exposed_seconds": "s", "amount": ""}


def print_comparison(results: Sequence[Result], *, several: bool | None = None) -> None:
    """One row a mapper and machine, then what limits each. several: whether to name the machines (default: where they differ)."""
    out = console()
    out.print(comparison_table(results, width=out.width, several=several))
    out.print()
    out.print(limits_table(results, several=several))


def print_result(result: Result, top: Sequence[Result] = (), notes: Sequence[str] = (), *, whole: bool = False) -> None:
    """A summary, and the runners-up where there are any. notes: further lines of the summary · whole: every charge of the ledger too."""
    out = console()
    for line in [*result_lines(result), *wrapped(notes)]:
        out.print(line, soft_wrap=True)
    if whole:
        out.print(breakdown_table(result.ledger, ("component", "level", "action")))
    else:
        out.print("-v prints every charge, -o DIR writes them and a page")
    nests = result.nests
    for name, nest in list(nests.items())[:SHOWN]:
        for line in nest_lines(name, nest):
            out.print(line, soft_wrap=True)
    if len(nests) > SHOWN:
        out.print(f"and {len(nests) - SHOWN} more loop nests (-o DIR writes all of them to nests.txt)")
    if len(top) > 1:
        table = Table(box=None, pad_edge=False, title="best mappings", title_justify="left")
        goal = result.certificate.minimize
        other_goal = goal not in ("latency", "energy")
        for name in ("#", "mapping", "latency", "energy", *([goal] if other_goal else [])):
            table.add_column(name, justify="left" if name == "mapping" else "right")
        for number, (words, other) in enumerate(top_rows(top)):
            figures = [format_si(other.latency_s, "s"), format_si(other.energy_j, "J")]
            more = [format_objective(other.certificate.objective, goal, 6)] if other_goal else []
            table.add_row(str(number + 1), words, *figures, *more)
        out.print(table)


def print_series(title: str, x: str, rows: Sequence[dict[str, Any]], y: str) -> None:
    """A chart as a table: one row an x, one column a series (turned round where there are many series)."""
    xs, series = list(dict.fromkeys(row["x"] for row in rows)), list(dict.fromkeys(row["series"] for row in rows))
    cells = {(row["x"], row["series"]): format_si(row["y"], UNITS.get(y, row.get("unit", ""))) for row in rows}
    out = console()
    if not rows:
        out.print(f"{title}: no point has it\n")
        return
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    turned = len(series) > len(xs)
    wide = _least_columns(xs if turned else series, series if turned else [x, *xs], cells.values()) > out.width
    if wide or len(cells) < len(rows):  # two points of a scatter at one x
        _print_listed(out, table, x, rows, y)
        return
    table.add_column(f"by {x}" if turned else x)
    for name in xs if turned else series:
        table.add_column(_at(name), justify="right")
    for row in series if turned else xs:
        table.add_row(_at(row), *(cells.get((column, row) if turned else (row, column), "") for column in (xs if turned else series)))
    out.print(table)
    out.print()


def _least_columns(heads: Sequence[Any], names: Sequence[Any], cells: Collection[str]) -> int:
    """Columns of a table of series in which nothing is cut."""
    widest = max(map(len, cells), default=0)
    return max((len(_at(name)) for name in names), default=0) + sum(1 + max(widest, len(_at(head))) for head in heads)


def _at(value: Any) -> str:
    """An x as a table shows it: of a scatter it is a measured number."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_listed(out: Console, table: Table, x: str, rows: Sequence[dict[str, Any]], y: str) -> None:
    """A chart as a list, a row a point: of a scatter every x may differ."""
    named = any(row["series"] for row in rows)
    for head in (*(["series"] if named else []), x, y):
        table.add_column(head, justify="left" if head == "series" else "right", no_wrap=head != "series")
    for row in rows:
        value = "" if row["y"] is None else format_si(row["y"], UNITS.get(y, row.get("unit", "")))
        table.add_row(*([str(row["series"])] if named else []), _at(row["x"]), value)
    out.print(table)
    out.print()


def print_findings(found: Sequence[Any]) -> None:
    """Each finding with its verdict, the figures behind it and how to read it."""
    out = console()
    for finding in found:
        figures = "; ".join(f"{name} {format_number(value)}" for name, value in finding.figures.items())
        about = ", ".join(word for word in (finding.weight, finding.figure) if word)
        head = f"{finding.name} ({about}): {finding.claim}"
        out.print(head)
        rests = f"rests on {', '.join(finding.rests)}" if finding.rests else ""
        for line in (finding.said, figures, rests, finding.why):
            if line:
                out.print(f"    {line}")
    counts = {v: sum(1 for f in found if f.verdict == v) for v in ("agrees", "disagrees", "not decidable")}
    if found:
        out.print(f"{len(found)} finding{'s' if len(found) > 1 else ''}: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
