"""Two neighbouring einsums fused: the tensor X between them lives in level 1 and never meets level 0.

X's node in level 1 has a tile; above it may lie nodes of other tensors (the prefix, an ordered subset), all cut by
loops over X's ranks that both einsums share. Below X each einsum has a branch of its own: the remaining tensors, under
capacity - prefix - X; the footprint is prefix + X + max(branch, branch). Resident tensors stay whole in level 1.
  energy = sum over the prefix of words x price + V_first[tile of X] + V_second[tile of X] - fresh outputs
V are the cost tables with X, prefix and residents held on chip. Search: every prefix and tile, priced with V at
full capacity (a lower bound), best first; V at the true capacity until no bound is lower. Any number of shared loops.
Derivation: docs/loop_nests.md, section 7.
"""

from dataclasses import dataclass
from itertools import permutations
from time import process_time
from typing import NamedTuple

import numpy as np

from rackmodel.errors import InfeasibleError
from rackmodel.nests.arrays import AnyArray, Bools, Floats
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.backtrack import best_path, optimum
from rackmodel.nests.searchers.cost_table import CostTable
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.fan_state import start
from rackmodel.nests.searchers.fused_pair import FusedPair
from rackmodel.nests.searchers.mapping_steps import NodeAbove, build_mapping
from rackmodel.nests.searchers.prices import energy_prices
from rackmodel.nests.searchers.space import OnChip, Space
from rackmodel.nests.solution import NestCertificate, gap_of

Prefix = tuple[str, ...]  # tensors with nodes above X, outer → inner


@dataclass(frozen=True)
class FusedSolution:
    """Mappings of both einsums (nodes above X agree), their costs, energy and latency of the pair, certificate."""

    first: NestMapping
    second: NestMapping
    costs: tuple[NestCost, NestCost]
    energy_j: float
    latency_s: float
    certificate: NestCertificate


def solve_fused(
    first: NestProblem, second: NestProblem, machine: NestMachine, *, resident: tuple[str, ...] = (), effort: Effort | None = None
) -> FusedSolution:
    """Least energy of a fused pair, perfect factors; exact over every prefix, tile and shared loop.

    The output of `first` is an input of `second` under the same name and rank names. resident: tensors of either that
    stay whole in level 1. effort: where it ends first, the best found with its bound. Errors: RackmodelError if the pair is not one,
    InfeasibleError if nothing fits, Exhausted if nothing was found before the effort ended.
    """
    began = process_time()
    search = FusedSearch(FusedPair(first, second, machine, frozenset(resident)), machine, effort or Effort())
    energy, found = search.run()
    one, two = search.mappings(found)
    costs = [evaluate(p, machine, m, search.pair.resident | {search.pair.x}) for p, m in zip((first, second), (one, two), strict=True)]
    total = sum(c.energy_j for c in costs)
    if abs(total - energy) > 1e-9 * abs(total):
        raise AssertionError(f"fused search says {energy}, the recount says {total}")
    latency = sum(c.latency_s for c in costs)
    pruned = {"full-capacity bound": search.bounded}
    note, bound = f"{len(search.prefixes)} ordered prefixes above {search.pair.x}", min(energy, search.left)
    return FusedSolution(
        one,
        two,
        (costs[0], costs[1]),
        total,
        latency,
        NestCertificate(
            float(search.candidates),
            search.tried,
            pruned,
            (total, latency),
            bound,
            gap_of(energy, bound),
            "fusion dp",
            process_time() - began,
            (note,),
        ),
    )


def least_on_chip(problem: NestProblem, machine: NestMachine, inside: frozenset[str], effort: Effort | None = None) -> float:
    """Joules of an einsum at least, perfect factors, where the tensors `inside` live in level 1 and take no room there.

    Any fused mapping of the einsum is one of these: loops of its neighbours cut none of its own tiles. inf where nothing fits.
    Raises Exhausted.
    """
    kept = (frozenset(t.name for t in problem.tensors),) * len(machine.levels)
    table = CostTable(Space(problem, machine, kept, NestConstraints(), on_chip=OnChip(inside)), energy_prices(machine), effort=effort)
    return optimum(table) + problem.macs * problem.density * machine.compute.j_per_mac


@dataclass(frozen=True)
class FusionCandidate:
    """A candidate: prefix tensors (names) and X last, with their tiles over the shared ranks."""

    prefix: Prefix
    tiles: tuple[tuple[int, ...], ...]


class SizedCandidate(NamedTuple):
    """A node and the bits of level 1 that prefix, X and residents take."""

    node: FusionCandidate
    taken: float


class PrefixTiles(NamedTuple):
    """All tiles of one prefix: axes [(rank, version)], joint arrays of its energy and bits (with X), which tiles nest."""

    axes: list[tuple[int, int]]
    energy: Floats
    used: Floats
    legal: Bools


