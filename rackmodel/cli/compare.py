"""`rackmodel compare ARCH WORKLOAD MAPPER...`: one search a mapper, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from rackmodel.carbon.flips import Flip
    from rackmodel.model.result import Result


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
    flips = _flips(results)
    if as_json:
        print_json({"results": rows, **({"flips": [flip.to_dict() for flip in flips]} if flips else {})})
    elif results:
        from rackmodel.report.printing import print_comparison

        print_comparison(results)
        for flip in flips:
            typer.echo(f"total carbon: {flip.words()}")
    for mapper, why in missing:
        typer.echo(f"{mapper}: {why}", err=True)
    if missing:
        raise typer.Exit(1)


def _flips(results: Sequence[Result]) -> Sequence[Flip]:
    """Rankings by total carbon that turn round inside the ranges of their factors; none where the machine states no bill or site."""
    machine = results[0].extra["machine"] if results else None
    if len(results) < 2 or machine is None or machine.site is None or all(level.embodied is None for level in machine.tree.walk()):
        return ()
    from rackmodel.carbon.assess import compare_flips
    from rackmodel.carbon.bill import bill_of
    from rackmodel.inputs import grid_table
    from rackmodel.inputs.carbon_tables import carbon_tables

    return compare_flips({result.mapper: result for result in results}, machine, bill_of(machine, carbon_tables()), grid_table())


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
