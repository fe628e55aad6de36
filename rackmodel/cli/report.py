"""`rackmodel report RESULT... -o page.html`: saved results as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.printing import tell
from rackmodel.errors import OutputError
from rackmodel.report.files import make_folder, write_whole


def report(
    results: Annotated[list[str], typer.Argument(metavar="RESULT...", help="Folders that -o wrote, or their result.json.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option("--figures", metavar="DIR", help="Write figures for a paper, as PNG and SVG.")] = None,
) -> None:
    """Put saved results on one page: question, answer, certificate, linked charts, sortable tables, inputs with sources, the command."""
    from rackmodel.report.result_page import names_of, result_page
    from rackmodel.report.saved import read_several

    found = read_several(results)
    if output.is_dir():
        raise OutputError("cannot write there: it is a folder, want a file", str(output))
    make_folder(output.parent)
    tell([write_whole(output, result_page(found))])
    if figures is not None:
        from rackmodel.report.figures import write_figures

        tell(write_figures(found, names_of(found), figures))
