"""Above the intermediates of a region: orders of outer tensors (prefixes), and every tile of one prefix with what it costs.

A prefix is an ordered subset of the outer tensors; the intermediates' tiles come after it. Loops lie as in order_plan: directly above a
node only over ranks it has and the node before it lacks. A version of a rank is one such cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rackmodel.nests.arrays import AnyArray, Bools, Floats, Ints
from rackmodel.nests.region import RunningRows
from rackmodel.nests.searchers.prices import BitPrices
from rackmodel.nests.searchers.region_space import RegionSpace

Prefix = tuple[str, ...]  # tensors with nodes above the intermediates, outer → inner


class RegionTiles(NamedTuple):
    """All tiles of one prefix: axes [(shared rank, version)], bits of level 1 taken while each member runs, which tiles nest, further tiles
    of each member of `running`."""

    axes: list[tuple[int, int]]
    used: list[Floats]
    legal: Bools
    again: list[Floats]


class PrefixTiles:
    """One prefix of a region: its tiles, and the price of its words under any prices. exits: per shared rank, numbers of the tiles that the
    intermediates may have; those above are their multiples."""

    def __init__(self, space: RegionSpace, prefix: Prefix, exits: Sequence[Ints]) -> None:
        self.space, self.prefix = space, prefix
        self.versions = self._versions()
        ranks = range(len(space.shared))
        self.axes = [(r, v) for r in ranks for v in range(1, self.versions[-1][r] + 1)]
        self.at = {rv: k for k, rv in enumerate(self.axes)}
        outer = [np.flatnonzero(space.axes[r].below[exits[r]].any(axis=0)) for r in ranks]
        self.picks = [exits[r] if v == self.versions[-1][r] else outer[r] for r, v in self.axes]
        self.ones: Floats = np.ones([1] * len(self.axes))
        self.last = {r: k for k, (r, _) in enumerate(self.axes)}

    def _versions(self) -> list[list[int]]:
        """Per node (prefix, then the intermediates): the version of every shared rank."""
        count = len(self.space.shared)
        now, before = [0] * count, [False] * count
        found: list[list[int]] = []
        for has in (*(self.space.has(self.space.of[name]) for name in self.prefix), [True] * count):
            now = [v + (h and not was) for v, h, was in zip(now, has, before, strict=True)]
            found.append(list(now))
            before = has
        return found

    def _spread(self, values: AnyArray, rv: tuple[int, int]) -> AnyArray:
        own = self.at[rv]
        return values[self.picks[own]].reshape([-1 if k == own else 1 for k in range(len(self.axes))])

    def _per_rank(self, j: int, values: Sequence[AnyArray]) -> list[AnyArray]:
        """Of node j: tiles or counts of every shared rank, over the joint axes."""
        return [self._spread(v, (r, n)) if (n := self.versions[j][r]) else self.ones for r, v in enumerate(values)]

    def words(self, name: str) -> Floats:
        """Words of a prefix tensor that enter level 1."""
        counts = self._per_rank(self.prefix.index(name), [a.count for a in self.space.axes])
        return np.asarray(self.space.terms[name].words(counts.__getitem__)) * self.ones

    def priced(self, prices: BitPrices, names: Sequence[str]) -> Floats:
        """Price of the prefix tensors `names` between levels 0 and 1."""
        total = 0.0 * self.ones
        for name in names:
            each, saved = self.space.price(name, prices)
            if each or saved:
                total = total + self.words(name) * each + saved
        return total

    def tiles(self) -> RegionTiles:
        """Every tile of the prefix and the intermediates."""
        space, region = self.space, self.space.region
        sizes = [a.tile.astype(float) for a in space.axes]
        above = space.resident_bits * self.ones
        for j, name in enumerate(self.prefix):
            tiles = self._whole(j, sizes)
            above = above + space.terms[name].room(tiles.__getitem__, space.widths[name])
        inner, used = self._whole(len(self.prefix), sizes), []
        rows = sum((self._rows(one, sizes) * one.bits for one in region.running), 0.0 * self.ones)
        for i in range(len(region.members)):
            held = [n for n, (first, last) in region.held.items() if first <= i <= last]
            room = [space.terms[n].room(inner.__getitem__, space.widths[n]) for n in held]
            used.append(above + rows + sum(room, 0.0 * self.ones))
        return RegionTiles(self.axes, used, self._legal(), [self._again(one.over) for one in region.running])

    def _whole(self, j: int, sizes: Sequence[AnyArray]) -> list[AnyArray]:
        """Tile sizes of node j, those not cut yet whole."""
        names = self.space.shared
        return [
            self._spread(v, (r, n)) if (n := self.versions[j][r]) else self.ones * self.space.sizes[names[r]] for r, v in enumerate(sizes)
        ]

    def _rows(self, one: RunningRows, sizes: Sequence[AnyArray]) -> Floats:
        """Rows of an intermediate whose statistics are carried: of the tile within the outermost loop along the rows, none where they are
        never cut. Loops above one node may lie in any order, so those along the rows lie innermost."""
        space, rank, total = self.space, self._rank(one.over), 0.0 * self.ones
        for j in reversed(range(len(self.versions))):
            if rank is not None and self.versions[j][rank] > (self.versions[j - 1][rank] if j else 0):
                count = self._spread(space.axes[rank].count, (rank, self.versions[j][rank]))
                tiles, rows = self._whole(j, sizes), space.rows_width(one) * self.ones
                for r, has in enumerate(space.has(space.of[one.of])):
                    rows = rows * tiles[r] if has and r != rank else rows
                total = np.where(count > 1, rows, total)
        return total

    def _rank(self, name: str) -> int | None:
        """Number of the shared rank that is called so."""
        return next((r for r, g in enumerate(self.space.shared) if name in self.space.parts[g]), None)

    def _again(self, over: str) -> Floats:
        """Tiles of a row beyond the first, which the statistics are carried to."""
        rank = self._rank(over)
        if rank is None:
            return 0.0 * self.ones
        return self._spread(self.space.axes[rank].count, (rank, self.versions[-1][rank])) - self.ones

    def _legal(self) -> Bools:
        """Which tiles nest in those above them."""
        legal = self.ones.astype(bool)
        for r, v in self.axes:
            if (r, v + 1) in self.at:
                nested = self.space.axes[r].below.T[np.ix_(self.picks[self.at[r, v]], self.picks[self.at[r, v + 1]])]
                shape = [1] * len(self.axes)
                shape[self.at[r, v]], shape[self.at[r, v + 1]] = nested.shape
                legal = legal & nested.reshape(shape)
        return legal

    def exits(self, values: Floats) -> Floats:
        """Joint array of a table over the intermediates' tile."""
        picks, shape = [self.picks[self.last[r]] for r in range(len(self.space.shared))], [1] * len(self.axes)
        for r, pick in enumerate(picks):
            shape[self.last[r]] = len(pick)
        return values[np.ix_(*picks)].reshape(shape)

    def exit_tile(self, cell: Sequence[int]) -> tuple[int, ...]:
        """Number of the intermediates' tile of every shared rank, for one joint cell."""
        return tuple(int(self.picks[k][cell[k]]) for k in (self.last[r] for r in range(len(self.space.shared))))

    def node_tiles(self, cell: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Tile sizes of every shared rank at each node, for one joint cell."""
        space = self.space
        return tuple(
            tuple(
                space.sizes[g] if v == 0 else int(space.axes[r].tile[self.picks[self.at[r, v]][cell[self.at[r, v]]]])
                for r, (g, v) in enumerate(zip(space.shared, versions, strict=True))
            )
            for versions in self.versions
        )
