"""Counts of many ragged mappings at once: rows of a RaggedPlan, whose costs are those of ragged_costs.

Every rank's chain of splits is followed as in split_chains, all rows together, those that agree in it once: pieces of one extent and how
many, a split in time or over instances turning each into whole tiles and a rest. "First" splits keep the largest piece alone.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, prod

import numpy as np

from rackmodel.arrays import Array, Ints, Number
from rackmodel.nests.searchers.mapspace.word_terms import Tally
from rackmodel.nests.searchers.ragged.ragged_costs import RaggedCosts
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan

Pieces = tuple[Array, Array]  # [pieces, chains] extents, how many of each


class RaggedCounts(RaggedCosts):
    """rows: [rows, numbers] of a RaggedPlan that fit."""

    def __init__(self, plan: RaggedPlan, rows: Ints) -> None:
        super().__init__(plan.space, plan.orders, len(rows))
        self.plan, self.rows = plan, rows.astype(np.float64)
        self.laid = [[plan.laid(self.rows, f, r) for r in range(len(self.space.ranks))] for f in range(self.space.depth)]
        self.alike = [plan.alike(rows, r) for r in range(len(self.space.ranks))]
        self.chain: list[list[tuple[Array, int | None]]] = [[] for _ in self.space.ranks]
        for level in range(self.space.depth):
            for r, chain in enumerate(self.chain):
                first = self.alike[r][0]
                chain += [(plan.tile(self.rows, level, j, r)[first], None) for j in range(len(plan.orders[level]))]
                entry = self._entry(level + 1, r)
                chain += [((entry * self.laid[level][r])[first], None), (entry[first], level)]
        self.cuts = [self._cuts(r) for r in range(len(self.space.ranks))]
        self.charges = plan.charges
        self._tallied: dict[tuple[Tally, int, int, int, bool], Number] = {}
        self._some: dict[tuple[int, int, frozenset[int], bool], Pieces] = {}
        self._known: dict[tuple[int, int, frozenset[int], bool, bool], Array] = {}

    def _entry(self, level: int, r: int) -> Array:
        """Tile that a level's instances receive."""
        if level == self.space.depth:
            return np.full(len(self.rows), float(self.plan.space.leaf[r]))
        if self.plan.orders[level]:
            return self.plan.tile(self.rows, level, 0, r)
        return self._entry(level + 1, r) * self.laid[level][r]

    # -- pieces of a rank
    def pieces(self, r: int, depth: int, first: Collection[int] = (), first_time: bool = False) -> Array:
        """[rows] pieces of a rank after so many splits."""
        return self._after(r, depth, first, first_time, False)

    def cover(self, r: int, depth: int, first: Collection[int] = ()) -> Number:
        """[rows] what they cover: all there is, unless some of them are left out."""
        return self._after(r, depth, first, False, True) if first else float(self.space.sizes[r])

    def wide(self, t: int, fan: int, width: int) -> Number | None:
        """[rows] the width where a tensor has more copies."""
        ranks = self.space.tensors[t].ranks
        copies = prod((self.laid[fan][r] for r, rank in enumerate(self.space.ranks) if rank not in ranks), start=np.ones(1))
        return None if bool((copies <= width).all()) else np.where(copies <= width, inf, width)

    def _cuts(self, r: int) -> tuple[list[tuple[Array, int | None]], list[int], list[frozenset[int]]]:
        """(splits of a rank that cut anything, how many of them are among the first so many splits, the fans among the first so many of
        them)."""
        least: Array = np.full(len(self.alike[r][0]), float(self.space.sizes[r]))
        found, among = list[tuple[Array, int | None]](), [0]
        for tile, fan in self.chain[r]:
            if (tile < least).any():
                found.append((tile, fan))
                least = np.minimum(least, tile)
            among.append(len(found))
        fans = [frozenset(fan for _, fan in found[:n] if fan is not None) for n in range(len(found) + 1)]
        return found, among, fans

    def _after(self, r: int, depth: int, first: Collection[int], first_time: bool, covered: bool) -> Array:
        """[rows] pieces, or what they cover; fans of `first` keep their largest piece."""
        _, among, fans = self.cuts[r]
        number = among[depth]
        key = r, number, fans[number].intersection(first), first_time, covered
        found = self._known.get(key)
        if found is None:
            extent, n = self._pieces(*key[:4])
            found = self._known[key] = np.add.reduce(extent * n if covered else n, axis=0)[self.alike[r][1]]
        return found

    def _tally(self, tally: Tally, t: int, parent: int, child: int, fullest: bool) -> Number:
        key = tally, t, parent, child, fullest
        if key not in self._tallied:
            self._tallied[key] = super()._tally(*key)
        return self._tallied[key]

    def _pieces(self, r: int, number: int, kept: frozenset[int], first_time: bool) -> Pieces:
        """After so many splits that cut anything."""
        key = (r, number, kept, first_time)
        found = self._some.get(key)
        if found is None and not number:
            one = np.ones((1, len(self.alike[r][0])))
            found = self._some[key] = one * self.space.sizes[r], one
        if found is None:
            tile, fan = self.cuts[r][0][number - 1]
            some = self._pieces(r, number - 1, kept if fan is None else kept - {fan}, first_time)
            found = self._some[key] = _largest(some, tile) if (first_time if fan is None else fan in kept) else _split(some, tile)
        return found


def _largest(pieces: Pieces, tile: Array) -> Pieces:
    return np.minimum(pieces[0], tile), pieces[1]


def _split(pieces: Pieces, tile: Array) -> Pieces:
    """Every piece in whole tiles and a rest."""
    extent, n = pieces
    full = np.floor(extent / tile)
    rest = extent - full * tile
    on = np.logical_or.reduce(rest, axis=1)
    whole = np.add.reduce(full * n, axis=0, keepdims=True)
    if not on.any():
        return tile[None], whole
    if not on.all():
        rest, n = rest[on], n[on]
    return np.concatenate((tile[None], rest)), np.concatenate((whole, n * (rest > 0)))
