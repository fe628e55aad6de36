"""Lower bound for ceil factors on any machine: divisibility dropped, tiles and parts in buckets.

Any monotone tiles are allowed; a bucket [low, high] of tiles counts with high and takes room with low, a bucket of parts
nests with its low end and is counted with its high end: every real mapping has a relaxed one that costs no more. Energy
and every time are relaxed alone, so F(least energy, least time) bounds the objective (docs/nest_theory.md, section 6).
"""

from dataclasses import replace
from math import ceil, factorial, inf, prod

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import TIE
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.bounds.continuous_bound import ContinuousNest
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.fewest_cycles import least_seconds
from rackmodel.nests.searchers.mapspace.list_axes import BucketAxis, whole_axes
from rackmodel.nests.searchers.mapspace.prices import BitPrices, components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.searchers.mapspace.word_terms import TensorTerm
from rackmodel.nests.searchers.tables.backtrack import optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable

BUCKETS = 1500  # of all ranks together
ORDERS, LARGE = 300, 20 * BUCKETS  # orders of the nodes of all levels together, up to which, MACs, from which sizes are real numbers
LEAST, MOST = 1e6, 20e6  # cells that may be priced, whatever the effort


def budgets(sizes: list[int], cells: int) -> list[int]:
    """Tiles a rank may have, so that their product stays near `cells`; small ranks leave room to large ones."""
    left, found = float(cells), [1] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for k, i in enumerate(order):
        found[i] = max(4, int(left ** (1 / (len(order) - k)) + 1e-9))
        left /= min(sizes[i], found[i])
        left = max(left, 1.0)
    return found


class RelaxedSpace(Space):
    """Buckets of tiles and of parts: `vectors` are the low ends (nesting), `groups_of` the high ends (counts)."""

    def __init__(self, problem: NestProblem, machine: NestMachine, kept: Stored, constraints: NestConstraints) -> None:
        sizes = list(problem.sizes.values())
        leaf = [*machine.compute.leaf(problem.sizes).values()]
        axes = [BucketAxis(n, b, u) for n, b, u in zip(sizes, budgets(sizes, BUCKETS), leaf, strict=True)]
        super().__init__(problem, machine, kept, constraints, axes=axes)
        self.high: list[Ints] = []
        lows = [self._bucket_vectors(i) for i in range(self.depth)]
        self.__dict__["vectors"] = lows

    def _term(self, t: int) -> TensorTerm:
        return replace(super()._term(t), least=True)

    def _bucket_vectors(self, fan: int) -> Ints:
        f = self.machine.levels[fan].fan
        most = [-(-a.size // a.leaf) for a in self.list_axes]
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

    def groups_of(self, fan: int) -> Ints:
        """[vectors, ranks] the most parts that one transfer of the parent may serve."""
        return self.high[fan]


def least_key(q: NestQuestion, kept: Stored, known: float = inf, floor: float = 0.0) -> float:
    """Lower bound on the primary key over tiles of any size: F(least energy, least time), each relaxed alone.

    known: key of a mapping; what bounds it already is enough · floor: what is known of the energy. Where the effort
    ends first, what is known by then; where the time is over, what the compute and each tensor once at the outermost ports take.
    """
    p, c = q.problem, q.machine.compute
    constant = c.joules(p)
    energy = max(constant, floor)
    time = least_seconds(p, q.machine, q.resident | q.home)

    def enough() -> bool:
        return known <= float(q.objective.key(energy, time)[0]) * (1 + TIE)

    if q.resident or enough() or q.effort.over:
        return float(q.objective.key(energy, time)[0])
    least = _Least(q, kept, known)
    try:
        if q.objective.name != "latency" and not floor:
            energy = constant + max(0.0, least.price(energy_prices(q.machine), _joules(q, known, time) - constant))
        for port in () if q.objective.energy_only else components(q.machine):
            if enough():
                break
            each = 1.0 / (port.bandwidth * prod(v.fan.size for v in q.machine.levels[: port.level]))  # seconds a bit, over every instance
            time = max(time, least.price(port.prices(len(q.machine.levels))) * each)
    except Exhausted:
        q.effort.late = True
    return float(q.objective.key(energy, time)[0])


def _joules(q: NestQuestion, known: float, time: float) -> float:
    """Energy with which a mapping of least time would be as good as the one known."""
    goal = q.objective
    if goal.name == "edp":
        return known / time - goal.static_w * time if time else inf
    second = goal.weights(1.0, 1.0)[1]
    return (known - second * time) / (goal.weights(1.0, 1.0)[0] or 1.0)


class _Least:
    """Least prices of one choice of stored tensors: of real sizes where there are few orders and a mapping is known, else of buckets."""

    def __init__(self, q: NestQuestion, kept: Stored, known: float) -> None:
        self.q, self.kept = q, kept
        self.table: CostTable | None = None
        nodes = [sum(t.name in names for t in q.problem.tensors) for names in kept[1:]]
        large = prod(q.problem.sizes.values()) > LARGE
        self.real = large and known < inf and prod(factorial(n) for n in nodes) <= ORDERS

    def price(self, prices: BitPrices, known: float = 0.0) -> float:
        """Least price, the MACs left out; known: of some mapping, for real sizes, and no better than that."""
        if self.real and 0 < known < inf:
            axes = whole_axes(self.q.problem, self.q.machine)
            space = Space(self.q.problem, self.q.machine, self.kept, self.q.constraints, axes=axes)
            return ContinuousNest(space, prices).bound(known, self.q.effort)
        if self.table is None:
            cells = LEAST if self.q.effort.over else min(max(self.q.effort.cells, LEAST), MOST)
            space = RelaxedSpace(self.q.problem, self.q.machine, self.kept, self.q.constraints)
            self.table = CostTable(space, prices, effort=Effort(cells, self.q.effort.ends))
        return optimum(CostTable(self.table.space, prices, like=self.table))
