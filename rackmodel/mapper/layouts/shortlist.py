"""Layouts of a model's layers that nobody named: found by the layout search on one layer, then priced like the named ones.

A mapper's layout that says `free` for an axis stands for every choice of every operation. For each degree of that axis and
each micro-batch the best layouts of a layer alone are solved (elimination, proven), kept activations included, with memory to
spare and with as little of it as the leanest layout leaves. Beside these, the layouts that the best bounds of whole steps are of (`worth`),
which know the memory of a step and what its weights move, and where none of them splits the batch, ones that do. The distinct ones, a
handful, take the place of `free`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rackmodel.cost.step.group import Job
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.layer_tables import Attained
from rackmodel.mapper.layouts.one_layer import one_axis, resized
from rackmodel.mapper.layouts.worth import Points, Worth
from rackmodel.mapper.listed_choices import listed
from rackmodel.mapper.mapspace import Mapspace, build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import held_by
from rackmodel.mapper.rules import divisors
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import Choice, legal_choices, split
from rackmodel.model.mapping import LayoutSpec, MapperSpec, chosen
from rackmodel.model.profile import Overlap, ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.watch import UNWATCHED, Watch

MOST_DEGREE = 64
MOST_MICRO_BATCH = 4
TIGHT = 0.95  # share of the first solution's memory under which a second is sought


FOUND_LATER = "free layouts are found by the search: of each a whole one and one that splits the batch are counted here"
NOTE = "free layouts are a shortlist, of a layer, of a bound or near the best; the bound is of any that split one index an operation"


def with_found_layouts(
    setting: Setting,
    workload: Workload,
    mapper: MapperSpec,
    profile: ProfileSpec,
    goal: Objective,
    watch: Watch = UNWATCHED,
    worth: Worth | None = None,
) -> tuple[MapperSpec, str, MapperSpec]:
    """(the mapper with every free layout replaced by the layouts found, the axis over which they are free, a mapper with every column that
    some layout has). A workload of one section without a pipeline over layers is left as it is: its layouts are found in the space itself.
    goal: of the search · watch: where its time is up, the layouts found by then are all · worth: says for which columns.
    Raises InputError where two axes are free."""
    layouts, free_of = _free_axes(mapper)
    if not _found_apart(mapper, workload):
        return mapper, "", mapper
    every = with_all_columns(mapper, workload)
    made: dict[str, LayoutSpec] = {}
    fixed = {axis: ranks for axis, ranks in mapper.split.items() if ranks != "free"}  # each layout says what its own free axis does
    said_alone = {name: said for name, said in mapper.layouts.items() if not free_of[name]}
    named = mapper.model_copy(update={"split": fixed, "layouts": said_alone})
    for name, said in layouts.items():
        free = free_of[name]
        if not free:
            made[name] = said
            continue
        points, rest = list(_points(setting.architecture, workload, mapper, free[0])), _outside(workload)
        both = _with_all_columns(name, said, {**said.split, free[0]: rest}, free[0], workload)
        open_ = mapper.model_copy(update={"split": fixed, "layouts": both})
        if worth is not None:
            points = worth.solving(points, named, open_, free[0])
        found = _solutions(setting, workload, (mapper, free[0], points), (profile, goal, watch))
        if worth is not None:
            found += worth.attaining(open_, free[0])
        found += _by_batch(found, workload)
        for choices, saves in _distinct(found):
            choose = {op: {**chosen(said.choose, op), free[0]: "none" if c is None else c} for op, c in choices.items()}
            key = f"{name or 'found'} {1 + sum(k.startswith(name or 'found') for k in made)}"
            made[key] = LayoutSpec.model_validate(
                {"split": {**said.split, free[0]: rest}, "choose": {**said.choose, **choose}, "save": saves or None}
            )
    laid_out = mapper.model_copy(update={"split": fixed, "layouts": made})
    return laid_out, next(axes[0] for axes in free_of.values() if axes), every


def with_all_columns(mapper: MapperSpec, workload: Workload, *, named: bool = False) -> MapperSpec:
    """A mapper with every column that some layout to be found has. named: beside the layouts that are not. One whose layouts are found in
    the space itself is left as it is. Raises InputError where two axes are free."""
    if not _found_apart(mapper, workload):
        return mapper
    layouts, free_of = _free_axes(mapper)
    fixed = {axis: ranks for axis, ranks in mapper.split.items() if ranks != "free"}
    every: dict[str, LayoutSpec] = {}
    for name, said in layouts.items():
        free = free_of[name]
        if len(free) > 1:
            raise InputError("one axis of a model can be free", path=f"layouts.{name}.split")
        if free:
            every |= _with_all_columns(name, said, {**said.split, free[0]: _outside(workload)}, free[0], workload)
        elif named:
            every[name] = said
    return mapper.model_copy(update={"split": fixed, "layouts": every})


def _free_axes(mapper: MapperSpec) -> tuple[dict[str, LayoutSpec], dict[str, list[str]]]:
    """The layouts of a mapper, and the axes that each leaves free."""
    layouts = dict(mapper.layouts) or {"": LayoutSpec()}
    splits = {name: {**mapper.split, **said.split} for name, said in layouts.items()}
    return layouts, {name: [axis for axis, ranks in split.items() if ranks == "free"] for name, split in splits.items()}


def _found_apart(mapper: MapperSpec, workload: Workload) -> bool:
    """Whether layouts are found for a layer of a model and then priced as named ones, and not in the space itself."""
    alone = len(workload.sections) == 1 and not mapper.pipelined
    return not alone and any(_free_axes(mapper)[1].values())


def _with_all_columns(name: str, said: LayoutSpec, split: dict[str, Any], axis: str, workload: Workload) -> dict[str, LayoutSpec]:
    """Layouts that leave every layer whole over the free axis, one of them but for an operation that it splits by the batch: of all layouts
    the columns are those of either, as an axis over the batch makes micro-batches fewer, or smaller."""
    whole = {**said.model_dump(), "split": split}
    by_batch = next((op for op in _layer_ops(workload) if workload.batch in workload.ops[op].indices), None) if workload.batch else None
    found = {name: LayoutSpec.model_validate(whole)}
    if by_batch is not None:
        choose = {**said.choose, by_batch: {**chosen(said.choose, by_batch), axis: workload.batch}}
        found[f"{name} by batch"] = LayoutSpec.model_validate({**whole, "choose": choose})
    return found


def _layer_ops(workload: Workload) -> list[str]:
    return [op for section in workload.sections if section.layer for op in section.workload.ops]


def _outside(workload: Workload) -> list[str]:
    """What the embedding and the head split over the axis: the vocabulary, the one index that no layer has."""
    layers = {i for s in workload.sections if s.layer for op in s.workload.ops.values() for i in op.indices}
    return [i for s in workload.sections if not s.layer for op in s.workload.ops.values() for i in op.indices if i not in layers][:1] or [
        "none"
    ]


def _solutions(
    setting: Setting, workload: Workload, over: tuple[MapperSpec, str, Points], under: tuple[ProfileSpec, Objective, Watch]
) -> list[Attained]:
    """(choices of every layer's operations, saved copies): the fastest, and where something else
    is wanted (energy, or both) those of least energy too. over: mapper, free axis and the points to solve · under: profile, objective and
    watch."""
    (mapper, axis, solved), (profile, goal, watch) = over, under
    serial = profile.model_copy(update={"name": "serial", "overlap": Overlap(), "reserved_bytes": 0.0})
    goals = [Objective("latency"), *([] if goal.name == "latency" else [Objective("energy")])]
    sections = [section for section in workload.sections if section.layer]
    found: list[Attained] = []
    points = list(itertools.product(goals, solved))
    for number, (wanted, (degree, batch)) in enumerate(points, start=1):
        if found and watch.over():
            break
        watch.say(f"layouts of a layer alone, {number} of {len(points)}")
        machine = replace(setting, architecture=setting.architecture.model_copy(update={"accelerators": degree}))
        choices: dict[str, Choice] = {}
        saves: dict[str, str] = {}
        tight_choices, tight_saves = dict(choices), dict(saves)
        for section in sections:
            layer = resized(section, {workload.batch: batch})
            try:
                space = build_mapspace(one_axis(mapper, axis, degree, layer), layer, degree)
            except InputError:
                continue
            question = Question(goal=wanted, known={})
            best = _solve(machine, layer, space, serial, question, None)
            if best is None:
                continue
            choices |= best[0]
            saves |= best[1]
            tight = _solve(machine, layer, space, serial, question, TIGHT * best[2]) or best
            tight_choices |= tight[0]
            tight_saves |= tight[1]
        found += [pair for pair in ((choices, saves), (tight_choices, tight_saves)) if pair[0]]
    return found


def _by_batch(found: Sequence[Attained], workload: Workload) -> list[Attained]:
    """Where none of those found splits the batch, which a layer alone does not gain from though a step has fewer micro-batches then: those
    with the batch split by what they leave whole, and one that splits it wherever it can be."""
    if not workload.batch:
        return []
    batch: Choice = split(workload.batch)
    can = {op for op in _layer_ops(workload) if batch in legal_choices(workload.ops[op], workload)}
    if not can or any(batch in choices.values() for choices, _ in found):
        return []
    beside = [({op: batch if op in can and c is None else c for op, c in choices.items()}, saves) for choices, saves in found]
    everywhere = [({op: batch if op in can else c for op, c in choices.items()}, saves) for choices, saves in found[:1]]
    return beside + everywhere


def _distinct(found: Sequence[Attained]) -> list[Attained]:
    """Each of them once, in order of first appearance."""
    known: dict[object, Attained] = {}
    for choices, saves in found:
        known.setdefault((tuple(sorted(choices.items(), key=str)), tuple(sorted(saves.items()))), (choices, saves))
    return list(known.values())


def _points(architecture: Architecture, workload: Workload, mapper: MapperSpec, axis: str) -> Iterator[tuple[int, int]]:
    """(degree of the axis, samples of a micro-batch) to solve for; one sample among them, which no layout splits."""
    said = mapper.axes[axis].degree
    degrees = divisors(architecture.used) if isinstance(said, str) else listed(said)
    batches = [1, 2, MOST_MICRO_BATCH] if isinstance(mapper.micro_batch, str) else listed(mapper.micro_batch)
    for degree in degrees:
        if 1 < degree <= MOST_DEGREE:
            for batch in sorted({1, *batches}):
                if workload.sizes.get(workload.batch, 1) % batch == 0:
                    yield degree, batch


def _solve(
    setting: Setting, layer: Workload, space: Mapspace, profile: ProfileSpec, question: Question, capacity: float | None
) -> tuple[dict[str, Choice], dict[str, str], float] | None:
    """(choices, saves, bytes held) of the best layout of one layer; None where nothing fits."""
    sized = replace(setting, architecture=_with_capacity(setting.architecture, capacity))
    job = Job(setting=sized, workload=layer, profile=profile)
    try:
        found = search_space(job, space, question)
    except (InfeasibleError, InputError):
        return None
    best = found.points[0]
    group = found.groups[best.group]
    plan = group.variants[best.variant].plan
    choices = {op: choice[0] for op, choice in plan.choices.items()}
    kept = {tensor: copy for tensor, copy in plan.save.items() if copy == "gathered"}
    return choices, kept, sum(held_by(best, found.prices[best.group], group).values())


def _with_capacity(machine: Architecture, capacity: float | None) -> Architecture:
    """The machine with another capacity of the accelerator's memory, all of it visible; None = without a limit."""

    def changed(level: Any) -> Any:
        if level.accelerator and level.memory is not None:
            memory = level.memory.model_copy(update={"capacity_bytes": capacity, "visible": 1.0, "enforce": capacity is not None})
            return level.model_copy(update={"memory": memory})
        return level.model_copy(update={"children": tuple(changed(child) for child in level.children)})

    return Architecture.model_construct(**{**machine.__dict__, "tree": changed(machine.tree)})
