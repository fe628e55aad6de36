"""`rackmodel import FILE...`: an architecture of Timeloop v4 or AccelForge with Accelergy tables, or a model's config.json, as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.options import JsonOption, folder, keep_other_kinds, plain_name
from rackmodel.cli.printing import echo, print_json
from rackmodel.errors import InputError
from rackmodel.report.files import write_whole


def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="One architecture (Timeloop v4, AccelForge), and any energy-reference tables and variables; or the config.json of a model "
            "(Hugging Face).",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR|FILE", help="A folder for NAME.yaml, or a .yaml file; absent = print it.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of what is imported; absent = as its file.")] = None,
    clock: Annotated[
        str | None, typer.Option("--clock", metavar="FREQUENCY", help="Clock, such as '1 GHz', if the files give no cycle time.")
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="Write the training step of the model, not the serving step.")] = False,
    mtp: Annotated[
        bool, typer.Option("--mtp", help="With --training: add the multi-token-prediction layer and head, if the model has them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Import an architecture of another tool, or a published model's config as the workload of a decoder's step, or of a training step.

    Everything of an architecture that is not carried over is named on stderr and in the file's note; a key of a config that may matter and
    is not understood is refused.
    """
    from rackmodel.inputs.importers import import_files

    if name is not None:
        plain_name(name, "--name", between=". ")
    if any(file.endswith(".json") for file in files):
        _import_config(files, output, name, clock, training=training, mtp=mtp, as_json=as_json)
        return
    if training or mtp:
        asked = "--training" if training else "--mtp"
        raise InputError("an architecture is not trained: it goes with a model's config.json", path=asked)
    imported = import_files(files, name=name, clock=clock)
    for line in imported.warnings:
        echo(f"warning: {line}", err=True)
    path = _written(output, imported.name, imported.text, "architecture")
    if as_json:
        data = {"architecture": imported.name, "file": str(path) if path else None, "warnings": list(imported.warnings)}
        print_json(data | ({} if path else {"text": imported.text}))
    elif path is None:
        echo(imported.text, nl=False)


def _import_config(
    files: list[str], output: Path | None, name: str | None, clock: str | None, *, training: bool, mtp: bool, as_json: bool
) -> None:
    from rackmodel.inputs.hf_config import import_config

    if len(files) != 1:
        raise InputError(f"{len(files)} files: a model's config is imported alone", path="FILE")
    if clock is not None:
        raise InputError("a model has no clock", path="--clock")
    if mtp and not training:
        raise InputError("of a step that serves a model it is there already, in `mtp`: it goes with --training", path="--mtp")
    model = import_config(files[0], name=name, training=training, mtp=mtp)
    path = _written(output, model.name, model.text, "workload")
    if as_json:
        data = {"workload": model.name, "family": model.family, "parameters": model.parameters}
        data |= {"active_parameters": model.active, "file": str(path) if path else None}
        print_json(data | ({} if path else {"text": model.text}))
    elif path is None:
        echo(model.text, nl=False)


def _written(output: Path | None, name: str, text: str, kind: str) -> Path | None:
    """The file that was written; None where there is to be none. Raises InputError where a file of another kind is there."""
    if output is None:
        return None
    path = output
    if output.suffix not in (".yaml", ".yml"):
        where = folder(output)
        assert where is not None
        path = where / f"{name}.yaml"
    keep_other_kinds(path, kind)
    write_whole(path, text)
    echo(f"wrote {path.name} in {path.parent}", err=True)
    return path
