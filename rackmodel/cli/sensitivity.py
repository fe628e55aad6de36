"""`rackmodel why RESULT --sensitivity`: which numbers of the machine move the answer, and where another mapping is the best."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rackmodel.cli.printing import echo, print_json, print_table, tell
from rackmodel.errors import RackmodelError
from rackmodel.report.files import csv_of_records, write_whole

if TYPE_CHECKING:
    from rackmodel.model.result import Result
    from rackmodel.report.tornado import Swing

WIDTH = 504.0  # points: a page


def show_sensitivity(
    best: Result, search: Callable[..., Result], priced: Callable[..., Result], *, as_json: bool, where: Path | None
) -> None:
    """Print the swings of an answer's objective, or write them. search: the answer under more settings · priced: its own mapping under
    them. Raises OutputError."""
    from rackmodel import api
    from rackmodel.report.facts import machine_numbers
    from rackmodel.report.tables import mapping_words
    from rackmodel.report.tornado import tornado

    @cache
    def found(*settings: str) -> tuple[float, str]:
        result = search(*settings)
        return float(result.certificate.objective), mapping_words(result.mapping)

    @cache
    def own(*settings: str) -> float:
        try:
            one = priced(*settings)
        except RackmodelError:  # a mapping that is not to be had there: the search says what is
            return float("nan")
        assert one.machine is not None
        goal = api.objective_of(best.certificate.minimize, one.machine)
        return float(goal.value(one.latency_s, one.energy_j, one.memory_bytes_per_accelerator))

    slow = best.certificate.solver != "enumerate" or best.nests  # free layouts, cuts, loop nests: some thirty times a mapping's price
    assert best.machine is not None
    base = float(best.certificate.objective)
    swings = tornado(machine_numbers(best.machine), (base, mapping_words(best.mapping)), found, own if slow else None)
    if where is not None:
        _write(best, swings, where)
    if as_json:
        print_json({"minimize": best.certificate.minimize, "objective": base, "swings": [one.to_dict() for one in swings]})
    else:
        _print(best, swings)


def _print(best: Result, swings: Sequence[Swing]) -> None:
    from rich.table import Table

    from rackmodel.report.tables import format_objective, mapping_words, terminal_width, wrapped
    from rackmodel.report.tornado import FACTOR

    goal = best.certificate.minimize
    base = float(best.certificate.objective)
    asked = f"{best.workload} on {best.architecture}: {mapping_words(best.mapping)}, least {goal} {format_objective(base, goal)}"
    how = f"each number at both ends of its range (* none is stated: {1 / FACTOR:g} and {FACTOR:g} times), the best mapping searched again"
    for line in wrapped([asked, f"{how}:"]):
        echo(line)
    table = Table(box=None, pad_edge=False)
    for head in ("number", "low", goal, "high", goal):
        table.add_column(head, justify="left" if head == "number" else "right", no_wrap=head != "number")
    rows = []
    for one in swings:
        changes = ["nothing fits" if at is None else _change(at, base) for at in (one.at_low, one.at_high)]
        rows.append([f"{one.path}{'' if one.stated else '*'}", one.low, changes[0], one.high, changes[1]])
    beside = sum(2 + max((len(row[column]) for row in rows), default=0) for column in range(1, 5))
    for row in rows:
        table.add_row(_in_lines(row[0], terminal_width() - beside), *row[1:])
    print_table(table)
    for one in swings:
        for end, words in ((one.low, one.mapping_low), (one.high, one.mapping_high)):
            for line in wrapped([f"another mapping at {one.path}={end}: {words}"] if words else []):
                echo(line)
    if not swings:
        echo(f"no number of the machine moves the {goal}")


def _change(at: float, base: float) -> str:
    return f"{100 * (at / base - 1):+.3g} %" if abs(at / base - 1) > 1e-9 else "0 %"


def _write(best: Result, swings: Sequence[Swing], where: Path) -> None:
    from rackmodel.report.drawing import svg_png
    from rackmodel.report.svg import paper
    from rackmodel.report.tornado import sketch

    goal = best.certificate.minimize
    inside, height = sketch(swings, float(best.certificate.objective), goal, WIDTH)
    text = paper(inside, WIDTH, height)
    rows = [one.to_dict() for one in swings]
    written = [write_whole(where / "sensitivity.csv", csv_of_records(rows)), write_whole(where / "sensitivity.svg", text)]
    tell([*written, write_whole(where / "sensitivity.png", svg_png(text))])


def _in_lines(path: str, room: int) -> str:
    """The path of a number in lines of so many columns, broken after its dots."""
    lines = [""]
    for piece in re.findall(r"[^.]+\.?", path):
        lines = [*lines[:-1], lines[-1] + piece] if not lines[-1] or len(lines[-1] + piece) <= room else [*lines, piece]
    return "\n".join(lines)
