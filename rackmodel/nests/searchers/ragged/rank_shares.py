"""Tiles and parts of merged ranks shared out to the ranks that they are made of: real numbers that mappings are looked for around.

One rank after another gets as much as it has, so that the first are cut last; which is first is tried in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan

TURNS = 3  # at most


def shared_ratios(
    plan: RaggedPlan, merged: Space, tile: Callable[[int, int, int], float], laid: Callable[[int, int], float]
) -> Iterator[Array]:
    """Ratios of a plan's tiles and parts. tile: (level, node, merged rank) → its size · laid: (fan, merged rank) → its parts."""
    turns = max(sum(plan.space.problem.sizes[r] > 1 for r in parts) for parts in merged.groups.values())
    for turn in range(min(TURNS, max(1, turns))):
        yield _Shares(plan, merged, tile, laid, turn).ratios()


class _Shares:
    def __init__(
        self, plan: RaggedPlan, merged: Space, tile: Callable[[int, int, int], float], laid: Callable[[int, int], float], turn: int
    ) -> None:
        self.plan, self.tile, self.laid = plan, tile, laid
        self.sizes, self.ranks, self.depth = plan.space.problem.sizes, plan.space.ranks, plan.space.depth
        several = ((g, parts, [p for p in parts if self.sizes[p] > 1]) for g, parts in enumerate(merged.groups.values()))
        self.group = {r: (g, _turned(some, turn)) for g, parts, some in several for r in parts}

    def ratios(self) -> Array:
        """Of every number of the plan."""
        row = [self._tile(t.level, t.first, self.ranks[t.rank]) for t in self.plan.tiles]
        given = dict[tuple[int, str], float]()
        fans = [v.fan for v in self.plan.space.machine.levels]
        room = {(f, side): float(most) for f, fan in enumerate(fans) for side, most in (("X", fan.x), ("Y", fan.y))}
        for p in self.plan.parts:
            rank = self.ranks[p.rank]
            left = self._parts(p.fan, rank) / given.get((p.fan, rank), 1.0)
            here = left if fans[p.fan].linear else max(1.0, min(left, room[p.fan, p.side]))
            room[p.fan, p.side] /= here
            given[p.fan, rank] = given.get((p.fan, rank), 1.0) * here
            row.append(here)
        return self.plan.ratios_of(np.array(row))

    def _tile(self, level: int, node: int, rank: str) -> float:
        group, order = self.group[rank]
        if level == 0:
            return float(self.sizes[rank])
        if level == self.depth:
            return float(self.plan.least[self.ranks.index(rank)])
        return _share(order, self.tile(level, node, group), self.sizes).get(rank, 1.0)

    def _parts(self, fan: int, rank: str) -> float:
        group, order = self.group[rank]
        outer = len(self.plan.orders[fan]) - 1
        most = {r: self._tile(fan, outer, r) / self._tile(fan + 1, 0, r) for r in order}
        return _share(order, self.laid(fan, group), most).get(rank, 1.0)


def _turned(ranks: Sequence[str], turn: int) -> list[str]:
    start = turn % max(1, len(ranks))
    return [*ranks[start:], *ranks[:start]]


def _share(order: Sequence[str], points: float, most: Mapping[str, float]) -> dict[str, float]:
    """Factors of a number, none but the last larger than it may be."""
    found = {}
    for r in order[:-1]:
        found[r] = max(1.0, min(float(most[r]), points))
        points /= found[r]
    return found | {r: max(1.0, points) for r in order[-1:]}
