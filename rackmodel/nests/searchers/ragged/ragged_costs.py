"""Energy and times of many ragged mappings at once, whatever their counts come from: the tallies of word_terms, with nested counts.

A subclass says how many pieces a rank has after so many splits, what they cover, and where a transfer may be wider than a fan's
width; every count is an array over mappings (rows). evaluate.py stays the definition, and recounts what is chosen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from rackmodel.arrays import AnyArray, Array, Number
from rackmodel.nests.problem import NestTensor, index_term
from rackmodel.nests.searchers.mapspace.prices import components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally, TallyPrices, tally_prices

CHILDS = frozenset({Tally.ENTERED, Tally.FRESH_CHILD})  # tallies of the child; the others are the parent's
OVER_A_FAN = {Tally.CROSSED: Tally.SERVED, Tally.FRESH_CROSSED: Tally.FRESH_PARENT}  # what crosses it as if the level below were the parent
Charges = list[list[tuple[int, int, int, TallyPrices, tuple[float, ...]]]]
"""Of the energy, then of every port: (tensor, parent, child, prices of its words, of hops below every level)."""


def charges_of(space: Space, orders: Sequence[Sequence[int]]) -> Charges:
    """What mappings of these orders pay, whatever their tiles."""
    machine, depth, found = space.machine, space.depth, Charges()
    for prices in (energy_prices(machine), *(port.prices(depth) for port in components(machine))):
        found.append([])
        for t, tensor in enumerate(space.tensors):
            kept = [level for level in range(depth) if level == 0 or t in orders[level]]
            for parent, child in zip(kept, [*kept[1:], depth], strict=True):
                found[-1].append((t, parent, child, tally_prices(machine, prices, tensor, parent, child), prices.hop))
    return found


class RaggedCosts(ABC):
    """orders: from level 0 on, tensor numbers outer → inner (none at 0) · count: mappings. Splits of a rank, outer → inner: a level's
    nodes, then the group that its fan deals out, then the fan; position: (level, tensor) → splits above and at its node ·
    after_fan: splits down to the fan below a level · end: of all levels · dealt: the outermost
    fan, above which there is one instance of every level."""

    def __init__(self, space: Space, orders: Sequence[Sequence[int]], count: int) -> None:
        self.space, self.orders, self.count = space, orders, count
        self.machine = space.machine
        self.position: dict[tuple[int, int], int] = {(0, t): 0 for t in range(len(space.tensors))}
        self.after_fan: list[int] = []
        depth = 0
        for level in range(space.depth):
            self.position |= {(level, t): depth + j for j, t in enumerate(orders[level], 1)}
            depth += len(orders[level]) + 2
            self.after_fan.append(depth)
        self.end = depth
        fans = [level.fan for level in self.machine.levels]
        self.dealt = next((f for f, fan in enumerate(fans) if fan.size > 1 or fan.linear), space.depth)
        self.side = 0  # of what is counted, where a subclass has more than one
        ranks = space.ranks
        self._lacked = [[r for r, rank in enumerate(ranks) if rank not in tensor.ranks] for tensor in space.problem.tensors]
        self._terms = [[[(c, ranks.index(rank)) for c, rank in map(index_term, i)] for i in t.indices] for t in space.problem.tensors]
        self._rounds: dict[tuple[int, int], Number] = {}

    @cached_property
    def charges(self) -> Charges:
        """What there is to be paid."""
        return charges_of(self.space, self.orders)

    @abstractmethod
    def pieces(self, r: int, depth: int, first: Collection[int] = (), first_time: bool = False) -> AnyArray:
        """[rows] pieces of a rank after so many splits; fans of `first` keep their largest piece, so do loops if first_time."""

    @abstractmethod
    def cover(self, r: int, depth: int, first: Collection[int] = ()) -> Number:
        """[rows] what those pieces cover."""

    @abstractmethod
    def wide(self, t: int, fan: int, width: int) -> Number | None:
        """[rows] instances of a fan that one transfer of a tensor serves where it has more copies than that, else inf; None: nowhere."""

    def words(self, t: int, depth: int, first: frozenset[int], shared: frozenset[int]) -> Number:
        """[rows] words at a node; fans of `first` count one instance, those of `shared` for the ranks the tensor lacks."""
        total: Number = 1.0
        for r in self._lacked[t]:
            total = total * self.pieces(r, depth, first | shared)
        for terms in self._terms[t]:
            total = total * (self.cover(terms[0][1], depth, first) if terms == [(1, terms[0][1])] else self._sums(terms, depth, first))
        return total

    def _sums(self, terms: list[tuple[int, int]], depth: int, first: frozenset[int]) -> Number:
        """[rows] extents of all tiles of a sum of indices (coefficient, rank)."""
        counts = [self.pieces(r, depth, first) for _, r in terms]
        every = prod(counts)
        spans = [c * self.cover(r, depth, first) * every // n for (c, r), n in zip(terms, counts, strict=True)]
        return np.asarray(every * (1 - sum(c for c, _ in terms)) + np.sum(spans, axis=0))

    def fresh(self, tensor: NestTensor, level: int, first: frozenset[int]) -> Number:
        """[rows] words of the output of which there is nothing to fetch yet."""
        depth = 0 if level == 0 else self.after_fan[level - 1]
        total: Number = 1.0
        for r, rank in enumerate(self.space.ranks):
            total = total * (self.cover(r, depth, first) if rank in tensor.ranks else self.pieces(r, depth, first, True))
        return total

    def waves(self, level: int) -> Number:
        """[rows] rounds of the linear fans above a level."""
        if (level, self.side) not in self._rounds:
            total: Number = 1
            for f in range(level):
                fan = self.machine.levels[f].fan
                if fan.linear:
                    others = frozenset(range(self.space.depth)) - {f}
                    parts = prod(self.pieces(r, self.after_fan[f], others, True) for r in range(len(self.space.ranks)))
                    total = total * -(-parts // fan.size)
            self._rounds[level, self.side] = total
        return self._rounds[level, self.side]

    def served(self, t: int, parent: int, child: int, first: frozenset[int]) -> Number:
        """[rows] words that a parent moves for a tensor's node in a child: as in evaluate."""
        tensor, depth = self.space.tensors[t], self._depth(t, child)
        once: list[int] = []
        wide: list[tuple[int, Number]] = []
        for f in range(parent, child):
            fan = self.machine.levels[f].fan
            width = fan.reduction_width if tensor.is_output else fan.multicast_width
            most = None if width is None else self.wide(t, f, width)
            if most is None:
                once.append(f)
            else:
                wide.append((f, most))
        if not wide:
            return self.words(t, depth, first, frozenset(once))
        found: Number = 0.0
        for divided in product((True, False), repeat=len(wide)):
            whole = [f for (f, _), d in zip(wide, divided, strict=True) if not d]
            by = prod((width for (_, width), d in zip(wide, divided, strict=True) if d), start=np.ones(1))
            found = np.maximum(found, self.words(t, depth, first, frozenset([*once, *whole])) / by)
        return found

    def _depth(self, t: int, child: int) -> int:
        return self.end if child == self.space.depth else self.position[child, t]

    # -- costs
    def cost(self, timed: bool) -> tuple[Array, list[Array]]:
        """([rows] joules, [rows] seconds of every component); timed: whether seconds are asked for."""
        return self.joules(), [self.seconds(i) for i in range(len(self.charges))] if timed else []

    def joules(self) -> Array:
        """[rows] of everything."""
        return np.broadcast_to(self.machine.compute.joules(self.space.problem) + self._priced(0), self.count)

    def seconds(self, component: int) -> Array:
        """[rows] of a port, or of the compute, which is the last."""
        if component + 1 < len(self.charges):
            return np.asarray(self._priced(component + 1) / components(self.machine)[component].bandwidth)
        every, c = frozenset(range(self.space.depth)), self.machine.compute
        cycles = prod(self.pieces(r, self.end, every) * u for r, u in enumerate(self.space.leaf))
        return np.asarray(cycles * self.waves(self.space.depth) * self.space.problem.density / c.macs_per_s)

    def _priced(self, charge: int) -> Number:
        """Joules of everything (0), or bits of the fullest instance of a port (from 1 on)."""
        total: Array = np.zeros(self.count)
        for t, parent, child, each, hop in self.charges[charge]:
            for tally, price in each.words.items():
                level = child if tally in CHILDS else parent
                total = total + price * self._tally(tally, t, parent, child, charge > 0 and level > self.dealt)
            for f in range(parent, child):
                for tally, price in each.hops.items() if hop[f] else ():
                    total = total + hop[f] * price * self._tally(OVER_A_FAN[tally], t, f + 1, child, charge > 0 and f >= self.dealt)
        return total

    def _tally(self, tally: Tally, t: int, parent: int, child: int, fullest: bool) -> Number:
        """Words of a tally: of all instances, or of the fullest one over all its waves."""
        level = child if tally in CHILDS else parent
        first, waves = (frozenset(range(level)), self.waves(level)) if fullest else (frozenset[int](), 1)
        if tally is Tally.ENTERED:
            return self.words(t, self._depth(t, child), first, frozenset()) * waves
        if tally is Tally.SERVED:
            return self.served(t, parent, child, first) * waves
        return self.fresh(self.space.tensors[t], level, first) * waves
