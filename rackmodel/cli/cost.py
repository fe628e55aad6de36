"""`rackmodel cost ARCH[,ARCH...] [WORKLOAD MAPPER]`: what owning a machine comes to in money and carbon, and a million tokens of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, ProfileOption, SetOption, folder, words_of
from rackmodel.cli.printing import echo, print_json, tell
from rackmodel.cli.usage import ActiveOption, BoundaryOption, FabOption, LifetimeOption, asked_of_fab, usage_of
from rackmodel.errors import InputError
from rackmodel.report.files import csv_of_records, write_whole

if TYPE_CHECKING:
    from rackmodel.carbon.job import Usage
    from rackmodel.carbon.ownership import Ownership
    from rackmodel.model.architecture import Architecture

MachinesArg = Annotated[
    str, typer.Argument(metavar="ARCH[,ARCH...]", help="Architectures, joined by commas: names of the library or YAML files.")
]


def cost(
    architecture: MachinesArg,
    workload: Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Workload: a name of the library or a YAML file.")] = None,
    mapper: Annotated[str, typer.Argument(metavar="[MAPPER]", help="Mapper: a name of the library or a YAML file.")] = "auto",
    sets: SetOption = None,
    lifetime: LifetimeOption = None,
    active: ActiveOption = None,
    respins: Annotated[
        int | None,
        typer.Option("--respins", metavar="N", min=0, help="Updates of engineered chips in the life; default: each year but the first."),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option("--each", metavar="N", min=1, help="Accelerators of one copy of the workload; the machine holds as many as fit."),
    ] = None,
    boundary: BoundaryOption = "facility",
    fab: FabOption = "act",
    profile: ProfileOption = None,
    sources: Annotated[bool, typer.Option("--sources", help="Print where every factor is from.")] = False,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the table to this folder as CSV.")] = None,
) -> None:
    """What a machine costs to have, run and update in its life, with ranges: chips or their engineering and masks, servers, building,
    electricity, carbon; with a workload, a million tokens."""
    from rackmodel.inputs import load, read_architecture
    from rackmodel.inputs.problems import placed

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
                    owned.append(_owned(read_architecture(name, mine), usage, fab, respins))
                else:
                    owned.append(_working(name, workload, mapper, mine, usage, fab, respins, each, profile))
        except InputError as problem:
            raise problem if problem.where or problem.path.startswith("--") else placed(problem, load("architecture", name)) from None
    if respins and not any(one.money.cost.respin_usd.high for one in owned):
        raise InputError(f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} no chip that is engineered anew", path="--respins")
    data = [one.to_dict() for one in owned]
    if where is not None:
        tell(_write(data, where))
    if as_json:
        print_json({"machines": data})
    else:
        _print(data, sources)


def _owned(machine: Architecture, usage: Usage, fab: str, respins: int | None) -> Ownership:
    """A machine at the power that its levels state."""
    from rackmodel.results import ownership_of

    return ownership_of(machine, usage, fab=fab, respins=respins)


def _working(
    name: str,
    workload: str,
    mapper: str,
    sets: list[str],
    usage: Usage,
    fab: str,
    respins: int | None,
    each: int | None,
    profile: str | None,
) -> Ownership:
    """A machine at the power of a workload, and the tokens of its life. Raises InputError where no copy of it fits."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.results import ownership_of

    inputs = read_inputs(name, workload, mapper=mapper, sets=sets)
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
    return ownership_of(machine, usage, fab=fab, respins=respins, work=result, copies=copies)


def _write(data: list[dict[str, Any]], where: Path) -> list[Path]:
    rows = [{"machine": one["machine"], "figure": name, **figure} for one in data for name, figure in one["figures"].items()]
    return [write_whole(where / "cost.csv", csv_of_records(rows))]


def _print(data: list[dict[str, Any]], sources: bool) -> None:
    from rackmodel.report.carbon import source_lines
    from rackmodel.report.money import ownership_table
    from rackmodel.report.tables import console

    out = console()
    out.print(ownership_table(data))
    for one in data:
        if one["not_stated"]:
            echo(f"{one['machine']}: not stated, so not counted: {', '.join(one['not_stated'])}")
    every = {name: source for one in data for name, source in one["sources"].items()}
    if sources:
        for line in source_lines(every):
            out.print(line, soft_wrap=True)
    elif every:
        echo(f"{len(every)} factors with sources: --sources prints them")
