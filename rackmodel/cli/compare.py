"""`rackmodel compare ARCH WORKLOAD MAPPER...`: one search a mapper, side by side."""

from __future__ import annotations

from typing import Annotated, Any

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


def compare(
    architecture: ArchitectureArg,
    workload: WorkloadArg,
    mappers: Annotated[list[str], typer.Argument(metavar="MAPPER...", help="Mappers: names of the library or YAML files.")],
    sets: SetOption = None,
    minimize: MinimizeOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: OutOption = None,
) -> None:
    """Search each mapper and compare latency, energy, carbon and memory."""
    from rackmodel import api
    from rackmodel.errors import InfeasibleError

    goal = objective(minimize)
    results, rows, missing = [], [], []
    for mapper in mappers:
        try:
            result = api.search(architecture, workload, mapper, sets=sets or (), minimize=goal, profile=profile).result
            results.append(result)
            rows.append(result.to_dict())
        except InfeasibleError as problem:
            missing.append((mapper, problem))
            rows.append({"mapper": mapper, "infeasible": _why(problem)})
    where = folder(output)
    if where is not None and results:
        tell(write_results(results, where))
    if as_json:
        print_json({"results": rows})
    elif results:
        from rackmodel.report.printing import print_comparison

        print_comparison(results)
    for mapper, why in missing:
        typer.echo(f"{mapper}: {why}", err=True)
    if missing:
        raise typer.Exit(1)


def _why(problem: Any) -> dict[str, Any]:
    return {
        "message": problem.message,
        "resource": problem.resource,
        "need": problem.need,
        "have": problem.have,
        "shortfall": problem.shortfall,
        "unit": problem.unit,
        "change": problem.change,
    }
