"""`rackmodel compare ARCH WORKLOAD MAPPER...`: one search a mapper and machine, side by side.

rackmodel compare cs2:16,dgx_a100:512,dgx_h100:64 gpt3_175b streaming@cs2 megatron@dgx_a100 megatron@dgx_h100
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rackmodel.cli import options
from rackmodel.cli.answer_first import answer_first
from rackmodel.cli.emitted import carbon_lines, result_data, unlike_bases
from rackmodel.cli.printing import echo, print_json
from rackmodel.cli.progress import counting, watching
from rackmodel.cli.ranking import SamplesOption, SeedOption, print_ranking, ranking_data, seed_of
from rackmodel.cli.usage import ActiveOption, BoundaryOption, LifetimeOption, usage_of
from rackmodel.cli.written import write_results
from rackmodel.errors import InfeasibleError

if TYPE_CHECKING:
    from rackmodel.carbon.flips import Flip
    from rackmodel.carbon.job import Usage
    from rackmodel.inputs.comparison import Cell
    from rackmodel.model.result import Result
    from rackmodel.studies.ranking import RangedNumber, RankedPair

MachinesArg = Annotated[
    str,
    typer.Argument(
        metavar="ARCH[:N][,ARCH...]",
        help="Architectures, joined by commas: names of the library or YAML files; :N uses N accelerators.",
    ),
]
MappersArg = Annotated[
    list[str],
    typer.Argument(
        metavar="MAPPER[@ARCH]...", help="Mappers: names of the library or YAML files, on every architecture or, with @, on that one."
    ),
]


def compare(
    architecture: MachinesArg,
    workload: options.WorkloadArg,
    mappers: MappersArg,
    sets: options.SetOption = None,
    minimize: options.MinimizeOption = None,
    profile: options.ProfileOption = None,
    time: options.TimeOption = None,
    samples: SamplesOption = None,
    seed: SeedOption = None,
    lifetime: LifetimeOption = None,
    active: ActiveOption = None,
    boundary: BoundaryOption = "facility",
    as_json: options.JsonOption = False,
    output: options.OutOption = None,
) -> None:
    """Search each mapper on each machine; compare latency, energy, carbon, memory and what limits each."""
    from rackmodel import api
    from rackmodel.report.finite import check_finite

    goal, seconds = options.objective(minimize), options.time_limit(time)
    first, usage = seed_of(seed, samples), usage_of(lifetime, active, boundary)
    results, rows, missing, asked = [], [], [], []
    where = options.folder(output)
    cells = api.cells(architecture, workload, mappers, sets=sets or ())
    for cell in cells:
        try:
            with watching(seconds, cell.name) as watch:
                result = api.search_cell(cell, minimize=goal, profile=profile, usage=usage, watch=watch)
            check_finite([result])
            results.append(result)
            rows.append(result_data(result, usage))
            numbered = [f"accelerators={cell.number}"] if cell.number else []
            own = {"architecture": cell.machine, "workload": workload, "mapper": cell.mapper, "sets": [*(sets or ()), *numbered]}
            asked.append({**own, "minimize": goal, "profile": profile})
        except InfeasibleError as problem:
            missing.append((cell.name, problem))
            machine = cell.inputs.architecture
            about = {"architecture": machine.name, "mapper": cell.mapper, "accelerators": machine.used}
            rows.append({**about, "infeasible": problem.to_dict()})
    with answer_first(as_json=as_json) as write:
        if where is not None and results:
            write(lambda: write_results(results, where, _names(results, "@"), asked))
        flips = _flips(results, usage)
        pairs, numbers = _ranked(cells, goal, profile, usage, samples, first, seconds)
        if as_json:
            ranks = {"ranking": ranking_data(pairs, numbers, results[0].certificate.minimize, first)} if pairs else {}
            print_json({"results": rows, **({"flips": [flip.to_dict() for flip in flips]} if flips else {}), **ranks})
        elif results:
            from rackmodel.report.printing import print_comparison
            from rackmodel.report.tables import wrapped

            print_comparison(results, several=not cells[0].alone)
            told = [
                *_warnings(results),
                *carbon_lines(results, _names(results), usage),
                *unlike_bases(results, usage),
                *(f"total carbon: {flip.words()}" for flip in flips),
            ]
            for line in wrapped(told):
                echo(line)
            if pairs:
                print_ranking(pairs, numbers, results[0].certificate.minimize, first)
    for name, why in missing:
        echo(f"{name}: {why}", err=True)
    if missing:
        raise typer.Exit(1)


def _ranked(
    cells: Sequence[Cell],
    goal: str | None,
    profile: str | None,
    usage: Usage,
    samples: int | None,
    seed: int,
    seconds: float | None,
) -> tuple[Sequence[RankedPair], Sequence[RangedNumber]]:
    """The ranking over the ranges of the files; nothing where no samples are asked for."""
    if samples is None:
        return (), ()
    from rackmodel.processes import cores
    from rackmodel.studies.ranked_cells import ranked
    from rackmodel.watch import Watch

    with counting("searches") as line:
        return ranked(cells, goal, profile, samples, seed, usage, Watch(seconds), cores(), line)


def _names(results: Sequence[Result], joint: str = " on ") -> list[str]:
    """What tells results apart: the mapper, and the machine where there are several."""
    alone = len({result.architecture for result in results}) == 1
    return [result.mapper if alone else f"{result.mapper}{joint}{result.architecture}" for result in results]


def _warnings(results: Sequence[Result]) -> list[str]:
    """What readers must know of results, each sentence once, with whose it is where it is not said of all."""
    named = list(zip(_names(results), results, strict=True))
    every = dict.fromkeys(said for result in results for said in result.warnings)
    told = []
    for said in every:
        whose = [name for name, result in named if said in result.warnings]
        told.append(f"warning: {said}" if len(whose) == len(named) else f"warning ({', '.join(whose)}): {said}")
    return told


def _flips(results: Sequence[Result], usage: Usage) -> Sequence[Flip]:
    """Rankings by total carbon that turn round inside the ranges of their factors, among machines that state a bill and a site."""
    stated = {}
    for name, result in zip(_names(results), results, strict=True):
        machine = result.machine
        if machine is not None and machine.site is not None and any(level.embodied is not None for level in machine.tree.walk()):
            stated[name] = result, machine
    if len(stated) < 2:
        return ()
    from rackmodel.carbon.assess import footprint
    from rackmodel.carbon.bill import bill_of
    from rackmodel.carbon.flips import flips
    from rackmodel.inputs.carbon_tables import grids_of, tables_of

    bills = {name: bill_of(machine, tables_of(machine), boundaries=usage.boundaries) for name, (_, machine) in stated.items()}
    feet = {name: footprint(result, machine, bills[name], grids_of(machine), usage) for name, (result, machine) in stated.items()}
    return flips({name: foot.figure("carbon") for name, foot in feet.items()})
