"""The doors: search, compare, evaluate and price, by name or path, with the same overrides as the command line, or with objects.

import rackmodel as rm
results = rm.compare("rack_paper", "ffn", ["data", "tensor"], sets=["accelerators=32"])
print(results[0].latency_s, results[0].ledger.group(["component"]))
results = rm.compare("cs2:16,dgx_a100:512", "gpt3_175b", ["streaming@cs2", "megatron@dgx_a100"])
print([(result.architecture, result.latency_s, result.limited_by) for result in results])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rackmodel.carbon.operational import carbon_g_per_j
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.exact import ExactStep, Structure, walk_together
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.occupancy import wired_of
from rackmodel.cost.step.offload import host_of
from rackmodel.cost.step.pricer import backing_level
from rackmodel.cost.step.shared import Shared
from rackmodel.cycles import rarely_looked_for
from rackmodel.errors import InfeasibleError, InputError, Where, together
from rackmodel.inputs import Inputs, read_inputs, read_profile
from rackmodel.inputs.carbon_tables import grids_of, tables_of
from rackmodel.inputs.comparison import Cell, cells, saying
from rackmodel.mapper.fronts import front_figures
from rackmodel.mapper.grid_axes import on_grid
from rackmodel.mapper.in_order import read_goals, search_in_order
from rackmodel.mapper.layouts.least_ops import LeastOperations
from rackmodel.mapper.layouts.settled import settled
from rackmodel.mapper.layouts.shortlist import NOTE, with_found_layouts
from rackmodel.mapper.layouts.worth import Worth
from rackmodel.mapper.limits import BLENDED, Limits, check_open_cut, read_limits
from rackmodel.mapper.loop_nests import NestInside, nest_inside
from rackmodel.mapper.mapping import from_mapping, parked, to_mapping
from rackmodel.mapper.mapping_check import check_home_level, check_mapping, check_rates, handover_problems, hosts_of, left_out
from rackmodel.mapper.mapspace import Mapspace, algorithms_of, build_mapspace, host_named
from rackmodel.mapper.misfits import misfits
from rackmodel.mapper.nest_aims import aim_of
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Point, held_by
from rackmodel.mapper.pooled import check_pooled, on_pools
from rackmodel.mapper.rules import stages_of
from rackmodel.mapper.search import Found, Question
from rackmodel.mapper.way_out import with_way_out
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import BEST_FOUND, PROVEN
from rackmodel.model.mapper_check import passed_over
from rackmodel.model.mapping import BLENDS, SAME_ORDER, InsideSpec, MapperSpec, MappingSpec, homes_of
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.model.wired import with_wired_weights
from rackmodel.model.workload import Workload
from rackmodel.nests.objective import NestObjective
from rackmodel.results import nests_of, result_of, told_as
from rackmodel.setting import at_pace, local_pricer, setting_of, settings_of
from rackmodel.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from rackmodel.carbon.assess import Usage

__all__ = [
    "Answer",
    "Cell",
    "Prices",
    "cells",
    "compare",
    "evaluate",
    "evaluate_mapping",
    "mapspace",
    "objective_of",
    "price",
    "search",
    "search_cell",
    "search_mapper",
    "step_of",
]

MOST = 10_000
"""Mappings that a search returns at most: each comes with its ledger."""


@dataclass(frozen=True)
class Answer:
    """A search's answer: the best mapping, the best K, and the Pareto front if asked for. front_status: 'proven' where no point of it is
    missing, else 'best found' · step: of the best mapping, as the clock takes it · figures: what the front is of · bills: those of
    them that no result has, for they take the machine's bill, of each mapping of the front."""

    result: Result
    top: tuple[Result, ...]
    front: tuple[Result, ...] = ()
    front_status: str = PROVEN
    step: ExactStep | None = field(default=None, repr=False, compare=False)
    figures: tuple[str, ...] = ()
    bills: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False, compare=False)


