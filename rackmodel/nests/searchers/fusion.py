"""A region of einsums fused: what lies between them lives in level 1 and never meets level 0.

The intermediates' tiles have one place; above it may lie nodes of other tensors (the prefix, an ordered subset), all cut by loops over
shared ranks. Below it each member has a branch of its own: its remaining tensors, under capacity - prefix - intermediates held then.
Resident tensors stay whole in level 1.
  energy = sum over the prefix of words x price + sum over the members of V[tile] + statistics - fresh outputs
V are the cost tables with prefix, intermediates and residents on chip. Search: every prefix and tile, priced with V at full capacity (a
lower bound; seconds: each port's table, and the compute), best first; the branches at their true capacity until no bound is lower. Any
number of shared loops. Seconds: the members run one after another, each as slow as its slowest component.
Derivation: docs/loop_nests.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.arrays import Floats
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE, Key, NestObjective, better
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.region import Region
from rackmodel.nests.searchers.backtrack import optimum
from rackmodel.nests.searchers.cost_table import CostTable
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.prices import energy_prices
from rackmodel.nests.searchers.region_branch import Above, Branch
from rackmodel.nests.searchers.region_space import RegionSpace
from rackmodel.nests.searchers.region_tiles import Prefix, PrefixTiles, RegionTiles
from rackmodel.nests.searchers.space import OnChip, Space
from rackmodel.nests.searchers.stored_tensors import keep_masks
from rackmodel.nests.solution import NestCertificate, gap_of

INFINITE: Key = (np.inf, np.inf)
LADDER = 32  # parts of level 1 at which branches are priced before they are at what is left


@dataclass(frozen=True)
class RegionSolution:
    """Mappings of the members (nodes above the intermediates agree), their costs, what running statistics cost (joules, seconds), energy
    and latency of all together, certificate."""

    mappings: tuple[NestMapping, ...]
    costs: tuple[NestCost, ...]
    running: tuple[float, float]
    certificate: NestCertificate

    @property
    def energy_j(self) -> float:
        """Joules of the region."""
        return sum(c.energy_j for c in self.costs) + self.running[0]

    @property
    def latency_s(self) -> float:
        """Seconds of the region: its members one after another."""
        return sum(c.latency_s for c in self.costs) + self.running[1]


def solve_fused(
    first: NestProblem, second: NestProblem, machine: NestMachine, *, resident: Sequence[str] = (), effort: Effort | None = None
) -> RegionSolution:
    """Least energy of two einsums fused; see solve_region."""
    return solve_region(Region.of((first, second), machine, resident), effort=effort)


class NothingBetter(Exception):
    """No mapping of a region is below what was asked for."""


def solve_region(
    region: Region, *, objective: NestObjective | None = None, effort: Effort | None = None, below: float = np.inf
) -> RegionSolution:
    """The best of a region, perfect factors; exact over every prefix, tile and shared loop.

    objective: energy (if none), latency, or a weighted sum, with or without static power; not EDP, which is no sum over members. effort:
    where it ends first, the best found with its bound · below: what the objective must be less than, else NothingBetter is raised (also
    where nothing fits). Errors: RackmodelError if the members ask for what is not searched, InfeasibleError if nothing fits, Exhausted if
    nothing was found before the effort ended.
    """
    began, aim = process_time(), objective or NestObjective("energy")
    if aim.name == "edp":
        raise RackmodelError("fused: EDP is no sum over the members; search weighted sums of energy and latency")
    search = RegionSearch(region, aim, effort or Effort(), below)
    said, found = search.run()
    key = aim.key(found.energy_j, found.latency_s)
    if abs(key[0] - said[0]) > 1e-9 * abs(said[0]):
        raise AssertionError(f"fused search says {said[0]}, the recount says {key[0]}")
    bound = min(key[0], search.left)
    sheet = NestCertificate(
        float(search.candidates),
        search.tried,
        {"full-capacity bound": search.bounded},
        key,
        bound,
        gap_of(key[0], bound),
        "fusion dp",
        process_time() - began,
        (f"{len(search.every)} ordered prefixes above {', '.join(region.held)}",),
    )
    return replace(found, certificate=sheet)


def least_on_chip(problem: NestProblem, machine: NestMachine, inside: frozenset[str], effort: Effort | None = None) -> float:
    """Joules of an einsum at least, perfect factors, where the tensors `inside` live in level 1 and take no room there.

    Any fused mapping of the einsum is one of these: loops of its neighbours cut none of its own tiles. inf where nothing fits.
    Raises Exhausted.
    """
    tables = [
        CostTable(Space(problem, machine, kept, NestConstraints(), on_chip=OnChip(inside)), energy_prices(machine), effort=effort)
        for kept in keep_masks(problem, machine, NestConstraints())
    ]
    return min(map(optimum, tables)) + problem.macs * problem.density * machine.compute.j_per_mac


class Priced(NamedTuple):
    """Every tile of a prefix: lower bounds of joules and seconds, what the prefix costs by member, what the statistics cost."""

    tiles: RegionTiles
    energy: Floats
    seconds: Floats
    prefix: list[Floats]
    running: tuple[Floats, Floats]


class RegionCandidate(NamedTuple):
    """One tile of a prefix: what lies above each member's branch, what the statistics cost, lower bound of the seconds."""

    above: tuple[Above, ...]
    exit: tuple[int, ...]
    running: tuple[float, float]
    seconds: float


