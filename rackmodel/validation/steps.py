"""Training cases in arrays: rows that share machine and graph are priced together, whatever their sizes, depth, batch and schedule.

A layer's price does not depend on how many layers and micro-batches there are, so that its columns are the models and meshes of all
such rows, and plans (what is recomputed, where weights lie) price what they have in common once; the clock then runs once for every
plan, cut and number of micro-batches, over the rows that have it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import lcm

from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InputError, NoKernelError
from rackmodel.inputs import read_mapper
from rackmodel.mapper.folded import fold_problems
from rackmodel.mapper.given import GivenShape, given_columns
from rackmodel.mapper.listed_choices import laid_out
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import Copy, HomeSpec, MapperSpec
from rackmodel.model.workload import Workload
from rackmodel.validation.machine_files import machine_of, not_multiplied
from rackmodel.validation.priced_columns import priced_columns
from rackmodel.validation.profile_columns import alike, profile_of
from rackmodel.validation.sized import FREE, HEADS, OF_NO_WEIGHT, SizedColumns, joined
from rackmodel.validation.structures import shape_of
from rackmodel.validation.timed import PricedColumns, PricedStep, timed
from rackmodel.validation.training import SHARDS, ExpertRanks, ModelKey, StepKey, TrainingCase
from rackmodel.validation.training_models import TWO_DEEP, graph_of, layer_kinds, layers_of, model_of
from rackmodel.validation.unknowns import unknowns_of

MOST_SAMPLES = 1 << 40
MOST_COLUMNS = 4096  # priced at once, with all their rows in memory
BESIDE = 1024  # columns whose pipelines run side by side, with what priced them in memory
FEW_COLUMNS = 2500  # beyond so many, a plan's columns stand alone: all of a group's are priced under each of its plans
MAPPERS: dict[ExpertRanks, str] = {"": "parallel", "split": "parallel_moe", "whole": "parallel_moe_folded"}
"""Where experts lie → the mapper of the library that says so."""
LAYOUTS: dict[Copy, str] = {"shard": "sequence", "gathered": "sequence_saved"}
"""The copy that is kept of what sequence parallelism shares out → the layout that keeps it."""
HYBRID = "parallel_hybrid"
"""That of weights that lie over some of the data-parallel ranks."""


def price_cases(cases: Sequence[TrainingCase], *, bins: bool = True) -> list[PricedStep]:
    """A step for every case, in order. Those that differ in nothing but their row are one column. bins: whether they are looked at."""
    own, apart = [_run(case) for case in cases], dict[Hashable, TrainingCase]()
    for run, case in zip(own, cases, strict=True):
        if not case.brief or run not in apart:
            apart[run] = case
    alike: dict[StepKey, list[Hashable]] = {}
    for run, case in apart.items():
        alike.setdefault(_family(case.key), []).append(run)
    found, shared, waiting = dict[Hashable, PricedStep](), Shared(), list[PricedColumns]()
    batches = _batches(cases)
    for key, runs in alike.items():
        refused, groups = _alike(key, [apart[run] for run in runs], shared, batches)
        for group in groups:
            waiting.append(group)
            if sum(one.columns for one in waiting) > BESIDE:
                found |= _timed(waiting, bins=bins)
                waiting = []
        found |= {runs[number]: PricedStep(refused=why) for number, why in refused.items()}
    found |= _timed(waiting, bins=bins)
    return [replace(found[run], interval=None, bins={}) if case.brief else found[run] for run, case in zip(own, cases, strict=True)]


def families(cases: Sequence[TrainingCase]) -> list[list[int]]:
    """Numbers of cases that may be columns of one."""
    found: dict[StepKey, list[int]] = {}
    for number, case in enumerate(cases):
        found.setdefault(_family(case.key), []).append(number)
    return list(found.values())


def _run(case: TrainingCase) -> Hashable:
    """What tells a case's step apart from another's: all but its row and what is said of it."""
    mesh = case.mesh
    cut = case.layers, case.chunks, case.schedule
    return case.key, tuple(mesh.degrees.items()), mesh.micro_batch, mesh.micro_batches, cut, case.batch, case.unit


@cache
def _family(key: StepKey) -> StepKey:
    """What models, plans and profiles that may be columns of one have in common: of profiles, what the tasks of layers take."""
    graph = replace(key.model, workload=graph_of(key.model.workload), sizes=())
    same = replace(key, model=graph, sequence=False, save="shard", recompute="", home=("", "", ""))
    return replace(same, profile=alike(key.profile, key.sets, layer_kinds(graph.workload)))


def _batches(cases: Sequence[TrainingCase]) -> dict[ModelKey, int]:
    """Of each model a batch that is a multiple of all its cases', so that they have one workload; none where that is a monster."""
    found: dict[ModelKey, int] = {}
    for case in cases:
        found[case.key.model] = min(lcm(found.get(case.key.model, 1), case.batch), MOST_SAMPLES + 1)
    return {model: batch for model, batch in found.items() if batch <= MOST_SAMPLES}


