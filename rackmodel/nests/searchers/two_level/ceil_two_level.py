"""Ceil factors, exact, for a memory above one buffer above an array: tiles of any size, ragged at the edges.

Order (T1, T2, T3) of the buffer's nodes. A class of ranks (those that index the same tensors) is cut once to a tile a
when some later node lacks it (it is priced there), else straight to what the array takes, its s parts.
Per rank the chain D → a → s is three numbers: tile a, tiles n = ceil(D / a), leaves L = floor(D/a) ceil(a / s) +
ceil((D mod a) / s). Only Pareto triples matter: for every n, tiles from ceil(D/n) to the next multiple of s.
What T2 has and T3 lacks may be cut above T1 and again above T2, D → b → a → s: L may fall. Those chains are listed only
where the ceil(D / s) leaves that none undercuts would beat the best mapping.
Memory words of T = |T| prod n, buffer words to the array = |T| prod L, over classes T lacks; cycles = prod L.
Spatial vectors are taken best bound first: F(E, T) with L = ceil(D / s) and the least memory traffic of any vector. They are of parts
at work: where no layout has just as many (3 of 2 x 2), a tile that is not recut is one group.
Derivation: docs/nest_theory.md, section 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints, Number
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, whole_nodes
from rackmodel.nests.objective import TIE, Key, better
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapspace.spatial_vectors import every_vector, idle_vectors
from rackmodel.nests.searchers.mapspace.word_terms import TensorTerm
from rackmodel.nests.searchers.two_level.pareto_tiles import MANY, ClassTiles, RankChains, combine, joined, rank_pairs, rank_tiles
from rackmodel.nests.searchers.two_level.two_level_cost import TwoLevelCost
from rackmodel.nests.solution import Best, NestSolution, solved

VECTORS = 400_000  # spatial vectors beyond which only parts ceil(D / n) are tried
Order = tuple[int, ...]
Leaves = Enum("Leaves", "ONCE FEWEST TWICE")
"""Of the classes that may be cut twice: those of one cut, no more than any chain has (of all classes where not all vectors are tried),
those of one or two cuts."""


@dataclass(frozen=True)
class Node:
    """One node of an order: its number, its tensor, and its terms over the classes of ranks.

    fills: words memory → buffer (classes that may be cut above it count) · feeds: words buffer → array (all it lacks count) · recut:
    classes it has that a node in between lacks, cut to what the array takes.
    """

    number: int
    tensor: int
    fills: TensorTerm
    feeds: TensorTerm
    recut: frozenset[int]


@dataclass(frozen=True)
class OrderTiles:
    """One order under one vector, one axis per class: choices, bits used, words per tensor, leaves."""

    choices: list[ClassTiles]
    used: Array
    fills: list[Number]
    feeds: list[Number]
    leaves: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Choices of every class."""
        return tuple(len(c) for c in self.choices)


