"""Tile axes for ceil factors: a list of tiles whose inner ones divide outer ones, and buckets for the relaxation.

In the divisible-inner space the outermost cut of a rank may be any listed tile, every further tile divides the one
above; then the nested count of a tile u is ceil(D / u), and of a spatial group s u it is ceil(D / (s u)).
Dropping divisibility (any monotone tiles) only lowers these counts' cost: the relaxation. A bucket [lo, hi] of tiles
counts with hi and takes room with lo, so the relaxation over buckets bounds every mapping from below.
"""

from copy import copy
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.problem import NestFan, NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.divisor_axis import factorize
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis

RATIOS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 3.0, 4.0, 8.0, 16.0)  # of the counts of neighbouring buckets


def divisors(n: int) -> list[int]:
    """Divisors of n, ascending."""
    found = [1]
    for p, e in factorize(n):
        found = [d * p**k for d in found for k in range(e + 1)]
    return sorted(found)


def candidate_tiles(size: int, budget: int) -> list[int]:
    """Tiles tried for a rank: all up to `size` if they fit the budget, else divisors of the size and of padded sizes.

    Padded sizes are taken by (waste of the padding, fewest divisors) while the budget holds. Closed under division
    except at the top.
    """
    if size <= budget:
        return list(range(1, size + 1))
    chosen = {1, size}
    pads = []
    for padded in range(size, size + max(2, size // 16) + 1):
        ds = [d for d in divisors(padded) if d < size]
        pads.append((-len(ds) / (1 + 24.0 * (padded - size) / size), padded, ds))
    for _, _, ds in sorted(pads):
        if len(chosen | set(ds)) <= budget:
            chosen |= set(ds)
    if len(chosen) == 2:
        chosen |= {2**k for k in range(size.bit_length()) if 2**k < size}
    return sorted(chosen)


class ListAxis(TileAxis):
    """Listed tiles, ascending, multiples of `leaf`, the last one the whole rank (`top`); below as in the docstring.

    apart: each number of parts that is tried is at least so many times the one before.
    """

    aligned = False

    def __init__(self, size: int, budget: int, leaf: int = 1, apart: int = 1) -> None:
        self.size, self.leaf, self.apart = size, leaf, apart
        units = candidate_tiles(-(-size // leaf), budget)
        self.units = np.array(units, dtype=np.int64)
        self.tile = np.minimum(self.units * leaf, size)
        self.low = self.tile
        self.top = len(units) - 1
        self.index = {int(v): i for i, v in enumerate(self.tile)}

    @cached_property
    def count(self) -> Array:
        """[n] tiles of the whole rank, the ragged one included."""
        return (-(-self.size // self.tile)).astype(float)

    def served(self, spatial: Ints) -> Array:
        """[S, n] groups of s tiles."""
        return (-(-self.size // (spatial[:, None] * self.tile[None, :]))).astype(float)

    @cached_property
    def below(self) -> Bools:
        """[inner, outer] True where the inner tile divides the outer one, or the outer one is the whole rank."""
        nest: Bools = self.units[None, :] % self.units[:, None] == 0
        nest[:, self.top] = True
        return nest

    def zeta(self, array: Array, axis: int) -> Array:
        """Least value over the tiles that nest in each one, along one numpy axis; a new array."""
        moved = np.moveaxis(array, axis, 0)
        out = np.stack([moved[self.below[:, j]].min(axis=0) for j in range(len(self))])
        return np.moveaxis(out, 0, axis)

    def entries(self, x: int, s: int) -> list[int]:
        """Tiles that may enter an instance when tile x is cut into s parts, all of them used."""
        if x == self.top:
            if s == 1:
                return [self.top]
            return [i for i, v in enumerate(self.tile) if (s - 1) * int(v) < self.size and i != self.top]
        unit, rest = divmod(int(self.units[x]), s)
        return [self.index[unit * self.leaf]] if rest == 0 and unit * self.leaf in self.index else []

    def shift(self, array: Array, axis: int, s: int) -> Array:
        """[x] least value over the tiles x / s may be."""
        if s == 1:
            return array
        moved = np.moveaxis(array, axis, 0)
        out = np.full(moved.shape, np.inf)
        for x in range(len(self)):
            ys = self.entries(x, s)
            if ys:
                out[x] = moved[ys].min(axis=0)
        return np.moveaxis(out, 0, axis)

    def allows(self, i: int, s: int, leaf: int) -> bool:
        """Can tile number i be cut into s parts of whole leaves?"""
        return bool(self.holds(s, leaf)[i])

    def holds(self, s: int, leaf: int) -> Bools:
        """[n] tiles that s parts of one leaf fit (all parts used)."""
        fits: Bools = self.units % s == 0
        fits[self.top] = (s - 1) * leaf < self.size
        return fits

    def parts(self, fan: NestFan) -> list[int]:
        """Numbers of parts tried: all for a small fanout, else what divides it, and 2 and 3, so far `apart`; any for a linear fan."""
        most = -(-self.size // self.leaf)
        if fan.linear:
            return sorted({int(u) for u in self.units} | {-(-most // int(u)) for u in self.units})
        if fan.size <= 64:
            return list(range(1, min(fan.size, most) + 1))
        found = [1]
        for d in sorted({2, 3} | {a * b for a in divisors(fan.x) for b in divisors(fan.y)}):
            if max(self.apart * found[-1], 2) <= d <= most:
                found.append(d)
        return found

    def unit_box(self) -> "ListAxis":
        """The axis of a table that is the same for every tile: one leaf."""
        box = copy(self)
        box.units, box.tile, box.low = np.array([1]), self.tile[:1], self.low[:1]
        box.top, box.index = 0, {int(self.tile[0]): 0}
        for name in ("below", "count"):
            box.__dict__.pop(name, None)
        return box

    def clamp(self, box: TileAxis) -> Ints:
        """[n] cell of the box for every tile."""
        return np.zeros(len(self), dtype=np.int64) if len(box) == 1 else np.arange(len(self))

    def below_of(self, inner: TileAxis) -> Bools:
        """[inner, outer] nesting of a boxed axis: one leaf nests everywhere."""
        return np.ones((len(inner), len(self)), dtype=bool)


def whole_axes(problem: NestProblem, machine: NestMachine) -> list[ListAxis]:
    """Of every rank one instruction's tile and the whole: of a space whose tiles are not listed."""
    return [ListAxis(n, 2, machine.compute.atom.get(r, 1)) for r, n in problem.sizes.items()]


class BucketAxis(ListAxis):
    """Buckets of tiles [low, tile]: counts with the high end, room with the low end, nesting wherever possible."""

    def __init__(self, size: int, buckets: int, leaf: int = 1) -> None:
        self.size, self.leaf = size, leaf
        whole = -(-size // leaf)
        steps = np.unique(np.round(whole ** (np.arange(buckets) / max(1, buckets - 1))).astype(np.int64))
        low = np.unique(np.concatenate([[1], steps[steps < whole], [whole]]))
        high = np.append(low[1:] - 1, whole)
        high = np.maximum(high, low)
        self.low = np.minimum(low * leaf, size)
        self.tile = np.minimum(high * leaf, size)
        self.units = high
        self.top = len(low) - 1
        self.index = {int(v): i for i, v in enumerate(self.tile)}

    @cached_property
    def below(self) -> Bools:
        """[inner, outer] True where some inner tile is no larger than some outer one."""
        return np.triu(np.ones((len(self), len(self)), dtype=bool))

    def zeta(self, array: Array, axis: int) -> Array:
        """Least value over the buckets up to each one."""
        return np.minimum.accumulate(array, axis=axis)

    def entries(self, x: int, s: int) -> list[int]:
        """The largest bucket that may enter an instance when a tile of bucket x is cut into s parts."""
        if s == 1:
            return [x]
        fits = [i for i in range(x + 1) if (s - 1) * int(self.low[i]) < int(self.tile[x])]
        return fits[-1:]

    def shift(self, array: Array, axis: int, s: int) -> Array:
        """[x] least value over the tiles x / s may be."""
        if s == 1:
            return array
        source = [self.entries(x, s)[0] if self.entries(x, s) else -1 for x in range(len(self))]
        moved = np.minimum.accumulate(np.moveaxis(array, axis, 0), axis=0)
        out = np.where((np.array(source) >= 0).reshape(-1, *[1] * (moved.ndim - 1)), moved[np.array(source)], np.inf)
        return np.moveaxis(out, 0, axis)

    def holds(self, s: int, leaf: int) -> Bools:
        """[n] buckets with a tile that s parts of one leaf fit."""
        return np.asarray((s - 1) * leaf < self.tile)


class CountAxis(BucketAxis):
    """Buckets of tiles by how many there are of the whole rank: few tiles each in a bucket of their own, more together, so that a bucket
    is exact where it matters most. buckets: of them at most, about."""

    def __init__(self, size: int, buckets: int) -> None:
        self.size, self.leaf = size, 1
        starts = next(found for ratio in RATIOS if len(found := self._starts(size, ratio)) <= buckets or ratio == RATIOS[-1])
        least = [-(-size // (after - 1)) for after in (*starts[1:], size + 1)]
        most = [size, *(-(-size // (n - 1)) - 1 for n in starts[1:])]
        both = sorted((low, high) for low, high in zip(least, most, strict=True) if low <= high)
        self.low, self.tile = (np.array(ends, dtype=np.int64) for ends in zip(*both, strict=True))
        self.units, self.top = self.tile, len(both) - 1
        self.index = {int(v): i for i, v in enumerate(self.tile)}

    @staticmethod
    def _starts(size: int, ratio: float) -> list[int]:
        """Fewest tiles of each bucket."""
        found = [1]
        while found[-1] < size:
            found.append(min(size, max(found[-1] + 1, int(found[-1] * ratio))))
        return found
