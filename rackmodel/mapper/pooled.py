"""Mappings and mappers of a machine with accelerators of several kinds: a pipeline of layers joins them, each kind has whole stages.

Every stage has the same mesh. What lies above all accelerators belongs to none of them: weights at home there, offloading and memories
between stages are refused, as are layouts to be found and stages of single operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.exact import Structure
from rackmodel.cost.step.pools import parted, stages_of_pools
from rackmodel.errors import InputError, together
from rackmodel.mapper.listed_choices import words
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import HomeSpec, MapperSpec, MappingSpec, homes_of
from rackmodel.model.schedules import CHUNKED, SCHEDULES, SPLIT


def on_pools(machine: Architecture, structure: Structure, columns: Columns, order: Sequence[str]) -> Structure:
    """The structure of a mapping on a machine with several pools; as it is on one. order: names of accelerators along the pipeline."""
    pools = machine.pools
    if len(pools) == 1:
        return structure
    names = [pool.accelerator.name for pool in pools]
    stages = stages_of_pools(pools, int(columns.per_stage[0]), [names.index(name) for name in order or names])
    assert stages is not None  # (checked)
    return dealt(structure, stages)


def dealt(structure: Structure, stages: tuple[int, ...]) -> Structure:
    """A structure whose stages lie on pools. stages: the pool of each."""
    cut, parts, of = parted(structure.cut, structure.parts, stages)
    return replace(structure, cut=cut, parts=parts, pools=of, stages=stages)


def orders(machine: Architecture) -> list[tuple[int, ...]]:
    """Every order of the pools along a pipeline, tree order first."""
    return list(permutations(range(len(machine.pools))))


def pool_problems(machine: Architecture, mapping: MappingSpec) -> Iterator[InputError]:
    """What of a mapping is not for a machine with accelerators of several kinds, or only for one."""
    said = mapping.step.pools if mapping.step is not None else []
    names = [pool.accelerator.name for pool in machine.pools]
    if len(names) == 1:
        if said:
            yield InputError(f"{machine.name} has accelerators of one kind in use, {names[0]}: no order of kinds", path="step.pools")
        return
    if said and sorted(said) != sorted(names):
        wrong = next((name for name in said if name not in names), said[0])
        yield InputError(f"the kinds in use are {', '.join(names)}, each once", path="step.pools", known=names, given=wrong)
        return
    if mapping.step is None or mapping.step.pipeline.degree == 1:
        yield InputError(f"{_several(names)}: a pipeline of layers joins them, each with whole stages", path="step.pipeline.degree")
        return
    yield from _above(names, mapping.homes.items(), mapping.step.offload, bool(mapping.handover), bool(mapping.stages), bool(mapping.nests))
    stage = mapping.accelerators // mapping.step.pipeline.degree
    if mapping.step.pipeline.stride != stage:
        fact = f"{_several(names)}: a stage is {stage} neighbours, the stride of the pipeline"
        yield InputError(fact, path="step.pipeline.stride")
    for pool in machine.pools:
        if pool.used % stage:
            fact = f"stages of {stage} accelerators do not fill {pool.used} of {pool.accelerator.name}"
            yield InputError(fact, path="step.pipeline.degree")


def check_pooled(machine: Architecture, mapper: MapperSpec) -> None:
    """Raise InputError for what a mapper asks that is not for accelerators of several kinds."""
    names = [pool.accelerator.name for pool in machine.pools]
    homes = ((name, home) for name, said in mapper.homes.items() for home in homes_of(said))
    cut = [name for name, axis in mapper.axes.items() if axis.stages is not None and axis.stages != "layers"]
    nests = mapper.inside.model != "roofline"
    problems = list(_above(names, homes, mapper.offload, bool(mapper.handover), bool(cut), nests))
    if not mapper.pipelined:
        problems.append(InputError(f"{_several(names)}: a pipeline of layers joins them, and no axis says stages: layers", path="axes"))
    slow = [name for name in words(mapper.schedule) if name in SPLIT | CHUNKED]
    if slow:
        known = [name for name in SCHEDULES if name not in SPLIT | CHUNKED]
        fact = f"{_several(names)}: cuts are searched under whole backward passes and one chunk a stage, not {slow[0]}"
        problems.append(InputError(fact, path="schedule", known=known, given=slow[0]))
    if mapper.cut != "free" and not problems:
        problems.append(InputError(f"{_several(names)}: stages of as many layers leave the faster ones waiting; say cut: free", path="cut"))
    if problems:
        raise together(problems)


def fitting(machine: Architecture, space: Mapspace) -> Mapspace:
    """The space without meshes that no pools' stages fill, or whose stages are no neighbours. Raises InputError where none is left."""
    pools, groups, left_out = machine.pools, [], 0
    for group in space.groups:
        columns = group.columns
        each = columns.per_stage
        fits = (columns.stages > 1) & (columns.stage_strides == each)
        for pool in pools:
            fits &= pool.used % each == 0
        left_out += int((~fits).sum())
        if fits.any():
            groups.append(replace(group, columns=columns.pick(fits.nonzero()[0])))
    if not groups:
        sizes = ", ".join(f"{pool.used} of {pool.accelerator.name}" for pool in pools)
        fact = f"no mesh has a pipeline whose stages are neighbours and fill {sizes}"
        raise InputError(f"{fact}: want the pipeline outermost, and stages that divide these", path="axes")
    skipped = dict(space.skipped) | ({"stages do not fill the kinds of accelerators": float(left_out)} if left_out else {})
    return replace(space, groups=tuple(groups), skipped=skipped)


def _several(names: Sequence[str]) -> str:
    return f"accelerators of several kinds, {' and '.join(names)}"


def _above(
    names: Sequence[str], homes: Iterable[tuple[str, HomeSpec]], offload: Iterable[object], handover: bool, staged: bool, nests: bool
) -> Iterator[InputError]:
    """What no pool has, or what is not priced over pools."""
    said = _several(names)
    for name, home in homes:
        if home.at is not None:
            yield InputError(f"{said}, start a step on their own: nothing lives above them", path=f"homes.{name}.at")
    if any(offload):
        yield InputError(f"{said}, keep everything themselves: nothing is offloaded", path="offload")
    if handover:
        yield InputError(f"{said}, hand over by links", path="handover")
    if staged:
        yield InputError(f"{said}, are joined by a pipeline of layers, not of operations", path="stages")
    if nests:
        yield InputError(f"{said}, are priced by profile, not by loop nests", path="inside.model")
