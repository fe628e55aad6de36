"""`rackmodel evaluate ARCH WORKLOAD MAPPING`: price one mapping file."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli.options import (
    ArchitectureArg,
    JsonOption,
    OutOption,
    ProfileOption,
    SetOption,
    WorkloadArg,
    folder,
    print_json,
    tell,
    write_results,
)


def evaluate(
    architecture: ArchitectureArg,
    workload: WorkloadArg,
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="A mapping file, as `search -o` writes it.")],
    sets: SetOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: OutOption = None,
) -> None:
    """Price one mapping: latency, energy, carbon, memory and every charge."""
    from rackmodel import api

    result = api.evaluate(architecture, workload, mapping, sets=sets or (), profile=profile)
    where = folder(output)
    if where is not None:
        tell(write_results([result], where))
    if as_json:
        print_json({"result": result.to_dict()})
        return
    from rackmodel.report.printing import print_result

    print_result(result)
