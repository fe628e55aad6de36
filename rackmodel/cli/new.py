"""`rackmodel new machine|workload|mapper|study NAME`: the commented start of an own input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.options import plain_name
from rackmodel.cli.printing import echo
from rackmodel.errors import InputError
from rackmodel.report.files import make_folder, write_whole


def new(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="machine, workload, mapper or study.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, and that of the file: NAME.yaml.")],
    where: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder of the file; default: this one.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented machine, workload, mapper or study that works as it is, to start from."""
    from rackmodel.inputs.starts import STARTS, start_of

    if what not in STARTS:
        raise InputError(f"no start of '{what}'", path="WHAT", known=list(STARTS), given=what)
    plain_name(name, "NAME")
    path = make_folder(where or Path()) / f"{name}.yaml"
    if path.exists() and not force:
        raise InputError(f"{path} is there already: another name, or --force to write over it", path="NAME")
    write_whole(path, start_of(what, name))
    echo(f"wrote {path}: rackmodel check {path}")
