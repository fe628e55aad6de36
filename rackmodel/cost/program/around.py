"""What a plan says around the passes of one operation, whatever the homes of weights and what is made again: layouts, axes, neighbours.

Programs of one plan that differ in those alone share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.cost.program.borders import Halo, halos
from rackmodel.cost.program.local_ops import backward_reads, statistics_axes, wants_gradient
from rackmodel.model.layout import Layout, grad_need
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload
from rackmodel.once import once


@dataclass(frozen=True)
class Around:
    """needs: layout of each operand · leaves: of the result · gradient: in which the result's gradient is needed · reads: tensors that the
    backward pass reads, and their layouts; none where there is no such pass · wanting: numbers of the operands that have a gradient ·
    halos: of each operand, what neighbours send of it · bordered: numbers of the operands that the backward pass reads with what neighbours
    send of them · statistics: axes that split what it normalises over."""

    needs: tuple[Layout, ...]
    leaves: Layout
    gradient: Layout
    reads: tuple[tuple[str, Layout], ...]
    wanting: tuple[int, ...]
    halos: tuple[tuple[Halo, ...], ...]
    bordered: tuple[int, ...]
    statistics: tuple[int, ...]


def around(op: Op, plan: Plan, workload: Workload) -> Around:
    """Of an operation under a plan. Remembered with the plan."""
    return once(plan.known, ("around", op.name, plan.choices[op.name]), lambda: _around(op, plan, workload))


def _around(op: Op, plan: Plan, workload: Workload) -> Around:
    wanting = tuple(i for i in range(len(op.ins)) if wants_gradient(op, i, workload))
    borders = tuple(halos(op, i, plan, workload) for i in range(len(op.ins)))
    again = backward_reads(op, workload) if wanting else ()
    return Around(
        needs=tuple(plan.needs(op, i, workload) for i in range(len(op.ins))),
        leaves=plan.leaves(op),
        gradient=tuple(grad_need(op, choice) for choice in plan.choices[op.name]),
        reads=tuple(_reads(op, plan, workload)) if wanting else (),
        wanting=wanting,
        halos=borders,
        bordered=tuple(i for i, access in enumerate(op.ins) if borders[i] and any(one is access for one in again)),
        statistics=statistics_axes(op, plan),
    )


def _reads(op: Op, plan: Plan, workload: Workload) -> list[tuple[str, Layout]]:
    """What the backward pass reads, of what takes room."""
    found = []
    for access in backward_reads(op, workload):
        position = next((i for i, operand in enumerate(op.ins) if operand is access), None)
        if workload.tensors[access.tensor].bits > 0:
            found.append((access.tensor, plan.leaves(op) if position is None else plan.needs(op, position, workload)))
    return found
