"""Families of plans: bounds that hold for every plan of a family, so that most plans need none of their own.

Plans that split their operations alike and recompute alike run the same; homes and offload move the rest. A bound of a family is that of a
plan which has the least of every figure that one of its plans has (of what windows hide, the most). What bounds are composed of are sums,
products and maxima of such figures, which rounding keeps in order: it is never above the bound of any of them, to the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.bound import Sends
from rackmodel.cost.step.bounds.figures import Figures
from rackmodel.cost.step.group import GroupPrice
from rackmodel.mapper.mapspace import Variant
from rackmodel.mapper.pipelines import Pipelines


@dataclass(frozen=True, kw_only=True)
class FamilyBound:
    """What no plan of a family is below on a column under any overlap: [families, columns]. of: [plans] the family of each · joules:
    with static power."""

    of: Ints
    seconds: Array
    joules: Array
    memory: Array

    @property
    def figures(self) -> tuple[Array, Array, Array]:
        """seconds, joules, memory."""
        return self.seconds, self.joules, self.memory

    @classmethod
    def each(cls, of: Ints, steps: Pipelines, memory: Sequence[tuple[int, Array]], static_w: float) -> list[FamilyBound]:
        """Of rows of steps whose plans are families. memory: a row, and under it [plans, columns] exact bytes of every plan."""
        seconds = steps.quick().min(axis=-1)
        joules = steps.joules() + static_w * seconds
        return [cls(of=of, seconds=seconds[row], joules=joules[row], memory=least_of_plans(of, own)) for row, own in memory]


def least_of_plans(of: Ints, values: Array) -> Array:
    """[families, columns] the least that a plan of each family has. of: [plans] the family of each · values: [plans, columns]."""
    order = np.argsort(of, kind="stable")
    return np.asarray(np.minimum.reduceat(values[order], np.flatnonzero(np.diff(of[order], prepend=-1)), axis=0))


class Families:
    """The families of a group. of: [plans] the family of each · sections, sends: as the group's price, of families in place of plans,
    without what they hold."""

    def __init__(self, variants: Sequence[Variant], price: GroupPrice) -> None:
        self.sections: list[Figures]
        self.sends: Sends
        numbers: dict[object, int] = {}
        same = [(one.plan.recompute, *one.plan.choices.items(), *one.plan.save.items()) for one in variants]
        self.of: Ints = np.array([numbers.setdefault(key, len(numbers)) for key in same])
        if len(numbers) == len(variants):  # a plan each
            self.sections, self.sends = [replace(one.whole, held={}) for one in price.sections], price.sends
            return
        members = [np.flatnonzero(self.of == family) for family in range(len(numbers))]
        self.sections = [one.least(members) for one in price.sections]
        self.sends = price.sends.least(members)

    def __len__(self) -> int:
        return len(self.sends.seconds)
