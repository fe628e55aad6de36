"""The least price of the tiles of a buffer, for one order of its nodes and given parts and tiles of the register files below.

Order (T1, T2, T3) of a matrix product; A, B, C are the ranks that each lacks. What may be cut (lemmas L2 and L3): B to a and C to b above
T1, A to c above T2, B once more to x above T3:

    room = bits1 a b + bits2 c b + bits3 c x,     price = f_A(c) + f_B(a, x) + f_C(b).

c and x are handed on: from (s - 1) u + 1 to a whole group s u where the register files say u (`window`), anything for the one rank that
they leave free. A larger b is never dearer, so of b the largest that fits is read from a table of least prices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.registers.rank_splits import CutPrices, RankSplits, steps


@dataclass(frozen=True)
class Registers:
    """What the register files do. free: the rank whose parts they hold as large as they come · parts: [ranks] · units: [ranks] tiles of
    one instance (0: the free rank) · cycles: [ranks] that the fullest instance may take, as far as bounds are concerned ·
    at_once: whether a tile of C that no group holds is none of the cell's, for the array would deal out larger groups."""

    free: int
    parts: tuple[int, ...]
    units: tuple[int, ...]
    cycles: tuple[float, ...] = (inf, inf, inf)
    at_once: bool = False


@dataclass(frozen=True)
class BufferTiles:
    """The tiles found: c, a, x, b of the docstring; price: of the three ranks."""

    price: float
    c: int
    a: int
    x: int
    b: int