def compare(
    architecture: str | Sequence[str],
    workload: str,
    mappers: Sequence[str],
    *,
    sets: Sequence[str] = (),
    minimize: str | None = None,
    profile: str | None = None,
    watch: Watch = UNWATCHED,
) -> list[Result]:
    """The best mapping of each mapper on each machine, in the order of `cells`. watch: of each search. Raises InputError,
    InfeasibleError."""
    every = cells(architecture, workload, mappers, sets=sets)
    return [search_cell(cell, minimize=minimize, profile=profile, watch=watch.again()) for cell in every]


def search_cell(cell: Cell, *, minimize: str | None = None, profile: str | None = None, watch: Watch = UNWATCHED) -> Result:
    """The best mapping of one cell of a comparison. Raises InputError, InfeasibleError."""
    given, mapper = cell.inputs, cell.inputs.mapper
    assert mapper is not None
    changed = _changed(given, profile, mapper.profile)
    try:
        return search_mapper(given.architecture, given.workload, mapper, minimize=minimize, profile=changed, watch=watch).result
    except InputError as problem:
        hint = "" if cell.alone else f" (on {cell.machine}; MAPPER@ARCH runs a mapper on one machine)"
        raise saying(cell.inputs.place(problem, profile), hint)


def search(
    architecture: str,
    workload: str,
    mapper: str = "auto",
    *,
    sets: Sequence[str] = (),
    minimize: str | None = None,
    profile: str | None = None,
    top: int = 1,
    limits: Mapping[str, float | str] | None = None,
    front: Sequence[str] = (),
    watch: Watch = UNWATCHED,
) -> Answer:
    """Search one mapper's space, by names or paths; the rest as `search_mapper`. sets: as the command line's --set ("gpu.count=4")."""
    inputs = read_inputs(architecture, workload, mapper=mapper, sets=sets)
    assert inputs.mapper is not None
    try:
        return search_mapper(
            inputs.architecture,
            inputs.workload,
            inputs.mapper,
            minimize=minimize,
            profile=_changed(inputs, profile, inputs.mapper.profile),
            top=top,
            limits=limits,
            front=front,
            watch=watch,
        )
    except InputError as problem:
        raise inputs.place(problem, profile)


