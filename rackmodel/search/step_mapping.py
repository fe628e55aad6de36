"""From a point of a training step's space to its mapping file, and back to what prices it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.step import device_memory
from rackmodel.cost.step.step_ledger import StepPoint
from rackmodel.cost.step.step_price import Columns, GroupPrice, cut_of, exact_pipeline_seconds, step_of
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.layout import REPLICATE, Layout, shard
from rackmodel.model.mapping import MappingSpec, PlacedAxis, StepSpec
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.search.step_space import MICRO, POLICIES, StepSpace, algorithms_of
from rackmodel.search.training import Point


def step_mapping(space: StepSpace, point: Point, name: str, profile: str) -> MappingSpec:
    """The mapping file of one point."""
    group = space.groups[point.group]
    variant, columns = group.variants[point.variant], group.columns
    plan, at = variant.plan, point.column
    spatial = plan.axes[:-1]

    def ranks(layout: Layout) -> dict[str, str | None]:
        return {axis: (p[2:] if p[0] == "S" else None) for axis, p in zip(spatial, layout, strict=False)}

    return MappingSpec(
        name=name,
        accelerators=space.accelerators,
        axes={axis: PlacedAxis(degree=int(columns.degrees[at, k]), stride=int(columns.strides[at, k])) for k, axis in enumerate(spatial)},
        ops={op: dict(zip(spatial, choice, strict=False)) for op, choice in plan.choices.items()},
        boundary={tensor: ranks(layout) for tensor, layout in plan.boundary.items()},
        homes=dict(plan.homes),
        save=dict(plan.save),
        flat={axis: list(indices) for axis, indices in plan.flat.items()},
        recompute=plan.recompute,
        rerun=plan.rerun,
        uneven=plan.uneven,
        profile=profile,
        step=StepSpec(
            micro_batch=int(columns.micro_batch[at]),
            pipeline=PlacedAxis(degree=point.stages, stride=int(columns.stage_strides[at])),
            schedule=point.schedule,
            interleave=point.chunks,
            layers=list(point.layers),
            mixes=_mixes(space, point),
            layout=variant.layout,
            hide_activations=bool(point.overlap[0]),
            hide_gradients=bool(point.overlap[1]),
            algorithms=algorithms_of(space.mapper),
            offload=list(variant.offload),
            host=space.mapper.host if variant.offload else None,
        ),
    )


def _mixes(space: StepSpace, point: Point) -> list[dict[str, dict[str, int]]]:
    """Stage → section → policy → layers of a point whose layers differ in policy."""
    variants = space.groups[point.group].variants
    names = [section.name for section in space.workload.sections if section.layer]
    return [
        {
            name: {variants[plan].recompute: count for plan, count in zip(point.plans, counts, strict=True) if count}
            for name, counts in zip(names, stage, strict=True)
            if any(counts)
        }
        for stage in point.mixes
    ]


def policy_plans(plan: Plan, step: StepSpec) -> list[Plan]:
    """A plan for each recompute policy that a mapping's layers use, in the order of POLICIES; the plan alone where they agree."""
    used = {policy for stage in step.mixes for section in stage.values() for policy in section}
    return [replace(plan, recompute=policy) for policy in POLICIES if policy in used] if used else [plan]


def mixes_of(step: StepSpec, workload: Workload) -> list[list[list[int]]]:
    """Stage → section of layers → policy (of those used) → layers. Raises InputError where they do not add up."""
    used = [policy for policy in POLICIES if any(policy in section for stage in step.mixes for section in stage.values())]
    layers = [section for section in workload.sections if section.layer]
    if len(step.mixes) != step.pipeline.degree:
        raise InputError(f"{len(step.mixes)} stages listed, the pipeline has {step.pipeline.degree}", path="step.mixes")
    mixes = [[[stage.get(s.name, {}).get(policy, 0) for policy in used] for s in layers] for stage in step.mixes]  # type: ignore[call-overload]
    for number, section in enumerate(layers):
        total = sum(sum(stage[number]) for stage in mixes)
        if total != section.repeat:
            raise InputError(f"{total} layers of {section.name} listed, the model has {section.repeat}", path="step.mixes")
    return mixes


