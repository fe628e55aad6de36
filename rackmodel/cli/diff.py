"""`rackmodel diff A B`: which charges make the difference between two results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, ProfileOption, SetOption, folder
from rackmodel.cli.printing import echo, print_json, print_table, tell
from rackmodel.errors import InputError
from rackmodel.report.files import csv_text, write_whole

if TYPE_CHECKING:
    from rackmodel.report.difference import LedgerChange
    from rackmodel.report.saved import Saved

MOST_ROWS = 20


def diff(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B | ARCH WORKLOAD A B",
            help="Two folders that -o wrote (or their result.json); or two mapping files or mappers and what they run on.",
        ),
    ],
    by: Annotated[str, typer.Option("--by", metavar="COLUMNS", help="Ledger columns to group by.")] = "component,level,action",
    sort: Annotated[
        str, typer.Option("--sort", metavar="FIGURE", help="Sort by seconds, joules or bytes, largest difference first.")
    ] = "seconds",
    sets: SetOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write diff.csv to this folder.")] = None,
) -> None:
    """Say which charges make the difference between two results: seconds of the critical path, joules, bytes."""
    from rackmodel.report.difference import FIGURES, changes, columns_of, total

    columns = columns_of(by)
    if sort not in FIGURES:
        raise InputError(f"no figure '{sort}'", path="--sort", known=list(FIGURES), given=sort)
    where = folder(output)
    a, b = _both(inputs, sets or (), profile)
    found, whole = changes(a.ledger, b.ledger, columns, sort), total(a.ledger, b.ledger)
    if where is not None:
        tell([_write(found, columns, where)])
    if as_json:
        heads = [{"name": one.name, "architecture": one.data["architecture"], "workload": one.data["workload"]} for one in (a, b)]
        print_json({"a": heads[0], "b": heads[1], "total": whole.to_dict(()), "rows": [one.to_dict(columns) for one in found]})
        return
    _print(a, b, found, whole)


def _both(inputs: list[str], sets: Any, profile: str | None) -> tuple[Saved, Saved]:
    from rackmodel.report.saved import read_saved

    if len(inputs) == 2:
        for option, said in (("--set", sets), ("--profile", profile)):
            if said:
                raise InputError("results that are read are as they are: this is of ARCH WORKLOAD A B", path=option)
        return read_saved(inputs[0]), read_saved(inputs[1])
    if len(inputs) != 4:
        said = f"{len(inputs)} name{'s' if len(inputs) > 1 else ''}"
        raise InputError(f"{said}: want two results, or ARCH WORKLOAD and two mappings or mappers", path="A B")
    return _priced(inputs[0], inputs[1], inputs[2], sets, profile), _priced(inputs[0], inputs[1], inputs[3], sets, profile)


def _priced(architecture: str, workload: str, third: str, sets: Any, profile: str | None) -> Saved:
    """A mapping file as `evaluate` prices it, or the best of a mapper."""
    from rackmodel import api
    from rackmodel.inputs import kind_of
    from rackmodel.report.finite import check_finite
    from rackmodel.report.saved import saved

    if kind_of(third) == "mapping":
        result = api.evaluate(architecture, workload, third, sets=sets, profile=profile)
    else:
        result = api.search(architecture, workload, third, sets=sets, profile=profile).result
    check_finite([result])
    return saved(result)


def _print(a: Saved, b: Saved, found: list[LedgerChange], whole: LedgerChange) -> None:
    from rich.table import Table

    from rackmodel.report.difference import unlike_steps
    from rackmodel.report.tables import format_percent

    for name, one in (("A", a), ("B", b)):
        echo(f"{name}: {one.data['workload']} by {one.name}")
    words = [f"{figure} {_against(whole.before[place], whole.by[place])}" for place, figure in enumerate(("latency", "energy"))]
    echo(f"B against A: {', '.join(words)}")
    if unlike := unlike_steps([a, b], "AB"):
        echo(unlike)
    table = Table(box=None, pad_edge=False)
    table.add_column("charge")
    for head in ("seconds A", "B", "difference", "share", "joules", "bytes"):
        table.add_column(head, justify="right", no_wrap=True)
    for change in found[:MOST_ROWS]:
        table.add_row(" ".join(change.key), *_cells(change, format_percent(change.by[0] / whole.by[0] if whole.by[0] else None)))
    table.add_section()
    table.add_row("all", *_cells(whole, ""))
    print_table(table)
    if len(found) > MOST_ROWS:
        echo(f"and {len(found) - MOST_ROWS} more (-o DIR writes all, --by groups them)")


def _against(before: float, by: float) -> str:
    """'3.2 % more', 'the same'."""
    from rackmodel.report.tables import format_percent

    return "the same" if not by else f"{format_percent(abs(by) / before) if before else 'all'} {'more' if by > 0 else 'less'}"


def _cells(one: LedgerChange, share: str) -> tuple[str, ...]:
    from rackmodel.report.tables import format_si

    def signed(value: float, unit: str) -> str:
        return f"{'+' if value > 0 else '-' if value < 0 else ''}{format_si(abs(value), unit, 3)}"

    seconds = (format_si(one.before[0], "s", 3), format_si(one.after[0], "s", 3), signed(one.by[0], "s"))
    return (*seconds, share, signed(one.by[1], "J"), signed(one.by[2], "B"))


def _write(found: list[LedgerChange], columns: tuple[str, ...], where: Path) -> Path:
    from rackmodel.report.difference import FIGURES

    heads = [*columns, *(f"{name}_{side}" for name in FIGURES for side in ("a", "b", "difference"))]
    rows = ([*one.key, *(v for each in zip(one.before, one.after, one.by, strict=True) for v in each)] for one in found)
    return write_whole(where / "diff.csv", csv_text(heads, rows))
