"""`rackmodel schema [KIND]`: the JSON Schema of a kind of file, for editors; `--keys`: every key for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackmodel.cli.printing import echo, print_json
from rackmodel.errors import InputError
from rackmodel.report.files import make_folder, write_whole


def schema(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="architecture, workload, mapper, ...; absent = the kinds.")] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Every key of every kind as Markdown: meaning, unit, default, example.")] = False,
    where: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the schemas of all kinds to this folder, KIND.json each.")
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of input file, by which editors complete and check."""
    import json

    from rackmodel.inputs.json_schema import MODELS, json_schema
    from rackmodel.inputs.key_reference import key_reference

    if keys and (kind or where):
        raise InputError("all keys of all kinds are printed: no kind and no folder beside it", path="--keys")
    if keys:
        echo(key_reference(), nl=False)
    elif where is not None:
        if kind:
            raise InputError("all schemas are written: no kind beside it", path="-o")
        folder = make_folder(where)
        for each in MODELS:
            write_whole(folder / f"{each}.json", json.dumps(json_schema(each), indent=1, ensure_ascii=False) + "\n")
        echo(f"wrote {len(MODELS)} schemas in {folder}")
    elif kind is None:
        echo("\n".join(MODELS))
    else:
        print_json(json_schema(kind))
