"""Ceil factors on any machine: exact in the divisible-inner space, with a relaxation as bound and the gap reported.

Per rank a list of tiles (ceil_axes); the first cut of a rank may be ragged, later tiles divide it, so dp.py's levels
still touch only through one tile. Slices, as for perfect factors, give latency and EDP: in each the least-energy
mapping is recounted (ragged cycles make time no longer additive, so it is not refined). The perfect-factor optimum is
a candidate too. The bound drops divisibility: buckets of tiles and of parts, lo for room, hi for counts.
"""

from math import ceil, prod
from time import process_time

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.ceil_axes import BucketAxis, ListAxis
from rackmodel.nests.perfect import infeasible, solve_perfect, space_size
from rackmodel.nests.slices import SliceSearch
from rackmodel.nests.solution import NestCertificate, NestSolution
from rackmodel.nests.space import Space
from rackmodel.nests.spatial import every_vector

CELLS = 6000  # tiles of all ranks together
BUCKETS = 1500


def budgets(sizes: list[int], cells: int) -> list[int]:
    """Tiles a rank may have, so that their product stays near `cells`; small ranks leave room to large ones."""
    left, found = float(cells), [1] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for k, i in enumerate(order):
        found[i] = max(4, int(left ** (1 / (len(order) - k)) + 1e-9))
        left /= min(sizes[i], found[i])
        left = max(left, 1.0)
    return found


