"""`rackmodel search ARCH WORKLOAD [MAPPER]`: the best mapping, proven."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli.options import (
    ArchitectureArg,
    JsonOption,
    MinimizeOption,
    OutOption,
    ProfileOption,
    SetOption,
    WorkloadArg,
    folder,
    objective,
    print_json,
    tell,
    write_results,
)


def search(
    architecture: ArchitectureArg,
    workload: WorkloadArg,
    mapper: Annotated[str, typer.Argument(metavar="MAPPER", help="Mapper: a name of the library or a YAML file.")] = "auto",
    sets: SetOption = None,
    minimize: MinimizeOption = None,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Return the best K meshes, best first.")] = 1,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: OutOption = None,
) -> None:
    """Search the mapspace of one mapper; -o writes a mapping file that `evaluate` prices to the same figures."""
    from rackmodel import api

    answer = api.search(architecture, workload, mapper, sets=sets or (), minimize=objective(minimize), profile=profile, top=top)
    where = folder(output)
    if where is not None:
        tell(write_results([answer.result], where))
    if as_json:
        print_json({"result": answer.result.to_dict(), "top": [result.to_dict() for result in answer.top]})
        return
    from rackmodel.report.printing import print_result

    print_result(answer.result, answer.top)
