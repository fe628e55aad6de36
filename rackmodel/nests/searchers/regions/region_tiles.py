"""Above the branches of a region: orders of outer tensors (prefixes), and every tile of one prefix with what it costs.

A prefix is, for each span of members, an ordered subset of the outer tensors; after it comes the tile of what lives in that span (its
core). Nodes form a tree: the first of a span follows the core of the span around it. Loops lie as in order_plan: directly above a node only
over ranks it has and the node before it lacks; above a core over any that the span's loops may cut. A version of a rank is one such cut.
Where rows of statistics take room, loops elsewhere may leave fewer rows (`every`: above any node over any rank).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import AnyArray, Array, Bools, Ints
from rackmodel.nests.region import RunningRows
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.regions.region_prefixes import Prefix
from rackmodel.nests.searchers.regions.region_space import RegionSpace


class RegionTiles(NamedTuple):
    """All tiles of one prefix: bits of level 1 taken while each member runs, at least and in fact (rows of statistics)."""

    least: list[Array]
    used: list[Array]


class PrefixTiles:
    """One prefix of a region: its tiles, and the price of its words under any prices. exits: per span and shared rank, numbers of the tiles
    that its core may have; those above are multiples, those between also divisors."""

    def __init__(self, space: RegionSpace, prefix: Prefix, exits: Sequence[Sequence[Ints]], *, every: bool = False) -> None:
        self.space, self.prefix = space, prefix
        self.nodes = [(k, name) for k, names in enumerate(prefix) for name in (*names, None)]  # (span, tensor; None: the span's core)
        self.core = [j for j, (_, name) in enumerate(self.nodes) if name is None]
        self.before = [self._before(j) for j in range(len(self.nodes))]
        self.outer: list[list[int]] = [[0] for _ in space.shared]  # of every version of a rank: the one that it cuts
        self.versions = self._versions(every)
        self.axes = [(r, v) for r, outer in enumerate(self.outer) for v in range(1, len(outer))]
        self.at = {rv: k for k, rv in enumerate(self.axes)}
        self.picks = [self._picks(r, v, [tiles[r] for tiles in exits]) for r, v in self.axes]
        self.ones: Array = np.ones([1] * len(self.axes))
        self.spent: dict[tuple[BitPrices, tuple[tuple[int, str], ...]], Array] = {}  # what was priced

    @property
    def size(self) -> float:
        """Joint cells."""
        return prod(float(len(pick)) for pick in self.picks)

    def halves(self, most: float) -> Iterator[PrefixTiles]:
        """Itself, or halves of its longest axis, and of that of each half, until no part has more joint cells than so many."""
        if self.size <= most:
            yield self
            return
        k = max(range(len(self.picks)), key=lambda axis: len(self.picks[axis]))
        for pick in np.array_split(self.picks[k], 2):
            half = copy(self)
            half.__dict__ = {name: value for name, value in self.__dict__.items() if name not in ("counts", "sizes")} | {"spent": {}}
            half.picks = [pick if axis == k else other for axis, other in enumerate(self.picks)]
            yield from half.halves(most)

    def _before(self, j: int) -> int | None:
        """The node that a node follows; none of all is before the first."""
        k = self.nodes[j][0]
        if j and self.nodes[j - 1][0] == k:
            return j - 1
        around = self.space.loops.paths[k][:-1]
        return self.core[around[-1]] if around else None

    def _versions(self, every: bool) -> list[list[int]]:
        """Per node: the version of every shared rank, which `outer` lists."""
        space, count = self.space, len(self.space.shared)
        found: list[list[int]] = []
        for (k, name), j in zip(self.nodes, self.before, strict=True):
            now, last = ([0] * count, None) if j is None else (list(found[j]), self.nodes[j][1])
            has = [True] * count if name is None or every else space.has(space.of[name])
            before = [False] * count if last is None or every else space.has(space.of[last])
            for r, outer in enumerate(self.outer):
                if space.cuts[k][r] and has[r] and not before[r]:
                    outer.append(now[r])
                    now[r] = len(outer) - 1
            found.append(now)
        return found

    def _cuts_of(self, r: int, v: int) -> list[int]:
        """The versions of a rank around one, from itself outwards."""
        found = []
        while v:
            found.append(v)
            v = self.outer[r][v]
        return found

    def _picks(self, r: int, v: int, exits: Sequence[Ints]) -> Ints:
        """Numbers of the tiles that a version may have: what lies within it divides it, it divides what lies around it."""
        below, around = self.space.axes[r].below, self._cuts_of(r, v)
        may = np.ones(len(below), dtype=bool)
        for tiles, j in zip(exits, self.core, strict=True):
            core = self.versions[j][r]
            if core == v:
                may &= _marked(tiles, len(below))
            elif core in around:
                may &= below[:, tiles].any(axis=1)
            elif v in self._cuts_of(r, core):
                may &= below[tiles].any(axis=0)
        return np.flatnonzero(may)

    def _spread(self, values: AnyArray, rv: tuple[int, int]) -> AnyArray:
        own = self.at[rv]
        return values[self.picks[own]].reshape([-1 if k == own else 1 for k in range(len(self.axes))])

    @cached_property
    def counts(self) -> list[list[Array]]:
        """Per node and shared rank: tiles of the whole rank, over the joint axes."""
        axes = self.space.axes
        return [[self._spread(axes[r].count, (r, v)) if v else self.ones for r, v in enumerate(each)] for each in self.versions]

    @cached_property
    def sizes(self) -> list[list[Array]]:
        """Per node and shared rank: the size of its tiles (of a bucket the least), over the joint axes; whole where it is not cut yet."""
        names = self.space.shared
        return [
            [
                self._spread(self.space.axes[r].low.astype(float), (r, v)) if v else self.ones * self.space.sizes[names[r]]
                for r, v in enumerate(versions)
            ]
            for versions in self.versions
        ]

    def words(self, span: int, name: str) -> Array:
        """Words that enter level 1 of a prefix tensor of a span."""
        return np.asarray(self.space.terms[name].words(self.counts[self.nodes.index((span, name))].__getitem__)) * self.ones

    def priced(self, prices: BitPrices, places: Sequence[tuple[int, str]]) -> Array:
        """Price of prefix tensors, each of a span, between levels 0 and 1."""
        key = (prices, tuple(places))
        if key not in self.spent:
            total = 0.0 * self.ones
            for span, name in places:
                each, saved = self.space.price(name, prices)
                if each or saved:
                    total = total + self.words(span, name) * each + saved
            self.spent[key] = total
        return self.spent[key]

    def times(self, i: int) -> Array:
        """How often member i runs."""
        at = self.counts[self.core[self.space.loops.span_of[i]]]
        return np.asarray(prod((at[r] for r in self.space.lacks[i]), start=self.ones))

    def tiles(self) -> RegionTiles:
        """Every tile of the prefix and the cores."""
        space, members = self.space, range(len(self.space.region.members))
        least, used = [], []
        for i in members:
            room = space.resident_bits * self.ones
            for j, (k, name) in enumerate(self.nodes):
                if name is not None and k in space.loops.around(i):
                    room = room + self._room(name, j)
            for name in space.loops.live(i):
                room = room + self._room(name, self.core[space.loops.lives[name]])
            rows = [(one, [one.bits * r for r in self._rows(one, space.loops.around(i))]) for one in space.region.running]
            least.append(room + sum((fewest for _, (fewest, _) in rows), 0.0 * self.ones))
            used.append(room + sum((held for _, (_, held) in rows), 0.0 * self.ones) if space.exact else least[-1])
        return RegionTiles(least, used)

    def _room(self, name: str, j: int) -> Array:
        """Bits of a tensor's tile at a node."""
        return np.asarray(self.space.terms[name].room(self.sizes[j].__getitem__, self.space.widths[name])) * self.ones

    def _rows(self, one: RunningRows, around: Sequence[int]) -> tuple[Array, Array]:
        """Rows of an intermediate whose statistics are carried while a member runs, at least and in fact: none where its rows are not cut
        there; in fact those of the tile within the outermost loop along the rows, and of every time that tile is made again within it.
        Loops above one node may lie in any order, so those along the rows lie innermost. around: the spans around the member."""
        rank, home = self._rank(one.over), self.core[self.space.loops.lives[one.of]]
        fewest, total = 0.0 * self.ones, 0.0 * self.ones
        if rank is None:
            return fewest, total
        for j in reversed(self.path(home)):
            above = self.before[j]
            if self.versions[j][rank] != (0 if above is None else self.versions[above][rank]):
                cut = self.counts[j][rank] > 1
                inside = self.nodes[j][0] in around
                total = np.where(cut, self._tile_rows(one, j, home) * inside, total)
                fewest = np.where(cut, self._tile_rows(one, home, home) * inside, fewest)
        return fewest, total

    def path(self, node: int) -> list[int]:
        """The nodes that one follows, outer → inner, itself the last."""
        before = self.before[node]
        return [*([] if before is None else self.path(before)), node]

    def _tile_rows(self, one: RunningRows, j: int, home: int) -> Array:
        """Rows of the tile at node j, each as often as it is made again below."""
        space = self.space
        rows: Array = space.rows_width(one) * self.ones
        for r, has in enumerate(space.has(space.of[one.of])):
            if has and self.space.shared[r] != one.over:
                rows = rows * self.sizes[j][r]
            elif r in space.lacks[space.users[one.of][0]]:
                rows = rows * self.counts[home][r] / self.counts[j][r]
        return rows

    def _rank(self, name: str) -> int | None:
        """Number of the shared rank that is called so."""
        return next((r for r, g in enumerate(self.space.shared) if name in self.space.parts[g]), None)

    def further(self, one: RunningRows) -> Array:
        """Tiles of a row beyond the first, which the statistics are carried to."""
        rank = self._rank(one.over)
        return 0.0 * self.ones if rank is None else self.counts[self.core[self.space.loops.lives[one.of]]][rank] - self.ones

    def legal(self) -> Bools:
        """Which tiles nest in those above them."""
        legal = self.ones.astype(bool)
        for r, v in self.axes:
            if outer := self.outer[r][v]:
                nested = self.space.axes[r].below.T[np.ix_(self.picks[self.at[r, outer]], self.picks[self.at[r, v]])]
                shape = [1] * len(self.axes)
                shape[self.at[r, outer]], shape[self.at[r, v]] = nested.shape
                legal = legal & nested.reshape(shape)
        return legal

    def distinct(self) -> Bools:
        """Which tiles are not those of another prefix that costs no more. Where nothing is cut between two tensors of one span, the first
        by name stands first (lemmas L2 and L3 go on from there); where nothing is cut between the last one and the core, and one member
        alone uses it, right below that core, its branch has it instead."""
        space, found = self.space, self.ones.astype(bool)
        for j, (k, name) in enumerate(self.nodes[:-1]):
            if name is None:
                continue
            after = self.nodes[j + 1][1]
            first, last = space.loops.spans[k]
            users = [i for i in space.users[name] if first <= i <= last]
            if name > after if after is not None else len(users) == 1 and space.loops.span_of[users[0]] == k:
                found = found & self._cut_after(j)
        return found

    def _cut_after(self, j: int) -> Bools:
        """Which tiles differ between a node and the next."""
        cut: Bools = ~self.ones.astype(bool)
        for r, (v, w) in enumerate(zip(self.versions[j], self.versions[j + 1], strict=True)):
            if v != w:
                outer = self._spread(np.arange(len(self.space.axes[r])), (r, v)) if v else np.array(self.space.axes[r].top)
                cut = cut | (outer != self._spread(np.arange(len(self.space.axes[r])), (r, w)))
        return cut

    def exits(self, values: Array, span: int) -> Array:
        """Joint array of a table over the tile of a span's core."""
        picks, shape = [], [1] * len(self.axes)
        for r, v in enumerate(self.versions[self.core[span]]):
            own = self.at.get((r, v))
            picks.append(np.array([self.space.axes[r].top]) if own is None else self.picks[own])
            if own is not None:
                shape[own] = len(picks[-1])
        found: Array = values[np.ix_(*picks)].reshape(shape)
        return found

    def exit_tile(self, cell: Sequence[int], span: int) -> tuple[int, ...]:
        """Number of the core's tile of every shared rank, for one joint cell."""
        found = []
        for r, v in enumerate(self.versions[self.core[span]]):
            own = self.at.get((r, v))
            found.append(self.space.axes[r].top if own is None else int(self.picks[own][cell[own]]))
        return tuple(found)

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


def _marked(numbers: Ints, count: int) -> Bools:
    """[count] which numbers are among these."""
    found = np.zeros(count, dtype=bool)
    found[numbers] = True
    return found
