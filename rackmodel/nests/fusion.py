"""Two neighbouring einsums fused: the tensor X between them lives in level 1 and never meets level 0.

X's node in level 1 has a tile; above it may lie nodes of other tensors (the prefix, an ordered subset), all cut by
loops over X's ranks that both einsums share. Below X each einsum has a branch of its own: the remaining tensors, under
capacity - prefix - X; the footprint is prefix + X + max(branch, branch). Resident tensors stay whole in level 1.
  energy = sum over the prefix of words x price + V_first[tile of X] + V_second[tile of X] - fresh outputs
V are the tables of dp.py with X, prefix and residents held on chip. Search: every prefix and tile, priced with V at
full capacity (a lower bound), best first; V at the true capacity until no bound is lower. Any number of shared loops.
Source: reference loop_nests, sec. 7.
"""

from dataclasses import dataclass
from itertools import permutations
from math import prod
from time import process_time

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.dp import Table
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.lattice import DivisorAxis
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE
from rackmodel.nests.prices import energy_prices, start
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.recount import best_path, build_mapping
from rackmodel.nests.solution import NestCertificate
from rackmodel.nests.space import Space


@dataclass(frozen=True)
class FusedSolution:
    """Mappings of both einsums (nodes above X agree), their costs, energy and latency of the pair, certificate."""

    first: NestMapping
    second: NestMapping
    costs: tuple[NestCost, NestCost]
    energy_j: float
    latency_s: float
    certificate: NestCertificate


def solve_fused(first: NestProblem, second: NestProblem, machine: NestMachine, *, resident: tuple[str, ...] = ()) -> FusedSolution:
    """Least energy of a fused pair, perfect factors; exact over every prefix, tile and shared loop.

    The output of `first` is an input of `second` under the same name and rank names. resident: tensors of either that
    stay whole in level 1. Errors: RackmodelError if the pair is not one, InfeasibleError if nothing fits.
    """
    began = process_time()
    search = FusedSearch(first, second, machine, frozenset(resident))
    energy, node = search.run()
    one, two = search.mappings(node)
    costs = tuple(evaluate(p, machine, m, search.resident | {search.x}) for p, m in zip((first, second), (one, two), strict=True))
    total = sum(c.energy_j for c in costs)
    if abs(total - energy) > 1e-9 * abs(total):
        raise AssertionError(f"fused search says {energy}, the recount says {total}")
    latency = sum(c.latency_s for c in costs)
    pruned = {"full-capacity bound": search.bounded}
    note = f"{len(search.prefixes)} ordered prefixes above {search.x}"
    return FusedSolution(
        one,
        two,
        (costs[0], costs[1]),
        total,
        latency,
        NestCertificate(
            float(search.candidates), search.tried, pruned, (total, latency), energy, 0.0, "fusion dp", process_time() - began, (note,)
        ),
    )


@dataclass(frozen=True)
class Node:
    """A candidate: prefix tensors (names) and X last, with their tiles over the shared ranks."""

    prefix: tuple[str, ...]
    tiles: tuple[tuple[int, ...], ...]


