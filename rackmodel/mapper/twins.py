"""Points that are one mapping: told apart before they are timed by what their plans say on the mesh, and after by their figures.

An axis of one accelerator splits nothing, so that plans that differ only in what they place on it are the same there, as far as their
bounds are: which copy of a tensor is saved, the most sharded one, is so for all degrees of a plan, and one that is as large on one rank may
have to be exchanged again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import GroupPrice
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.points import Point
from rackmodel.model.plan import Plan

What = tuple[object, ...]


class Twins:
    """Leaves out points that are another one's mapping. groups, prices: of all points."""

    def __init__(self, groups: Sequence[Group], prices: Sequence[GroupPrice]) -> None:
        self.groups, self.prices = groups, prices
        self.known: dict[tuple[int, int, tuple[bool, ...]], What] = {}
        self.seen = set[What]()

    def without(self, points: Sequence[Point]) -> list[Point]:
        """The points whose mappings are none of those seen before."""
        found = []
        for point in points:
            mapping = self.mapping(point)
            if mapping not in self.seen:
                self.seen.add(mapping)
                found.append(point)
        return found

    def distinct(self, points: Sequence[Point]) -> list[Point]:
        """Timed points that differ in mesh, seconds or joules, the first of those that do not: a policy that finds nothing to make
        again makes no other mapping either."""
        first: dict[object, Point] = {}
        for point in points:
            figures = tuple(f"{figure:.10e}" for figure in (point.seconds, point.joules))
            first.setdefault((_runs(point, self.prices[point.group].columns), figures), point)
        return list(first.values())

    def mapping(self, point: Point) -> What:
        """All that the step of a point depends on whose figures are bounds."""
        price = self.prices[point.group]
        columns = price.columns
        alive = tuple(degree > 1 for _, degree in zip(columns.axes, columns.degrees[point.column].tolist(), strict=False))
        key = point.group, point.variant, alive
        if key not in self.known:
            variant = self.groups[point.group].variants[point.variant]
            self.known[key] = (*_on(variant.plan, alive), variant.offload)
        bounds = tuple(f"{figure:.10e}" for figure in (point.seconds, point.joules, point.memory))
        return self.known[key], _runs(point, columns), point.group, point.overlap, point.plans, bounds


def _runs(point: Point, columns: Columns) -> What:
    """A point's mesh, batch, cut and schedule."""
    x = point.column
    placed = zip(columns.axes, columns.degrees[x].tolist(), columns.strides[x].tolist(), strict=False)
    mesh = tuple(sorted((name, degree, stride) for name, degree, stride in placed if degree > 1))
    batch = (int(columns.stage_strides[x]), int(columns.micro_batch[x]), int(columns.micro_batches[x]))
    return mesh, point.stages, batch, point.schedule, point.chunks, point.layers, point.mixes


def _on(plan: Plan, alive: Sequence[bool]) -> What:
    """What a plan says where only some of its axes have more than one rank."""
    names = {name for name, lives in zip(plan.axes, alive, strict=True) if lives}

    def kept(row: Sequence[object]) -> tuple[object, ...]:
        return tuple(one for one, lives in zip(row, alive, strict=True) if lives)

    homes = []
    for name, home in plan.homes.items():
        axes = [axis for axis in home.axes if axis in names]
        # a shard of one rank, too, waits for its lane: a gradient is reduced as it is made, and apart from what makes it; a parameter
        # that nothing is gathered of comes behind what else the lane brings
        over = [axis for axis in home.replicas or () if axis in names]
        homes.append((name, axes, over, home.at, home.grad, home.param, home.state if axes else ""))
    choices = tuple((op, kept(choice)) for op, choice in plan.choices.items())
    boundary = tuple((tensor, kept(layout)) for tensor, layout in plan.boundary.items())
    flat = tuple((axis, of) for axis, of in plan.flat.items() if axis in names)
    return choices, boundary, str(homes), flat, plan.rest
