"""`rackmodel carbon ARCH [WORKLOAD MAPPER]`: what a machine is made of, and what a job on it emits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli import options
from rackmodel.cli.carbon_job import Amounts, JobQuestion, at_grid, grid_words, job_data, job_lines, on_trace, write_job
from rackmodel.cli.printing import print_json, print_sources, tell
from rackmodel.cli.usage import ActiveOption, BoundaryOption, FabOption, LifetimeOption, asked_of_fab, usage_of
from rackmodel.cli.whole_run import make_run, run_words
from rackmodel.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackmodel.cli.whole_run import RunWords
    from rackmodel.inputs import Inputs
    from rackmodel.model.architecture import Architecture
    from rackmodel.model.result import Result


def carbon(
    architecture: options.ArchitectureArg,
    workload: options.OptionalWorkloadArg = None,
    mapper: options.OptionalMapperArg = "auto",
    sets: options.SetOption = None,
    tokens: options.TokensOption = None,
    steps: options.StepsOption = None,
    grid: Annotated[
        str | None,
        typer.Option("--grid", metavar="PLACE[,PLACE..]", help="Grids to compare: sweden,taiwan,'300 g/kWh'; default: the site's."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="CSV", help="Hourly grid intensity, column g_per_kwh, in place of the site's grid."),
    ] = None,
    lifetime: LifetimeOption = None,
    active: ActiveOption = None,
    boundary: BoundaryOption = "facility",
    fab: FabOption = "act",
    minimize: options.MinimizeOption = None,
    profile: options.ProfileOption = None,
    sources: options.SourcesOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the metrics of a step too: edp, cdp, tcdp, ...")] = False,
    as_json: options.JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the job as CSV and chart to this folder.")
    ] = None,
) -> None:
    """Embodied carbon of a machine as a bill of materials; with a workload the carbon of a step, or of a run of --tokens, on one grid or
    several, with ranges, money and sources."""
    from rackmodel.inputs import load, read_architecture
    from rackmodel.inputs.problems import placed
    from rackmodel.results import known_bill

    asked = JobQuestion(usage_of(lifetime, active, boundary), fab, grid_words(grid), trace)
    words = run_words(tokens, steps, None, None, None, None)
    given = {"--tokens": tokens, "--steps": steps, "--grid": grid, "--trace": trace, "-o": output, "--lifetime": lifetime}
    given |= {"--active": active, "--minimize": minimize, "--profile": profile, "--verbose": verbose or None}
    _check_given(given, workload, asked)
    where, mine = options.folder(output), list(sets or ())
    data: dict[str, Any] = {}
    if workload is None:
        machine = read_architecture(architecture, mine)
    else:
        machine, data = _work((architecture, workload, mapper), mine, asked, words, (options.objective(minimize), profile))
    with asked_of_fab(fab):
        bill = known_bill(machine, fab, asked.usage.boundaries)
    if bill is None:
        raise placed(_nothing_stated(machine), load("architecture", architecture))
    data = {"architecture": machine.name, "fab": fab, "bill": bill.to_dict(), **data}
    if where is not None:
        tell(write_job(data["job"], where))
    if as_json:
        print_json(data)
    else:
        _print(data, sources, verbose)


def _check_given(given: Mapping[str, Any], workload: str | None, asked: JobQuestion) -> None:
    """Raise InputError for options of a job where there is none, and for two grids. given: option → what it says, None = nothing."""
    for option, value in given.items():
        if workload is None and value is not None:
            raise InputError("this is of a job: say WORKLOAD MAPPER too", path=option)
    if asked.trace is not None and asked.grids:
        raise InputError("a trace stands for the grid: one of the two", path="--grid")


def _nothing_stated(machine: Architecture) -> InputError:
    """That a machine has no bill of materials, and what a file says to have one."""
    ways = "write `embodied: {dies: ..., memory: ..., parts: ...}` under a level, as dgx_h100 of the library and docs/carbon.md do"
    return InputError(f"no level of '{machine.name}' says what it is made of (embodied): {ways}", path="tree")


def _work(
    names: tuple[str, str, str], sets: list[str], asked: JobQuestion, words: RunWords | None, how: tuple[Any, str | None]
) -> tuple[Architecture, dict[str, Any]]:
    """Search the workload on the machine: (machine, its step and its job as plain data). names: of architecture, workload, mapper ·
    how: objective, profile."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.finite import check_finite

    inputs = read_inputs(names[0], names[1], mapper=names[2], sets=sets)
    assert inputs.mapper is not None
    machine = inputs.architecture
    try:
        if asked.grids:
            machine = at_grid(machine, asked.grids[0])
        elif asked.trace is not None:
            machine = on_trace(machine, asked.trace, asked.usage)
        found = {"minimize": how[0], "profile": how[1], "usage": asked.usage, "fab": asked.fab}
        with asked_of_fab(asked.fab):
            result = api.search_mapper(machine, inputs.workload, inputs.mapper, **found).result
            work = _step(result, machine, asked)
    except InputError as problem:
        raise inputs.place(problem)
    check_finite([result])
    job = job_data(machine, _amounts(result, words, inputs), asked)
    title = f"{work['title']}, {job['places'][0]['grid']}"
    return machine, {"work": work | {"title": title}, "job": job}


