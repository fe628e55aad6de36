"""From a point of the space to its mapping file, and back to what prices it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut, cut, cut_by_counts, even_cut, partition
from rackmodel.cost.step.exact import Structure
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.listed_choices import algorithms_of, parted
from rackmodel.mapper.mapping_check import check_home_level
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.points import Point
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import REPLICATE, Choice, Layout, batch_choice, choice_of, rank_split, shard
from rackmodel.model.mapping import POLICIES, REGIONS, MappingSpec, PlacedAxis, StepSpec
from rackmodel.model.plan import MICRO, Plan, default_boundary
from rackmodel.model.schedules import FOLDED
from rackmodel.model.workload import Workload


def to_mapping(
    space: Mapspace, group: Group, point: Point, name: str, profile: str, host: str | None = None, kinds: Sequence[str] = ()
) -> MappingSpec:
    """The mapping file of one point. host: the level that takes what is offloaded · kinds: of accelerators, by the number of their pool."""
    variant, columns = group.variants[point.variant], group.columns
    plan, at = variant.plan, point.column
    spatial = plan.axes[:-1]

    def ranks(layout: Layout) -> dict[str, str | None]:
        return {axis: rank_split(p) for axis, p in zip(spatial, layout, strict=False)}

    stages = [[op for op, stage in plan.stages.items() if stage == k] for k in range(plan.stage_count)]
    policies = {group.variants[number].recompute for number in (point.plans or (point.variant,))}
    mapping = MappingSpec(
        name=name,
        accelerators=space.accelerators,
        axes={axis: PlacedAxis(degree=int(columns.degrees[at, k]), stride=int(columns.strides[at, k])) for k, axis in enumerate(spatial)},
        ops={op: dict(zip(spatial, choice, strict=False)) for op, choice in plan.choices.items()},
        boundary={tensor: ranks(layout) for tensor, layout in plan.boundary.items()},
        stages=stages if plan.stage_count > 1 else [],
        homes=dict(plan.homes),
        handover=dict(plan.handover),
        save=dict(plan.save),
        flat={axis: list(indices) for axis, indices in plan.flat.items()},
        recompute=plan.recompute,
        rerun=plan.rerun if policies & REGIONS else "region",
        uneven=plan.uneven,
        profile=profile,
        note=f"layout {variant.layout}" if variant.layout else None,
        step=StepSpec(
            micro_batch=int(columns.micro_batch[at]),
            pipeline=PlacedAxis(degree=1 if plan.stage_count > 1 else point.stages, stride=int(columns.stage_strides[at])),
            schedule=point.schedule,
            interleave=point.chunks,
            layers=list(point.layers),
            mixes=_mixes(space, group, point),
            pools=[kinds[pool] for pool in dict.fromkeys(point.pools)],
            hide_activations=bool(point.overlap[0]),
            hide_gradients=bool(point.overlap[1]),
            algorithms=algorithms_of(space.mapper),
            offload=list(variant.offload),
            host=host if variant.offload else None,
        ),
    )
    return _counted(mapping, space.workload, int(columns.micro_batches[at]))


def _counted(mapping: MappingSpec, workload: Workload, count: int) -> MappingSpec:
    """The mapping with the number of its micro-batches, where that does not follow: layouts that are free may split the batch over an axis
    that is none of data-parallel ranks."""
    assert mapping.step is not None
    try:
        follows = _micro_batches(mapping, workload, _choices(mapping, workload), mapping.step) == count
    except InputError:
        follows = False
    return mapping if follows else mapping.model_copy(update={"step": mapping.step.model_copy(update={"micro_batches": count})})


def _mixes(space: Mapspace, group: Group, point: Point) -> list[dict[str, dict[str, int]]]:
    """Stage → section → policy → layers of a point whose layers differ in policy."""
    names = [section.name for section in space.workload.sections if section.layer]
    return [
        {
            name: {group.variants[plan].recompute: count for plan, count in zip(point.plans, counts, strict=True) if count}
            for name, counts in zip(names, stage, strict=True)
            if any(counts)
        }
        for stage in point.mixes
    ]


def from_mapping(mapping: MappingSpec, workload: Workload) -> tuple[Columns, Structure, StepSpec]:
    """What prices a mapping file that has been checked: one column, and its structure. Raises InputError where the batch does not divide,
    InfeasibleError where the layers do not."""
    choices = _choices(mapping, workload)
    step = mapping.step or StepSpec(micro_batch=_whole(mapping, workload, choices))
    micro_batches = _micro_batches(mapping, workload, choices, step)
    plan = _plan(mapping, workload, choices)
    one = np.ones(1, dtype=np.int64)
    columns = Columns(
        axes=plan.axes,
        degrees=np.array([[*(axis.degree for axis in mapping.axes.values()), micro_batches]], dtype=np.int64),
        strides=np.array([[*(axis.stride for axis in mapping.axes.values()), 1]], dtype=np.int64),
        stages=one * step.pipeline.degree,
        stage_strides=one * step.pipeline.stride,
        micro_batch=one * step.micro_batch,
        micro_batches=one * micro_batches,
    )
    made, parts = _cut(plan, step, workload)
    structure = Structure(
        parts=parts,
        cut=made,
        schedule=step.schedule,
        micro_batches=micro_batches,
        overlap=(int(step.hide_activations), int(step.hide_gradients)),
        offload=tuple(step.offload),
    )
    return columns, structure, step


def parked(architecture: Architecture, workload: Workload, mapping: MappingSpec, hosts: frozenset[str]) -> MappingSpec:
    """The mapping in which what its homes leave at one of several instances of a level (hosts), each of which serves the accelerators
    below it, is offloaded there: the same said in other words. Raises InputError where that is no one level."""
    here, kept = parted(mapping.homes, hosts)
    if not kept:
        return mapping
    level = next(home.at for name, home in mapping.homes.items() if name in kept)
    step = mapping.step or StepSpec(micro_batch=_whole(mapping, workload, _choices(mapping, workload)))
    for name in kept:
        check_home_level(architecture, str(mapping.homes[name].at), f"homes.{name}.at")
        for other in (step.host, mapping.homes[name].at):
            if other not in (None, level):
                fact = f"two hosts, {level} and {other}: one level takes all that is kept there"
                raise InputError(fact, path=f"homes.{name}.at")
    step = step.model_copy(update={"offload": list(dict.fromkeys((*step.offload, *kept))), "host": level})
    return mapping.model_copy(update={"homes": here, "step": step})


def _choices(mapping: MappingSpec, workload: Workload) -> dict[str, tuple[Choice, ...]]:
    """Operation → what each axis splits, the last of which are the micro-batches."""
    return {
        op.name: (
            *(choice_of(mapping.ops.get(op.name, {}).get(axis)) for axis in mapping.axes),
            batch_choice(op, workload),
        )
        for op in workload.ops.values()
    }


def _ranks(mapping: MappingSpec, workload: Workload, choices: dict[str, tuple[Choice, ...]]) -> int:
    """Ranks over which the batch is split."""
    if not workload.batch:
        return 1
    over = {axis for chosen in choices.values() for axis, index in zip(mapping.axes, chosen, strict=False) if index == workload.batch}
    return prod(mapping.axes[axis].degree for axis in over)


def _whole(mapping: MappingSpec, workload: Workload, choices: dict[str, tuple[Choice, ...]]) -> int:
    return -(-workload.sizes[workload.batch] // _ranks(mapping, workload, choices)) if workload.batch else 1


def _micro_batches(mapping: MappingSpec, workload: Workload, choices: dict[str, tuple[Choice, ...]], step: StepSpec) -> int:
    if not workload.batch:
        for key in ("micro_batch", "micro_batches"):
            if getattr(step, key) not in (1, None):
                raise InputError("this workload has no batch that micro-batches could split", path=f"step.{key}")
        return 1
    if step.micro_batches is not None:
        return _said_count(mapping, workload.sizes[workload.batch], step.micro_batch, step.micro_batches)
    per_rank = workload.sizes[workload.batch] / _ranks(mapping, workload, choices)
    if mapping.uneven != "error" and step.micro_batch == _whole(mapping, workload, choices):
        return 1
    if per_rank % step.micro_batch:
        raise InputError(
            f"micro-batches of {step.micro_batch} do not divide the {per_rank:g} samples of a data-parallel rank", path="step.micro_batch"
        )
    return int(per_rank // step.micro_batch)


def _said_count(mapping: MappingSpec, batch: int, size: int, count: int) -> int:
    """A number of micro-batches that is said: the rest of the batch is split over axes. Raises InputError where they do not divide it."""
    padded = mapping.uneven != "error" and size * count <= batch
    if batch % (size * count) and not padded:
        raise InputError(f"{count} micro-batches of {size} do not divide a batch of {batch}", path="step.micro_batches")
    return count


def _plan(mapping: MappingSpec, workload: Workload, choices: dict[str, tuple[Choice, ...]]) -> Plan:
    spatial, batch = tuple(mapping.axes), workload.batch
    stages = dict.fromkeys(workload.ops, 0)
    for number, ops in enumerate(mapping.stages):
        stages.update(dict.fromkeys(ops, number))

    def layout(tensor: str, said: dict[str, str | None]) -> Layout:
        split = bool(batch) and batch in workload.tensors[tensor].ranks
        over = (REPLICATE if said.get(axis) is None else shard(str(said[axis])) for axis in spatial)
        return (*over, shard(batch) if split else REPLICATE)

    return Plan(
        axes=(*spatial, MICRO),
        choices=choices,
        boundary={
            tensor: layout(tensor, mapping.boundary[tensor]) if tensor in mapping.boundary else default_boundary(tensor, section, choices)
            for tensor, section in workload.ends.items()
        },
        stages=stages,
        homes=dict(mapping.homes),
        handover=dict(mapping.handover),
        save=dict(mapping.save),
        recompute=mapping.recompute,
        rerun=mapping.rerun,
        uneven=mapping.uneven,
        flat={axis: tuple(indices) for axis, indices in mapping.flat.items()},
    )


def _cut(plan: Plan, step: StepSpec, workload: Workload) -> tuple[Cut, tuple[tuple[int, Plan], ...]]:
    """(the cut, the plan of every run of equal layers) that a mapping asks for."""
    sections = workload.sections
    if plan.stage_count > 1:
        return cut_by_counts(np.eye(plan.stage_count, dtype=np.int64)), ((0, plan),)
    repeats, layers = tuple(s.repeat for s in sections), tuple(s.layer for s in sections)
    folded = step.schedule in FOLDED
    if step.mixes:
        used = [policy for policy in POLICIES if any(policy in section for stage in step.mixes for section in stage.values())]
        dealt = partition(layers, repeats, _counts(step, workload, used))
        parts = tuple((x, replace(plan, recompute=used[policy] if sections[x].layer else plan.recompute)) for x, policy, _ in dealt)
        return cut_by_counts(np.stack([where for *_, where in dealt], axis=1)), parts
    if step.layers:
        made: Cut | None = cut(repeats, layers, step.pipeline.degree, step.interleave, tuple(step.layers), folded)
    else:
        made = even_cut(repeats, layers, step.pipeline.degree, step.interleave, folded)
    if made is None:
        parts_ = step.pipeline.degree * step.interleave
        raise InfeasibleError(
            f"{workload.layers} layers do not divide into {parts_} equal chunks: say `layers` for an uneven cut",
            resource="layers",
            need=float(parts_),
            have=float(workload.layers),
            unit="layer",
        )
    return made, tuple((x, plan) for x in range(len(sections)))


def _counts(step: StepSpec, workload: Workload, used: Sequence[str]) -> list[list[list[int]]]:
    """Stage → section of layers → policy (of those used) → layers."""
    names = [section.name for section in workload.sections if section.layer]
    return [[[stage.get(name, {}).get(policy, 0) for policy in used] for name in names] for stage in step.mixes]  # type: ignore[call-overload]
