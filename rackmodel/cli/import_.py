"""`rackmodel import FILE...`: an architecture of Timeloop v4 or AccelForge, and Accelergy energy tables, as one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.options import JsonOption, echo, folder, print_json


def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="One architecture (Timeloop v4, AccelForge), and any energy-reference tables and variables."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write NAME.yaml to this folder; absent = print it.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the architecture; absent = as its file.")] = None,
    clock: Annotated[str | None, typer.Option("--clock", metavar="FREQUENCY", help="'1 GHz', where the files give no cycle time.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Import an architecture of another tool; everything that is not carried over is named on stderr and in the file's note."""
    from rackmodel.inputs.importers import import_files
    from rackmodel.report.files import write_whole

    imported = import_files(files, name=name, clock=clock)
    for line in imported.warnings:
        echo(f"warning: {line}", err=True)
    path = None
    if output is not None:
        where = folder(output)
        assert where is not None
        path = write_whole(where / f"{imported.name}.yaml", imported.text)
        echo(f"wrote {path.name} in {path.parent}", err=True)
    if as_json:
        data = {"architecture": imported.name, "file": str(path) if path else None, "warnings": list(imported.warnings)}
        print_json(data | ({} if path else {"text": imported.text}))
    elif path is None:
        echo(imported.text, nl=False)