class BufferOrder:
    """One order of the buffer's nodes. ranks: A, B, C · bits: of a word of T1, T2, T3."""

    def __init__(self, splits: list[RankSplits], ranks: tuple[int, int, int], bits: tuple[float, float, float], capacity: float) -> None:
        self.splits, self.ranks, self.bits, self.capacity = splits, ranks, bits, capacity
        self.a, self.b, self.c = (splits[r] for r in ranks)
        self._last: dict[tuple[int, int, bool, bool], Array] = {}

    # -- prices of one rank
    def _of_a(self, below: Registers, least: bool) -> tuple[Ints, Array]:
        """(tiles c, prices)."""
        rank = self.ranks[0]
        parts, unit, most = below.parts[rank], below.units[rank], below.cycles[rank]
        if rank == below.free:
            every, cut = self.a.tiles, self.a.free(parts, most)
        else:
            every, cut = self.a.handed_on(parts, unit, most)
        tiles, price = steps(every, self._side(cut, least))
        return tiles, price + self.a.prices.tile

    def _of_c(self, below: Registers, least: bool) -> Array:
        """[tiles b] least price of every smaller one."""
        rank = self.ranks[2]
        parts, unit, most = below.parts[rank], below.units[rank], below.cycles[rank]
        at_once = below.at_once and not least and rank != below.free
        key = (parts, unit, least, at_once)
        if key in self._last and most == inf:
            return self._last[key]
        if rank == below.free:
            price = self._side(self.c.free(parts, most), least) + self.c.prices.tile * self.c.count
        else:
            price = self._side(self.c.cut(parts, unit, most), least)
        if at_once:
            price = np.where(self.c.tiles > parts * unit, np.inf, price)
        found: Array = np.minimum.accumulate(price)
        if most == inf:
            self._last[key] = found
        return found

    @staticmethod
    def _side(cut: CutPrices, least: bool) -> Array:
        return cut.least if least else cut.exact

    # -- prices of all three
    def _total(self, below: Registers, least: bool, a: Ints, x: int | Ints, of_b: Array) -> tuple[Ints, Array]:
        """(tiles c, price [c, ...]) with a, x and the price of B as arrays."""
        c, of_a = self._of_a(below, least)
        one = (-1, *[1] * of_b.ndim)
        table = self._of_c(below, least)
        at = self.c.place(self._largest(c.reshape(one), a, x))
        return c, of_a.reshape(one) + of_b + np.where(at >= 0, table[np.maximum(at, 0)], np.inf)

    def _largest(self, c: Ints, a: Ints, x: int | Ints) -> Array:
        """The largest b that fits."""
        one, two, three = self.bits
        return np.asarray((self.capacity - three * c * x) / (one * a + two * c))

    def _handed_on(self, below: Registers) -> tuple[Ints, Array]:
        """(tiles x, price at least of their groups and parts); a free x stands for all of its count."""
        rank = self.ranks[1]
        parts, unit, most = below.parts[rank], below.units[rank], below.cycles[rank]
        if rank == below.free:
            on = self.b.corners
            price = np.minimum.reduceat(self.b.free(parts, most).least, on)
            return self.b.tiles[on[np.isfinite(price)]], price[np.isfinite(price)]
        tiles, (_, price) = self.b.handed_on(parts, unit, most)
        return tiles[np.isfinite(price)], price[np.isfinite(price)]

    def rough(self, below: Registers, known: float = inf) -> float:
        """No tiles that cost up to `known` cost less: groups and parts without a ragged one."""

        def side(split: RankSplits, rank: int) -> tuple[Ints, Ints, Array | float]:
            """(tiles, handed on, price of groups and parts)."""
            corner = split.tiles[split.corners]
            if rank == below.free:
                return corner, corner, split.least_free(below.parts[rank], below.cycles[rank])
            low = min(split.size, split.least_held(below.parts[rank], below.units[rank]))
            return corner, np.array([low]), split.ideal(below.parts[rank], below.units[rank])

        (_, c, of_a), (a, x, of_x), (_, _, of_c) = (side(s, r) for s, r in zip((self.a, self.b, self.c), self.ranks, strict=True))
        of_c = np.append(np.minimum.accumulate(self.c.prices.tile * self.c.count[self.c.corners] + of_c), inf)
        of_a = np.broadcast_to(of_a, c.shape) + self.a.prices.tile
        of_b = self.b.prices.tile * self.b.count[self.b.corners] + np.reshape(of_x, (-1, 1))
        on = of_a <= known - of_b.min() - of_c.min()
        i, j = np.nonzero((self.b.largest >= x[:, None]) & (of_b <= known - of_a.min() - of_c.min()))
        at = self.c.corner(self._largest(c[on, None], np.maximum(a[j], x[i]), x[i]))
        return float((of_b[i, j] + of_c[at] + of_a[on, None]).min(initial=inf))

    def bound(self, below: Registers, known: float = inf) -> float:
        """No tiles cost less, however often their ranks are cut; told by ranges of tiles alone where these are above `known`."""
        if not self.b.perfect and (found := self._by_ranges(below, known)) > known:
            return found
        return self._by_tiles(below)

    def _by_ranges(self, below: Registers, known: float) -> float:
        """`bound` of ranges of tiles that may cost up to `known`, each priced as its last, with the room of its first."""
        (c, of_a), (a, x, of_b), (place, of_c) = self._of_a(below, True), self._ranges_of_b(below), self._ranges_of_c(below)
        if not len(c) or not len(a):
            return inf
        on, few = of_a <= known - of_b.min() - of_c.min(), of_b <= known - of_a.min() - of_c.min()
        at = place(self._largest(c[on, None], a[few], x[few]))
        return float((of_a[on, None] + of_b[few] + of_c[at]).min(initial=inf))

    def _ranges_of_b(self, below: Registers) -> tuple[Ints, Ints, Array]:
        """(first tiles a of ranges, what is handed on, price)."""
        rank = self.ranks[1]
        x, of_x = self._handed_on(below)
        if rank != below.free:
            a, price = steps(self.b.ranges[0], self.b.cut_at_least(below.parts[rank], below.units[rank], below.cycles[rank]))
            return np.maximum(a, x[:1]), np.full(len(a), x[0] if len(x) else 0), price
        corner = self.b.tiles[self.b.corners]
        i, j = np.nonzero(self.b.largest >= x[:, None])
        return np.maximum(corner[j], x[i]), x[i], self.b.prices.tile * self.b.count[self.b.corners[j]] + of_x[i]

    def _ranges_of_c(self, below: Registers) -> tuple[Callable[[Array], Ints], Array]:
        """(number of the range of each tile b, [ranges, -1: none] least price of every smaller one)."""
        rank = self.ranks[2]
        parts, unit, most = below.parts[rank], below.units[rank], below.cycles[rank]
        if rank == below.free:
            place, price = self.c.corner, self.c.least_free(parts, most) + self.c.prices.tile * self.c.count[self.c.corners]
        else:
            place, price = self.c.range_at, self.c.cut_at_least(parts, unit, most)
        return place, np.append(np.minimum.accumulate(price), inf)

    def _by_tiles(self, below: Registers) -> float:
        """`bound` of every tile."""
        x, of_x = self._handed_on(below)
        rank = self.ranks[1]
        if rank == below.free:
            a = self.b.tiles[self.b.corners]
            of_b = np.where(a >= x[:, None], self.b.prices.tile * self.b.count[self.b.corners] + of_x[:, None], np.inf)
            return float(self._total(below, True, a, x[:, None], of_b)[1].min(initial=np.inf))
        a, of_b = steps(self.b.tiles, self.b.cut(below.parts[rank], below.units[rank], below.cycles[rank]).least)
        return float(self._total(below, True, a, int(x[0]), of_b)[1].min(initial=np.inf))

    def best(self, below: Registers, known: float) -> tuple[BufferTiles | None, float]:
        """(the best tiles below `known`, what those that were not spelled out cost at least)."""
        found, left = None, float("inf")
        for x, of_x in zip(*self._handed_on(below), strict=True):
            least = self._least_with(below, int(x), float(of_x))
            if least >= known:
                continue
            one = self._spelled(below, int(x))
            if one is not None and one.price < known:
                found, known = one, one.price
            if not self.b.perfect and (one is None or one.price > least):
                left = min(left, least)
        return found, left

    def least(self, below: Registers) -> float:
        """As `bound`, and closer: the least over everything that may be handed on."""
        return min((self._least_with(below, int(x), float(of_x)) for x, of_x in zip(*self._handed_on(below), strict=True)), default=inf)

    def _unit(self, below: Registers, x: int) -> tuple[int, int]:
        """(parts, tile of one instance) of the rank B, handed on as x."""
        rank = self.ranks[1]
        return below.parts[rank], below.units[rank] or -(-x // below.parts[rank])

    def _least_with(self, below: Registers, x: int, of_x: float) -> float:
        """A bound of every mapping that hands on x."""
        rank = self.ranks[1]
        parts, unit = self._unit(below, x)
        of_b = self.b.prices.tile * self.b.count + of_x
        if rank != below.free:
            of_b = np.maximum(of_b, self.b.cut(parts, unit).least)
        if rank != below.free and self.b.listed:
            of_b[-1] = self.b.nested(self.b.tiles[-1:], x, unit)[0]  # whole at the second node: one cut is left
        a, of_b = steps(self.b.tiles, np.where(self.b.tiles >= x, of_b, np.inf))
        return float(self._total(below, True, a, x, of_b)[1].min(initial=np.inf))

    def _spelled(self, below: Registers, x: int) -> BufferTiles | None:
        """The best of single cuts that hand on x."""
        _, unit = self._unit(below, x)
        a = self.b.tiles[self.b.tiles >= x]
        a = a[a % x == 0] if self.b.perfect else a
        a, of_b = steps(a, self.b.nested(a, x, unit))
        c, total = self._total(below, False, a, x, of_b)
        if not np.isfinite(total).any():
            return None
        i, j = np.unravel_index(int(total.argmin()), total.shape)
        table, most = self._of_c(below, False), int(self.c.place(self._largest(c[i], a[j], x)))
        b = int(self.c.tiles[np.flatnonzero(table == table[most])[0]])
        return BufferTiles(float(total[i, j]), int(c[i]), int(a[j]), x, b)
