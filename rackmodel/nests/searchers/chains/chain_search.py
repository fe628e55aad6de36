"""Any tile on any machine, small problems: every chain of every rank, joined by branch and bound.

A mapping of one choice of orders is a chain a rank (rank_chains); it costs what their figures say (chain_costs). Groups of chains, one a
rank, are bounded by the least of their figures, and the group that is spread most is halved where the bound is still better than the best
mapping known. So the end of it is the best of all mappings; out of work, the least bound that is left.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import factorial, inf, prod

import numpy as np

from rackmodel.arrays import AnyArray, Array, Bools, Ints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, whole_nodes
from rackmodel.nests.objective import TIE, better
from rackmodel.nests.searchers.chains.chain_costs import ChainCosts, Figures
from rackmodel.nests.searchers.chains.chain_tree import ChainTree
from rackmodel.nests.searchers.chains.rank_chains import ChainList, NoChain, RankWalk, TooMany, chains_of, largest_tile
from rackmodel.nests.searchers.contract import Feature, NestQuestion, features
from rackmodel.nests.searchers.mapspace.list_axes import whole_axes
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.ragged.ragged_plan import orders_of
from rackmodel.nests.solution import Best, gap_of

CHAINS, MADE, CALL = 100_000, 3_000_000, 1000  # chains of a rank made in a step; chains and groups bounded, in all; those of a turn's time
JOINED, TOGETHER, FEW = 2_500_000, 2048, 256  # in all, up to which groups are halved; groups halved at once; halved again unbounded
TIES = 300_000  # chains and groups that a tie-break is worth
LONGEST, ORDERS = 256, 1300  # leaves of a rank; orders of all levels together and masks
UNSUPPORTED = frozenset({Feature.RESIDENT, Feature.HOME, Feature.FIXED_TILES, Feature.SUM})


@dataclass(frozen=True)
class Joined:
    """best: mapping found or known before · bound: of the primary key of every mapping · cells: chains looked at and groups bounded · ties:
    whether none has an equal primary and less of the tie-break."""

    best: Best
    bound: float
    cells: int
    ties: bool

    @property
    def closed(self) -> bool:
        """Whether nothing is better than the mapping."""
        return gap_of(self.best.primary, self.bound) <= TIE


def join_chains(q: NestQuestion, best: Best) -> Joined | None:
    """The search, from a known mapping on; None where the question is none of this kind or too large."""
    if not listable(q):
        return None
    search = ChainSearch(q, best)
    with suppress(TooMany):
        bound = search.run()
        return Joined(search.best, min(bound, search.best.primary), search.cells, search.timed and bound == inf)
    return Joined(search.best, 0.0, search.cells, False)


def join_ties(q: NestQuestion, best: Best) -> Joined | None:
    """Of mappings that nothing is better than the one of the least tie-break, as far as a part of the work goes; None as `join_chains`."""
    if not listable(q):
        return None
    search, left = ChainSearch(q, best, most=TIES, timed=True), 0.0
    with suppress(TooMany):
        left = search.run()
    return Joined(search.best, best.primary, search.cells, left == inf)


def listable(q: NestQuestion) -> bool:
    """Whether a question is of this kind, and not too large."""
    sizes = [-(-n // q.machine.compute.atom.get(r, 1)) for r, n in q.problem.sizes.items()]
    orders = [prod(map(factorial, map(len, kept[1:]))) for kept in q.masks]
    return not features(q) & UNSUPPORTED and max(sizes) <= LONGEST and sum(orders) <= ORDERS


class ChainSearch:
    """All masks and orders of a question under one best mapping. cells: chains looked at and groups bounded · work:
    the same, with what a turn takes whatever their number, `most` at most · timed: whether time counts, in a tie-break alone too."""

    def __init__(self, q: NestQuestion, best: Best, *, most: int = MADE, timed: bool = False) -> None:
        self.q, self.best, self.cells, self.work, self.most = q, best, 0, 0, most
        self.timed = timed or not q.objective.energy_only
        self.lists: dict[object, ChainList] = {}  # those that no bound has shortened

    def run(self) -> float:
        """Least bound that is left, inf for none. Raises TooMany where there are too many chains."""
        left = inf
        for kept in self.q.masks:
            axes = whole_axes(self.q.problem, self.q.machine)
            space = Space(self.q.problem, self.q.machine, kept, self.q.constraints, axes=axes)
            known = orders_of(space, self.best.mapping)
            for orders in sorted(space.all_orders(), key=lambda o: o != known):
                with suppress(NoChain):
                    left = min(left, self._join(space, ((), *orders)).run())
        return left

    def _join(self, space: Space, orders: tuple[tuple[int, ...], ...]) -> _Join:
        """One choice of orders: chains rank by rank, the smaller first, of the ranks still to come what any chain has."""
        costs = ChainCosts(space, orders)
        costs.note(self.timed)
        ranks = range(len(space.ranks))
        chains: dict[int, ChainList] = {}

        def worth(r: int, low: Figures, high: Figures, count: int) -> Bools:
            ends = [(low, high) if k == r else known[k] for k in ranks]
            return self.worth(*self.keys(costs.of(ends, count)))

        known = [RankWalk(costs, r, CHAINS, partial(worth, r)).ends() for r in ranks]
        for r in sorted(ranks, key=lambda r: space.sizes[r] // space.leaf[r]):
            largest = tuple(largest_tile(space, order, level, t, r) for level, order in enumerate(orders) for t in order)
            key = (r, tuple(map(len, orders)), largest, frozenset((f, frozenset(ends)) for f, ends in costs.asked[r].items()))
            chains[r] = self.lists[key] if key in self.lists else chains_of(costs, r, CHAINS, partial(worth, r))
            if chains[r].whole:
                self.lists[key] = chains[r]
            known[r] = chains[r].ends()
        for r in (r for r in ranks if len(chains[r].tiles) > FEW):
            chains[r] = chains[r].only(worth(r, chains[r].figures, chains[r].figures, len(chains[r].tiles)))
            known[r] = chains[r].ends()
        return _Join(self, costs, [chains[r] for r in ranks])

    def keys(self, costs: ChainCosts) -> tuple[Array, Array]:
        """([rows] least primary, secondary key), inf where nothing fits."""
        self.cells += costs.count
        self.work += costs.count + CALL
        if self.work > self.most or self.q.effort.over:
            raise TooMany
        energy, times = costs.cost(self.timed)
        slowest = np.max(times, axis=0) if times else np.full(costs.count, inf)  # ties are not looked at where no time counts
        first, second = self.q.objective.key(energy, slowest)
        fits = costs.fits()
        return np.where(fits, first, inf), np.where(fits, second, inf)

    @property
    def over(self) -> bool:
        """Whether the work is done."""
        return self.work >= min(JOINED, self.most) or self.q.effort.over

    def worth(self, first: AnyArray, second: AnyArray) -> Bools:
        """Where least keys are better than the best known."""
        return np.asarray(np.isfinite(first) & better((first, second), self.best.key))

    def take(self, mapping: NestMapping) -> None:
        """Keep a mapping that is better."""
        self.best = self.best.or_better(Best.of(self.q.objective, mapping, evaluate(self.q.problem, self.q.machine, mapping)))


class _Join:
    """One choice of orders."""

    def __init__(self, search: ChainSearch, costs: ChainCosts, chains: list[ChainList]) -> None:
        self.search, self.costs, self.chains = search, costs, chains
        self.trees = [ChainTree(one.figures) for one in chains]

    def run(self) -> float:
        """Halve groups until none may be better; the least bound of those that are left, inf for none."""
        groups: Ints = np.zeros((1, len(self.trees)), dtype=np.int64)
        groups, first, second = self._whole(groups, *self._keys(groups))
        while True:
            on = self.search.worth(first, second)
            groups, first, second = groups[on], first[on], second[on]
            if not len(groups) or self.search.over:
                return float(first.min(initial=inf))
            order = np.argsort(first, kind="stable")
            some, rest = order[:TOGETHER], order[TOGETHER:]
            new = self._halved(groups[some])
            while len(new) < FEW and len(more := self._halved(new)) > len(new):
                new = more
            new, one, two = self._whole(new, *self._keys(new))
            groups = np.vstack([groups[rest], new])
            first, second = np.r_[first[rest], one], np.r_[second[rest], two]

    def _halved(self, groups: Ints) -> Ints:
        spread = np.array([tree.spread[groups[:, r]] for r, tree in enumerate(self.trees)])
        widest = spread.argmax(axis=0)
        whole = spread.max(axis=0) < 0
        found = [groups[whole]]
        for r, tree in enumerate(self.trees):
            mine = groups[(widest == r) & ~whole]
            child = tree.halves(mine[:, r])
            for half in (0, 1):
                other = mine.copy()
                other[:, r] = child + half
                found.append(other)
        return np.vstack(found)

    def _keys(self, groups: Ints) -> tuple[Array, Array]:
        ends = [tree.ends(groups[:, r]) for r, tree in enumerate(self.trees)]
        return self.search.keys(self.costs.of(ends, len(groups)))

    def _whole(self, groups: Ints, first: Array, second: Array) -> tuple[Ints, Array, Array]:
        """Those of more than one mapping; of the others the best are taken."""
        one = np.all([tree.spread[groups[:, r]] < 0 for r, tree in enumerate(self.trees)], axis=0)
        left = np.flatnonzero(one)
        while len(left := left[self.search.worth(first[left], second[left])]):
            i, *others = left[np.lexsort((second[left], first[left]))].tolist()
            self.search.take(self._mapping(groups[i]))
            left = np.array(others, dtype=np.int64)
        return groups[~one], first[~one], second[~one]

    def _mapping(self, groups: Ints) -> NestMapping:
        space, orders = self.costs.space, self.costs.orders
        rows = [int(tree.rows[g][0]) for tree, g in zip(self.trees, groups, strict=True)]
        tiles = np.array([one.tiles[i] for one, i in zip(self.chains, rows, strict=True)])
        parts = np.array([one.parts[i] for one, i in zip(self.chains, rows, strict=True)])
        levels, at = [], 0
        for f, level in enumerate(space.machine.levels):
            x, y = ({rank: int(n) for rank, n in zip(space.ranks, parts[:, 2 * f + k], strict=True) if n > 1} for k in (0, 1))
            nodes = []
            for t in orders[f]:
                nodes.append(StorageNode(space.tensors[t].name, dict(zip(space.ranks, tiles[:, at].tolist(), strict=True))))
                at += 1
            levels.append(LevelMapping(level.name, tuple(nodes) if f else whole_nodes(space.problem), x, y))
        return NestMapping(space.problem.name, space.machine.name, tuple(levels))