def _of_one_batch(numbers: Sequence[int], cases: Sequence[TrainingCase]) -> Iterator[list[int]]:
    """The cases in runs whose batches have a common multiple that is no monster: the batch of the workload that prices them."""
    some: list[int] = []
    for number in numbers:
        if some and lcm(*(cases[one].batch for one in (*some, number))) > MOST_SAMPLES:
            yield some
            some = []
        some.append(number)
    yield some


def _timed(waiting: Sequence[PricedColumns], *, bins: bool) -> dict[Hashable, PricedStep]:
    """Run of a case → its step."""
    return {_run(case): step for case, step in timed(waiting, bins=bins)}


def _alike(
    key: StepKey, cases: Sequence[TrainingCase], shared: Shared, batches: Mapping[ModelKey, int]
) -> tuple[dict[int, str], Iterator[PricedColumns]]:
    """(why cases of one family are refused, whole once all columns are there; the columns of the others, priced). shared: models and their
    plans, which are the same on every machine · batches: of models."""
    try:
        machine = machine_of(key.machine, key.set)
    except InputError as problem:
        return dict.fromkeys(range(len(cases)), problem.message), iter(())
    many = {number for number, case in enumerate(cases) if case.accelerators > machine.available}
    most = "1 accelerator" if machine.available == 1 else f"{machine.available} accelerators"
    refused = dict.fromkeys(many, f"{key.machine} has {most}")
    refused |= _without_unit(key, machine, cases)
    fit = [number for number in range(len(cases)) if number not in refused]
    if not fit:
        return refused, iter(())
    machine = machine.model_copy(update={"accelerators": max(cases[number].accelerators for number in fit)})  # changes no smaller step
    profiles = [profile_of(name, key.sets) for name in dict.fromkeys(cases[number].key.profile for number in fit)]
    profile, groups = profiles[0], dict[object, list[SizedColumns]]()  # (what follows is said alike by all of them)
    free = FREE | HEADS if profile.attention == "unfused" else FREE
    free = free if profile.overlap.ahead is None else OF_NO_WEIGHT  # how large weights are says which of them are gathered ahead
    for model, numbers in _models(fit, cases, told=profile.buckets.holds == "stage"):
        batch = batches.get(model[0].model) or lcm(*(cases[number].batch for number in numbers))
        placed, others = _placed(model, batch, numbers, cases, shared, masked=profile.attention == "flash")
        refused |= others
        for one in placed:
            groups.setdefault(one.key(free), []).append(one)
    blocks = max(1 + 2 * len(unknowns_of(machine, one)) for one in profiles)
    parts = (part for same in groups.values() for some in _side_by_side(same, blocks, cases) for part in _parts(some, blocks, cases))
    return refused, _priced(key, machine, parts, cases, refused)


def _without_unit(key: StepKey, machine: Architecture, cases: Sequence[TrainingCase]) -> dict[int, str]:
    """Why cases are refused whose operands their machine cannot multiply as they are."""
    said = (not_multiplied(machine, key.machine, case.precision, case.unit, case.key.model.width) for case in cases)
    return {number: why for number, why in enumerate(said) if why}


def _priced(
    key: StepKey, machine: Architecture, parts: Iterator[SizedColumns], cases: Sequence[TrainingCase], refused: dict[int, str]
) -> Iterator[PricedColumns]:
    """Columns of one family, priced; refused: where those are noted whose machine has no kernel that their profile runs."""
    for part in parts:
        try:
            yield from priced_columns(key, machine, part, cases)
        except NoKernelError as problem:
            refused |= dict.fromkeys(part.numbers, problem.message)


