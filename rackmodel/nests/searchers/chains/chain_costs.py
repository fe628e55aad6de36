"""Least and exact costs of mappings made of one chain a rank: the tallies of word_terms over figures of the chains.

A Figure is what one chain of a rank gives to some count: pieces after so many splits, what they cover, a tile at a node, parts on a side
of a fan. A cost is a sum of products of figures, one a rank, with the fresh words subtracted; so the least figures of some chains, and
the largest where they are subtracted, bound the costs of every mapping made of them. Where each is one chain the bound is its cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from math import prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import AnyArray, Array, Bools, Number
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally
from rackmodel.nests.searchers.ragged.ragged_costs import RaggedCosts

FRESH = frozenset({Tally.FRESH_CHILD, Tally.FRESH_PARENT})


class Figure(NamedTuple):
    """kind: pieces | cover (after `depth` splits, fans of `first` and, if `time`, loops keeping their largest piece), tile (cut by the
    split `depth`), x | y (parts on a side of the fan `depth`)."""

    kind: str
    depth: int
    first: tuple[int, ...] = ()
    time: bool = False


Figures = Mapping[Figure, Array]  # [rows] of a rank
LEAST, MOST = 0, 1


class ChainCosts(RaggedCosts):
    """ends: of every rank its (least, most) figures; without them what is asked for is noted in `asked`: [rank] figure → the ends used."""

    def __init__(self, space: Space, orders: Sequence[Sequence[int]], count: int = 1) -> None:
        super().__init__(space, orders, count)
        self.asked: list[dict[Figure, set[int]]] = [{} for _ in space.ranks]
        self.ends: Sequence[tuple[Figures, Figures]] | None = None
        self._names: dict[tuple[str, int, frozenset[int], bool], Figure] = {}
        self.split = [f for f, v in enumerate(space.machine.levels) if v.fan.size > 1 or v.fan.linear]

    def of(self, ends: Sequence[tuple[Figures, Figures]], count: int) -> ChainCosts:
        """The same over other chains."""
        other = copy(self)
        other.ends, other.count, other._rounds = ends, count, {}
        return other

    def note(self, timed: bool) -> None:
        """Fill `asked` with all that cost and fits ask for."""
        self.cost(timed)
        self.fits()

    def _figure(self, r: int, figure: Figure) -> AnyArray:
        if self.ends is None:
            self.asked[r].setdefault(figure, set()).add(self.side)
            return np.ones(self.count)
        return self.ends[r][self.side][figure]

    def _named(self, kind: str, depth: int, first: frozenset[int], time: bool) -> Figure:
        """Of `first` those fans count that cut anything, above the split."""
        key = kind, depth, first, time
        if key not in self._names:
            self._names[key] = Figure(kind, depth, tuple(f for f in self.split if f in first and self.after_fan[f] <= depth), time)
        return self._names[key]

    def pieces(self, r: int, depth: int, first: Collection[int] = (), first_time: bool = False) -> AnyArray:
        return self._figure(r, self._named("pieces", depth, frozenset(first), first_time))

    def cover(self, r: int, depth: int, first: Collection[int] = ()) -> AnyArray:
        return self._figure(r, self._named("cover", depth, frozenset(first), False))

    def wide(self, t: int, fan: int, width: int) -> Number | None:
        """The width: parts at work are no more than the copies, so that where there are fewer copies it does not count."""
        return float(width) if fan in self.split else None

    def _tally(self, tally: Tally, t: int, parent: int, child: int, fullest: bool) -> Number:
        self.side = MOST if tally in FRESH else LEAST
        found = super()._tally(tally, t, parent, child, fullest)
        self.side = LEAST
        return found

    def fits(self) -> Bools:
        """[rows] whether the least figures are within every fan and room."""
        space, found = self.space, np.ones(self.count, dtype=bool)
        for f in self.split:
            fan = self.machine.levels[f].fan
            for side, most in () if fan.linear else (("x", fan.x), ("y", fan.y)):
                found &= prod(self._figure(r, Figure(side, f)) for r in range(len(space.ranks))) <= most
        for level in range(1, space.depth):
            capacity, v = space.capacity(level), self.machine.levels[level]
            if capacity is None or not self.orders[level]:
                continue
            used: Array = np.zeros(self.count)
            for t in self.orders[level]:
                tile = [self._figure(r, Figure("tile", self.position[level, t])) if on else np.ones(1) for r, on in enumerate(space.has[t])]
                used = used + space.terms[t].room(tile.__getitem__, v.buffers * v.bits(space.tensors[t]))
            found &= used <= capacity
        return found
