"""Plans and meshes on which an operation has no loop nest: left out of a space, as those that do not divide.

What an accelerator does of an operation depends on the mesh and on the layout, and so does whether there is a nest: a tile that a rule
fixes may be more than its share of a rank, a declared region or a tensor at home may have no room. On other meshes it may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.mapspace import Group


def priced(job: Job, group: Group) -> tuple[list[tuple[Group, GroupPrice]], int, InfeasibleError | None]:
    """(parts of a group with their prices, points left out, why the first of them was). A group without such points is one part."""
    try:
        return [(group, _price(job, group))], 0, None
    except InfeasibleError as problem:
        first = problem
    runs: dict[tuple[int, ...], list[int]] = defaultdict(list)  # plans that run → columns
    for column in range(len(group.columns)):
        plans = tuple(plan for plan in range(len(group.variants)) if _runs(job, _part(group, [plan], [column])))
        if plans:
            runs[plans].append(column)
    parts = [_part(group, plans, columns) for plans, columns in runs.items()]
    out = len(group.variants) * len(group.columns) - sum(len(part.variants) * len(part.columns) for part in parts)
    return [(part, _price(job, part)) for part in parts], out, first


def _part(group: Group, plans: Sequence[int], columns: Sequence[int]) -> Group:
    return replace(group, columns=group.columns.pick(np.array(columns)), variants=tuple(group.variants[plan] for plan in plans))


def _runs(job: Job, group: Group) -> bool:
    try:
        _price(job, group)
    except InfeasibleError:
        return False
    return True


def _price(job: Job, group: Group) -> GroupPrice:
    return price_group(job, group.columns, [one.plan for one in group.variants], [one.offload for one in group.variants])
