"""One member of a region below the intermediates' tile: its tables, and its best nest where some bits of level 1 are left.

What is below one tile is that tile's table of costs (cost_table), with the intermediates, the residents and the prefix's tensors on chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from rackmodel.errors import InfeasibleError
from rackmodel.nests.arrays import Floats
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.searchers.backtrack import best_path, optimum
from rackmodel.nests.searchers.cost_table import CostTable
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.fan_state import start
from rackmodel.nests.searchers.mapping_steps import NodeAbove, build_mapping
from rackmodel.nests.searchers.prices import components
from rackmodel.nests.searchers.region_space import RegionSpace
from rackmodel.nests.searchers.region_tiles import Prefix
from rackmodel.nests.searchers.slices import Best, Entry, SliceSearch
from rackmodel.nests.searchers.space import OnChip, Space
from rackmodel.nests.searchers.tile_options import Tile

ENERGY = NestObjective("energy")


class Above(NamedTuple):
    """What lies above a member's branch: prefix, tile sizes of the shared ranks at each of its nodes and at the intermediates', bits of
    level 1 that are taken, joules and bits of every port on account of the member's prefix tensors."""

    prefix: Prefix
    tiles: tuple[tuple[int, ...], ...]
    taken: float
    joules: float
    bits: tuple[tuple[str, float], ...]


class Branch:
    """Member number i of a region. Tables are shared by what is on chip and the bits taken; so are answers."""

    def __init__(self, space: RegionSpace, i: int, effort: Effort) -> None:
        self.space, self.i, self.effort = space, i, effort
        self.problem, self.machine = space.region.members[i], space.region.machines[i]
        self.ports = components(self.machine)
        self.constant = self.problem.macs * self.problem.density * self.machine.compute.j_per_mac
        self.least_s = self.problem.macs * self.problem.density / (self.machine.compute.macs_per_s * self.machine.units)
        self.searches: dict[object, list[SliceSearch]] = {}
        self.below: dict[object, Floats] = {}
        self.found: dict[object, Best | None] = {}

    def on_chip(self, prefix: Prefix) -> frozenset[str]:
        """Its tensors that its branch finds in level 1."""
        names = {t.name for t in self.problem.tensors}
        return frozenset(names & {*prefix, *self.space.region.held, *self.space.region.resident})

    def _searches(self, prefix: Prefix, reserved: float) -> list[SliceSearch]:
        """With the tables of every choice of stored tensors, `reserved` bits of level 1 taken."""
        key = (self.on_chip(prefix), reserved)
        if key not in self.searches:
            groups, on_chip = self.space.groups[self.i], OnChip(*key)
            spaces = [
                Space(self.problem, self.machine, kept, NestConstraints(), groups=groups, on_chip=on_chip)
                for kept in self.space.masks[self.i]
            ]
            self.searches[key] = [SliceSearch(space, ENERGY, effort=self.effort) for space in spaces]
        return self.searches[key]

    def least(self, prefix: Prefix, reserved: float, port: int | None = None) -> Floats:
        """[tiles of the shared ranks] least joules below the intermediates, private ranks whole, without the MACs; or bits of a port."""
        key = (self.on_chip(prefix), reserved, port)
        if key not in self.below:
            found = self._searches(prefix, reserved)
            self.below[key] = np.minimum.reduce([self._values(one.energy if port is None else one.ports[port][1]) for one in found])
        return self.below[key]

    def _values(self, table: CostTable) -> Floats:
        space, shared = table.space, self.space.shared
        values = table.value(1, start(space))
        whole = tuple(slice(None) if g in shared else space.axes[r].top for r, g in enumerate(space.ranks))
        mine = [g for g in space.ranks if g in shared]
        return np.transpose(values[whole], [mine.index(g) for g in shared])

    def instances(self, port: int) -> int:
        """Of the level of a port, on the whole machine."""
        return prod(level.fan.size for level in self.machine.levels[: self.ports[port].level])

    def best(self, above: Above, aim: NestObjective, coarse: float) -> Best | None:
        """The nest below what is above that is best for an aim; None where none fits. coarse: no more than the bits taken: what is best
        there and fits is best."""
        loose = self._best(above._replace(taken=coarse), aim)
        if loose is None:
            return None
        level, own = self.machine.levels[1], loose[1].levels[1].nodes[len(self._nodes(above)) :]
        room = sum(level.buffers * level.bits(t) * t.tile_words(node.tile) for node in own for t in (self.problem.tensor(node.tensor),))
        if level.capacity_bits is None or above.taken + room <= level.capacity_bits:
            return loose
        return self._best(above, aim)

    def _best(self, above: Above, aim: NestObjective) -> Best | None:
        key = (self.on_chip(above.prefix), self._charged(above.prefix), *above[1:], aim)
        if key not in self.found:
            self.found[key] = self._search(above, aim)
        return self.found[key]

    def _search(self, above: Above, aim: NestObjective) -> Best | None:
        if aim.energy_only:
            one = min(self._searches(above.prefix, above.taken), key=lambda s: optimum(s.energy, self._tile(s.space, above)))
            entry = self._entry(one.space, above)
            if optimum(one.energy, entry.tile) == np.inf:
                return None
            mapping = build_mapping(one.space, best_path(one.energy, entry.tile), entry.above)
            cost = evaluate(self.problem, self.machine, mapping, entry.inside)
            return (cost.energy_j, cost.latency_s), mapping, cost
        best: Best | None = None
        for like in self._searches(above.prefix, above.taken):
            search = SliceSearch(like.space, aim, best, self.effort, self._entry(like.space, above), like)
            try:
                search.run()
            except InfeasibleError:
                continue
            best = search.best
        return best

    def _tile(self, space: Space, above: Above) -> Tile:
        sizes = dict(zip(self.space.shared, above.tiles[-1], strict=True))
        return tuple(a.index[sizes.get(g, a.size)] for g, a in zip(space.ranks, space.divisor_axes, strict=True))

    def _charged(self, prefix: Prefix) -> frozenset[str]:
        """Prefix tensors whose words are on its account."""
        return frozenset(n for n in prefix if self.space.users[n][0] == self.i)

    def _nodes(self, above: Above) -> list[str]:
        """Its tensors with nodes of level 1 before its own: residents, prefix, intermediates."""
        region, mine = self.space.region, {t.name for t in self.problem.tensors}
        return [n for n in (*sorted(region.resident), *above.prefix, *region.held) if n in mine]

    def _entry(self, space: Space, above: Above) -> Entry:
        """Residents, prefix and intermediates, then the branch."""
        region, numbers = self.space.region, {t.name: k for k, t in enumerate(space.tensors)}
        nodes: list[NodeAbove] = [(numbers[n], tuple(a.size for a in space.axes)) for n in sorted(region.resident) if n in numbers]
        full = [self._full(space, tile) for tile in above.tiles]
        nodes += [(numbers.get(name), tile) for name, tile in zip(above.prefix, full, strict=False)]
        nodes += [(numbers[name], full[-1]) for name in region.held if name in numbers]
        inside = frozenset(numbers) & {*region.held, *region.resident, *(set(above.prefix) - self._charged(above.prefix))}
        return Entry(self._tile(space, above), tuple(nodes), inside, above.joules, dict(above.bits))

    def _full(self, space: Space, tile: Sequence[int]) -> tuple[int, ...]:
        sizes = dict(zip(self.space.shared, tile, strict=True))
        return tuple(sizes.get(g, space.problem.sizes[g]) for g in space.ranks)
