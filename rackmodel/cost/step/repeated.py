"""Work that a step does more than once: what its model asks for, and what members of a group do alike.

    useful      Σ operations' matrix products over their whole iteration space, forward and backward, each once
    repeated    an operation that an axis of d members does not split is done d times: 1 − 1/d of its seconds, joules and bytes of
                weights, gradients and optimizer state is repetition

Repetition is told of axes that leave an operation with weights whole (norms under plain tensor parallelism, a projection whose heads a
file does not name), with everything else that they leave whole.
"""

from __future__ import annotations

from math import prod

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.tied import STATE
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.group import plan_of
from rackmodel.cost.step.tasks.items import Item
from rackmodel.model.plan import Plan
from rackmodel.model.result import Repetition
from rackmodel.model.workload import Section


def useful_flop(step: ExactStep) -> float:
    """Operations of the model's matrix products in one step, forward and backward, none done twice."""
    total = 0.0
    for x, cost in enumerate(step.priced_layers):
        own = sum(_whole(item, step) for item in cost.items if item.task.phase in ("forward", "backward"))
        total += own * _layers(step, x)
    return total


def _layers(step: ExactStep, x: int) -> int:
    return 1 if step.staged else int(step.structure.cut.counts[:, x].sum())


def _whole(item: Item, step: ExactStep) -> float:
    """Of one pass over its whole iteration space, whatever the mesh: what a micro-batch does on all accelerators, less what they repeat."""
    local_op = item.task.local_op
    if local_op is None or not local_op.macs:
        return 0.0
    done = sum(amount for row, (amount, *_) in item.priced.first if row.action == "mac")
    points = float(local_op.exact(step.columns.degrees)[0]) * float(step.pricer.per_stage[0])
    return done / points * local_op.density * prod(size for _, size, _ in local_op.space) if points else 0.0


def repetitions(step: ExactStep) -> tuple[Repetition, ...]:
    """What members of the step's groups do alike, by the axes that they lie on, largest first."""
    found: dict[tuple[str, ...], list[tuple[str, Array]]] = {}
    for x, (number, plan) in enumerate(step.structure.parts):
        section = step.job.workload.sections[number]
        for axes, names in _left_whole(step, section, plan).items():
            found.setdefault(axes, []).extend((name, _share(step, x, name, axes)) for name in names)
    told = []
    for axes, each in found.items():
        seconds, joules, held = np.sum([figures for _, figures in each], axis=0)
        operations = tuple(dict.fromkeys(name for name, _ in each))
        told.append(Repetition(axes, operations, float(seconds.max()), float(joules.sum()), float(held.max())))
    return tuple(sorted(told, key=lambda one: -one.joules))


def _left_whole(step: ExactStep, section: Section, plan: Plan) -> dict[tuple[str, ...], list[str]]:
    """Axes → the section's operations that none of them splits, where one of these has weights."""
    degrees = step.columns.degrees[0]
    found: dict[tuple[str, ...], list[str]] = {}
    for op in section.workload.ops.values():
        choices = plan.choices[op.name]
        axes = tuple(name for k, name in enumerate(plan.axes[: plan.spatial]) if degrees[k] > 1 and choices[k] not in op.indices)
        if axes:
            found.setdefault(axes, []).append(op.name)
    weights = {op.name for op in section.workload.ops.values() if any(a.tensor in section.workload.weights for a in op.ins)}
    return {axes: names for axes, names in found.items() if weights & set(names)}


def _share(step: ExactStep, x: int, name: str, axes: tuple[str, ...]) -> Array:
    """[seconds, joules, bytes; stages] of an operation that are repetition: as if it were alone on an accelerator of each stage, of all
    accelerators of the stage, on one."""
    number, plan = step.structure.parts[x]
    section = step.job.workload.sections[number]
    times = prod(int(step.columns.degrees[0, plan.axes.index(axis)]) for axis in axes)
    here = np.ones(1) if step.staged else step.structure.cut.busy[:, x].astype(float)  # layers of each stage
    seconds = joules = 0.0
    for item in step.priced_layers[x].items:
        if item.task.einsum == name and item.task.local_op is not None and item.task.phase != "optimizer":
            seconds += float(item.seconds[0])
            joules += float(sum(item.priced.named[1][:, 1, 0]))
    weights = {access.tensor for access in section.workload.ops[name].ins} & set(section.workload.weights)
    program = step.layers.program(section, plan_of(section, plan, step.job.profile))
    held = [h for h in program.held if h.what in STATE and not h.level and h.tensor in weights]
    size = sum(float(h.at(step.columns.degrees)[0]) for h in held)
    m = step.structure.micro_batches
    return np.outer([seconds * m, joules * m, size], here) * (1 - 1 / times)
