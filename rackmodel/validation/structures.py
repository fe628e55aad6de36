"""What the clock and scores read off a training case: its structure, how its layers are cut, its operations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rackmodel.cost.program.fusion import scores
from rackmodel.cost.step.cut import Cut, cut, even_cut
from rackmodel.cost.step.exact import Structure
from rackmodel.model.plan import Plan
from rackmodel.model.schedules import FOLDED
from rackmodel.model.workload import Workload
from rackmodel.validation.training import TrainingCase
from rackmodel.validation.training_models import layers_of


def shape_of(case: TrainingCase) -> tuple[int, int, int, int, str]:
    """What cases share that the clock runs together: layers, stages, chunks, micro-batches and the schedule."""
    return layers_of(case), case.mesh.degrees["pp"], case.chunks, case.mesh.micro_batches, case.schedule


def structure_of(workload: Workload, plan: Plan, case: TrainingCase) -> tuple[Structure, tuple[str, ...]]:
    """What prices the rows that share a case's depth, stages, chunks and micro-batches; and what was assumed of the cut."""
    made, note = cut_of_layers(workload, layers_of(case), case.mesh.degrees["pp"], case.chunks, folded=case.schedule in FOLDED)
    structure = Structure(
        parts=tuple((number, plan) for number in range(len(workload.sections))),
        cut=made,
        schedule=case.schedule,
        micro_batches=case.mesh.micro_batches,
        overlap=(1, 1),
    )
    return structure, (note,) if note else ()


def _repeats(workload: Workload, layers: int) -> tuple[int, ...]:
    """Layers of each section: of the one kind there is as many as the model has, of several kinds those of the workload."""
    alike = sum(section.layer for section in workload.sections) == 1
    return tuple(layers if section.layer and alike else section.repeat for section in workload.sections)


def cut_of_layers(workload: Workload, layers: int, stages: int, chunks: int, *, folded: bool = False) -> tuple[Cut, str]:
    """The cut of a model so many layers deep, and what had to be assumed: where chunks do not divide the layers, the embedding and the
    head count as a layer each, or the first chunks hold one layer more. folded: a stage's second chunk is on the way back."""
    repeats = _repeats(workload, layers)
    flags, parts = tuple(section.layer for section in workload.sections), stages * chunks
    even = even_cut(repeats, flags, stages, chunks, folded)
    if even is not None:
        return even, ""
    if (layers + 2) % parts == 0:
        each = (layers + 2) // parts
        counts = (each - 1, *([each] * (parts - 2)), each - 1)
        note = f"{layers} layers, the embedding and the head in {parts} chunks of {each}"
    else:
        each, more = divmod(layers, parts)
        counts = tuple(each + (chunk < more) for chunk in range(parts))
        note = f"{layers} layers in {parts} chunks: the first {more} hold one more (ASSUMED)"
    return cut(repeats, flags, stages, chunks, counts, folded), note


def work_of(workload: Workload, macs: Sequence[tuple[float, float]], layers: int, case: TrainingCase) -> tuple[float, float]:
    """Operations of a step: of the model (forward once, backward twice, of frozen weights once), and of hardware that runs the layers'
    forward pass again. macs: `macs_of` each of its sections."""
    share = case.batch / workload.sizes[workload.batch]
    forward, found = 0.0, 0.0
    for section, repeat, (once, all_passes) in zip(workload.sections, _repeats(workload, layers), macs, strict=True):
        found += 2.0 * all_passes * repeat * share
        forward += 2.0 * once * repeat * share if section.layer else 0.0
    return found, found + (forward if case.key.recompute == "full" else 0.0)


def macs_of(workload: Workload) -> tuple[float, float]:
    """Multiply-adds of one forward pass, and of it with its backward pass: a product for each operand that is not frozen. Scores count
    whole, masked or not, as published TFLOP/s have them (Narayanan 2021, equation 3)."""
    once, both, whole = 0.0, 0.0, scores(workload)
    for op in workload.ops.values():
        if op.kind.name == "einsum":
            points = prod(workload.sizes[index] for index in op.indices)
            own = points * prod(workload.tensors[access.tensor].density for access in op.ins if access.tensor not in whole)
            once, both = once + own, both + own * (1 + sum(workload.tensors[access.tensor].trained for access in op.ins))
    return once, both
