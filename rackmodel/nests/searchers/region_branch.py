"""One member of a region below the intermediates' tile: its tables, and its best nest where some bits of level 1 are left.

What is below one tile is that tile's table of costs (cost_table), with the intermediates, the residents and the prefix's tensors on chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rackmodel.errors import InfeasibleError
from rackmodel.nests.arrays import Floats, Ints
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.searchers.backtrack import best_path, optimum
from rackmodel.nests.searchers.busy_units import most_busy
from rackmodel.nests.searchers.cost_table import CostTable
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.fan_state import start
from rackmodel.nests.searchers.mapping_steps import NodeAbove, NodesAbove, build_mapping
from rackmodel.nests.searchers.prices import components
from rackmodel.nests.searchers.region_prefixes import Prefix
from rackmodel.nests.searchers.region_space import RegionSpace
from rackmodel.nests.searchers.remade import Remade
from rackmodel.nests.searchers.shared_tables import SharedTables
from rackmodel.nests.searchers.slices import Best, Entry, SliceSearch
from rackmodel.nests.searchers.space import OnChip, Space
from rackmodel.nests.searchers.tile_options import Tile

ENERGY = NestObjective("energy")


class Above(NamedTuple):
    """What lies above a member's branch: prefix, tile sizes of the shared ranks at each of its nodes and cores, bits of level 1 that are
    taken, joules and bits of every port on account of the member's prefix tensors."""

    prefix: Prefix
    tiles: tuple[tuple[int, ...], ...]
    taken: float
    joules: float
    bits: tuple[tuple[str, float], ...]


class Made(NamedTuple):
    """A member as it runs, again and again where loops around it say so: the einsum, its mapping, its cost, tensors it finds on chip."""

    problem: NestProblem
    mapping: NestMapping
    cost: NestCost
    inside: frozenset[str]


