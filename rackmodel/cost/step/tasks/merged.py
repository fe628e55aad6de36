"""Products of one operand as one product: queries, keys and values, or gate and up, of experts too, whose weights a library keeps side
by side.

    columns of the product = sum of the columns of its members, on each accelerator; the operand is read once, one start is paid

A backward pass has one for the gradient of that operand, which sums over the columns of all and writes once, and one for the weights'. The
first of them is charged with it; the others are there when it is done.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.inside.kernels import roles_of
from rackmodel.cost.program.fusion import NORMS
from rackmodel.cost.program.tasks import Degrees, Flow, LocalOp, Operand, Task
from rackmodel.model.einsum import Access
from rackmodel.model.profile import Merged
from rackmodel.model.workload import Workload

COLUMNS = "columns"
"""The index of the columns that are put side by side."""

RUNS = ("forward", "recompute", "operand", "weight")
"""Products of an operation in a step: forward, again, of the gradient of what it reads, and of its weight's."""


Taken = dict[int, tuple[int, ...]]
"""Number of a task → numbers of all that run as one with it, itself first; numbers of the others → ()."""


Known = dict[tuple[int, int, str], tuple[LocalOp, Hashable | None]]
"""Of operations that many programs share (by id, stage and phase): what each has in common with those that run as one with it."""


def run_as_one(tasks: Sequence[Task], workload: Workload, merged: Merged, known: Known | None = None) -> tuple[Taken, dict[int, Ints]]:
    """(what runs as one; number of a product that runs as one with others → [1] number of the first of them, as windows take kernels).
    known: of other programs under these facts."""
    products = _first_of([_known_alike(task, merged.apart, known) for task in tasks]) if merged.projections else {}
    kernels = {number: np.array([numbers[0]]) for numbers in products.values() for number in numbers}
    return products | (merged_statistics(tasks, workload) if merged.statistics else {}), kernels


def _known_alike(task: Task, apart: Sequence[str], known: Known | None) -> Hashable | None:
    """`products_alike`, remembered."""
    if known is None or task.local_op is None:
        return products_alike(task, apart)
    key = id(task.local_op), task.stage, task.phase
    if key not in known:
        known[key] = task.local_op, products_alike(task, apart)  # (which stays, and with it its id)
    return known[key][1]


def products_alike(task: Task, apart: Sequence[str] = ()) -> Hashable | None:
    """What a product has in common with those that run as one with it; None where it runs alone."""
    op = task.local_op
    columns = _columns(op) if task.kind == "op" and op is not None else ()
    if op is None or not columns or (op.operands[0].tensor if _backward(op) else op.written) in apart:
        return None
    shared = _shared(op)
    space = tuple(one for one in op.space if one[0] not in columns)
    split = sorted(axes for index, _, axes in op.space if index in columns and axes) if shared is op.result else ()
    same = (shared.name, str(shared.access), _counted(space), tuple(split), _flow(op, shared).volume.axes, op.bits, op.family)
    dense = (np.asarray(op.density).tobytes(), np.asarray(op.weight_density).tobytes())
    return (task.stage, run_of(task), *same, *dense)


def run_of(task: Task) -> str:
    """Which of the products it is that an operation makes in a step: one of RUNS."""
    op = task.local_op
    if op is None or not _backward(op):
        return task.phase
    return "operand" if op.operands[1].weight else "weight"


def merged_statistics(tasks: Sequence[Task], workload: Workload) -> Taken:
    """The same of all-reduces of what normalisations of a forward pass sum over accelerators, where products of one operand made what they
    normalise: none waits for another.

    Source: queries' and keys' of MiniMax M2 are one (vllm-project/vllm, pull request 31493; sgl-project/sglang, pull request 14416).
    """
    return _first_of([statistics_alike(task, workload) for task in tasks])