class TwoLevel:
    """The search. `best`: (key, mapping, cost)."""

    def __init__(self, q: NestQuestion) -> None:
        self.p, self.m, self.constraints, self.objective = q.problem, q.machine, q.constraints, q.objective
        self.buffer = q.machine.levels[1]
        self.capacity = np.inf if self.buffer.capacity_bits is None else self.buffer.capacity_bits
        self.best: Best | None = None
        self.ranks = list(q.problem.sizes)
        signature = {r: tuple(r in t.ranks for t in q.problem.tensors) for r in self.ranks}
        self.classes = list(dict.fromkeys(signature.values()))
        self.members = [[i for i, r in enumerate(self.ranks) if signature[r] == c] for c in self.classes]
        self.words = [float(prod(q.problem.sizes[r] for r in t.ranks)) for t in q.problem.tensors]
        self.cost = TwoLevelCost(q.problem, q.machine, self.words)
        self.orders = [
            o
            for o in permutations(range(len(q.problem.tensors)))
            if q.constraints.allows_order(self.buffer.name, tuple(q.problem.tensors[i].name for i in o))
        ]
        self.nodes = {o: self._nodes(o) for o in self.orders}
        self.laid, self.x, self.y, self.complete = self._vectors()
        self.vectors, self.idle, self.every = self._at_work()
        self.cells = self.tried = 0
        self.effort, self.left = q.effort.part(), np.inf  # left: bound of the vectors that were not tried
        self.cache: dict[Any, ClassTiles | None] = {}
        self.straight: dict[Any, ClassTiles] = {}
        self.rank_cache: dict[tuple[int, int, bool], RankChains | None] = {}

    def _nodes(self, order: Order) -> list[Node]:
        """The terms of every node of an order."""
        found = []
        for j, t in enumerate(order):
            has = [c[t] for c in self.classes]
            cut = [any(c[o] for o in order[:j]) for c in self.classes]
            above = [c or self.twice(k, order) for k, c in enumerate(cut)]
            fills = TensorTerm.of(self.words[t], [h or not a for h, a in zip(has, above, strict=True)])
            recut = frozenset(k for k, c in enumerate(self.classes) if has[k] and cut[k] and not c[order[j - 1]])
            found.append(Node(j, t, fills, TensorTerm.of(self.words[t], has), recut))
        return found

    def _vectors(self) -> tuple[Ints, Ints, Ints, bool]:
        limits, name = self.constraints.spatial, self.buffer.name
        sizes = [self.p.sizes[r] for r in self.ranks]
        allowed = [[r in limits.get((name, d), self.ranks) for r in self.ranks] for d in "XY"]
        return every_vector(self.buffer.fan, sizes, allowed, VECTORS)

    def _at_work(self) -> tuple[Ints, Bools, bool]:
        """([vectors, ranks] parts at work, whether more are laid out, so that a tile is one group; whether they are all)."""
        none = np.zeros(self.laid.shape, dtype=bool)
        more = idle_vectors(self.laid, VECTORS) if self.complete else None
        if more is None:
            return self.laid, none, not self.complete
        return np.concatenate([self.laid, more[0]]), np.concatenate([none, more[1]]), True

    # -- one order under one vector
    def kind(self, c: tuple[bool, ...], order: Order) -> str:
        """Where class c is cut: "tile" (priced at a later node) or "leaf" (straight to the array's parts)."""
        at = [j for j, t in enumerate(order) if c[t]]
        priced = any(not c[t] for t in order[at[0] + 1 :])
        return "tile" if priced else "leaf"

    def twice(self, k: int, order: Order) -> bool:
        """May class k be cut above the first node and again above the second, before the third prices it?"""
        return len(order) == 3 and self.classes[k][order[1]] and not self.classes[k][order[2]]

    def choice(self, k: int, i: int, order: Order, leaves: Leaves) -> ClassTiles | None:
        """Tiles of class k for spatial vector i; None where chains of two cuts are too many."""
        vector, idle = self.vectors[i], self.idle[i]
        c, twice = self.classes[k], self.twice(k, order)
        if self.kind(c, order) == "leaf":
            return self.parts(k, vector)
        group = tuple(int(vector[i]) for i in self.members[k])
        room, longer = c[order[0]] or not twice, twice and leaves is Leaves.TWICE
        recut = any(k in node.recut for node in self.nodes[order])
        lone = tuple(bool(idle[r]) and not recut for r in self.members[k])
        key = (k, group, lone, room, longer)
        if key not in self.cache:
            chains = [self._rank(r, g, room, longer, one) for r, g, one in zip(self.members[k], group, lone, strict=True)]
            known = [one for one in chains if one is not None]
            full = len(known) < len(chains)
            self.cache[key] = None if full else combine(known, self._most(k), room, MANY if longer else np.inf)
        found = self.cache[key]
        if found is not None and leaves is Leaves.FEWEST and (twice or not self.complete):
            return found.fewest_leaves(float(self.parts(k, vector).chains.leaves[0]))
        return found

    def parts(self, k: int, vector: Ints) -> ClassTiles:
        """Class k cut straight to what the array takes."""
        group = tuple(int(vector[i]) for i in self.members[k])
        if (k, group) not in self.straight:
            sizes = [self.p.sizes[self.ranks[i]] for i in self.members[k]]
            tiles = np.array([[min(n, g) for n, g in zip(sizes, group, strict=True)]], dtype=float)
            leaves = np.array([float(prod(-(-n // g) for n, g in zip(sizes, group, strict=True)))])
            tile, one = tiles.prod(axis=1), np.ones(1)
            self.straight[k, group] = ClassTiles(RankChains(tile, tile, one, leaves, leaves), tiles, tiles)
        return self.straight[k, group]

    def _rank(self, i: int, group: int, room: bool, longer: bool, lone: bool = False) -> RankChains | None:
        """Pareto chains of one rank for leaf groups of `group`. room: whether the first node has the rank · lone: tiles of one group, whose
        leaves are the tiles, cut once."""
        if lone:
            found = self._rank(i, group, room, False)
            assert found is not None  # one cut: never too many
            return RankChains(*(column[found.inner <= group] for column in found))
        key = (i, group, longer)
        n = self.p.sizes[self.ranks[i]]
        if key not in self.rank_cache:
            least = min(n, group)
            self.rank_cache[key] = rank_pairs(n, group, least) if longer else rank_tiles(n, group, least)
        found = self.rank_cache[key]
        if longer:
            once = self._rank(i, group, room, False)
            return None if found is None or once is None else joined([once, found])
        if found is None or room:
            return found
        return found._replace(outer=np.full(len(found.inner), float(n)), outer_count=np.ones(len(found.inner)))

    def _most(self, k: int) -> float:
        """Largest tile of class k that the capacity could take."""
        bits = [self.buffer.buffers * self.buffer.bits(t) for t, on in zip(self.p.tensors, self.classes[k], strict=True) if on]
        return self.capacity / min(bits)

    def joint(self, i: int, order: Order, how: Leaves = Leaves.ONCE) -> OrderTiles | None:
        """Every choice of tiles of one order under vector i; None where chains of two cuts are too many."""
        dims, vector = len(self.classes), self.vectors[i]
        found = [self.choice(k, i, order, how) for k in range(dims)]
        choices = [c for c in found if c is not None]
        if len(choices) < dims:
            return None

        def along(k: int, values: Array) -> Array:
            return values.reshape([-1 if i == k else 1 for i in range(dims)])

        cut = [along(k, self.parts(k, vector).chains.inner) for k in range(dims)]
        leaf = [along(k, c.chains.leaves) for k, c in enumerate(choices)]
        used: Array = np.zeros((1,) * dims)
        fills: list[Number] = [0.0] * len(order)
        feeds: list[Number] = [0.0] * len(order)
        for node in self.nodes[order]:
            t, recut = node.tensor, node.recut
            tile, count = zip(*([along(k, part) for part in c.at(node.number)] for k, c in enumerate(choices)), strict=True)
            fills[t], feeds[t] = node.fills.words(count.__getitem__), node.feeds.words(leaf.__getitem__)
            extents = [c if k in recut else e for k, (c, e) in enumerate(zip(cut, tile, strict=True))]
            used = used + node.feeds.room(extents.__getitem__, self.buffer.buffers * self.buffer.bits(self.p.tensors[t]))
        leaves: Array = np.ones((1,) * dims)
        for values in leaf:
            leaves = leaves * values
        return OrderTiles(choices, used, fills, feeds, leaves)

    def best_of(self, vector: int, order: Order, how: Leaves) -> tuple[Key, list[ClassTiles], tuple[int, ...]] | None:
        """(key, choices, cell) of the least key for one vector and order, None if nothing fits or is as good as the best."""
        joint = self.joint(vector, order, how)
        if joint is None or 0 in joint.shape:
            return None
        shape = joint.shape
        fits = np.broadcast_to(joint.used <= self.capacity, shape)
        self.cells += fits.size
        if not fits.any():
            return None
        first, second = self.objective.key(*self.cost.total(joint.fills, joint.feeds, joint.leaves))
        first = np.where(fits, first, np.inf)
        low = float(first.min())
        if self.best is not None and low > self.best.primary * (1 + TIE):
            return None
        tied = np.where(first <= low + TIE * abs(low), np.broadcast_to(second, shape), np.inf)
        cell = tuple(int(n) for n in np.unravel_index(int(tied.argmin()), shape))
        return (float(first[cell]), float(tied[cell])), joint.choices, cell

    # -- the search
    def bounds(self) -> tuple[Array, Array]:
        """Lower bounds (energy [S], latency [S]) of every spatial vector."""
        fewest, none = self._least_fills(), [0.0] * len(self.words)
        leaves = -(-np.array([self.p.sizes[r] for r in self.ranks]) // self.vectors)
        each = [np.prod(leaves[:, members], axis=1, dtype=float) for members in self.members]
        first = self.nodes[self.orders[0]] if self.orders else []
        feeds: list[Number] = [0.0] * len(self.words)
        for node in first:
            feeds[node.tensor] = node.feeds.words(each.__getitem__)
        energy, time = self.cost.total(self.words, feeds, np.prod(leaves, axis=1, dtype=float))
        base, _ = self.cost.total(none, feeds, 0.0)
        constant, _ = self.cost.total(none, none, 0.0)
        shape = len(leaves)
        return np.broadcast_to(np.maximum(energy, base - constant + fewest[0]), shape), np.broadcast_to(np.maximum(time, fewest[1]), shape)

    def _least_fills(self) -> tuple[float, float]:
        """Least (energy, time) of what the memory moves and of what is constant, over every order and tile of any vector."""
        alone = int(np.flatnonzero((self.vectors == 1).all(axis=1))[0])
        fewest = [np.inf, np.inf]
        for order in self.orders:
            joint = self.joint(alone, order)
            assert joint is not None  # one cut: never too many
            fits = np.broadcast_to(joint.used <= self.capacity, joint.shape)
            found = self.cost.total(joint.fills, [0.0] * len(self.words), 0.0)
            fewest = [
                min(least, float(np.where(fits, value, np.inf).min(initial=np.inf))) for least, value in zip(fewest, found, strict=True)
            ]
        return fewest[0], fewest[1]

    def run(self) -> None:
        """Leave the optimum in `best`."""
        energy, time = self.bounds()
        first, second = self.objective.key(energy, time)
        if not self.every:
            self.left = float(first.min())
        for i in np.lexsort((np.arange(len(first)), second, first)):
            if not np.isfinite(first[i]):
                break
            if self.best is not None:
                if first[i] > self.best.primary * (1 + TIE):
                    break
                if not better((first[i], second[i]), self.best.key):
                    continue
            if self.best is not None and self._spent():
                self.left = min(self.left, float(first[i]))
                break
            self.tried += 1
            for order in self.orders:
                self._improve(int(i), order, Leaves.ONCE)
            for order in self.orders:
                self._cut_twice(int(i), order)

    def _improve(self, i: int, order: Order, how: Leaves) -> None:
        """Take the best mapping of one vector and order, if it is better."""
        found = self.best_of(i, order, how)
        if found and (self.best is None or better(found[0], self.best.key)):
            mapping = self.mapping(i, order, found[1], found[2])
            cost = evaluate(self.p, self.m, mapping)
            self.best = Best.of(self.objective, mapping, cost)

    def _cut_twice(self, i: int, order: Order) -> None:
        """Chains of two cuts, where the fewest leaves there may be would be better; what is not tried leaves its bound.

        A vector that is left out has the leaves ceil(D / s) of a smaller one that is tried, and takes more room.
        """
        if self.complete and not any(self.twice(k, order) for k in range(len(self.classes))):
            return
        least = self.best_of(i, order, Leaves.FEWEST)
        if least is None or (self.best is not None and not better(least[0], self.best.key)):
            return
        full = self.joint(i, order, Leaves.TWICE) is None
        if full or not self.complete:
            self.left = min(self.left, least[0][0])
        if not full:
            self._improve(i, order, Leaves.TWICE)

    def _spent(self) -> bool:
        """Whether the effort ends here."""
        try:
            self.effort.spend(self.cells - self.effort.spent)
        except Exhausted:
            return True
        return False

    def mapping(self, i: int, order: Order, choices: Sequence[ClassTiles], cell: tuple[int, ...]) -> NestMapping:
        """The mapping of one cell under vector i."""
        now = dict(self.p.sizes)
        nodes = []
        for node in self.nodes[order]:
            early = [k for k in range(len(self.classes)) if node.number == 0 and self.twice(k, order)]
            for k in {*node.feeds.has, *early}:
                picks = choices[k].picks if node.number == 0 else choices[k].inner_picks
                for r, tile in zip(self.members[k], picks[cell[k]], strict=True):
                    most = int(self.vectors[i][r]) if k in node.recut else int(tile)
                    now[self.ranks[r]] = min(now[self.ranks[r]], most)
            nodes.append(StorageNode(self.p.tensors[node.tensor].name, dict(now)))
        layout = i
        if self.idle[i].any():
            fits = (self.laid >= self.vectors[i]).all(axis=1) & ((self.laid == self.vectors[i]) | self.idle[i]).all(axis=1)
            layout = int(np.flatnonzero(fits)[np.argmin(np.prod(self.laid[fits], axis=1))])
        x, y = ({r: int(n) for r, n in zip(self.ranks, v[layout], strict=True) if n > 1} for v in (self.x, self.y))
        levels = (LevelMapping(self.m.levels[0].name, whole_nodes(self.p)), LevelMapping(self.buffer.name, tuple(nodes), x, y))
        return NestMapping(self.p.name, self.m.name, levels)


def solve_two_level(q: NestQuestion) -> NestSolution:
    """The optimum, proven; InfeasibleError naming the tightest level if nothing fits."""
    search = TwoLevel(q)
    search.run()
    if search.best is None:
        raise infeasible(q)
    pruned = {"bound of the spatial vector": len(search.vectors) - search.tried}
    note = "every spatial vector" if search.complete else "spatial parts ceil(D/n)"
    q.effort.late |= search.effort.late
    return solved(search.best, search.left, (float("inf"), search.cells, pruned), SEARCHER.name, (note,))


SEARCHER = Searcher("ceil lists", "dp", frozenset({Feature.CEIL, Feature.TIME, Feature.COMPUTE_FAN}), solve_two_level)