class Branch:
    """Member number i of a region. ranks: those that the region merges → their parts. Its tables are in ranks of its own, merged where none
    of its tensors tells them apart (lemma L1), which are no finer; they are shared by what is on chip and the bits taken, `like` a branch
    of the same member with other loops."""

    def __init__(self, space: RegionSpace, i: int, effort: Effort, tables: SharedTables, like: Branch | None = None) -> None:
        self.space, self.i, self.effort, self.tables = space, i, effort, tables
        self.problem, self.machine, self.ranks = space.region.members[i], space.region.machines[i], space.groups[i]
        self.span, self.times = space.loops.span_of[i], space.times(i)
        self.seconds = self._seconds()
        self.ports = components(self.machine)
        self.constant = self.problem.macs * self.problem.density * self.machine.compute.j_per_mac
        self.searches: dict[object, list[SliceSearch]] = like.searches if like is not None else {}
        self.below: dict[object, Floats] = {}
        self.found: dict[object, Made | None] = {}

    def _seconds(self) -> Floats:
        """[tiles of the shared ranks] least seconds of the compute, of all runnings below a core's tile."""
        p, compute, space = self.problem, self.machine.compute, self.space
        own = [r for r in range(len(space.axes)) if r not in space.lacks[self.i]]
        whole = prod(p.sizes.values()) / prod(compute.atom.get(rank, 1) for rank in p.sizes)
        atoms = whole / prod((space.counts[r] for r in own), start=np.ones_like(self.times))
        busy = most_busy(self.machine, np.maximum(np.floor(atoms), 1.0))
        return p.macs * p.density * self.times / (compute.macs_per_s * busy)

    def on_chip(self, prefix: Prefix) -> frozenset[str]:
        """Its tensors that its branch finds in level 1."""
        names = {t.name for t in self.problem.tensors}
        above = {n for names in prefix[: self.span + 1] for n in names}
        return frozenset(names & {*above, *self.space.region.held, *self.space.region.resident})

    def _searches(self, prefix: Prefix, reserved: float) -> list[SliceSearch]:
        """With the tables of every choice of stored tensors, `reserved` bits of level 1 taken."""
        key = (self.on_chip(prefix), reserved)
        if key not in self.searches:
            spaces = [Space(self.problem, self.machine, kept, NestConstraints(), on_chip=OnChip(*key)) for kept in self.space.masks[self.i]]
            self.searches[key] = [SliceSearch(space, ENERGY, effort=self.effort, tables=self.tables) for space in spaces]
        return self.searches[key]

    def least(self, prefix: Prefix, reserved: float, port: int | None = None) -> Floats:
        """[tiles of the shared ranks] least joules of all runnings below a core's tile, private ranks whole; or bits of a port."""
        key = (self.on_chip(prefix), reserved, port)
        if key not in self.below:
            found = self._searches(prefix, reserved)
            once = np.minimum.reduce([self._values(one.energy if port is None else one.ports[port][1]) for one in found])
            self.below[key] = (once + (self.constant if port is None else 0.0)) * self.times
        return self.below[key]

    def _values(self, table: CostTable) -> Floats:
        """[tiles of the shared ranks, 1 of those it lacks] a table's values, private ranks whole."""
        found: Floats = table.value(1, start(table.space))[self._cells(table.space)]
        return found

    def _cells(self, space: Space) -> tuple[Ints, ...]:
        """Per rank of its own: numbers of the tiles that those of the shared ranks make, [tiles of the shared ranks]."""
        region = self.space
        grid = dict(zip(region.shared, (np.reshape(a.tile, c.shape) for a, c in zip(region.axes, region.counts, strict=True)), strict=True))
        return self._numbers(space, {g: grid.get(g, self._whole(g)) for g in self.ranks}, [1] * len(region.axes))

    def _numbers(self, space: Space, sizes: Mapping[str, Any], shape: Sequence[int] = ()) -> tuple[Ints, ...]:
        """Per rank of its own: number of the tile where the region's merged ranks have these sizes, whole numbers or arrays."""
        one: Ints = np.ones(shape, dtype=np.int64)
        within = ([sizes[g] for g, own in self.ranks.items() if own[0] in parts] for parts in space.groups.values())
        return tuple(axis.numbers(prod(each, start=one)) for axis, each in zip(space.divisor_axes, within, strict=True))

    def instances(self, port: int) -> int:
        """Of the level of a port, on the whole machine."""
        return prod(level.fan.size for level in self.machine.levels[: self.ports[port].level])

    def best(self, above: Above, aim: NestObjective, coarse: float, most: float = np.inf) -> Made | None:
        """The nest below what is above that is best for an aim; None where none fits, or none is as good as `most`, all runnings together.
        coarse: no more than the bits taken: what is best there and fits is best."""
        loose = self._best(above._replace(taken=coarse), aim, most)
        if loose is None:
            return None
        level, own = self.machine.levels[1], loose.mapping.levels[1].nodes[len(self._nodes(above)) :]
        room = sum(level.buffers * level.bits(t) * t.tile_words(node.tile) for node in own for t in (self.problem.tensor(node.tensor),))
        if level.capacity_bits is None or above.taken + room <= level.capacity_bits:
            return loose
        return self._best(above, aim, most)

    def _best(self, above: Above, aim: NestObjective, most: float) -> Made | None:
        key = (self.on_chip(above.prefix), self._charged(above.prefix), *above, aim)
        if key not in self.found:
            made = self._search(above, aim, most)
            if made is None and most < np.inf:
                return None
            self.found[key] = made
        return self.found[key]

    def _search(self, above: Above, aim: NestObjective, most: float) -> Made | None:
        if aim.energy_only:
            one = min(self._searches(above.prefix, above.taken), key=lambda s: optimum(s.energy, self._tile(s.space, above)))
            entry = self._entry(one.space, above)
            if optimum(one.energy, entry.tile) == np.inf:
                return None
            return self._made(build_mapping(one.space, best_path(one.energy, entry.tile), entry.above), entry)
        best: Best | None = None
        for like in self._searches(above.prefix, above.taken):
            entry = self._entry(like.space, above)
            search = SliceSearch(like.space, aim, best, self.effort, entry, like, most=(most / entry.remade.runs, np.inf))
            try:
                search.run()
            except InfeasibleError:
                continue
            best = search.best
        return None if best is None else self._made(best[1], self._entry(like.space, above))

    def _made(self, mapping: NestMapping, entry: Entry) -> Made:
        problem, whole = entry.remade.problem(self.problem), entry.remade.mapping(mapping)
        return Made(problem, whole, evaluate(problem, self.machine, whole, entry.inside), entry.inside)

    def _tile(self, space: Space, above: Above) -> Tile:
        sizes = dict(zip(self.ranks, self._full(above.tiles[-1]), strict=True))
        return tuple(int(n) for n in self._numbers(space, sizes))

    def charged(self, prefix: Prefix) -> list[str]:
        """Prefix tensors whose words are on its account: it is the first within their span that uses them."""
        here = [(k, name) for k, names in enumerate(prefix[: self.span + 1]) for name in names]
        return [name for k, name in here if self.i in self.space.users[name] and self.space.user(name, k) == self.i]

    def _charged(self, prefix: Prefix) -> frozenset[str]:
        return frozenset(self.charged(prefix))

    def _above(self, prefix: Prefix) -> list[str]:
        """What has nodes before its own, residents apart: prefix and cores, as they lie."""
        found = []
        for k, names in enumerate(prefix[: self.span + 1]):
            found += [*names, *(name for name, span in self.space.loops.lives.items() if span == k)]
        return found

    def _nodes(self, above: Above) -> list[str]:
        """Its tensors with nodes of level 1 before its own: residents, prefix, intermediates."""
        mine = {t.name for t in self.problem.tensors}
        return [n for n in (*sorted(self.space.region.resident), *self._above(above.prefix)) if n in mine]

    def _entry(self, space: Space, above: Above) -> Entry:
        """Residents, prefix and intermediates, then the branch."""
        region, numbers = self.space.region, {t.name: k for k, t in enumerate(space.tensors)}
        whole = tuple(self.space.sizes.values())
        nodes: list[NodeAbove] = [(numbers[n], self._full(whole)) for n in sorted(region.resident) if n in numbers]
        cuts: list[tuple[int, ...]] = [whole] * len(nodes)
        tiles = iter(above.tiles)
        for k, names in enumerate(above.prefix[: self.span + 1]):
            inner = [(name, next(tiles)) for name in names]
            core = next(tiles)
            inner += [(name, core) for name, span in self.space.loops.lives.items() if span == k]
            nodes += [(numbers.get(name), self._full(tile)) for name, tile in inner]
            cuts += [tile for _, tile in inner]
        nodes, cuts = [*nodes, (None, self._full(above.tiles[-1]))], [*cuts, above.tiles[-1]]
        inside = frozenset(numbers) & {*region.held, *region.resident, *self._above(above.prefix)} - self._charged(above.prefix)
        remade = self._remade([tile for (number, _), tile in zip(nodes, cuts, strict=True) if number is not None], above.tiles[-1])
        bits = {name: n / remade.runs for name, n in above.bits}
        where = NodesAbove(self.ranks, tuple(nodes))
        return Entry(self._tile(space, above), where, inside, above.joules / remade.runs, bits, remade)

    def _remade(self, nodes: Sequence[tuple[int, ...]], core: tuple[int, ...]) -> Remade:
        """Ranks that it lacks, of which loops around it cut the whole to a core's tile; nodes: tiles of the shared ranks at those above."""
        times, tiles = {}, {}
        for r in self.space.lacks[self.i]:
            if (count := self.space.axes[r].size // core[r]) > 1:
                name = f"again_{self.space.parts[self.space.shared[r]][0]}"
                times[name] = count
                tiles[name] = tuple(tile[r] // core[r] for tile in nodes)
        return Remade(times, tiles)

    def _full(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Of a tile of the shared ranks, that of every merged rank of the member, private ones whole."""
        sizes = dict(zip(self.space.shared, tile, strict=True))
        return tuple(sizes.get(g, self._whole(g)) for g in self.ranks)

    def _whole(self, g: str) -> int:
        """Size of a merged rank of the region that the member has."""
        return prod(self.problem.sizes[r] for r in self.ranks[g])