@rarely_looked_for()
def search_mapper(
    architecture: Architecture,
    workload: Workload,
    mapper: MapperSpec,
    *,
    minimize: str | None = None,
    profile: str | ProfileSpec | None = None,
    top: int = 1,
    limits: Mapping[str, float | str] | None = None,
    front: Sequence[str] = (),
    usage: Usage | None = None,
    fab: str | None = None,
    watch: Watch = UNWATCHED,
    shared: Shared | None = None,
) -> Answer:
    """Search with objects. minimize: an objective, or several in order ('latency,energy') · top: how many mappings to return · limits:
    what no step may exceed: 'power' (W), 'memory' (bytes), 'latency' (s), 'energy' (J), 'carbon', 'total_carbon' (g), 'money' (usd),
    'edp', 'tcdp', numbers or text with a unit · front: figures of the Pareto front to return as well · usage, fab: lifetime, active share
    and fab data that carbon objectives assume · watch: time limit and progress · shared: what searches alike go on from.
    Raises InputError, InfeasibleError."""
    workload, mapper = _on(architecture, workload), on_grid(mapper, architecture)
    chosen = _profile(profile, mapper.profile)
    names = read_goals(minimize or mapper.minimize)
    goals = [objective_of(name, architecture, usage, fab) for name in names]
    question = Question(
        goal=goals[0],
        top=_top(top),
        limits=_limits(limits or {}, architecture, names, lambda name: objective_of(name, architecture, usage, fab)),
        front=[objective_of(name, architecture, usage, fab) for name in front_figures(front)],
        watch=watch,
    )
    _check_levels(architecture, workload, mapper)
    tell = partial(told_as, usage=usage, fab=fab or "act")
    if len(architecture.pools) > 1:
        pooled, first = _search_pools(architecture, workload, mapper, chosen, question, names)
        told = tuple(tell(one, names[-1]) for one in pooled)
        return Answer(told[0], told, (), PROVEN, first)
    check_open_cut(mapper, question.goal, question.limits)
    known = shared or Shared()
    inside = known.inside(_inside(architecture, mapper, workload, question, chosen), architecture)
    setting = replace(setting_of(architecture, chosen, algorithms_of(mapper), inside), ask=known.ask)
    hosts = hosts_of(architecture)
    named = host_named(mapper, hosts)
    programs = known.programs(workload, chosen, mapper, backing_level(architecture))
    job = Job(setting=setting, workload=workload, profile=chosen, host=named, programs=programs)
    host = host_of(architecture, named).level if any(mapper.offload) or named is not None else None
    on = architecture.used, hosts

    def space_of(spec: MapperSpec) -> Mapspace:
        return known.once((spec, workload), on, lambda: build_mapspace(spec, workload, *on))

    if any("free" in split.values() for split in (mapper.split, *(said.split for said in mapper.layouts.values()))):
        job = replace(job, layers={})  # spaces before and after layouts are found have most plans in common
    worth = Worth(job, question, space_of)
    given = setting, workload, mapper, chosen, question.goal, watch
    laid_out, free, every = with_found_layouts(*given, worth if len(names) == 1 else None)
    space = replace(space_of(laid_out), note=NOTE if free else "")
    warnings = passed_over(mapper, workload)
    if free and len(names) > 1:
        raise InputError("free choices are searched for one objective: fix them in `split` or `choose`", path="--minimize")
    try:
        if free:
            least = LeastOperations(job, space_of(every), free, watch, worth.seen)
            laid_out, question = settled(job, (laid_out, every), space_of, question, free, least)
            space = replace(space_of(laid_out), note=NOTE)
        found, fronted = search_in_order(job, space, question, goals)
        if isinstance(inside, NestInside):
            inside.check_room()
    except InfeasibleError as problem:
        raise with_way_out(problem, job, laid_out)

    def result(source: Found, last: int, point: Point, step: ExactStep) -> Result:
        group, priced = source.groups[point.group], source.prices[point.group]
        mapping = to_mapping(space, group, point, mapper.name, chosen.name, host)
        held = held_by(point, priced, group)
        sheet = source.certificate
        if point is not source.points[0]:
            sheet = sheet.of(float(goals[last].value(point.seconds, point.joules, point.memory)))
        return tell(result_of(step, held, mapping, sheet, mapper.name, warnings), names[last])

    asked = [(found, len(goals) - 1, point) for point in found.points] + [(fronted, 0, point) for point in fronted.front]
    for source in (found, fronted):
        source.clocked.expect([point for of, _, point in asked if of.clocked is source.clocked])
    steps = [source.clocked.step(point) for source, _, point in asked]
    walk_together(steps)
    results = tuple(result(*one, step) for one, step in zip(asked, steps, strict=True))
    status = PROVEN if fronted.complete else BEST_FOUND
    members = results[len(found.points) :]
    bills: dict[str, list[float]] = {
        goal.name: [float(goal.value(one.latency_s, one.energy_j, one.memory_bytes_per_accelerator)) for one in members]
        for goal in question.front
        if goal.name in (*BLENDS, "money")
    }
    return Answer(results[0], results[: len(found.points)], members, status, steps[0], tuple(front), bills)


