"""The points of a study on a terminal: what differs between them, and the figures that were asked for or matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rackmodel.report.tables import NONE, format_si, terminal_width

Row = Mapping[str, Any]
SHOWN = ("latency_s", "energy_j", "memory_bytes_per_accelerator", "mapping", "certificate")
_HEADS = {"latency_s": "latency", "energy_j": "energy", "memory_bytes_per_accelerator": "memory"}
_UNITS = {"latency_s": "s", "energy_j": "J", "memory_bytes_per_accelerator": "B", "power_w": "W", "carbon_g": "g"}
_ABOUT = ("number", "key", "message", "resource", "need", "have", "shortfall", "unit", "change")


FIRST, LAST = 40, 20
"""Rows of a longer table that are shown."""


def points_table(rows: Sequence[Row], columns: Sequence[str] = (), *, width: int | None = None) -> Table:
    """A row a point, of a long table the FIRST and the LAST. columns: figures to show instead of the usual ones · width: columns there are
    (default: the terminal's).

    No word is broken where that can be: heads wrap at their dots, and inputs that do not fit beside the figures share a column.
    """
    names = list(rows[0]) if rows else []
    asked = [*columns] or [*SHOWN]
    inputs = names[: names.index("status")] if "status" in names else []
    differ = [name for name in inputs if name not in (*_ABOUT, *asked) and _differs(rows, name)]
    left_out = unshown(len(rows))
    rows = [*rows[:FIRST], *rows[len(rows) - LAST :]] if left_out else rows
    cells = [[_cell(name, row.get(name)) for name in (*differ, *asked)] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        if row.get("status") != "ok":
            line[len(differ)] = str(row.get("status"))
    heads = [_head(name) for name in (*differ, *asked)]
    left = [any(isinstance(row.get(name), str) for row in rows) for name in (*differ, *asked)]
    there = terminal_width() if width is None else width
    if len(differ) > 1 and _least(heads, cells) > there:
        shared = len(differ)
        heads = [",\n".join(heads[:shared]), *heads[shared:]]
        cells = [[", ".join(line[:shared]), *line[shared:]] for line in cells]
        left = [True, *left[shared:]]
    fits = _least(heads, cells) <= there
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, (head, words) in enumerate(zip(heads, left, strict=True)):
        least = _longest(head, *(line[place] for line in cells)) if fits else None
        table.add_column(head, justify="left" if words else "right", overflow="fold", min_width=least)
    for number, line in enumerate(cells):
        table.add_row(*line)
        if left_out and number == FIRST - 1:
            table.add_row(*["…"] * len(heads))
    return table


def unshown(count: int) -> int:
    """How many of so many rows a table leaves out."""
    return max(0, count - FIRST - LAST)


def _differs(rows: Sequence[Row], name: str) -> bool:
    """Whether points differ in an input; one that has no answer need not say what an answer has (its profile)."""
    said = {row[name] for row in rows if row[name] is not None or row.get("status") == "ok"}
    return len(said) > 1


def _head(name: str) -> str:
    """The head of a column; the path of a number wraps after its dots."""
    return _HEADS.get(name, name).replace(".", ".\n")


def _longest(*texts: str) -> int:
    """Columns of the longest word."""
    return max(len(word) for text in texts for word in text.split() or [""])


def _least(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Columns of a table in which no word is broken, a space between its columns."""
    return sum(1 + _longest(head, *(line[place] for line in cells)) for place, head in enumerate(heads)) - 1


def _cell(name: str, value: Any) -> str:
    if value is None:
        return NONE
    if name in _UNITS:
        return format_si(value, _UNITS[name])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
