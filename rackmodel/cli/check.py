"""`rackmodel check FILE...`: read input files and say what is wrong with them."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli.options import JsonOption, echo, print_json


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML files, or names of the library.")],
    as_json: JsonOption = False,
) -> None:
    """Check input files: keys, units, sizes, names. The first key of a file says what it is."""
    from rackmodel.errors import MOST_SHOWN, InputError
    from rackmodel.inputs import check as check_file

    rows = []
    for name in files:
        try:
            rows.append({"file": name, "ok": True, "kind": check_file(name), "error": None, "problems": []})
        except InputError as problem:
            shown = [one.to_dict() for one in problem.problems[:MOST_SHOWN]] if as_json else []
            rows.append({"file": name, "ok": False, "kind": None, "error": str(problem), "problems": shown})
    if as_json:
        print_json({"files": rows})
    else:
        for row in rows:
            echo(f"{row['file']}: {row['kind']} ok" if row["ok"] else str(row["error"]), err=not row["ok"])
    if not all(row["ok"] for row in rows):
        raise typer.Exit(2)