class FusedSearch:
    """The search of one pair; see the module docstring."""

    def __init__(self, first, second, machine, resident):
        self.pair, self.machine, self.resident = (first, second), machine, resident
        self.x = first.output.name
        self._check()
        self.kept = [[frozenset(t.name for t in p.tensors)] * len(machine.levels) for p in self.pair]
        self.groups = self._groups()
        self.level = machine.levels[1]
        x = next(t for t in first.tensors if t.name == self.x)
        self.shared = [g for g, parts in self.groups[0].items() if parts[0] in x.ranks]
        self.sizes = {g: prod(first.sizes[r] for r in self.groups[0][g]) for g in self.shared}
        self.axes = [DivisorAxis(self.sizes[g]) for g in self.shared]
        self.tensors = {t.name: (t, i) for i, p in enumerate(self.pair) for t in p.tensors if t.name != self.x}
        free = [n for n in self.tensors if n not in resident]
        self.prefixes = [o for k in range(len(free) + 1) for o in permutations(free, k)]
        self.held = sum(
            self.level.buffers * self.level.bits(t) * t.tile_words(self.pair[i].sizes) for t, i in (self.tensors[n] for n in resident)
        )
        self.tables: dict = {}
        self.tried = self.bounded = self.candidates = 0

    def _check(self) -> None:
        first, second = self.pair
        names = [{t.name for t in p.tensors} for p in self.pair]
        x = next((t for t in second.tensors if t.name == self.x), None)
        if x is None or x.is_output or names[0] & names[1] != {self.x}:
            raise RackmodelError(
                f"{first.name}, {second.name}: to fuse, the output {self.x} of the first must be an "
                "input of the second, and their only common tensor"
            )
        if x.indices != first.output.indices or any(first.sizes[r] != second.sizes[r] for r in x.ranks):
            raise RackmodelError(f"{self.x}: both einsums must index it alike, with equal sizes")
        if (set(first.sizes) & set(second.sizes)) - set(x.ranks):
            raise RackmodelError(f"{first.name}, {second.name}: they share a rank that {self.x} lacks")
        if self.resident - (names[0] | names[1]) or self.x in self.resident:
            raise RackmodelError(f"resident {sorted(self.resident)}: expected tensors of the pair other than {self.x}")
        fan = self.machine.levels[0].fan
        if len(self.machine.levels) < 2 or fan.size > 1 or any(t.affine_ranks for p in self.pair for t in p.tensors):
            raise RackmodelError("fusion needs a level below the outermost, no fanout between, and no halo")
        if self.machine.compute.atom or fan.hop_j_per_bit or any(v.bypass or v.keep is not None for v in self.machine.levels[1:]):
            raise RackmodelError("fusion is not built for atoms, hops into level 1, or bypass lists")

    def _groups(self) -> list[dict[str, list[str]]]:
        """Merged ranks of both einsums: ranks that index the same tensors of the whole pair."""
        every = [(t.name, t.ranks) for p in self.pair for t in p.tensors]
        found = []
        for p in self.pair:
            groups: dict[tuple, list[str]] = {}
            for r in p.sizes:
                groups.setdefault(tuple(dict.fromkeys(n for n, ranks in every if r in ranks)), []).append(r)
            found.append({"__".join(sorted(g)): sorted(g) for g in groups.values()})
        return found

    # -- tables of the branches
    def table(self, i: int, above: frozenset[str], reserved: float) -> Table:
        """Table of einsum i with X, residents and the prefix tensors `above` on chip, `reserved` bits taken."""
        key = (i, above, reserved)
        if key not in self.tables:
            space = Space(
                self.pair[i],
                self.machine,
                self.kept[i],
                NestConstraints(),
                groups=self.groups[i],
                resident=above | self.resident | {self.x},
                reserved=reserved,
            )
            self.tables[key] = Table(space, energy_prices(self.machine))
        return self.tables[key]

    def branch(self, i: int, above: frozenset[str], reserved: float) -> np.ndarray:
        """[tiles of the shared ranks] least energy of einsum i below X, private ranks whole; without the MACs."""
        table = self.table(i, above, reserved)
        space = table.space
        values = table.value(1, start(len(space.tensors), space.depth))
        whole = tuple(slice(None) if g in self.shared else space.axes[r].top for r, g in enumerate(space.ranks))
        values = values[whole]
        mine = [g for g in space.ranks if g in self.shared]
        return np.transpose(values, [mine.index(g) for g in self.shared])

    def above(self, prefix, i: int) -> frozenset[str]:
        return frozenset(n for n in prefix if self.tensors[n][1] == i)

    # -- the prefix
    def has(self, name: str) -> list[bool]:
        t = self.pair[0].output if name == self.x else self.tensors[name][0]
        return [self.groups[0][g][0] in t.ranks for g in self.shared]

    def versions(self, prefix):
        """Per node (prefix, then X): the version of every shared rank; loops as in order_plan."""
        now, last, found = [0] * len(self.shared), [False] * len(self.shared), []
        for name in (*prefix, self.x):
            has = self.has(name)
            now = [v + (h and not was) for v, h, was in zip(now, has, last, strict=True)]
            found.append(list(now))
            last = has
        return found

    def private(self, name: str) -> int:
        """Words of the tensor per word of its shared tile (its private ranks are whole)."""
        t, i = self.tensors[name]
        return prod(self.pair[i].sizes[r] for r in t.ranks if r not in self.pair[0].output.ranks)

    def price(self, name: str) -> tuple[float, float]:
        """(joules a word that enters level 1, joules saved by fresh words) of a prefix tensor."""
        t, i = self.tensors[name]
        outer, inner = self.machine.levels[:2]
        b0, b1 = outer.bits(t), inner.bits(t)
        if not t.is_output:
            return b0 * outer.read_j_per_bit + b1 * inner.write_j_per_bit, 0.0
        whole = t.tile_words(self.pair[i].sizes)
        both = b0 * (outer.read_j_per_bit + outer.write_j_per_bit) + b1 * (inner.read_j_per_bit + inner.write_j_per_bit)
        return both, whole * (b0 * outer.read_j_per_bit + b1 * inner.write_j_per_bit)

    def joint(self, prefix):
        """(axes [(rank, version)], energy of the prefix, bits of prefix + X, nesting mask) as joint arrays."""
        versions = self.versions(prefix)
        axes = [(r, v) for r in range(len(self.shared)) for v in range(1, versions[-1][r] + 1)]
        at = {rv: k for k, rv in enumerate(axes)}

        def spread(values, rv):
            return values.reshape([-1 if k == at[rv] else 1 for k in range(len(axes))])

        ones = np.ones([1] * len(axes))
        energy, used, legal = 0.0 * ones, self.held * ones, ones.astype(bool)
        for j, name in enumerate((*prefix, self.x)):
            tile, words, has = ones, ones, self.has(name)
            for r, axis in enumerate(self.axes):
                v = versions[j][r]
                if has[r]:
                    tile = tile * spread(axis.tile.astype(float), (r, v))
                elif v:
                    words = words * spread(axis.count, (r, v))
            if name == self.x:
                t, each = self.pair[0].output, 1
            else:
                (t, i), each = self.tensors[name], self.private(name)
                joules, saved = self.price(name)
                energy = energy + words * (t.tile_words(self.pair[i].sizes) * joules) - saved
            used = used + tile * (each * self.level.buffers * self.level.bits(t))
        for r, v in axes:
            if (r, v + 1) in at:
                nest = self.axes[r].below
                shape = [1] * len(axes)
                shape[at[r, v]] = shape[at[r, v + 1]] = len(self.axes[r])
                legal = legal & nest.T.reshape(shape)
        return axes, energy, used, legal

    def exits(self, axes, values: np.ndarray) -> np.ndarray:
        """Joint array of a table over X's tile."""
        shape = [1] * len(axes)
        last = {r: k for k, (r, _) in enumerate(axes)}
        for r in range(len(self.shared)):
            shape[last[r]] = len(self.axes[r])
        return values.reshape(shape)

    # -- the search
    def run(self):
        """(energy with MACs, Node) of the optimum."""
        constant = sum(p.macs * p.density * self.machine.compute.j_per_mac for p in self.pair)
        capacity = np.inf if self.level.capacity_bits is None else self.level.capacity_bits
        queue = sorted(((self._floor(o), k, o) for k, o in enumerate(self.prefixes)))
        best: tuple = (np.inf, None)
        for floor, _, prefix in queue:
            if floor >= best[0] * (1 - TIE):
                self.bounded += 1
                continue
            best = self._prefix(prefix, capacity, best)
        if best[1] is None:
            raise InfeasibleError(
                f"{self.pair[0].name} + {self.pair[1].name} on {self.machine.name}: no fused mapping fits {self.level.name}",
                resource=self.level.name,
                have=capacity,
                unit="bits",
            )
        return best[0] + constant, best[1]

    def _floor(self, prefix) -> float:
        """Least energy with this prefix: every word once, branches at full capacity."""
        least = sum(float(np.min(self.branch(i, self.above(prefix, i), self.held))) for i in (0, 1))
        for name in prefix:
            t, i = self.tensors[name]
            joules, saved = self.price(name)
            least += t.tile_words(self.pair[i].sizes) * joules - saved
        return least

    def _prefix(self, prefix, capacity: float, best):
        axes, energy, used, legal = self.joint(prefix)
        low = [self.branch(i, self.above(prefix, i), self.held) for i in (0, 1)]
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
            cell = np.unravel_index(cells[k], shape)
            taken = float(np.broadcast_to(used, shape)[cell])
            x = tuple(int(cell[last[r]]) for r in range(len(self.shared)))
            self.tried += 1
            total = float(np.broadcast_to(energy, shape)[cell]) + sum(
                float(self.branch(i, self.above(prefix, i), taken)[x]) for i in (0, 1)
            )
            if total < best[0] * (1 - TIE):
                best = (total, self._node(prefix, axes, cell, taken))
        return best

    def _node(self, prefix, axes, cell, taken: float):
        at = {rv: k for k, rv in enumerate(axes)}
        tiles = [
            tuple(
                self.sizes[g] if v == 0 else int(self.axes[r].tile[cell[at[r, v]]])
                for r, (g, v) in enumerate(zip(self.shared, versions, strict=True))
            )
            for versions in self.versions(prefix)
        ]
        return Node(prefix, tuple(tiles)), taken

    # -- mappings
    def mappings(self, found) -> list[NestMapping]:
        """Both einsums' mappings: residents, prefix, X, then the branch."""
        node, taken = found
        result = []
        for i in (0, 1):
            table = self.table(i, self.above(node.prefix, i), taken)
            space = table.space
            numbers = {t.name: k for k, t in enumerate(space.tensors)}
            whole = tuple(a.size for a in space.axes)
            above: list[tuple[int | None, tuple[int, ...]]] = [(numbers[n], whole) for n in sorted(self.resident) if n in numbers]
            for name, tile in zip((*node.prefix, self.x), node.tiles, strict=True):
                sizes = dict(zip(self.shared, tile, strict=True))
                full = tuple(sizes.get(g, space.problem.sizes[g]) for g in space.ranks)
                above.append((numbers.get(name), full))
            x = tuple(a.index[n] for a, n in zip(space.axes, above[-1][1], strict=True))
            result.append(build_mapping(space, best_path(table, x), above))
        return result
