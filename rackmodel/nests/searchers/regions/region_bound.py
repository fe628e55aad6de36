"""Lower bound of a region for tiles of any size: what lies between levels 0 and 1 in full, what lies below by each member's least.

A nested count is never below ceil(D / tile), so without divisibility and with counts of the last tile alone every mapping costs no less.
Between levels 0 and 1 that is the search of a region again (region_search), over buckets of tiles that count with their largest and take
room with their smallest, ranks merged, on machines of two memories: every order, prefix, loop and room. Below level 1 each member costs no
less, every time that it runs, than its nest on the levels below with level 1 as its outermost memory: of real sizes
(continuous_bound), or where one memory and an array is left the least of every spatial vector. Derivation: docs/nest_theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import factorial, inf, prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import Key, NestObjective, better
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.searchers.bounds.continuous_bound import ContinuousNest
from rackmodel.nests.searchers.bounds.relaxed_bound import LARGE, ORDERS, RelaxedSpace
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.fewest_cycles import VECTORS, fewest_cycles
from rackmodel.nests.searchers.mapspace.list_axes import CountAxis, ListAxis
from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component, components, energy_prices
from rackmodel.nests.searchers.mapspace.space import OnChip, Space
from rackmodel.nests.searchers.mapspace.spatial_vectors import every_vector, whole_vectors
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored, keep_masks
from rackmodel.nests.searchers.regions.region_below import RegionBest, RegionCandidate, Where
from rackmodel.nests.searchers.regions.region_branch import ENERGY, Branch
from rackmodel.nests.searchers.regions.region_prefixes import Prefix
from rackmodel.nests.searchers.regions.region_search import Floor, RegionSearch
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.tables.backtrack import optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.searchers.tables.slices import SliceSearch
from rackmodel.once import once

BUCKETS = 14  # of a merged rank
ARRAY = 16  # units up to which every number of parts at work is looked at


class Least(NamedTuple):
    """What one running of a member takes at least below level 1: joules, seconds, bits of level 1's port on account of what is below."""

    joules: float
    seconds: float
    bits: float = 0.0


def least_of_region(
    region: Region, aim: NestObjective, known: Key, parts: Sequence[RegionLoops], tables: SharedTables, effort: Effort
) -> float:
    """What the objective is not below, whatever the tiles, of all loops of `parts`; no more than what is known. tables: where the least
    of members is remembered."""
    inner = [inner_least(p, m, aim, tables) for p, m in zip(region.members, region.machines, strict=True)]
    outer, first = reduced(region, inner), None
    found = RegionBest(known)
    for loops in parts:
        search = RelaxedSearch(RegionSpace(outer, loops, _buckets), aim, effort, found, first)
        if outer.machines[0].levels[1].fan.size == 1:
            search.feed([least.bits for least in inner], [machine.levels[1] for machine in region.machines], _share(region))
        first = first or search
        try:
            search.run()
        except Exhausted:
            found.left = min(found.left, max(search.open, first.least))
    return min(found.key[0], found.left)


def _buckets(size: int) -> CountAxis:
    return CountAxis(size, BUCKETS)


# -- below level 1
def inner_least(problem: NestProblem, machine: NestMachine, aim: NestObjective, tables: SharedTables) -> Least:
    """Joules and seconds (0 where energy alone counts) that one running of a member takes at least below level 1 and in the compute,
    whatever is above."""
    below = replace(machine, levels=(replace(machine.levels[1], capacity_bits=None), *machine.levels[2:]))
    known = tables.of("below level 1", repr((problem, below)))
    return once(known, aim.energy_only, lambda: _inner(problem, below, timed=not aim.energy_only))


def _inner(problem: NestProblem, below: NestMachine, *, timed: bool) -> Least:
    joules = below.compute.joules(problem)
    vectors = _vectors(problem, below)
    if vectors is not None:
        found = _of_an_array(problem, below, vectors)
        return found._replace(joules=joules + found.joules)
    least = _Real(problem, below)
    joules += least.price(energy_prices(below))
    if not timed:
        return Least(joules, 0.0)
    seconds, fed = fewest_cycles(problem, below) * problem.density / below.compute.macs_per_s, 0.0
    for port in components(below):
        instances = prod(level.fan.size for level in below.levels[: port.level])
        bits = least.price(port.prices(len(below.levels)))
        seconds = max(seconds, bits / (port.bandwidth * instances))
        fed = bits if port.name == below.levels[0].name else fed
    return Least(joules, seconds, fed)


