"""`rackmodel cost ARCH[,ARCH...] [WORKLOAD MAPPER]`: what owning a machine comes to in money and carbon, and a million tokens of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import (
    JsonOption,
    OptionalMapperArg,
    OptionalWorkloadArg,
    ProfileOption,
    SetOption,
    SourcesOption,
    folder,
    words_of,
)
from rackmodel.cli.printing import echo, print_json, print_sources, tell
from rackmodel.cli.usage import ActiveOption, BoundaryOption, FabOption, LifetimeOption, asked_of_fab, usage_of
from rackmodel.errors import InputError
from rackmodel.report.files import csv_of_records, write_whole

if TYPE_CHECKING:
    from rackmodel.model.architecture import Architecture
    from rackmodel.model.result import Result

MachinesArg = Annotated[
    str, typer.Argument(metavar="ARCH[,ARCH...]", help="Architectures, joined by commas: names of the library or YAML files.")
]


def cost(
    architecture: MachinesArg,
    workload: OptionalWorkloadArg = None,
    mapper: OptionalMapperArg = "auto",
    sets: SetOption = None,
    lifetime: LifetimeOption = None,
    active: ActiveOption = None,
    respins: Annotated[
        int | None,
        typer.Option(
            "--respins", metavar="N", min=0, help="Re-spins of engineered chips in the lifetime; default: each year but the first."
        ),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option("--each", metavar="N", min=1, help="Accelerators of one copy of the workload; the machine holds as many as fit."),
    ] = None,
    boundary: BoundaryOption = "facility",
    fab: FabOption = "act",
    profile: ProfileOption = None,
    sources: SourcesOption = False,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the table to this folder as CSV.")] = None,
) -> None:
    """Total cost of ownership of a machine over its lifetime, with ranges: chips or their engineering and masks, servers, building,
    electricity, carbon; with a workload, a million tokens."""
    from rackmodel.inputs import load, read_architecture
    from rackmodel.inputs.problems import placed
    from rackmodel.results import ownership_of

    usage, where = usage_of(lifetime, active, boundary), folder(output)
    names = words_of(architecture, "ARCH")
    if workload is not None and len(names) != 1:
        raise InputError("a workload is priced on one machine: say one", path="WORKLOAD", known=names)
    for option, value in {"--each": each, "--profile": profile}.items():
        if value is not None and workload is None:
            raise InputError("this is of a workload: say WORKLOAD MAPPER too", path=option)
    mine, owned = list(sets or ()), []
    for name in names:
        try:
            with asked_of_fab(fab):
                if workload is None:
                    owned.append(ownership_of(read_architecture(name, mine), usage, fab=fab, respins=respins))
                else:
                    machine, work, copies = _work((name, workload, mapper), mine, each, profile)
                    owned.append(ownership_of(machine, usage, fab=fab, respins=respins, work=work, copies=copies))
        except InputError as problem:
            of_its_file = problem.path and not problem.path.startswith("--") and not problem.where
            raise (placed(problem, load("architecture", name)) if of_its_file else problem) from None
    if respins and not any(one.money.cost.respin_usd.high for one in owned):
        raise InputError(f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} no chip that is engineered anew", path="--respins")
    data = [one.to_dict() for one in owned]
    if where is not None:
        tell(_write(data, where))
    if as_json:
        print_json({"machines": data})
    else:
        _print(data, sources)


def _work(names: tuple[str, str, str], sets: list[str], each: int | None, profile: str | None) -> tuple[Architecture, Result, int]:
    """A machine, the workload on it, and how many copies of that it holds. names: of architecture, workload, mapper. Raises InputError
    where no copy fits."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs

    inputs = read_inputs(names[0], names[1], mapper=names[2], sets=sets)
    assert inputs.mapper is not None
    machine = inputs.architecture
    if each is not None and each > machine.used:
        raise InputError(f"a copy of {each} accelerators does not fit on {machine.used}", path="--each")
    copies = machine.used // (each or machine.used)
    own = machine.using(each or machine.used)
    try:
        result = api.search_mapper(own, inputs.workload, inputs.mapper, profile=profile).result
    except InputError as problem:
        raise inputs.place(problem, profile)
    return machine, result, copies


def _write(data: list[dict[str, Any]], where: Path) -> list[Path]:
    rows = [{"machine": one["machine"], "figure": name, **figure} for one in data for name, figure in one["figures"].items()]
    return [write_whole(where / "cost.csv", csv_of_records(rows))]


def _print(data: list[dict[str, Any]], sources: bool) -> None:
    from rackmodel.report.money import ownership_table
    from rackmodel.report.tables import console

    out = console()
    out.print(ownership_table(data))
    for one in data:
        if one["not_stated"]:
            echo(f"{one['machine']}: not stated, so not counted: {', '.join(one['not_stated'])}")
    print_sources({name: source for one in data for name, source in one["sources"].items()}, whole=sources)