class FusedSearch:
    """The search of one pair; see the module docstring."""

    def __init__(self, pair: FusedPair, machine: NestMachine, effort: Effort) -> None:
        self.pair, resident, self.effort = pair, pair.resident, effort
        self.left = np.inf  # joules at least of prefixes that were not tried
        self.kept = [(frozenset(t.name for t in p.tensors),) * len(machine.levels) for p in self.pair.einsums]
        free = [n for n in self.pair.tensors if n not in resident]
        self.prefixes = [o for k in range(len(free) + 1) for o in permutations(free, k)]
        self.tables: dict[tuple[int, frozenset[str], float], CostTable] = {}
        self.tried = self.bounded = self.candidates = 0

    # -- tables of the branches
    def table(self, i: int, above: frozenset[str], reserved: float) -> CostTable:
        """Table of einsum i with X, residents and the prefix tensors `above` on chip, `reserved` bits taken."""
        key = (i, above, reserved)
        if key not in self.tables:
            space = Space(
                self.pair.einsums[i],
                self.pair.machine,
                self.kept[i],
                NestConstraints(),
                groups=self.pair.groups[i],
                on_chip=OnChip(above | self.pair.resident | {self.pair.x}, reserved),
            )
            self.tables[key] = CostTable(space, energy_prices(self.pair.machine), effort=self.effort)
        return self.tables[key]

    def branch(self, i: int, above: frozenset[str], reserved: float) -> Floats:
        """[tiles of the shared ranks] least energy of einsum i below X, private ranks whole; without the MACs."""
        table = self.table(i, above, reserved)
        space = table.space
        values = table.value(1, start(space))
        whole = tuple(slice(None) if g in self.pair.shared else space.axes[r].top for r, g in enumerate(space.ranks))
        values = values[whole]
        mine = [g for g in space.ranks if g in self.pair.shared]
        return np.transpose(values, [mine.index(g) for g in self.pair.shared])

    def above(self, prefix: Prefix, i: int) -> frozenset[str]:
        """Tensors of einsum i in the prefix."""
        return frozenset(n for n in prefix if self.pair.tensors[n][1] == i)

    # -- the prefix
    def versions(self, prefix: Prefix) -> list[list[int]]:
        """Per node (prefix, then X): the version of every shared rank; loops as in order_plan."""
        now, last = [0] * len(self.pair.shared), [False] * len(self.pair.shared)
        found: list[list[int]] = []
        for name in (*prefix, self.pair.x):
            has = self.pair.has(name)
            now = [v + (h and not was) for v, h, was in zip(now, has, last, strict=True)]
            found.append(list(now))
            last = has
        return found

    def joint(self, prefix: Prefix) -> PrefixTiles:
        """Every tile of the prefix and X."""
        versions = self.versions(prefix)
        axes = [(r, v) for r in range(len(self.pair.shared)) for v in range(1, versions[-1][r] + 1)]
        at = {rv: k for k, rv in enumerate(axes)}

        def spread(values: AnyArray, rv: tuple[int, int]) -> AnyArray:
            return values.reshape([-1 if k == at[rv] else 1 for k in range(len(axes))])

        ones: Floats = np.ones([1] * len(axes))
        counts, tiles = [a.count for a in self.pair.axes], [a.tile.astype(float) for a in self.pair.axes]
        energy, used, legal = 0.0 * ones, self.pair.held * ones, ones.astype(bool)
        for j, name in enumerate((*prefix, self.pair.x)):
            term, width = self.pair.terms[name], self.pair.width(name)
            count, tile = (
                [spread(v, (r, versions[j][r])) if versions[j][r] else ones for r, v in enumerate(values)] for values in (counts, tiles)
            )
            if name != self.pair.x:
                joules, saved = self.pair.prices[name]
                energy = energy + term.words(count.__getitem__) * joules + saved
            used = used + term.room(tile.__getitem__, width)
        for r, v in axes:
            if (r, v + 1) in at:
                nest = self.pair.axes[r].below
                shape = [1] * len(axes)
                shape[at[r, v]] = shape[at[r, v + 1]] = len(self.pair.axes[r])
                legal = legal & nest.T.reshape(shape)
        return PrefixTiles(axes, energy, used, legal)

    def exits(self, axes: list[tuple[int, int]], values: Floats) -> Floats:
        """Joint array of a table over X's tile."""
        shape = [1] * len(axes)
        last = {r: k for k, (r, _) in enumerate(axes)}
        for r in range(len(self.pair.shared)):
            shape[last[r]] = len(self.pair.axes[r])
        return values.reshape(shape)

    # -- the search
    def run(self) -> tuple[float, SizedCandidate]:
        """(energy with MACs, node) of the optimum."""
        constant = sum(p.macs * p.density * self.pair.machine.compute.j_per_mac for p in self.pair.einsums)
        capacity = np.inf if self.pair.level.capacity_bits is None else self.pair.level.capacity_bits
        queue = sorted(((self._floor(o), k, o) for k, o in enumerate(self.prefixes)))
        best: tuple[float, SizedCandidate | None] = (np.inf, None)
        for floor, _, prefix in queue:
            if floor >= best[0] * (1 - TIE):
                self.bounded += 1
                continue
            try:
                best = self._prefix(prefix, capacity, best)
            except Exhausted:
                if best[1] is None:
                    raise
                self.left = floor + constant
                break
        if best[1] is None:
            raise self._infeasible(capacity)
        return best[0] + constant, best[1]

    def _infeasible(self, have: float) -> InfeasibleError:
        """What level 1 needs at least; another level, or tiles of the fan, where that is not it."""
        one, two = self.pair.einsums
        need, level = self.pair.least_bits(), self.pair.level.name
        what = f"{one.name} + {two.name} on {self.pair.machine.name}: no fused mapping fits {level}"
        if need <= have:
            return InfeasibleError(f"{what} and the levels below it", resource=level)
        change = f"a capacity of {need:g} bits"
        return InfeasibleError(
            f"{what}: it needs {need:g} bits, has {have:g}", resource=level, need=need, have=have, unit="bits", change=change
        )

    def _floor(self, prefix: Prefix) -> float:
        """Least energy with this prefix: every word once, branches at full capacity."""
        least = sum(float(np.min(self.branch(i, self.above(prefix, i), self.pair.held))) for i in (0, 1))
        for name in prefix:
            joules, saved = self.pair.prices[name]
            least += self.pair.terms[name].whole * joules + saved
        return least

    def _prefix(self, prefix: Prefix, capacity: float, best: tuple[float, SizedCandidate | None]) -> tuple[float, SizedCandidate | None]:
        """The better of `best` and the optimum with this prefix."""
        axes, energy, used, legal = self.joint(prefix)
        low = [self.branch(i, self.above(prefix, i), self.pair.held) for i in (0, 1)]
        bound = energy + self.exits(axes, low[0]) + self.exits(axes, low[1])
        shape = np.broadcast_shapes(bound.shape, used.shape, legal.shape)
        fits = np.broadcast_to(legal & (used <= capacity) & (bound < best[0] * (1 - TIE)), shape)
        self.candidates += fits.size
        cells = np.flatnonzero(fits)
        bounds = np.broadcast_to(bound, shape).ravel()[cells]
        last = {r: k for k, (r, _) in enumerate(axes)}
        for k in np.argsort(bounds, kind="stable"):
            if bounds[k] >= best[0] * (1 - TIE):
                self.bounded += len(cells) - self.tried
                break
            cell = tuple(int(n) for n in np.unravel_index(cells[k], shape))
            taken = float(np.broadcast_to(used, shape)[cell])
            x = tuple(int(cell[last[r]]) for r in range(len(self.pair.shared)))
            self.tried += 1
            total = float(np.broadcast_to(energy, shape)[cell]) + sum(
                float(self.branch(i, self.above(prefix, i), taken)[x]) for i in (0, 1)
            )
            if total < best[0] * (1 - TIE):
                best = (total, self._node(prefix, axes, cell, taken))
        return best

    def _node(self, prefix: Prefix, axes: list[tuple[int, int]], cell: tuple[int, ...], taken: float) -> SizedCandidate:
        at = {rv: k for k, rv in enumerate(axes)}
        tiles = [
            tuple(
                self.pair.sizes[g] if v == 0 else int(self.pair.axes[r].tile[cell[at[r, v]]])
                for r, (g, v) in enumerate(zip(self.pair.shared, versions, strict=True))
            )
            for versions in self.versions(prefix)
        ]
        return SizedCandidate(FusionCandidate(prefix, tuple(tiles)), taken)

    # -- mappings
    def mappings(self, found: SizedCandidate) -> list[NestMapping]:
        """Both einsums' mappings: residents, prefix, X, then the branch."""
        node, taken = found
        result = []
        for i in (0, 1):
            table = self.table(i, self.above(node.prefix, i), taken)
            space = table.space
            numbers = {t.name: k for k, t in enumerate(space.tensors)}
            whole = tuple(a.size for a in space.axes)
            above: list[NodeAbove] = [(numbers[n], whole) for n in sorted(self.pair.resident) if n in numbers]
            for name, tile in zip((*node.prefix, self.pair.x), node.tiles, strict=True):
                sizes = dict(zip(self.pair.shared, tile, strict=True))
                full = tuple(sizes.get(g, space.problem.sizes[g]) for g in space.ranks)
                above.append((numbers.get(name), full))
            x = tuple(a.index[n] for a, n in zip(space.axes, above[-1][1], strict=True))
            result.append(build_mapping(space, best_path(table, x), above))
        return result