def statistics_alike(task: Task, workload: Workload) -> Hashable | None:
    """What such an all-reduce has in common with those that run as one with it; None of all else."""
    op = workload.ops.get(task.einsum) if task.kind == "collective" and task.action == "all_reduce" and task.phase == "forward" else None
    if op is None or op.kind.name not in NORMS or task.tensor != op.out.tensor:
        return None
    maker = workload.maker(op.ins[0].tensor)
    return None if maker is None or maker.kind.name != "einsum" else (task.stage, task.axes, maker.ins[0].tensor)


def summed_message(tasks: Sequence[Task]) -> Task:
    """The collective of several."""
    return replace(tasks[0], volume=replace(tasks[0].volume, total=sum(one.volume.total for one in tasks)))


def _first_of(alike: Sequence[Hashable | None]) -> Taken:
    """Of those that have the same in common the first → all of them, the others → (). alike: of each task; None: it runs alone."""
    groups: dict[Hashable, list[int]] = {}
    for number, same in enumerate(alike):
        if same is not None:
            groups.setdefault(same, []).append(number)
    found: Taken = {}
    for numbers in groups.values():
        if len(numbers) > 1:
            found |= {numbers[0]: tuple(numbers), **dict.fromkeys(numbers[1:], ())}
    return found


def _counted(space: Sequence[tuple[str, Any, tuple[int, ...]]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((index, axes) for index, _, axes in space)


def _backward(local_op: LocalOp) -> bool:
    """Whether it makes a gradient, from that of what a forward pass made."""
    return local_op.operands[0].gradient


def _columns(local_op: LocalOp) -> tuple[str, ...]:
    """Indices that a product of activations and a weight has from the weight alone, in whichever pass; none where it is no such product, or
    one of many whose operands are not dealt out to them (heads'; experts' are)."""
    roles = roles_of(local_op) if local_op.macs and not local_op.kernel else None
    if roles is None or (roles[0] and not np.all(np.asarray(local_op.density) < 1)):
        return ()
    assert local_op.result is not None
    weights = [operand.weight for operand in local_op.operands]
    if not _backward(local_op):
        return roles[2] if weights == [False, True] else ()
    if weights == [False, True]:
        return roles[3]
    return roles[1] if local_op.result.of_weight else ()


def _shared(local_op: LocalOp) -> Operand:
    """What members have in common: what they read, or its gradient that they make."""
    left, right = local_op.operands
    if not _backward(local_op):
        return left
    assert local_op.result is not None
    return local_op.result if right.weight else right


def _flow(local_op: LocalOp, operand: Operand) -> Flow:
    """What moves of an operand, or of the result."""
    return next(flow for flow in (*local_op.writes, *local_op.reads) if flow.name == operand.name)


def side_by_side(members: Sequence[LocalOp], degrees: Degrees) -> LocalOp:
    """The product of several."""
    first, mine = members[0], _columns(members[0])
    assert first.result is not None
    columns = sum(member.along(_columns(member), degrees) for member in members)
    mean = sum(member.along(_columns(member), degrees, whole=False) for member in members) if first.paced else columns
    space = (*(one for one in first.space if one[0] not in mine), (COLUMNS, columns, ()))
    shared = _shared(first).name
    return replace(
        first,
        reads=_moved([member.reads for member in members], shared),
        writes=_moved([member.writes for member in members], shared),
        space=space,
        mean=mean / columns if np.any(mean != columns) else 1.0,
        operands=tuple(_with_columns(operand, mine) for operand in first.operands),
        result=_with_columns(first.result, mine),
    )


def _moved(flows: Sequence[Sequence[Flow]], shared: str) -> tuple[Flow, ...]:
    """What all members move, what they share once."""
    return (*flows[0], *(flow for each in flows[1:] for flow in each if flow.name != shared))


def _with_columns(operand: Operand, columns: Sequence[str]) -> Operand:
    """The operand, its own columns, where it has some, replaced by those of all."""
    kept = tuple(affine for affine in operand.access.indices if not any(index in columns for _, index in affine))
    if len(kept) == len(operand.access.indices):
        return operand
    return replace(operand, access=Access(operand.access.tensor, (*kept, ((1, COLUMNS),))))
