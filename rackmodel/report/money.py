"""What owning machines comes to as a table, from its plain data: a row a figure, a column a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rackmodel.report.tables import amount, dollars


def money_words(parts: Mapping[str, Any], of: str = "") -> str:
    """'money: electricity 3 $ + owning 80 $ = 83 $ (34 $ to 240 $)'. parts: plain data of a job's money · of: ' of a million tokens'."""
    mid = {name: dollars(part["mid"], 3) if part["high"] else "not stated" for name, part in parts.items()}
    span = f"({dollars(parts['total']['low'], 3)} to {dollars(parts['total']['high'], 3)})"
    return f"money{of}: electricity {mid['electricity']} + owning {mid['owning']} = {mid['total']} {span}"


def ownership_table(machines: Sequence[Mapping[str, Any]]) -> Table:
    """A row a figure; middle, and the range where there is one. Figures that are 0 in all machines are left out."""
    table = Table(box=None, pad_edge=False, title="what it comes to in its life", title_justify="left")
    table.add_column("figure", overflow="fold")
    for one in machines:
        table.add_column(one["machine"], justify="right", overflow="fold")
        table.add_column("", justify="left", overflow="fold")
    for name in dict.fromkeys(name for one in machines for name in one["figures"]):
        cells = [cell for one in machines for cell in _cells(one["figures"].get(name))]
        if any(one["figures"].get(name, {}).get("high") for one in machines):
            table.add_row(name, *cells)
    return table


def _cells(figure: Mapping[str, Any] | None) -> tuple[str, str]:
    if figure is None:
        return "", ""
    unit, ends = figure["unit"], (figure["low"], figure["high"])
    texts = ([amount(end, unit, digits) for end in ends] for digits in (3, 5))
    low, high = next((pair for pair in texts if pair[0] != pair[1]), ("", ""))
    return amount(figure["mid"], unit), f"({low} to {high})" if low else ""
