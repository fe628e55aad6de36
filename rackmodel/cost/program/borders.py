"""Borders of windows (p + r): what two neighbours both read of an operand that is split, and send each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from rackmodel.cost.program.tasks import Volume, cuts_of
from rackmodel.model.layout import REPLICATE, is_shard, rank_split
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload

Halo = tuple[tuple[int, ...], Volume]  # axes, and bytes that each neighbour sends


def overlaps(op: Op, position: int, plan: Plan, workload: Workload) -> list[tuple[int, tuple[int, ...], Any]]:
    """(rank of an operand, axes that split it, elements that windows of two neighbours share there) where there are some.

    They share 1 + Σ stride (size − 1) over the indices that are not split, less the stride of the one that is.
    """
    access, found = op.ins[position], []
    if all(len(affine) == 1 for affine in access.indices):
        return []
    layout, tensor = plan.needs(op, position, workload), workload.tensors[access.tensor]
    for rank, affine in enumerate(access.indices):
        axes = tuple(a for a, p in enumerate(layout) if rank_split(p) == tensor.ranks[rank])
        if len(affine) > 1 and axes:
            chosen = {plan.choices[op.name][axis] for axis in axes}
            shared = 1 + sum(-stride if index in chosen else stride * (workload.sizes[index] - 1) for stride, index in affine)
            found.append((rank, axes, np.maximum(shared, 0)))
    return [one for one in found if np.any(one[2])]


def halos(op: Op, position: int, plan: Plan, workload: Workload) -> tuple[Halo, ...]:
    """(axes, bytes that each neighbour sends) of what windows of both read of an operand: half of it lies on either side of their seam. Of
    several ranks that are split the borders go in turn, each with those that came before, so that corners arrive by way of a neighbour."""
    tensor, layout, found = workload.tensors[op.ins[position].tensor], plan.needs(op, position, workload), []
    before: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    for rank, axes, shared in overlaps(op, position, plan, workload):
        rest = tuple(a for a, p in enumerate(layout) if is_shard(p) and a not in axes)
        others = tuple(p if axis in rest else REPLICATE for axis, p in enumerate(layout))
        sent = tensor.bytes / tensor.sizes[rank] * shared / 2
        found.append((axes, Volume(sent, rest, cuts=cuts_of((others,), tensor, plan), borders=before)))
        before = (*before, (shared / tensor.sizes[rank], axes))
    return tuple(one for one in found if not one[1].empty)
