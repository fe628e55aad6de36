"""`rackmodel calibrate ROWS.csv... --part PART`: a part's kernels fitted to measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.options import JsonOption, keep_other_kinds, output_file
from rackmodel.cli.printing import echo, print_json
from rackmodel.report.files import stem_of, write_whole


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROWS.csv...",
            help="Measured kernels, one row each: products (m, n, k, latency_us, gemm_dtype), calls of experts (moe_dtype), or attention.",
        ),
    ],
    part: Annotated[str, typer.Option("--part", metavar="PART", help="Part of the library (specs/parts) that the rows were measured on.")],
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="Rows of this GPU, if the files hold several.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="PART.yaml", help="Write the fitted part to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a part's kernel rates to measured kernels, and report the error on held-out shapes."""
    from rackmodel.validation.rows import kind_of_file

    output_file(output)
    network = kind_of_file(files[0]) in ("collective", "message", "expert exchange")
    keep_other_kinds(output, "collectives" if network else "part")
    if network:
        _network(part, files, gpu, output)
        return
    from rackmodel.calibration.part import calibrate as run
    from rackmodel.calibration.part import part_text
    from rackmodel.calibration.power import busy_powers
    from rackmodel.model.resources import WAITING

    left: list[str] = []
    found = run(part, files, gpu, left)
    for one in left:
        echo(f"left out: {one}", err=True)
    name = stem_of(output.stem) if output is not None else f"{part}_fitted"
    busy = busy_powers(part, files, gpu)
    text = part_text(part, name, found, {one.kind: one.fact() for one in busy})
    if output is not None:
        write_whole(output, text)
        echo(f"wrote {output.name}", err=True)
    if as_json:
        own = next((one.busy_w for one in busy if one.kind is None), None)
        waiting = next((one.busy_w for one in busy if one.kind == WAITING), None)
        kinds = {
            one.kind: {"power_w": one.busy_w, "moved_j_per_byte": one.moved_j_per_byte} for one in busy if one.kind not in (None, WAITING)
        }
        print_json(
            {
                "part": name,
                "busy_power_w": own,
                "waiting_power_w": waiting,
                "busy": kinds,
                "fits": [one.to_dict() for one in found],
                "left_out": left,
            }
        )
        return
    for words in (fit.words() for fit in (*found, *busy)):
        echo(words)
    if output is None:
        echo(text, nl=False)


def _network(name: str, files: list[Path], gpu: str | None, output: Path | None) -> None:
    """What collectives and exchanges of tokens take on a network, as a file of specs/collectives."""
    from rackmodel.calibration.collectives import calibrate_network

    left: list[str] = []
    text, words = calibrate_network(stem_of(output.stem) if output is not None else name, files, gpu, left)
    for one in left:
        echo(f"left out: {one}", err=True)
    if output is not None:
        write_whole(output, text)
        echo(f"wrote {output.name}", err=True)
    for one in words:
        echo(one)
    if output is None:
        echo(text, nl=False)