def _amounts(result: Result, words: RunWords | None, inputs: Inputs) -> Amounts:
    """What the job takes: a step or a run of steps; tokens with the pipeline full, where the layers of the machine are wired."""
    full = result.pipelined
    if full is not None and result.tokens:
        tokens = 1.0 if words is None else words.tokens or result.tokens * (words.steps or 1)
        said = f"{tokens:,.12g} token{'s' if tokens > 1 else ''} of {result.workload}, {full.in_flight} in flight"
        return Amounts(said, tokens * full.joules_per_token, tokens / full.tokens_per_s, tokens)
    if words is None:
        return Amounts(f"one step of {result.workload}", result.energy_j, result.latency_s, result.tokens)
    run = make_run(words, result, inputs)
    many = None if result.tokens is None else result.tokens * run.steps
    said = f"{run.steps:,} steps of {result.workload}" + ("" if many is None else f", {many:,.0f} tokens")
    return Amounts(said, run.total.joules, run.total.seconds, many)


def _step(result: Result, machine: Architecture, asked: JobQuestion) -> dict[str, Any]:
    """One step's shares, metrics and what its range comes from, as plain data."""
    from rackmodel.carbon.assess import footprint
    from rackmodel.carbon.metrics import UNITS
    from rackmodel.inputs.carbon_tables import grids_of
    from rackmodel.results import carbon_of, known_bill

    bill = known_bill(machine, asked.fab, asked.usage.boundaries)
    if bill is None:
        raise _nothing_stated(machine)
    whole = footprint(result, machine, bill, grids_of(machine), asked.usage, work=result.tokens or 1.0)
    job = carbon_of(result, asked.usage, asked.fab)
    assert job is not None
    figures = {"use": job.use_g, "idle": job.idle_g, "operational": whole.operational_g}
    figures |= {"share of embodied": whole.embodied_share_g, "total": whole.total_g}
    if result.tokens:
        figures["total for each token"] = whole.total_g / result.tokens
    total = whole.total_g
    return {
        "title": f"{result.workload} by {result.mapper}, one pass of {result.latency_s:.4g} s",
        "without": job.basis.get("without"),
        "latency_s": result.latency_s,
        "energy_j": result.energy_j,
        "carbon": {name: value.to_dict() for name, value in figures.items()},
        "metrics": {name: value.to_dict() for name, value in whole.metrics().items()},
        "units": UNITS,
        "swings": [{"factor": name, "low_g": low, "high_g": high} for name, low, high in total.swings()],
        "sources": {name: value.source for name, value in sorted(total.factors.items()) if value.source},
    }


def _not_counted(bill: dict[str, Any]) -> list[str]:
    """What a machine's file does not state, in words, and how it would."""
    silent, nothing = ", ".join(bill["silent"]), ", ".join(bill["nothing_of"])
    lines = [f"not stated, so not counted: {silent}"] if silent else []
    if nothing:
        lines.append(f"nothing is stated of: {nothing}")
    if bill["silent"] and (around := [name for name in ("host", "tray", "network") if name in bill["nothing_of"]]):
        level, within = bill["silent"][-1], around[0]
        part = f"{level}.embodied='{{parts: {{{within}: {{carbon: 500 kg, boundary: {within}}}}}}}'"
        lines.append(f"a figure of one's own for each {level} counts, such as --set {part}")
    return lines


def _print(data: dict[str, Any], sources: bool, verbose: bool) -> None:
    from rackmodel.report.carbon import bill_table, boundary_table, footprint_table, places_table, swing_table
    from rackmodel.report.tables import console, wrapped

    out, bill, work, job = console(), data["bill"], data.get("work"), data.get("job")
    out.print(bill_table(bill))
    out.print()
    out.print(boundary_table(bill))
    for said in wrapped(f"warning: {one}" for one in bill["warnings"]):
        out.print(said)
    for said in wrapped(_not_counted(bill)):
        out.print(said)
    if work:
        out.print()
        out.print(footprint_table(work, metrics=verbose))
        if not verbose:
            out.print(f"-v prints {', '.join(work['metrics'])} too")
    out.print()
    out.print(swing_table((work or bill)["swings"]))
    if job:
        out.print()
        out.print(places_table(job))
        left_out = [f"use is without {work['without']}"] if work and work["without"] else []
        for line in wrapped([*job_lines(job), *left_out]):
            out.print(line)
    print_sources(bill["sources"] | (work["sources"] if work and sources else {}), whole=sources)
