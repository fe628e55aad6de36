"""`rackmodel validate [FILE.csv...]`: published measurements beside what the engine predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.options import JsonOption, WorkersOption, folder
from rackmodel.cli.printing import echo, print_json
from rackmodel.cli.progress import PointsLine

MISSED, REFUSED = 1, 2


def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE.csv...", help="Rows of measurements, plain or gzipped; none: those that ship.")
    ] = None,
    anchor: Annotated[
        list[str] | None,
        typer.Option("--anchor", metavar="ROW", help="Scale the other rows of this row's cell by its error; may be repeated."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="profile.NAME=VALUE", help="Change the profiles of training runs: profile.variation=0; may be repeated."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write a page: tables, parity plot, what each effect is worth.")
    ] = None,
    workers: WorkersOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 also if a data set of a FILE is worse than its bar.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict published or your own measurements and report the errors, by data set and by cell."""
    from rackmodel.processes import Crew, cores
    from rackmodel.validation.run import shipped_files
    from rackmodel.validation.run import validate as run
    from rackmodel.validation.table import report_lines

    folder(page)
    line = PointsLine("cases")
    try:
        report = run(files or shipped_files(), anchor or (), sets or (), bins=as_json, crew=Crew(workers or cores(), line))
    finally:
        line.wipe()
    if as_json:
        print_json(report.to_dict())
    else:
        echo("\n".join(report_lines(report)))
    if page is not None:
        from rackmodel.validation.page import write_page

        written = write_page(report, files or shipped_files(), page)
        if not as_json:
            echo("\n".join(f"wrote {path}" for path in written))
    if all(row.refused for row in report.rows):
        echo("no row has a prediction", err=True)
        raise typer.Exit(REFUSED)
    if report.missed and (strict or not files):
        raise typer.Exit(MISSED)