def _vectors(problem: NestProblem, below: NestMachine) -> Ints | None:
    """Every spatial vector of an array below one memory; None for another machine, or where there are too many."""
    fan = below.levels[0].fan
    if len(below.levels) > 1 or fan.linear or fan.multicast_width is not None or fan.reduction_width is not None:
        return None
    sizes = [-(-n // below.compute.atom.get(r, 1)) for r, n in problem.sizes.items()]
    return whole_vectors(fan, sizes, VECTORS)


def _of_an_array(problem: NestProblem, below: NestMachine, vectors: Ints) -> Least:
    """Least joules beside the MACs, and least seconds, of a memory above an array: groups counted as ceil(D / (parts x leaf))."""
    level, leaf = below.levels[0], np.array([*below.compute.leaf(problem.sizes).values()])
    groups: Array = np.ceil(np.array(list(problem.sizes.values())) / (vectors * leaf))
    reads, writes = np.zeros(len(vectors)), np.zeros(len(vectors))
    for t in problem.tensors:
        words = float(t.tile_words(problem.sizes)) * level.bits(t)
        moved = words * np.prod(groups[:, [r not in t.ranks for r in problem.sizes]], axis=1)
        reads, writes = reads + moved - words * t.is_output, writes + moved * t.is_output
    cycles = np.prod(groups, axis=1) * np.prod(leaf) * problem.density / below.compute.macs_per_s
    if level.write_bandwidth_bits_per_s is None:
        port: Array = (reads + writes) / level.bandwidth_bits_per_s
    else:
        port = np.maximum(reads / level.bandwidth_bits_per_s, writes / level.write_bandwidth_bits_per_s)
    spent = reads * level.read_j_per_bit + writes * level.write_j_per_bit
    return Least(float(spent.min()), float(np.maximum(cycles, port).min()), float((reads + writes).min()))


class _Real:
    """Least prices of a nest of tiles of any size, over every choice of stored tensors."""

    def __init__(self, problem: NestProblem, machine: NestMachine) -> None:
        self.problem, self.machine = problem, machine
        self.masks: Sequence[Stored] = keep_masks(problem, machine, NestConstraints())

    def price(self, prices: BitPrices) -> float:
        """Least price, the MACs left out: of buckets where the nest is small. Nothing where there are too many orders, or no mapping of
        divisors to begin with."""
        if self.problem.macs <= LARGE:
            return max(0.0, min(self._of_buckets(kept, prices) for kept in self.masks))
        leaf = [*self.machine.compute.leaf(self.problem.sizes).values()]
        axes = [ListAxis(n, 2, u) for n, u in zip(self.problem.sizes.values(), leaf, strict=True)]
        whole = {r: -(-n // u) * u for (r, n), u in zip(self.problem.sizes.items(), leaf, strict=True)}
        found = inf
        for kept in self.masks:
            known = optimum(CostTable(Space(replace(self.problem, sizes=whole), self.machine, kept, NestConstraints()), prices))
            if prod(factorial(len(names)) for names in kept[1:]) > ORDERS or not 0 < known < inf:
                return 0.0
            space = Space(self.problem, self.machine, kept, NestConstraints(), axes=axes)
            found = min(found, ContinuousNest(space, prices).bound(known))
        return max(0.0, found) if found < inf else 0.0

    def _of_buckets(self, kept: Stored, prices: BitPrices) -> float:
        found = optimum(CostTable(RelaxedSpace(self.problem, self.machine, kept, NestConstraints()), prices))
        return found if found < inf else 0.0


# -- between levels 0 and 1
def reduced(region: Region, inner: Sequence[Least]) -> Region:
    """The region on machines of two memories: a word's ways in and out have one price, what lies below costs each running what it costs at
    least. A small array stays as it is."""
    plain = all(_small_array(machine) for machine in region.machines)
    machines = [_two_memories(region, i, least) if not plain else _timed(region, i, least) for i, least in enumerate(inner)]
    return replace(region, machines=tuple(machines))


def _small_array(machine: NestMachine) -> bool:
    """Whether all there is below level 1 is an array whose every spatial vector is looked at."""
    fan = machine.levels[1].fan
    widths = fan.linear or fan.multicast_width is not None or fan.reduction_width is not None
    return len(machine.levels) == 2 and 1 < fan.size <= ARRAY and not widths and not machine.compute.atom


def _timed(region: Region, i: int, inner: Least) -> NestMachine:
    """A member's own machine, whose compute takes as long as it takes at least."""
    machine, macs = region.machines[i], region.members[i].macs * region.members[i].density
    return replace(machine, compute=replace(machine.compute, macs_per_s=macs / inner.seconds if inner.seconds > 0 else inf))


def _share(region: Region) -> float:
    """Bits of a word in level 1 by those in level 0, at least."""
    each = [(p, m.levels) for p, m in zip(region.members, region.machines, strict=True)]
    return min(levels[1].bits(t) / levels[0].bits(t) for p, levels in each for t in p.tensors)


def _two_memories(region: Region, i: int, inner: Least) -> NestMachine:
    problem, machine = region.members[i], region.machines[i]
    outer, level = machine.levels[:2]
    share, macs = _share(region), problem.macs * problem.density
    above = replace(
        outer,
        read_j_per_bit=outer.read_j_per_bit + share * level.write_j_per_bit,
        write_j_per_bit=outer.write_j_per_bit + share * level.read_j_per_bit,
        fan=NestFan(),
    )
    plain = replace(
        level, read_j_per_bit=0.0, write_j_per_bit=0.0, bandwidth_bits_per_s=inf, write_bandwidth_bits_per_s=None, fan=NestFan()
    )
    joules, seconds, _ = inner
    rate = macs / seconds if seconds > 0 else inf
    return NestMachine(machine.name, (above, plain), NestCompute(rate, joules / macs if macs else 0.0, name=machine.compute.name))


def _at_work(fan: NestFan, sizes: Sequence[int]) -> Ints:
    """[vectors, ranks] numbers of parts that may be at work under a fan: no more than some layout has, idle ones left out."""
    found: list[tuple[int, ...]] = [()]
    for size in sizes:
        found = [(*v, n) for v in found for n in range(1, min(size, fan.size // prod(v)) + 1)]
    _, x, y, _ = every_vector(fan, [fan.size] * len(sizes), [[True] * len(sizes)] * 2, VECTORS)
    laid, parts = x * y, np.array(found, dtype=np.int64).reshape(-1, len(sizes))
    return parts[[bool((laid >= one).all(axis=1).any()) for one in parts]]


class RelaxedBranch(Branch):
    """A member between levels 0 and 1, tiles in buckets; its ranks are merged as the region's are. fed: bits of level 0 that keep the last
    of its ports, which is level 1's, as busy as what lies below does each time that it runs."""

    fed: float | None = None

    def _seconds(self) -> Array:
        once = self.problem.macs * self.problem.density / self.machine.compute.macs_per_s
        return np.asarray(np.broadcast_to(once * self.times, [len(axis) for axis in self.space.axes]))

    def least(self, prefix: Prefix, reserved: float, port: int | None = None) -> Array:
        """As of any branch; what crosses between the levels passes the port of each."""
        if port is None or self.fed is None or port < len(self.ports) - 1:
            return super().least(prefix, reserved, port)
        key = (self.on_chip(prefix), reserved, port)
        if key not in self.below:
            prices = self.ports[port].prices(len(self.machine.levels))
            crossed = (self._values(CostTable(s.space, prices, like=s.energy)) for s in self._searches(prefix, reserved))
            self.below[key] = (np.minimum.reduce(list(crossed)) + self.fed) * self.times
        return self.below[key]

    def _searches(self, prefix: Prefix, reserved: float) -> list[SliceSearch]:
        key = (self.on_chip(prefix), reserved)
        if key not in self.searches:
            region = self.space
            axes = [region.axes[region.shared.index(g)] if g in region.shared else region.axis(whole) for g, whole in self.whole.items()]
            kept = region.masks[self.i][0]
            space = Space(self.problem, self.machine, kept, NestConstraints(), axes=axes, groups=self.ranks, on_chip=OnChip(*key))
            space.__dict__["vectors"] = [_at_work(level.fan, space.sizes) for level in self.machine.levels]
            self.searches[key] = [SliceSearch(space, ENERGY, effort=self.effort)]
        return self.searches[key]

    def _cells(self, space: Space) -> tuple[Ints, ...]:
        dims, shared = len(self.space.axes), self.space.shared
        found = []
        for g, axis in zip(self.ranks, space.axes, strict=True):
            shape = [1] * dims
            own = np.array([axis.top])
            if g in shared:
                own = np.arange(len(axis))
                shape[shared.index(g)] = len(axis)
            found.append(own.reshape(shape))
        return tuple(found)


class RelaxedSearch(RegionSearch):
    """The search of a region over buckets: a tile's figures are what nothing in it is below."""

    branch = RelaxedBranch

    def feed(self, bits: Sequence[float], levels: Sequence[NestLevel], share: float) -> None:
        """Give members the port of level 1, if it is one for reads and writes: bits that each needs for what is below. share: bits of a
        word there by those in level 0, at least."""
        for branch, own, level in zip(self.branches, bits, levels, strict=True):
            if isinstance(branch, RelaxedBranch) and level.write_bandwidth_bits_per_s is None and level.bandwidth_bits_per_s < inf:
                branch.ports = [*branch.ports, Component(level.name, 0, True, True, level.bandwidth_bits_per_s / share)]
                branch.fed = own / share

    def _lined(self, prefix: Prefix, floor: Floor) -> Floor:
        return floor  # buckets have no lines

    def _first(self, one: RegionCandidate) -> None:
        parts = zip(one.above, self.branches, one.exits, strict=True)
        total = self._total([one.running, *(self._at_least(*part, self._coarse(part[0].taken)) for part in parts)])
        if better(total, self.best.key):
            self.best.key, self.best.where = total, Where(self, one)