class RegionSearch:
    """The search of one region; see the module docstring."""

    def __init__(self, region: Region, aim: NestObjective, effort: Effort, below: float = np.inf) -> None:
        self.region, self.aim, self.effort = region, aim, effort
        self.space = RegionSpace(region)
        self.branches = [Branch(self.space, i, effort) for i in range(len(region.members))]
        self.left = np.inf  # of the objective, at least, of prefixes that were not tried
        free = [n for n in self.space.tensors if n not in region.resident]
        self.every = [o for k in range(len(free) + 1) for o in permutations(free, k) if self._first_of_equal(o)]
        self.constant = sum(branch.constant for branch in self.branches)
        self.capacity = np.inf if self.space.level.capacity_bits is None else self.space.level.capacity_bits
        self.prices = energy_prices(region.machines[0])
        self.best_key: Key = (below, np.inf if below == np.inf else -np.inf)
        self.best: RegionCandidate | None = None
        self.tried = self.bounded = self.candidates = 0

    def _first_of_equal(self, prefix: Prefix) -> bool:
        """Whether neighbours with the same shared ranks are in the order of their names: nothing is cut between them, so that the other
        order is the same."""
        of, has = self.space.of, self.space.has
        return all(a < b or has(of[a]) != has(of[b]) for a, b in pairwise(prefix))

    def run(self) -> tuple[Key, RegionSolution]:
        """(key of the objective, the optimum)."""
        sets = {frozenset(prefix): prefix for prefix in self.every}
        floor_of = {names: self._floors(prefix) for names, prefix in sets.items()}
        least_of = {names: self._least(floor) for names, floor in floor_of.items()}
        floors = [floor_of[frozenset(prefix)] for prefix in self.every]
        for least, k in sorted((least_of[frozenset(prefix)], k) for k, prefix in enumerate(self.every)):
            if not better(least, self.best_key):
                self.bounded += 1
                continue
            try:
                self._prefix(self.every[k], floors[k])
            except Exhausted:
                if self.best is None:
                    raise
                self.left = least[0]
                break
        if self.best is None:
            raise self._infeasible() if self.best_key[0] == np.inf else NothingBetter
        return self.best_key, self._solution(self.best)

    def _infeasible(self) -> InfeasibleError:
        """What level 1 needs at least; another level, or tiles of the fan, where that is not it."""
        names, machine = " + ".join(p.name for p in self.region.members), self.region.machines[0]
        need, name, have = self.space.least_bits(), self.space.level.name, self.capacity
        what = f"{names} on {machine.name}: no fused mapping fits {name}"
        if need <= have:
            return InfeasibleError(f"{what} and the levels below it", resource=name)
        change = f"a capacity of {need:g} bits"
        return InfeasibleError(
            f"{what}: it needs {need:g} bits, has {have:g}", resource=name, need=need, have=have, unit="bits", change=change
        )

    # -- bounds
    def _keys(self, energy: Any, seconds: Any) -> tuple[Any, Any]:
        """Keys of figures; of energy alone the first of equal ones stands, whatever its seconds."""
        return (energy, np.zeros_like(energy)) if self.aim.energy_only else self.aim.key(energy, seconds)

    def _least(self, floor: tuple[Floats, Floats]) -> Key:
        """The least of the keys of some tiles."""
        first, second = (np.broadcast_to(k, floor[0].shape).ravel() for k in self._keys(*floor))
        k = int(np.lexsort((second, first))[0])
        return float(first[k]), float(second[k])

    def charged(self, prefix: Prefix, i: int) -> list[str]:
        """Prefix tensors whose words are on account of member i: it is the first that uses them."""
        return [n for n in prefix if self.space.users[n][0] == i]

    def _floors(self, prefix: Prefix) -> tuple[Floats, Floats]:
        """Per tile of the intermediates: joules and seconds that nothing with this prefix is below (inf where no tile above has room):
        every word of the prefix once, branches at full capacity, compute alone."""
        space, held = self.space, self.space.resident_bits
        least = self.constant + sum(branch.least(prefix, held) for branch in self.branches)
        for name in prefix:
            joules, saved = space.price(name, self.prices)
            least = least + space.terms[name].whole * joules + saved
        room = np.max([self._room(prefix, i) for i in range(len(self.branches))], axis=0)
        seconds = sum(branch.least_s for branch in self.branches)
        fits = np.where(room + held <= self.capacity, 0.0, np.inf)
        return least + fits, seconds + fits

    def _room(self, prefix: Prefix, i: int) -> Floats:
        """[tiles of the shared ranks] bits at least while member i runs: the prefix's tiles are no smaller than the intermediates'."""
        space = self.space
        names = [*prefix, *(n for n, (first, last) in self.region.held.items() if first <= i <= last)]
        grid = np.meshgrid(*(a.tile.astype(float) for a in space.axes), indexing="ij")
        zero: Floats = np.zeros([len(a) for a in space.axes])
        return np.asarray(sum((space.terms[n].room(grid.__getitem__, space.widths[n]) for n in names), zero))

    def _priced(self, prefix: Prefix, above: PrefixTiles) -> Priced:
        tiles, held = above.tiles(), self.space.resident_bits
        own = [above.priced(self.prices, self.charged(prefix, i)) for i in range(len(self.branches))]
        energy = self.constant + sum(own, 0.0 * above.ones)
        for branch in self.branches:
            energy = energy + above.exits(branch.least(prefix, held))
        joules, seconds = 0.0 * above.ones, 0.0 * above.ones
        for one, again in zip(self.region.running, tiles.again, strict=True):
            joules, seconds = joules + again * one.joules, seconds + again * one.seconds
        slowest = sum((self._slowest(branch, prefix, above) for branch in self.branches), seconds)
        return Priced(tiles, energy + joules, slowest, own, (joules, seconds))

    def _slowest(self, branch: Branch, prefix: Prefix, above: PrefixTiles) -> Floats:
        """Seconds of a member at least."""
        slowest: Floats = branch.least_s * above.ones
        if not self.aim.energy_only:
            for k, port in enumerate(branch.ports):
                spent = above.priced(port.prices(len(branch.machine.levels)), self.charged(prefix, branch.i))
                bits = spent + above.exits(branch.least(prefix, self.space.resident_bits, k))
                slowest = np.maximum(slowest, bits / (port.bandwidth * branch.instances(k)))
        return slowest

    # -- one prefix
    def _prefix(self, prefix: Prefix, floor: tuple[Floats, Floats]) -> None:
        """Look at every tile of a prefix that may be better than the best."""
        keys = self._keys(*floor)
        hope = better((keys[0], np.broadcast_to(keys[1], keys[0].shape)), self.best_key) & np.isfinite(keys[0])
        exits = [np.flatnonzero(hope.any(axis=tuple(o for o in range(hope.ndim) if o != r))) for r in range(hope.ndim)]
        if not all(len(e) for e in exits):
            return
        above = PrefixTiles(self.space, prefix, exits)
        priced = self._priced(prefix, above)
        shape = np.broadcast_shapes(priced.energy.shape, priced.seconds.shape, priced.tiles.legal.shape)
        fits = np.broadcast_to(priced.tiles.legal, shape)
        for used in priced.tiles.used:
            fits = fits & (used <= self.capacity)
        all_keys = [np.broadcast_to(k, shape) for k in self._keys(priced.energy, priced.seconds)]
        fits = fits & better((all_keys[0], all_keys[1]), self.best_key) & np.isfinite(all_keys[0])
        self.candidates += fits.size
        cells = np.flatnonzero(fits)
        bounds = [k.ravel()[cells] for k in all_keys]
        for n, k in enumerate(np.lexsort((bounds[1], bounds[0]))):
            if bounds[0][k] > self.best_key[0] * (1 + TIE):
                self.bounded += len(cells) - n
                break
            if better((bounds[0][k], bounds[1][k]), self.best_key):
                self.tried += 1
                self._exact(self._candidate(prefix, above, priced, tuple(int(i) for i in np.unravel_index(cells[k], shape))))

    def _candidate(self, prefix: Prefix, above: PrefixTiles, priced: Priced, cell: tuple[int, ...]) -> RegionCandidate:
        places, tiles = [], above.node_tiles(cell)
        for branch, own, used in zip(self.branches, priced.prefix, priced.tiles.used, strict=True):
            mine = self.charged(prefix, branch.i)
            ports = () if self.aim.energy_only else branch.ports
            bits = tuple((c.name, _at(above.priced(c.prices(len(branch.machine.levels)), mine), cell)) for c in ports)
            places.append(Above(prefix, tiles, _at(used, cell), _at(own, cell), bits))
        running = _at(priced.running[0], cell), _at(priced.running[1], cell)
        return RegionCandidate(tuple(places), above.exit_tile(cell), running, _at(priced.seconds, cell))

    def _exact(self, one: RegionCandidate) -> None:
        """Keep a tile where its branches, at the capacity that is left, are better than the best."""
        for taken in ([self._coarse(a.taken) for a in one.above], [a.taken for a in one.above]):
            joules = (
                self.constant
                + one.running[0]
                + sum(
                    a.joules + float(branch.least(a.prefix, bits)[one.exit])
                    for a, branch, bits in zip(one.above, self.branches, taken, strict=True)
                )
            )
            first, second = self._keys(joules, one.seconds)
            if not better((float(first), float(second)), self.best_key):
                return
            if not self.aim.energy_only:
                nests = [b.best(a, self.aim, self._coarse(a.taken)) for a, b in zip(one.above, self.branches, strict=True)]
                costs = [nest[2] for nest in nests if nest is not None]
                seconds = one.running[1] + sum(c.latency_s for c in costs)
                first, second = self.aim.key(one.running[0] + sum(c.energy_j for c in costs), seconds)
                if len(costs) < len(nests) or not better((float(first), float(second)), self.best_key):
                    return
                break
        self.best_key, self.best = (float(first), float(second)), one

    def _coarse(self, taken: float) -> float:
        """No more than the bits taken, one of few: branches at it are bounds, and shared by many tiles."""
        step, held = self.capacity / LADDER, self.space.resident_bits
        return held + step * ((taken - held) // step) if np.isfinite(step) else held

    def _solution(self, one: RegionCandidate) -> RegionSolution:
        found = [b.best(a, self.aim, self._coarse(a.taken)) for a, b in zip(one.above, self.branches, strict=True)]
        nests = [nest for nest in found if nest is not None]
        sheet = NestCertificate(0.0, 0, {}, INFINITE, 0.0, 0.0, "fusion dp")
        return RegionSolution(tuple(n[1] for n in nests), tuple(n[2] for n in nests), one.running, sheet)


def _at(values: Floats, cell: tuple[int, ...]) -> float:
    """Of an array over some of the joint axes, the value at a cell."""
    return float(values[tuple(i if n > 1 else 0 for i, n in zip(cell, values.shape, strict=True))])