def _side_by_side(same: Sequence[SizedColumns], blocks: int, cases: Sequence[TrainingCase]) -> Iterator[Sequence[SizedColumns]]:
    """Columns of plans that share their axes: all of them at once where they are few, else those of each plan. blocks: of a column whose
    interval is asked for."""
    if sum(1 if cases[number].brief else blocks for one in same for number in one.numbers) <= FEW_COLUMNS:
        yield same
        return
    apart: dict[object, list[SizedColumns]] = {}
    for one in same:
        apart.setdefault(one.plans[0].key, []).append(one)
    yield from apart.values()


def _parts(same: Sequence[SizedColumns], blocks: int, cases: Sequence[TrainingCase]) -> Iterator[SizedColumns]:
    """Columns that may stand beside each other, so many at once as memory is there for. blocks: of a column whose interval is asked for."""
    whole = joined(same)
    order = sorted(range(len(whole)), key=lambda column: (cases[whole.numbers[column]].brief, shape_of(cases[whole.numbers[column]])))
    some, priced = list[int](), 0
    for column in order:
        more = 1 if cases[whole.numbers[column]].brief else blocks
        if some and priced + more > MOST_COLUMNS:
            yield whole.pick(some)
            some, priced = [], 0
        some.append(column)
        priced += more
    yield whole.pick(some)


def _models(numbers: Sequence[int], cases: Sequence[TrainingCase], *, told: bool) -> Iterator[tuple[tuple[StepKey, int], list[int]]]:
    """(model under a plan, layers of it that matter) → cases. told: whether a step depends on how deep a model is beyond what its cut
    says, as a stage's layers share calls."""
    models: dict[tuple[StepKey, int], list[int]] = {}
    for number in numbers:
        models.setdefault((cases[number].key, layers_of(cases[number]) if told else TWO_DEEP), []).append(number)
    for model, own in models.items():
        for some in _of_one_batch(own, cases):
            yield model, some


def _placed(
    model: tuple[StepKey, int], batch: int, numbers: Sequence[int], cases: Sequence[TrainingCase], shared: Shared, *, masked: bool
) -> tuple[list[SizedColumns], dict[int, str]]:
    """The columns of a model's cases, and why others cannot be. batch: a multiple of theirs · masked: whether kernels skip what a causal
    mask hides."""
    key, layers = model
    try:
        said = "model", key.model, batch, layers, masked
        workload = shared.once((), said, lambda: model_of(key.model, batch, layers, masked=masked))
        unfolded = {number: why for number in numbers for why in _not_folded(workload, cases[number].schedule)}
        numbers = [number for number in numbers if number not in unfolded]
        if not numbers:
            return [], unfolded
        plan = key.experts, key.sequence, key.save, key.recompute, key.home
        known = shared.once((workload,), "plans", dict[object, dict[object, GivenShape]]).setdefault(plan, {})
        columns, refused = given_columns(_mapper(key), workload, [cases[number].mesh for number in numbers], known)
    except InputError as problem:
        return [], dict.fromkeys(numbers, problem.message)
    found = [
        SizedColumns(
            numbers=tuple(numbers[place] for place in part.numbers),
            columns=part.columns,
            plans=(part.plan,) * len(part.numbers),
            workloads=(workload,) * len(part.numbers),
        )
        for part in columns
    ]
    return found, unfolded | {numbers[place]: problem.message for place, problem in refused.items()}


def _not_folded(workload: Workload, schedule: str) -> Iterator[str]:
    """Why a schedule whose stages hold both ends of the model is not for it."""
    for problem in fold_problems(workload, [schedule], below=False, path="schedule"):
        yield problem.message


# -- inputs ------------------------------------------------------------------------------------------------------------------


@cache
def _wide_mapper(name: str) -> MapperSpec:
    return read_mapper(name)


def _mapper(key: StepKey) -> MapperSpec:
    """The one plan that a key means: of the library's widest mappers, with nothing left open."""
    mapper = _wide_mapper(HYBRID if key.hybrid else MAPPERS[key.experts])
    chosen = laid_out(mapper, mapper.layouts[LAYOUTS[key.save] if key.sequence else "tensor"])
    param, grad, state = key.home
    own = [SHARDS, "cp"] if key.hybrid else ["dp", "cp", "ep"] if key.experts else ["dp", "cp"]
    home = HomeSpec(axes=own, param=param, grad=grad, state=state, replicas=["dp"] if key.hybrid else None)
    homes = {"weights": home if state == "shard" else HomeSpec()}
    if key.model.alone and state == "shard":
        homes = {}
    return chosen.model_copy(update={"layouts": {}, "recompute": key.recompute, "homes": homes, "rerun": "region"})