def _search_pools(
    architecture: Architecture, workload: Workload, mapper: MapperSpec, profile: ProfileSpec, question: Question, names: Sequence[str]
) -> tuple[list[Result], ExactStep]:
    """The best mappings on accelerators of several kinds, and the step of the first. names: of the objectives."""
    from rackmodel.mapper.stages.pooled_search import search_pools  # of such machines alone, and slow to load

    if len(names) > 1:
        raise InputError("over accelerators of several kinds one objective is searched, latency", path="--minimize")
    check_pooled(architecture, mapper)
    setting, pools = settings_of(architecture, workload, profile, algorithms_of(mapper))
    job = Job(setting=setting, workload=workload, profile=profile, pools=pools)
    space = build_mapspace(mapper, workload, architecture.used, hosts_of(architecture))
    if space.problems:
        raise InputError("over accelerators of several kinds layouts are fixed in `split` or `choose`, not free", path="split")
    found = search_pools(job, space, question)
    kinds = [pool.accelerator.name for pool in architecture.pools]
    warnings = passed_over(mapper, workload)
    walk_together(found.steps)
    results = []
    for point, step in zip(found.points, found.steps, strict=True):
        mapping = to_mapping(space, found.groups[point.group], point, mapper.name, profile.name, kinds=kinds)
        sheet = found.certificate if point is found.points[0] else found.certificate.of(point.seconds)
        results.append(result_of(step, step.fullest[1], mapping, sheet, mapper.name, warnings))
    return results, found.steps[0]


def _on(architecture: Architecture, workload: Workload) -> Workload:
    """The workload as a machine runs it: weights that are in its wires are of 0 bit. Raises InputError where those of some of its
    accelerators are, for training, which would change them, and for a product too wide for the machine."""
    check_rates(architecture, workload)
    wired = [pool.accelerator.name for pool in architecture.pools if wired_of(pool) is not None]
    if wired and len(architecture.pools) > 1:
        raise InputError(f"weights in the wires of {wired[0]}, beside accelerators of another kind, are not priced", path="tree")
    if wired and workload.backward:
        raise InputError(f"the weights of '{wired[0]}' are wires, which no training changes: --set phases='[forward]'", path="phases")
    return with_wired_weights(workload) if wired else workload


def _top(count: int) -> int:
    """How many mappings to return. Raises InputError."""
    if not 1 <= count <= MOST:
        raise InputError(f"{count} mappings: want 1 to {MOST}, each comes with its ledger", path="--top")
    return count


def _limits(
    said: Mapping[str, float | str], architecture: Architecture, goals: Sequence[str], objective: Callable[[str], Objective]
) -> Limits:
    """What no step may exceed. goals: carbon may become a limit · objective: by name. Raises InputError for an unknown one, for carbon
    without a site and money without a price."""
    most = read_limits(said)
    blends = {name: objective(name) for name in most if name in BLENDED}
    if "carbon" not in (*most, *goals[:-1]):
        return Limits(most, blends=blends)
    if architecture.site is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="--limit")
    return Limits(most, float(carbon_g_per_j(architecture.site, grids_of(architecture))), blends)


def objective_of(name: str, architecture: Architecture, usage: Usage | None = None, fab: str | None = None) -> Objective:
    """The objective called `name` on a machine. Raises InputError where it needs a site."""
    if name in ("carbon", *BLENDS) and architecture.site is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="site")
    if name in BLENDS:
        from rackmodel.carbon.assess import Usage, carbon_weights  # of bills alone, and slow to load
        from rackmodel.carbon.bill import bill_of

        bill = bill_of(architecture, tables_of(architecture), fab or "act", (usage or Usage()).boundaries)
        return Objective(name, *carbon_weights(architecture, bill, grids_of(architecture), static_watts(architecture), usage))
    if name == "money":
        from rackmodel.carbon.costing import money_weights

        return Objective(name, *money_weights(architecture, usage))
    return Objective(SAME_ORDER.get(name, name))


def _inside(architecture: Architecture, mapper: MapperSpec, workload: Workload, question: Question, profile: ProfileSpec) -> LocalPricer:
    """What prices an operation inside an accelerator: a mapper's loop nests, else as the profile says."""
    if mapper.inside.model == "roofline":
        asked = mapper.inside.model_fields_set - {"model"}
        if asked:
            raise InputError(f"'{min(asked)}' is of loop nests: say model: loopnest", path=f"inside.{min(asked)}")
        return at_pace(local_pricer(profile), architecture, workload, profile)
    if profile.kernels != "peak":
        said = f"profile '{profile.name}' has {profile.kernels} kernels, which are no loop nests: say one of the two"
        raise InputError(said, path="inside.model")
    if profile.merged.projections:
        said = f"profile '{profile.name}' has products of one operand merged, which are no loop nest of an operation: say one of the two"
        raise InputError(said, path="inside.model")
    if any(tensor.crowded for tensor in workload.tensors.values()):
        raise InputError("a loop nest knows no accelerator whose experts are chosen most: say no `imbalance`", path="inside.model")
    return nest_inside(mapper, workload, aim_of(question.goal, static_watts(architecture), architecture.used), question.watch)


