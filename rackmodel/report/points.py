"""The points of a study on a terminal: what differs between them, and the figures that were asked for or matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rackmodel.report.tables import NONE, format_si

Row = Mapping[str, Any]
SHOWN = ("latency_s", "energy_j", "memory_bytes_per_accelerator", "mapping", "certificate")
_HEADS = {"latency_s": "latency", "energy_j": "energy", "memory_bytes_per_accelerator": "memory"}
_UNITS = {"latency_s": "s", "energy_j": "J", "memory_bytes_per_accelerator": "B", "power_w": "W", "carbon_g": "g"}
_ABOUT = ("number", "key", "message", "resource", "need", "have", "shortfall", "unit", "change")


def points_table(rows: Sequence[Row], columns: Sequence[str] = ()) -> Table:
    """A row a point. columns: figures to show instead of the usual ones."""
    table = Table(box=None, pad_edge=False)
    names = list(rows[0]) if rows else []
    asked = [*columns] or [*SHOWN]
    inputs = names[: names.index("status")] if "status" in names else []
    differ = [name for name in inputs if name not in (*_ABOUT, *asked) and len({row[name] for row in rows}) > 1]
    for name in (*differ, *asked):
        words = any(isinstance(row.get(name), str) for row in rows)
        table.add_column(_HEADS.get(name, name), justify="left" if words else "right", overflow="fold")
    for row in rows:
        fits = row.get("status") == "ok"
        cells = [_cell(name, row.get(name)) for name in (*differ, *asked)]
        if not fits:
            cells[len(differ)] = str(row.get("status"))
        table.add_row(*cells)
    return table


def _cell(name: str, value: Any) -> str:
    if value is None:
        return NONE
    if name in _UNITS:
        return format_si(value, _UNITS[name])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
