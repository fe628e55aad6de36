"""`rackmodel carbon ARCH [WORKLOAD MAPPER]`: what a machine is made of, and what a workload on it emits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import ArchitectureArg, JsonOption, MinimizeOption, ProfileOption, SetOption, objective, print_json
from rackmodel.cli.usage import ActiveOption, BoundaryOption, FabOption, LifetimeOption, usage_of

if TYPE_CHECKING:
    from rackmodel.carbon.assess import Usage
    from rackmodel.carbon.bill import Bill
    from rackmodel.model.architecture import Architecture


def carbon(
    architecture: ArchitectureArg,
    workload: Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Workload: a name of the library or a YAML file.")] = None,
    mapper: Annotated[str, typer.Argument(metavar="[MAPPER]", help="Mapper: a name of the library or a YAML file.")] = "auto",
    sets: SetOption = None,
    lifetime: LifetimeOption = None,
    active: ActiveOption = None,
    boundary: BoundaryOption = "facility",
    fab: FabOption = "act",
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="CSV", help="Hourly intensity of the grid, column g_per_kwh, instead of the site's grid."),
    ] = None,
    minimize: MinimizeOption = None,
    profile: ProfileOption = None,
    sources: Annotated[bool, typer.Option("--sources", help="Print where every factor is from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Embodied carbon of a machine as a bill of materials, and the carbon of a workload on it, with ranges and sources."""
    from rackmodel.carbon.bill import bill_of
    from rackmodel.inputs import read_architecture
    from rackmodel.inputs.carbon_tables import carbon_tables

    usage, goal = usage_of(lifetime, active, boundary), objective(minimize)
    mine = list(sets or ())
    machine = read_architecture(architecture, mine) if workload is None else None
    data: dict[str, Any] = {}
    if machine is None:
        machine, data["work"], bill = _work(architecture, str(workload), mapper, mine, usage, fab, goal, profile, trace)
    else:
        bill = bill_of(machine, carbon_tables(), fab, usage.boundaries)
    data = {"architecture": machine.name, "fab": fab, "bill": bill.to_dict(), **data}
    if as_json:
        print_json(data)
    else:
        _print(data, sources)


def _work(
    architecture: str,
    workload: str,
    mapper: str,
    sets: list[str],
    usage: Usage,
    fab: str,
    goal: Any,
    profile: str | None,
    trace: Path | None,
) -> tuple[Any, dict[str, Any], Bill]:
    """Search the workload on the machine: (machine, its footprint as plain data, the bill)."""
    from rackmodel import api
    from rackmodel.carbon.assess import footprint
    from rackmodel.carbon.bill import bill_of
    from rackmodel.carbon.metrics import UNITS
    from rackmodel.carbon.run import tokens_of
    from rackmodel.errors import InputError
    from rackmodel.inputs import grid_table, read_inputs
    from rackmodel.inputs.carbon_tables import carbon_tables
    from rackmodel.report.finite import check_finite
    from rackmodel.results import carbon_of

    inputs = read_inputs(architecture, workload, mapper=mapper, sets=sets)
    assert inputs.mapper is not None
    try:
        machine = inputs.architecture if trace is None else _on_trace(inputs.architecture, trace, usage)
        bill = bill_of(machine, carbon_tables(), fab, usage.boundaries)
        result = api.search_mapper(machine, inputs.workload, inputs.mapper, minimize=goal, profile=profile, usage=usage, fab=fab).result
    except InputError as problem:
        raise inputs.place(problem)
    check_finite([result])
    tokens = tokens_of(inputs.workload) if inputs.workload.weights else None
    print_of = footprint(result, machine, bill, grid_table(), usage, work=float(tokens or 1))
    job = carbon_of(result, usage, fab)
    assert job is not None
    figures = {"use": job.use_g, "idle": job.idle_g, "operational": print_of.operational_g}
    figures |= {"share of embodied": print_of.embodied_share_g, "total": print_of.total_g}
    if tokens:
        figures["total for each token"] = print_of.total_g / float(tokens)
    total = print_of.total_g
    return (
        machine,
        {
            "title": f"{result.workload} by {result.mapper}, one pass of {result.latency_s:.4g} s",
            "latency_s": result.latency_s,
            "energy_j": result.energy_j,
            "carbon": {name: value.to_dict() for name, value in figures.items()},
            "metrics": {name: value.to_dict() for name, value in print_of.metrics().items()},
            "units": UNITS,
            "swings": [{"factor": name, "low_g": low, "high_g": high} for name, low, high in total.swings()],
            "sources": {name: value.source for name, value in sorted(total.factors.items()) if value.source},
        },
        bill,
    )


def _on_trace(machine: Architecture, path: Path, usage: Usage) -> Architecture:
    """The machine on a grid of an hourly trace. Raises InputError."""
    from rackmodel.carbon.operational import JOULES_PER_KWH
    from rackmodel.carbon.trace import placed, read_trace
    from rackmodel.errors import InputError, Where

    if machine.site is None:
        raise InputError("a trace stands for a site's grid: the architecture has no site", path="site")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot be read: {problem}", where=Where(str(path)))
    found = placed(read_trace(text, str(path)), float(usage.active), str(path))
    ends = {"low": found.low, "mid": float(found), "high": found.high}
    said = {name: f"{value * JOULES_PER_KWH!r} g/kWh" for name, value in ends.items()}
    site = machine.site.model_copy(update={"grid": {"intensity": said, "source": found.source}, "intensity_g_per_j": None})
    return machine.model_copy(update={"site": site})


def _print(data: dict[str, Any], sources: bool) -> None:
    from rackmodel.report.carbon import bill_table, boundary_table, footprint_table, source_lines, swing_table
    from rackmodel.report.tables import console

    out, bill, work = console(), data["bill"], data.get("work")
    out.print(bill_table(bill))
    out.print()
    out.print(boundary_table(bill))
    if bill["silent"]:
        out.print(f"not stated, so not counted: {', '.join(bill['silent'])}")
    if work:
        out.print()
        out.print(footprint_table(work))
    out.print()
    out.print(swing_table((work or bill)["swings"]))
    if sources:
        for line in source_lines({**bill["sources"], **(work["sources"] if work else {})}):
            out.print(line, soft_wrap=True)
    elif bill["sources"]:
        out.print(f"{len(bill['sources'])} factors with sources: --sources prints them")