def _changed(inputs: Inputs, asked: str | ProfileSpec | None, said: str | None) -> str | ProfileSpec | None:
    """The profile asked for, or read with the overrides that name it."""
    if not inputs.of_profile or isinstance(asked, ProfileSpec):  # one that was read has its overrides
        return asked
    return read_profile(_profile(asked, said).name if asked is None else asked, inputs.of_profile)


def _profile(asked: str | ProfileSpec | None, said: str | None) -> ProfileSpec:
    """The profile asked for, else the one the file says, else ideal."""
    if isinstance(asked, ProfileSpec):
        return asked
    try:
        return read_profile(asked if asked is not None else said or "ideal")
    except InputError as problem:
        raise problem.at(Where(f"--profile {asked}") if asked is not None else None, "" if asked is not None else "profile")


def mapspace(architecture: Architecture, workload: Workload, mapper: MapperSpec) -> Mapspace:
    """The mapspace of a mapper on the accelerators in use."""
    workload, mapper = _on(architecture, workload), on_grid(mapper, architecture)
    _check_levels(architecture, workload, mapper)
    return build_mapspace(mapper, workload, architecture.used, hosts_of(architecture))


def _check_levels(architecture: Architecture, workload: Workload, mapper: MapperSpec) -> None:
    """Raise InputError for a home at no level that has a memory, or a hand-over through none that all stages share."""
    problems = list(handover_problems(architecture, workload, mapper.handover, stages_of(mapper, workload))) if mapper.handover else []
    if problems:
        raise together(problems)
    for name, said in mapper.homes.items():
        for number, home in enumerate(homes_of(said)):
            if home.at is not None:
                which = f".{number}" if isinstance(said, list) else ""
                check_home_level(architecture, home.at, f"homes.{name}{which}.at")


# -- given mappings ----------------------------------------------------------------------------------------------------------


def evaluate(architecture: str, workload: str, mapping: str, *, sets: Sequence[str] = (), profile: str | None = None) -> Result:
    """Price a mapping file. Raises InputError where it contradicts the workload or the machine."""
    inputs: Inputs = read_inputs(architecture, workload, mapping=mapping, sets=sets)
    assert inputs.mapping is not None
    said = any(one.partition("=")[0].strip() in ("accelerators", "arch.accelerators", "architecture.accelerators") for one in sets)
    if said and inputs.architecture.used != inputs.mapping.accelerators:
        fact = f"the mapping is of {inputs.mapping.accelerators} accelerators, not {inputs.architecture.used}"
        raise InputError(fact, where=Where("--set accelerators"))
    try:
        return evaluate_mapping(
            inputs.architecture, inputs.workload, inputs.mapping, profile=_changed(inputs, profile, inputs.mapping.profile)
        )
    except InputError as problem:
        raise inputs.place(problem, profile)


def evaluate_mapping(
    architecture: Architecture, workload: Workload, mapping: MappingSpec, *, profile: str | ProfileSpec | None = None
) -> Result:
    """Price one mapping, with its ledger."""
    exact, mapping = _exact(architecture, workload, mapping, profile)
    held = _held(exact)
    warnings = (*misfits(exact, held), left_out(exact.job.workload, mapping))
    return result_of(exact, held, mapping, None, mapping.name, tuple(said for said in warnings if said))


def step_of(inputs: Inputs, mapping: MappingSpec, *, profile: str | ProfileSpec | None = None) -> ExactStep:
    """A mapping on inputs that were read, as the clock takes it: what a trace is made of. Raises InputError."""
    return _exact(inputs.architecture, inputs.workload, mapping, _changed(inputs, profile, mapping.profile))[0]


