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
    there = terminal_width() if width is None else width
    asked, left_out = [*columns] or [*SHOWN], unshown(len(rows))
    differ, rows = _inputs(rows, asked), _shown(rows)
    heads, cells = _texts(rows, differ, asked, there)
    left = [any(isinstance(row.get(name), str) for row in rows) for name in (*differ, *asked)]
    left = left if len(heads) == len(left) else [True, *left[len(differ) :]]
    widths = _widths(heads, cells, there)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head, words, width in zip(heads, left, widths, strict=True):
        table.add_column(head, justify="left" if words else "right", overflow="fold", width=width)
    for number, line in enumerate(cells):
        table.add_row(*line)
        if left_out and number == FIRST - 1:
            table.add_row(*["…"] * len(heads))
    return table


def beside_inputs(rows: Sequence[Row], columns: Sequence[str] = (), *, width: int | None = None) -> list[list[str]]:
    """Figures in as many tables as it takes to break no number, each with the inputs. width: as of `points_table`."""
    there = terminal_width() if width is None else width
    differ, rows = _inputs(rows, columns), _shown(rows)
    found: list[list[str]] = [[]]
    for name in columns or SHOWN:
        if found[-1] and _least(*_texts(rows, differ, [*found[-1], name], there)) > there:
            found.append([])
        found[-1].append(name)
    return found


def _inputs(rows: Sequence[Row], asked: Sequence[str]) -> list[str]:
    """What was asked of the points and differs between them."""
    names = list(rows[0]) if rows else []
    inputs = names[: names.index("status")] if "status" in names else []
    return [name for name in inputs if name not in (*_ABOUT, *asked) and _differs(rows, name)]


def _shown(rows: Sequence[Row]) -> Sequence[Row]:
    return [*rows[:FIRST], *rows[len(rows) - LAST :]] if unshown(len(rows)) else rows


def _texts(rows: Sequence[Row], differ: Sequence[str], asked: Sequence[str], width: int) -> tuple[list[str], list[list[str]]]:
    """Heads and lines; inputs share a column where that is too wide."""
    cells = [[_cell(name, row.get(name)) for name in (*differ, *asked)] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        if row.get("status") != "ok":
            line[len(differ)] = str(row.get("status"))
    heads = [_head(name) for name in (*differ, *asked)]
    if len(differ) > 1 and _least(heads, cells) > width:
        shared = len(differ)
        return [",\n".join(heads[:shared]), *heads[shared:]], [[", ".join(line[:shared]), *line[shared:]] for line in cells]
    return heads, cells


def unshown(count: int) -> int:
    """How many of so many rows a table leaves out."""
    return max(0, count - FIRST - LAST)


def _differs(rows: Sequence[Row], name: str) -> bool:
    """Whether points differ in an input; one that has no answer need not say what an answer has (its profile)."""
    said = {row[name] for row in rows if row[name] is not None or row.get("status") == "ok"}
    return len(said) > 1


def _head(name: str) -> str:
    """The head of a column; the path of a number wraps after its dots, a metric's name after its colons."""
    return _HEADS.get(name, name).replace(".", ".\n").replace(":", ":\n")


def _longest(*texts: str) -> int:
    """Columns of the longest word."""
    return max(len(word) for text in texts for word in text.split() or [""])


def _least(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Columns of a table in which no word is broken, a space between its columns."""
    return sum(1 + _longest(head, *(line[place] for line in cells)) for place, head in enumerate(heads)) - 1


def _widths(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int | None]:
    """Columns of each head in which no word is broken; what is left goes to those that lack least of one line. None where that is wider."""
    texts = [[head, *(line[place] for line in cells)] for place, head in enumerate(heads)]
    found, room = [_longest(*one) for one in texts], width - _least(heads, cells)
    if room < 0:
        return [None] * len(heads)
    lacks = [max(len(line) for text in one for line in text.splitlines() or [""]) - least for one, least in zip(texts, found, strict=True)]
    for place in sorted(range(len(heads)), key=lacks.__getitem__):
        more = min(lacks[place], room)
        found[place], room = found[place] + more, room - more
    return [*found]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return NONE
    if name in _UNITS:
        return format_si(value, _UNITS[name])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
