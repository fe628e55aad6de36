"""One rank of a matrix product cut for a buffer and an array of register files: what every tile costs, and at least costs.

A chain D → a → x → groups of s parts of u. Priced are the tiles a (n of them), the groups (what the buffer serves) and the parts (what
the register files take in). Cut once, all three follow from a. However often the rank is cut on the way, n tiles no larger than a hold
n G groups of g = s u without a ragged one, G = floor(a / g); what is left of D takes one more group for every a - G g, and each tile at
least one. That bounds groups, and with u for g the parts, from below for every n: exactly for the least n = ceil(D / a), and for larger
n as real numbers, where the price is convex and its corners are known. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.mapspace.list_axes import divisors
from rackmodel.once import once

TINY = 1e-9
EVERY = slice(None)
NARROW = 1.01  # last tile of a range, of the first


class SplitPrices(NamedTuple):
    """Price of a tile of the buffer, of a group, and of a part."""

    tile: float
    group: float
    part: float


class CutPrices(NamedTuple):
    """Of every tile: price where it is the only cut, price at least however often the rank is cut above it (inf: not allowed)."""

    exact: Array
    least: Array


class Held(NamedTuple):
    """Whole pieces of `unit` that every tile holds: their number, full: what they cover, over: the rest of the tile, above 0."""

    unit: int
    number: Ints
    full: Ints
    over: Array

    @classmethod
    def of(cls, tiles: Ints, unit: int) -> Held:
        """Of ascending tiles."""
        number = tiles // unit
        full = number * unit
        return cls(unit, number, full, np.maximum(tiles - full, TINY))


class RankSplits:
    """A rank of `size` under SplitPrices; perfect: only divisors. tiles: every tile there may be, ascending · listed: whether chains of
    tiles are all there is · slack: how many times the fewest cycles, size / parts, those of interest may last, where nothing is said."""

    listed, slack = True, inf

    def __init__(self, size: int, prices: SplitPrices, perfect: bool) -> None:
        self.size, self.prices, self.perfect = size, prices, perfect
        self.tiles: Ints = np.array(divisors(size)) if perfect else np.arange(1, size + 1)
        self._cuts: dict[tuple[int, int, bool], CutPrices] = {}
        self._least: dict[tuple[int, int], Array] = {}
        self._free: dict[int, CutPrices] = {}

    @cached_property
    def count(self) -> Array:
        """Tiles of the whole rank."""
        return np.asarray(-(-self.size // self.tiles), dtype=float)

    @cached_property
    def corners(self) -> Ints:
        """Numbers of the tiles that are least for their count."""
        return np.flatnonzero(np.diff(self.count, prepend=np.inf) < 0)

    def place(self, tile: Array) -> Ints:
        """Number of the largest tile no larger than each; -1: none."""
        if not self.perfect:
            return np.asarray(np.clip(tile + TINY, 0, self.size).astype(int) - 1)
        return np.asarray(np.searchsorted(self.tiles, tile + TINY, side="right") - 1)

    @cached_property
    def _corner_of(self) -> Ints:
        """[-1: none; tiles] number of the corner of the same count."""
        return np.append(np.cumsum(np.diff(self.count, prepend=np.inf) < 0) - 1, -1)

    def corner(self, tile: Array) -> Ints:
        """Number of the largest corner no larger than each; -1: none."""
        return self._corner_of[self.place(tile)]

    @cached_property
    def _range_of(self) -> Ints:
        """[tiles, -1: none] number of the range."""
        return np.append(np.repeat(np.arange(len(self.ranges[0])), self.ranges[1] - self.ranges[0] + 1), -1)

    def range_at(self, tile: Array) -> Ints:
        """Number of the range of the largest tile no larger than each; -1: none."""
        return self._range_of[self.place(tile)]

    @cached_property
    def largest(self) -> Ints:
        """The largest tile of the count of every corner."""
        return self.tiles[self.corners] if self.perfect else np.append(self.tiles[self.corners][1:] - 1, self.size)

    def ideal(self, parts: int, unit: int) -> float:
        """Price of groups and parts where none is ragged but the last."""
        return float(self.prices.group * -(-self.size // (parts * unit)) + self.prices.part * -(-self.size // unit))

    def least_free(self, parts: int, cycles: float = inf) -> Array:
        """[corners] price of groups and parts at least where every tile is handed on as one group."""
        count = self.count[self.corners]
        units = np.maximum(count, -(-self.size // -(-self.largest // parts)))
        return np.asarray(self.prices.group * count + self.prices.part * units)

    def least_held(self, parts: Any, unit: Any) -> Any:
        """The smallest tile that keeps all parts at work; numbers or arrays."""
        return parts * unit if self.perfect else np.maximum((parts - 1) * unit + 1, unit)

    def dealt(self, parts: int, unit: int) -> Ints:
        """Tiles that an array may deal out in one group or several, all parts at work."""
        on = self.tiles % (parts * unit) == 0 if self.perfect else self.tiles >= min(self.size, self.least_held(parts, unit))
        return np.asarray(self.tiles[on])

    def around(self, tile: int) -> Ints:
        """Tiles that may be cut to `tile`."""
        return np.asarray(self.tiles[self.tiles % tile == 0 if self.perfect else self.tiles >= tile])

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        """(first tiles, last tiles) of ranges of one count each, whose last is at most NARROW times the first; of tiles of any size."""
        whole = zip(self.tiles[self.corners].tolist(), self.largest.tolist(), strict=True)
        cut = [(first, last) for low, high in whole for first, last in _narrow(low, high)]
        return np.array([first for first, _ in cut]), np.array([last for _, last in cut])

    def cut(self, parts: int, unit: int, cycles: float = inf) -> CutPrices:
        """Prices of every tile that is cut into groups of `parts` times `unit`; cycles: that the fullest instance may take."""
        return self._known(parts, unit, self.prices.tile, cycles, EVERY)

    def cut_at_least(self, parts: int, unit: int, cycles: float) -> Array:
        """[ranges] price at least of every tile of a range, and of smaller ones."""
        if cycles < inf:
            return self._cut(parts, unit, self.prices.tile, cycles, self.ranges[1] - 1).least
        return once(self._least, (parts, unit), lambda: self._cut(parts, unit, self.prices.tile, inf, self.ranges[1] - 1).least)

    def handed_on(self, parts: int, unit: int, cycles: float) -> tuple[Ints, CutPrices]:
        """(tiles that are handed on as one group, all parts at work; their prices as `cut` says them, the tiles not priced)."""
        low = min(self.size, int(self.least_held(parts, unit)))
        first, last = np.searchsorted(self.tiles, [low, max(low, parts * unit) + 1])
        return self.tiles[first:last], self._known(parts, unit, 0.0, cycles, slice(first, last))

    def _known(self, parts: int, unit: int, each: float, cycles: float, some: slice) -> CutPrices:
        """As `_cut`, remembered where cycles are not limited."""
        if cycles < inf:
            return self._cut(parts, unit, each, cycles, some)
        return once(self._cuts, (parts, unit, some is EVERY), lambda: self._cut(parts, unit, each, inf, some))

    def _cut(self, parts: int, unit: int, each: float, cycles: float, some: slice | Ints) -> CutPrices:
        """Of some of the tiles, each of a price of its own."""
        size, tiles, count, group = self.size, self.tiles[some], self.count[some], parts * unit
        full, rest = np.divmod(size, tiles)
        groups, units = (full * -(-tiles // x) + -(-rest // x) for x in (group, unit))
        exact = each * count + self.prices.group * groups + self.prices.part * units
        legal = tiles % group == 0 if self.perfect else tiles >= self.least_held(parts, unit)
        exact = np.where(legal, exact, np.inf)
        if self.perfect:
            return CutPrices(exact, exact)
        few = self._fewest_tiles(parts, unit, cycles)[some]
        held = [Held.of(tiles, x) for x in (group, unit)]
        least = np.where(few <= count, self._at_least(count, held, each, whole=True), np.inf)
        for corner in (few, *(size / np.maximum(pieces.full, TINY) for pieces in held)):
            more = np.clip(corner, np.maximum(few, count + 1), max(size, 2))
            least = np.minimum(least, self._at_least(more, held, each, whole=False))
        return CutPrices(exact, np.where(legal & (few <= size), np.minimum(least, np.where(few <= count, exact, np.inf)), np.inf))

    def _fewest_tiles(self, parts: int, unit: int, cycles: float) -> Array:
        """Tiles no larger than each tile t, as real numbers, that may last so many cycles. A tile of extent e lasts at least
        k e - G (k g - u) for g = s u, G = floor(t / g) and k = min(1, u / (t - G g)): n of them k D - n G (k g - u)."""
        if cycles == inf:
            return self.count
        group, size = parts * unit, self.size
        held = self.tiles // group
        steep = np.minimum(1.0, unit / np.maximum(self.tiles - held * group, TINY))
        over, each = steep * size - cycles * (1 + TINY), held * (steep * group - unit)
        few = np.where(over <= 0, 0.0, np.where(each > 0, over / np.maximum(each, TINY), np.inf))
        return np.asarray(np.maximum(self.count, np.where(few <= self.count * (1 + TINY), 0.0, few)))

    def _at_least(self, n: Array, held: list[Held], each: float, whole: bool) -> Array:
        """Price of n tiles no larger than each tile, which hold groups and parts; whole: in whole ones."""

        def pieces(of: Held) -> Array:
            left = np.maximum(0.0, self.size - n * of.full)
            more, ideal = left / of.over, self.size / of.unit
            if whole:
                more, ideal = np.ceil(more - TINY), np.ceil(ideal)
            return np.maximum(np.maximum(ideal, n), np.where(left > 0, n * of.number + more, 0.0))

        groups, units = (pieces(of) for of in held)
        return np.asarray(each * n + self.prices.group * groups + self.prices.part * units)

    def nested(self, outer: Ints, inner: int, unit: int) -> Array:
        """Price of D → outer → inner → units, inner no larger than a group."""
        full, rest = np.divmod(self.size, outer)

        def pieces(extent: Ints) -> tuple[Ints, Ints]:
            return -(-extent // inner), extent // inner * -(-inner // unit) + -(-(extent % inner) // unit)

        (one, units), (last, last_units) = pieces(outer), pieces(rest)
        groups = full * one + last
        return np.asarray(
            self.prices.tile * -(-self.size // outer) + self.prices.group * groups + self.prices.part * (full * units + last_units)
        )

    def free(self, parts: int, cycles: float = inf) -> CutPrices:
        """Prices of groups and parts where every tile is handed on as one group, its parts as large as they come, whatever that lasts."""
        if parts not in self._free:
            tiles, unit = self.tiles, -(-self.tiles // parts)
            full, rest = np.divmod(self.size, tiles)
            legal = tiles % parts == 0 if self.perfect else -(-tiles // unit) == parts
            units = full * -(-tiles // unit) + -(-rest // unit)
            exact = self.prices.group * self.count + self.prices.part * units
            least = self.prices.group * self.count + self.prices.part * np.maximum(self.count, -(-self.size // unit))
            self._free[parts] = CutPrices(*(np.where(legal, price, np.inf) for price in (exact, least)))
        return self._free[parts]


class TimedSplits(RankSplits):
    """A tile may be dealt out in parts of any size: groups no larger than it that last C cycles in all have size^2 / (tile C) parts at
    least."""

    def least_free(self, parts: int, cycles: float | None = None) -> Array:
        """As before."""
        count = self.count[self.corners]
        units = self._fewest_parts(count, self.largest, self.slack * self.size / parts if cycles is None else cycles)
        return np.asarray(self.prices.group * count + self.prices.part * units)

    def _fewest_parts(self, count: Array, tile: Ints, cycles: float) -> Array:
        return np.asarray(np.maximum(count, np.ceil(self.size / tile * (self.size / cycles) - TINY)))

    def free(self, parts: int, cycles: float = inf) -> CutPrices:
        """As before, the least prices in parts of any size; the exact ones are those of the largest parts."""
        legal = -(-self.tiles // -(-self.tiles // parts)) == parts
        least = self.prices.group * self.count + self.prices.part * self._fewest_parts(self.count, self.tiles, cycles)
        return CutPrices(super().free(parts).exact, np.where(legal, least, np.inf))


def _narrow(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Ranges of the tiles from low to high."""
    while low <= high:
        last = min(high, max(low, int(low * NARROW)))
        yield low, last
        low = last + 1


def steps(tiles: Ints, price: Array) -> tuple[Ints, Array]:
    """(tiles, prices) of those that cost less than every smaller one."""
    lowest = np.minimum.accumulate(np.append(np.inf, price))
    on = np.flatnonzero(price < lowest[:-1])
    return tiles[on], price[on]
