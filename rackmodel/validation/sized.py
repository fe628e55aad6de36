"""Columns that have a model and a plan each: meshes of plans that share their axes, of workloads of one graph."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.model.plan import Plan
from rackmodel.model.sized_columns import as_columns, graph_key
from rackmodel.model.workload import Workload

FREE = frozenset({"b", "s", "d", "f", "g", "h", "q", "v", "layers"})
"""Sizes of models that may be columns: those that kernels take as they come."""
HEADS = frozenset({"e"})
"""Of an attention whose products are products as all others; fused kernels were measured at heads of some sizes."""
OF_NO_WEIGHT = frozenset({"b", "s", "layers"})
"""Those of them that say nothing of how large weights are."""


@dataclass(frozen=True)
class SizedColumns:
    """numbers: which of the cases, a column each · plans, workloads: of each."""

    numbers: tuple[int, ...]
    columns: Columns
    plans: tuple[Plan, ...]
    workloads: tuple[Workload, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def key(self, free: frozenset[str]) -> Hashable:
        """What columns must share to stand beside each other. free: sizes in which they may differ."""
        plan = self.plans[0]
        return self.columns.axes, plan.axes, plan.spatial, plan.stage_count, graph_key(self.workloads[0], free)

    def pick(self, which: Sequence[int]) -> SizedColumns:
        """Some of them, also several times."""
        numbers = tuple(self.numbers[column] for column in which)
        plans = _of_their_own([self.plans[column] for column in which])
        workloads = tuple(self.workloads[column] for column in which)
        return SizedColumns(numbers, self.columns.pick(np.array(which, dtype=np.int64)), plans, workloads)

    def workload(self) -> Workload:
        """All of theirs in one."""
        each = {id(workload): workload for workload in self.workloads}
        place = {key: number for number, key in enumerate(each)}
        return as_columns(tuple(each.values()), np.array([place[id(workload)] for workload in self.workloads]))


def joined(parts: Sequence[SizedColumns]) -> SizedColumns:
    """Several of one key, of one plan each, one after another."""
    if len(parts) == 1:
        return parts[0]
    return SizedColumns(
        numbers=tuple(number for part in parts for number in part.numbers),
        columns=Columns.join([part.columns for part in parts]),
        plans=_of_their_own([plan for part in parts for plan in part.plans]),
        workloads=tuple(workload for part in parts for workload in part.workloads),
    )


def _of_their_own(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Plans for other columns, equal ones one: what a plan knows of operations is of the sizes of the models that it was asked for. Those
    of the same axes share what they know."""
    fresh, known = dict[Hashable, Plan](), dict[Hashable, dict[Any, Any]]()
    for plan in plans:
        if plan.key not in fresh:
            axes = plan.axes, tuple(plan.flat.items()), plan.uneven, tuple(plan.stages.items())
            fresh[plan.key] = replace(plan, known=known.setdefault(axes, {}))
    return tuple(fresh[plan.key] for plan in plans)
