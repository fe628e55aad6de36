"""Groups that are outlined first and priced where that is worth it.

An outline (cost/step/tasks/outline) holds what every plan has on every column: its memory, exact, and what its device does at least.
Families' bounds are made of it, and where those leave a plan on a column worth a look, what its lanes move at least, and its optimizer, are
outlined as well. Where its own bound leaves it worth a look then, it is priced in full, in the outline's place.
Most of a large space is never priced. What is priced later is the same to the last digit but for the rounding of sums in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.bounds.figures import ARRAYS
from rackmodel.cost.step.bounds.paths import MOVED
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.tasks.layer_inside import looks_at_layers
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.outline import MovedPricer, OutlinePricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.points import Together

LATER = MOVED | {"update"}  # figures that are outlined later
MANY = 1024  # columns of a space that is outlined first: fewer are priced whole sooner


class Outlined:
    """What of the groups of a space is priced. groups, prices: as a search lists them · waiting: number of a group → [plans, columns] that
    are outlined, but not priced · still: likewise those whose lanes are not outlined yet · layers: what priced some columns, and where each
    of them is, for who goes on from it."""

    def __init__(self, job: Job, groups: Sequence[Group], prices: list[GroupPrice]) -> None:
        self.job, self.groups, self.prices = job, groups, prices
        self.waiting: dict[int, Bools] = {}
        self.still: dict[int, Bools] = {}
        self.layers: list[Together] = []

    def add(self, groups: Sequence[Group]) -> None:
        """Outline groups of one pattern, as the next of the list: one outline of all their plans on all their columns, dealt out."""
        variants = list({id(one): one for group in groups for one in group.variants}.values())
        place, ends = {id(one): number for number, one in enumerate(variants)}, np.cumsum([len(group.columns) for group in groups])
        whole = replace(groups[0], columns=Columns.join([group.columns for group in groups]), variants=tuple(variants))
        price = _priced(self.job, whole, OutlinePricer)
        for group, end in zip(groups, ends.tolist(), strict=True):
            plans, columns = np.array([place[id(one)] for one in group.variants]), np.arange(end - len(group.columns), end)
            for cells in (self.waiting, self.still):
                cells[len(self.prices)] = np.ones((len(plans), len(columns)), dtype=bool)
            self.prices.append(price.part(plans, columns) if len(groups) > 1 else price)

    def move(self, number: int, cells: Bools) -> bool:
        """Outline what the lanes of some cells of a group move, and the optimizer, for the plans and columns of those that are not yet;
        whether there was any."""
        return self._fill(number, cells, self.still, MovedPricer, LATER)

    def price(self, number: int, cells: Bools) -> bool:
        """Price what waits of some cells of a group, with what else waits of the same plans and columns; whether there was any."""
        return self._fill(number, cells, self.waiting, LayerPricer, ARRAYS)

    def _fill(self, number: int, cells: Bools, waiting: dict[int, Bools], pricing: type[LayerPricer], names: Collection[str]) -> bool:
        """names: of the figures that are found."""
        if number not in waiting or not (waiting[number] & cells).any():
            return False
        plans, columns = (np.flatnonzero((waiting[number] & cells).any(axis=axis)) for axis in (1, 0))
        group, price = self.groups[number], self.prices[number]
        some = replace(group, columns=group.columns.pick(columns), variants=tuple(group.variants[plan] for plan in plans))
        found = _priced(self.job, some, pricing, price.wider(columns))
        sections = [one.filled(own, plans, columns, names) for one, own in zip(price.sections, found.sections, strict=True)]
        self.prices[number] = replace(price, sections=tuple(sections))
        if found.priced is not None:
            self.layers.append((number, {int(column): place for place, column in enumerate(columns)}, found.priced))
        waiting[number][np.ix_(plans, columns)] = False
        return True


def may_wait(job: Job, space: Mapspace, groups: Sequence[Group]) -> bool:
    """Whether groups of a space are outlined first: they have many columns, what an operation takes does not depend on those beside it,
    and cuts are even ones of whole layers."""
    setting = job.setting
    alike = not any(isinstance(one, np.ndarray) for one in (setting.variation, setting.library, setting.links))
    apart = not looks_at_layers(setting.inside)
    whole = all(variant.plan.stage_count == 1 for group in groups for variant in group.variants[:1])
    columns = sum(len(group.columns) for group in groups)
    return columns >= MANY and alike and apart and space.even and whole


def _priced(job: Job, group: Group, pricing: type[LayerPricer], wider: tuple[Pricer, Ints] | None = None) -> GroupPrice:
    plans, offload = [one.plan for one in group.variants], [one.offload for one in group.variants]
    return price_group(job, group.columns, plans, offload, pricing, wider)