def from_step_mapping(mapping: MappingSpec, workload: Workload) -> tuple[Columns, Plan, StepSpec]:
    """What prices a mapping file that has been checked: one column and its plan. Raises InputError where the batch does not divide."""
    step = mapping.step
    if step is None:
        raise InputError("a model in sections needs a `step`: micro_batch, pipeline, schedule", path="step")
    spatial = tuple(mapping.axes)
    degrees = [axis.degree for axis in mapping.axes.values()]
    batch = workload.batch
    choices = {
        op.name: (*(mapping.ops.get(op.name, {}).get(axis) for axis in spatial), batch if batch in op.indices else None)
        for op in workload.ops.values()
    }
    over = {axis for chosen in choices.values() for axis, index in zip(spatial, chosen, strict=False) if index == batch}
    ranks = prod(mapping.axes[axis].degree for axis in over)
    per_rank = workload.sizes[batch] / ranks
    if per_rank % step.micro_batch:
        raise InputError(
            f"micro-batches of {step.micro_batch} do not divide the {per_rank:g} samples of a data-parallel rank", path="step.micro_batch"
        )
    micro_batches = int(per_rank // step.micro_batch)
    boundary = {
        tensor: (
            *(REPLICATE if ranks.get(axis) is None else shard(str(ranks[axis])) for axis in spatial),
            shard(batch) if batch in workload.tensors[tensor].ranks else REPLICATE,
        )
        for tensor, ranks in mapping.boundary.items()
    }
    plan = Plan(
        (*spatial, MICRO),
        choices,
        boundary,
        dict.fromkeys(workload.ops, 0),
        dict(mapping.homes),
        dict(mapping.save),
        mapping.recompute,
        mapping.rerun,
        mapping.uneven,
        {axis: tuple(indices) for axis, indices in mapping.flat.items()},
        temporal=True,
    )
    one = np.ones(1, dtype=np.int64)
    columns = Columns(
        plan.axes,
        np.array([[*degrees, micro_batches]], dtype=np.int64),
        np.array([[*(axis.stride for axis in mapping.axes.values()), 1]], dtype=np.int64),
        one * step.pipeline.degree,
        one * step.pipeline.stride,
        one * step.micro_batch,
        one * micro_batches,
    )
    return columns, plan, step


def exact_point(price: GroupPrice, step: StepSpec, profile: ProfileSpec, made: Cut, variant: int = 0, column: int = 0) -> StepPoint:
    """The point with its simulated time."""
    overlap = (int(step.hide_activations), int(step.hide_gradients))
    own, composed = step_of(price, made, step.schedule, profile, overlap, variant, column)
    hop, count = float(price.sends.seconds[variant, column]), int(price.columns.micro_batches[column])
    pipeline = exact_pipeline_seconds(own, hop, made, step.schedule, count, profile, overlap)
    return StepPoint(variant, column, made, step.schedule, overlap, pipeline + float(composed.after.reshape(-1)[0]))


def made_cut(price: GroupPrice, step: StepSpec) -> Cut:
    """The cut a mapping asks for. Raises InfeasibleError where the layers do not divide."""
    made = cut_of(price, step.pipeline.degree, step.interleave, step.layers)
    if made is None:
        layers = sum(r for r, is_layer in zip(price.repeats, price.layers, strict=True) if is_layer)
        parts = step.pipeline.degree * step.interleave
        raise InfeasibleError(
            f"{layers} layers do not divide into {parts} equal chunks: say `layers` for an uneven cut",
            resource="layers",
            need=float(parts),
            have=float(layers),
            unit="layer",
        )
    return made


def fullest_device(price: GroupPrice, step: StepSpec, made: Cut) -> dict[str, float]:
    """Bytes by what holds them on the device that holds most."""
    sections = [one.plans(np.zeros(1, dtype=np.int64)) for one in price.sections]
    found: dict[str, float] = {}
    for first, _ in made.kinds:
        held = device_memory(sections, made, step.schedule, price.columns.micro_batches, first)
        here = {what: float(size.reshape(-1)[0]) for what, size in held.items() if size.any() and what != "host"}
        if sum(here.values()) > sum(found.values()):
            found = here
    return found
