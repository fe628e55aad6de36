"""Counts of many ragged mappings at once: rows of a RaggedPlan, whose costs are those of ragged_costs.

Every rank's chain of splits is followed as in split_chains, all rows together, those that agree in it once: pieces of one extent and how
many, a split in time or over instances turning each into whole tiles and a rest. "First" splits keep the largest piece alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, prod

import numpy as np

from rackmodel.nests.arrays import Floats, Ints, Number
from rackmodel.nests.searchers.ragged_costs import RaggedCosts
from rackmodel.nests.searchers.ragged_plan import RaggedPlan
from rackmodel.nests.searchers.word_terms import Tally

Pieces = tuple[Floats, Floats]  # [pieces, chains] extents, how many of each


class RaggedCounts(RaggedCosts):
    """rows: [rows, numbers] of a RaggedPlan that fit."""

    def __init__(self, plan: RaggedPlan, rows: Ints) -> None:
        super().__init__(plan.space, plan.orders, len(rows))
        self.plan, self.rows = plan, rows.astype(np.float64)
        self.laid = [[plan.laid(self.rows, f, r) for r in range(len(self.space.ranks))] for f in range(self.space.depth)]
        self.alike = [plan.alike(rows, r) for r in range(len(self.space.ranks))]
        self.chain: list[list[tuple[Floats, int | None]]] = [[] for _ in self.space.ranks]
        for level in range(self.space.depth):
            for r, chain in enumerate(self.chain):
                first = self.alike[r][0]
                chain += [(plan.tile(self.rows, level, j, r)[first], None) for j in range(len(plan.orders[level]))]
                entry = self._entry(level + 1, r)
                chain += [((entry * self.laid[level][r])[first], None), (entry[first], level)]
        self.cuts = [self._cuts(r) for r in range(len(self.space.ranks))]
        self.charges = plan.charges
        self._tallied: dict[tuple[Tally, int, int, int, bool], Number] = {}
        self._some: dict[tuple[int, int, frozenset[int | None], bool], Pieces] = {}
        self._known: dict[tuple[int, int, frozenset[int | None], bool, bool], Floats] = {}

    def _entry(self, level: int, r: int) -> Floats:
        """Tile that a level's instances receive."""
        if level == self.space.depth:
            return np.full(len(self.rows), float(self.plan.space.leaf[r]))
        if self.plan.orders[level]:
            return self.plan.tile(self.rows, level, 0, r)
        return self._entry(level + 1, r) * self.laid[level][r]

    # -- pieces of a rank
    def pieces(self, r: int, depth: int, first: Iterable[int] = (), first_time: bool = False) -> Floats:
        """[rows] pieces of a rank after so many splits."""
        return self._after(r, depth, first, first_time, False)

    def cover(self, r: int, depth: int, first: Iterable[int] = (), first_time: bool = False) -> Number:
        """[rows] what they cover: all there is, unless some of them are left out."""
        if not first_time and not any(True for _ in first):
            return float(self.space.sizes[r])
        return self._after(r, depth, first, first_time, True)

    def wide(self, t: int, fan: int, width: int) -> Number | None:
        """[rows] the width where a tensor has more copies."""
        ranks = self.space.tensors[t].ranks
        copies = prod((self.laid[fan][r] for r, rank in enumerate(self.space.ranks) if rank not in ranks), start=np.ones(1))
        return None if bool((copies <= width).all()) else np.where(copies <= width, inf, width)

    def _cuts(self, r: int) -> tuple[list[tuple[Floats, int | None]], list[int]]:
        """(splits of a rank that cut anything, how many of them are among the first so many splits)."""
        least: Floats = np.full(len(self.alike[r][0]), float(self.space.sizes[r]))
        found, among = list[tuple[Floats, int | None]](), [0]
        for tile, fan in self.chain[r]:
            if (tile < least).any():
                found.append((tile, fan))
                least = np.minimum(least, tile)
            among.append(len(found))
        return found, among

    def _after(self, r: int, depth: int, first: Iterable[int], first_time: bool, covered: bool) -> Floats:
        """[rows] pieces, or what they cover; fans of `first` keep their largest piece."""
        cuts, among = self.cuts[r]
        number, kept = among[depth], frozenset(first)
        key = r, number, frozenset(fan for _, fan in cuts[:number] if fan in kept), first_time
        if (*key, covered) not in self._known:
            extent, n = self._pieces(*key)
            self._known[*key, covered] = np.asarray((extent * n if covered else n).sum(axis=0))[self.alike[r][1]]
        return self._known[*key, covered]

    def _tally(self, tally: Tally, t: int, parent: int, child: int, fullest: bool) -> Number:
        key = tally, t, parent, child, fullest
        if key not in self._tallied:
            self._tallied[key] = super()._tally(*key)
        return self._tallied[key]

    def _pieces(self, r: int, number: int, kept: frozenset[int | None], first_time: bool) -> Pieces:
        """After so many splits that cut anything."""
        if not number:
            one = np.ones((1, len(self.alike[r][0])))
            return one * self.space.sizes[r], one
        key = (r, number, kept, first_time)
        if key not in self._some:
            tile, fan = self.cuts[r][0][number - 1]
            some = self._pieces(r, number - 1, kept - {fan}, first_time)
            self._some[key] = _largest(some, tile) if (first_time if fan is None else fan in kept) else _split(some, tile)
        return self._some[key]


def _largest(pieces: Pieces, tile: Floats) -> Pieces:
    return np.minimum(pieces[0], tile), pieces[1]


def _split(pieces: Pieces, tile: Floats) -> Pieces:
    """Every piece in whole tiles and a rest."""
    extent, n = pieces
    full = np.floor(extent / tile)
    rest = extent - full * tile
    ragged = rest > 0
    on = ragged.any(axis=1)
    whole = (full * n).sum(axis=0)
    if not on.any():
        return tile[None], whole[None]
    return np.concatenate([tile[None], rest[on]]), np.concatenate([whole[None], (n * ragged)[on]])