class DeepSearch(SliceSearch):
    """Slices of a ceil space; `floors` holds the declared-space bound of every slice looked at."""

    def _classes(self, fan: int):
        """By number of parts; with one true fanout, by the fewest leaf cycles: prod ceil(D / (s u))."""
        vectors, p = self.space.vectors[fan], self.space.problem
        f = self.space.machine.levels[fan].fan
        lone = sum(len(v) > 1 for v in self.space.vectors) == 1 and not f.linear and len(vectors) > 1
        if not lone:
            return super()._classes(fan)
        leaves = -(-np.array([p.sizes[r] for r in self.space.ranks]) // (vectors * np.array(self.space.leaf)))
        cycles = np.prod(leaves, axis=1) * prod(self.space.leaf)
        return [(p.macs / float(c), tuple(np.flatnonzero(cycles == c).tolist())) for c in sorted(set(cycles.tolist()))]

    def scale(self, port, slice_) -> float:
        """Seconds per bit, at most: over every instance there is."""
        fans = [self.space.machine.levels[f].fan.size for f in range(port.level)]
        return 1.0 / (port.bandwidth * prod(fans))

    def _tied(self):
        return []

    def _close(self, table, slice_, energy, own) -> None:
        """The slice's least-energy mapping is its candidate; no refinement."""
        self.closed += 1


class RelaxedSpace(Space):
    """Buckets of tiles and of parts: `vectors` are the low ends (nesting), `groups_of` the high ends (counts)."""

    def __init__(self, problem, machine, kept, constraints):
        sizes = list(problem.sizes.values())
        leaf = [machine.compute.atom.get(r, 1) for r in problem.sizes]
        axes = [BucketAxis(n, b, u) for n, b, u in zip(sizes, budgets(sizes, BUCKETS), leaf, strict=True)]
        super().__init__(problem, machine, kept, constraints, axes=axes, merge=False)
        self.high: list[np.ndarray] = []
        lows = [self._bucket_vectors(i) for i in range(self.depth)]
        self.__dict__["vectors"] = lows

    def _bucket_vectors(self, fan: int) -> np.ndarray:
        f = self.machine.levels[fan].fan
        most = [-(-a.size // a.leaf) for a in self.axes]
        total = prod(most) if f.linear else f.size
        found: list[tuple[tuple[int, ...], int]] = [((), 1)]
        steps: list[list[tuple[int, int]]] = []
        for size in most:
            limit = min(size, total)
            marks = sorted({min(limit, round(1.6**k)) for k in range(1 + ceil(np.log(max(2, limit)) / np.log(1.6)))})
            steps.append([(a, b - 1) for a, b in zip(marks, [*marks[1:], limit + 1], strict=True)])
            found = [((*v, i), p * a) for v, p in found for i, (a, _) in enumerate(steps[-1]) if p * a <= total]
        low = np.array([[steps[r][i][0] for r, i in enumerate(v)] for v, _ in found], dtype=np.int64)
        high = np.array([[steps[r][i][1] for r, i in enumerate(v)] for v, _ in found], dtype=np.int64)
        others = np.prod(low, axis=1, keepdims=True) // low
        self.high.append(np.maximum(low, np.minimum(high, total // others)))
        return low

    def groups_of(self, fan: int) -> np.ndarray:
        return self.high[fan]


def solve_deep(problem, machine, masks, constraints, objective, began) -> NestSolution:
    """Best mapping over all masks; the certificate's bound holds for tiles of any size."""
    best, cells, slices, size = None, 0, 0, 0.0
    notes: list[str] = []
    pruned: dict[str, int] = {}
    bounds: list[float] = []
    if not machine.compute.atom or all(problem.sizes[r] % u == 0 for r, u in machine.compute.atom.items()):
        try:
            start = solve_perfect(problem, machine, masks, constraints, objective, began)
            best = (start.certificate.objective, start.mapping, start.cost)
            cells += start.certificate.evaluated
        except InfeasibleError:
            notes.append("no mapping with perfect factors")
    for kept in masks:
        sizes = list(problem.sizes.values())
        leaf = [machine.compute.atom.get(r, 1) for r in problem.sizes]
        tiles = sorted({f.size for f in constraints.tiles})
        axes = [ListAxis(n, b, u) for n, b, u in zip(sizes, budgets(sizes, CELLS), leaf, strict=True)]
        for f in constraints.tiles:
            if f.size not in axes[list(problem.sizes).index(f.rank)].index:
                raise RackmodelError(f"fixed tile {f.rank} = {f.size}: not among the tiles searched {tiles}; use perfect factors")
        search = DeepSearch(Space(problem, machine, kept, constraints, axes=axes, merge=False), objective, best)
        size += space_size(search.space)
        try:
            search.run()
        except InfeasibleError:
            pruned["masks infeasible"] = pruned.get("masks infeasible", 0) + 1
            continue
        best, cells, slices = search.best, cells + search.cells, slices + search.slices
        for name, n in search.pruned.items():
            pruned[name] = pruned.get(name, 0) + n
        bounds.append(relaxed_bound(problem, machine, kept, constraints, objective))
    if best is None:
        raise infeasible(problem, machine, masks, constraints)
    key, mapping, cost = best
    bound = min(min(bounds, default=key[0]), key[0])
    notes += ["exact over listed tiles, inner ones dividing outer ones; bound over tiles of any size", f"{slices} slices"]
    return NestSolution(
        mapping,
        cost,
        NestCertificate(
            size, cells, pruned, key, bound, key[0] / bound - 1.0 if bound else 0.0, "ceil dp", process_time() - began, tuple(notes)
        ),
    )


def relaxed_bound(problem, machine, kept, constraints, objective) -> float:
    """Lower bound on the primary key over tiles of any size: F(least energy, least time), each relaxed alone."""
    from rackmodel.nests.objective import Objective
    from rackmodel.nests.recount import optimum

    search = DeepSearch(RelaxedSpace(problem, machine, kept, constraints), Objective("energy"))
    energy = max(0.0, optimum(search.energy)) + search.constant
    time = fewest_cycles(problem, machine) * problem.density / machine.compute.macs_per_s
    if not objective.energy_only:
        widest = (0,) * search.space.depth
        time = max([time, *(optimum(t) * search.scale(c, widest) for c, t in search.ports)])
    return float(objective.key(energy, time)[0])


def fewest_cycles(problem, machine) -> float:
    """Least compute cycles of any mapping: prod ceil(D / (s u)) over every s where one plain fanout is all there is."""
    leaf = [machine.compute.atom.get(r, 1) for r in problem.sizes]
    sizes = [-(-n // u) for n, u in zip(problem.sizes.values(), leaf, strict=True)]
    fans = [v.fan for v in machine.levels if v.fan.size > 1]
    if len(fans) == 1 and not fans[0].linear:
        s, _, _, complete = every_vector(fans[0], sizes, [[True] * len(sizes)] * 2, 400_000)
        if complete:
            return float(np.prod(-(-np.array(sizes) // s), axis=1).min()) * prod(leaf)
    return prod(sizes) * prod(leaf) / machine.units