def _exact(
    architecture: Architecture, workload: Workload, mapping: MappingSpec, profile: str | ProfileSpec | None
) -> tuple[ExactStep, MappingSpec]:
    """A mapping's step, and the mapping with what is kept at a host offloaded. Raises InputError."""
    workload = _on(architecture, workload)
    architecture, mapping = _checked(architecture, workload, mapping)
    columns, structure, step = from_mapping(mapping, workload)
    structure = on_pools(architecture, structure, columns, step.pools)
    exact = ExactStep(_job(architecture, workload, mapping, _profile(profile, mapping.profile)), structure, columns)
    _check_nests(exact, mapping)
    return exact, mapping


def _checked(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> tuple[Architecture, MappingSpec]:
    """The machine with the accelerators of a mapping, and the mapping with what is kept at a host offloaded. Raises InputError."""
    machine = architecture.using(mapping.accelerators)
    mapping = parked(machine, workload, mapping, hosts_of(machine))
    check_mapping(architecture, workload, mapping)
    return machine, mapping


def _job(architecture: Architecture, workload: Workload, mapping: MappingSpec, profile: ProfileSpec) -> Job:
    inside = NestInside(InsideSpec(model="loopnest"), NestObjective("latency"), given=mapping.nests) if mapping.nests else None
    algorithms = tuple(mapping.step.algorithms) if mapping.step is not None else ("ring",)
    host = mapping.step.host if mapping.step is not None else None
    setting, pools = settings_of(architecture, workload, profile, algorithms, inside)
    return Job(setting=setting, workload=workload, profile=profile, host=host, pools=pools)


def _check_nests(exact: ExactStep, mapping: MappingSpec) -> None:
    """Raise InputError for the nest of a contraction that the step does not have."""
    known = nests_of(exact) if mapping.nests else {}
    for name in mapping.nests:
        if name not in known:
            raise InputError(f"no contraction '{name}'", path=f"nests.{name}", known=list(known), given=name)


def _held(exact: ExactStep) -> dict[str, float]:
    """Bytes by what holds them on the device that holds most."""
    return exact.fullest[1]


@dataclass(frozen=True)
class Prices:
    """N mappings priced at once: [n] seconds, joules, and bytes on the fullest accelerator, in the order given."""

    latency_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]


def price(architecture: Architecture, workload: Workload, mappings: Sequence[MappingSpec], *, profile: str | None = None) -> Prices:
    """Price mappings at once: those of one structure run in the same arrays. Exact, without ledgers."""
    workload = _on(architecture, workload)
    found = np.zeros((3, len(mappings)))
    alike: dict[object, list[tuple[int, MappingSpec, Columns, Structure]]] = {}
    for number, mapping in enumerate(_checked(architecture, workload, mapping)[1] for mapping in mappings):
        columns, structure, step = from_mapping(mapping, workload)
        structure = on_pools(architecture.using(mapping.accelerators), structure, columns, step.pools)
        plans = tuple((x, plan.key) for x, plan in structure.parts)
        key = (plans, structure.cut.counts.tobytes(), structure.schedule, structure.micro_batches, structure.overlap, structure.offload)
        rest = (tuple(step.algorithms), step.host, mapping.accelerators, mapping.profile, repr(mapping.nests), structure.stages)
        alike.setdefault((*key, *rest), []).append((number, mapping, columns, structure))
    for same in alike.values():
        _, first, _, structure = same[0]
        machine = architecture.using(first.accelerators)
        joined = Columns.join([columns for _, _, columns, _ in same])
        exact = ExactStep(_job(machine, workload, first, _profile(profile, first.profile)), structure, joined)
        _check_nests(exact, first)
        numbers = [number for number, *_ in same]
        seconds = exact.seconds()
        bound = exact.bound()
        found[:, numbers] = seconds, bound.joules[0, :, 0] + static_watts(machine) * seconds, bound.memory[0, :, 0]
    return Prices(*found)
