"""Tiles of one rank for perfect factors: the divisors of its size, laid out by their prime exponents.

Index = mixed-radix exponents (one digit a prime), so "divides" is coordinate-wise <= and "best over all divisors" is
`minimum.accumulate` along every digit.
"""

import itertools
from functools import cached_property
from math import prod

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.problem import NestFan
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis

SLICED = 10_000  # cells from which slices beat numpy's accumulate, two to four times


def factorize(n: int) -> list[tuple[int, int]]:
    """Prime factors of n as (prime, exponent), ascending; [] for 1."""
    factors, p = [], 2
    while p * p <= n:
        e = 0
        while n % p == 0:
            n, e = n // p, e + 1
        if e:
            factors.append((p, e))
        p += 1
    return [*factors, (n, 1)] if n > 1 else factors


def coarse_factors(size: int, most: int) -> list[tuple[int, int]]:
    """(base, exponent) of `size` with at most `most` products: single bases are joined, small ones last, then powers."""
    factors = factorize(size)
    while prod(e + 1 for _, e in factors) > most and len(factors) > 1:
        single = sorted(base for base, e in factors if e == 1)
        if len(single) > 1:
            joined = set(single[:2] if single[0] > 3 or len(single) == 2 else single[1:3])
        else:
            base, e = max((f for f in factors if f[1] > 1), key=lambda f: f[0])
            factors = [(base**e, 1) if f[0] == base else f for f in factors]
            continue
        factors = sorted([f for f in factors if f[0] not in joined] + [(prod(joined), 1)])
    return factors if len(factors) != 1 else [_coarse_power(*factors[0], most)]


def _coarse_power(base: int, exponent: int, most: int) -> tuple[int, int]:
    """A power in steps of an equal factor, at most `most` of them with 1: 2^12 as 8^4 where 5 are allowed."""
    steps = max(n for n in range(1, exponent + 1) if exponent % n == 0 and n < max(most, 2))
    return base ** (exponent // steps), steps


def _least_so_far(array: Array, axis: int) -> None:
    """array[i] = min(array[..i]) along an axis, in place: a digit has few values, so that slices of a large array are the faster way."""
    if array.size < SLICED:
        np.minimum.accumulate(array, axis=axis, out=array)
        return
    slices = np.moveaxis(array, axis, 0)
    for before, here in itertools.pairwise(slices):
        np.minimum(before, here, out=here)


class DivisorAxis(TileAxis):
    """Divisors of `size`. factors: (base, exponent), coprime bases; primes: every divisor · dims: one digit a base; a footprint
    counts the tile itself."""

    aligned = True

    def __init__(self, size: int, factors: list[tuple[int, int]] | None = None) -> None:
        self.size = size
        self.factors = factorize(size) if factors is None else factors
        self.dims = tuple(e + 1 for _, e in self.factors) or (1,)
        tile = np.ones(1, dtype=np.int64)
        for p, e in self.factors:
            tile = np.multiply.outer(tile, np.array([p**i for i in range(e + 1)], dtype=np.int64)).ravel()
        self.tile, self.low = tile, tile
        self.index = {int(v): i for i, v in enumerate(tile)}
        self.top = len(tile) - 1

    def box(self, size: int) -> "DivisorAxis":
        """The tiles that divide `size`, which is one of them."""
        digits = np.unravel_index(self.index[size], self.dims)
        return DivisorAxis(size, [(base, int(n)) for (base, _), n in zip(self.factors, digits, strict=False) if n])

    @cached_property
    def count(self) -> Array:
        """[n] tiles of the whole rank."""
        return (self.size // self.tile).astype(float)

    @cached_property
    def below(self) -> Bools:
        """[inner, outer] True where the inner tile divides the outer one."""
        return np.asarray(self.tile[None, :] % self.tile[:, None] == 0)

    def below_of(self, inner: TileAxis) -> Bools:
        """As `below`, with the inner tiles taken from a coarser (boxed) axis."""
        return np.asarray(self.tile[None, :] % inner.tile[:, None] == 0)

    def zeta(self, array: Array, axis: int) -> Array:
        """min over the divisors of every cell, along one numpy axis; a new array."""
        shape = array.shape
        least = array.copy()
        digits = least.reshape(shape[:axis] + self.dims + shape[axis + 1 :])  # a view
        for d in range(len(self.dims)):
            _least_so_far(digits, axis + d)
        return least

    def parts(self, fan: NestFan) -> list[int]:
        """Numbers of parts the rank may be cut into: its divisors."""
        return sorted(int(t) for t in self.tile)

    def allows(self, i: int, s: int, leaf: int) -> bool:
        """Tile number i can be cut into s parts of whole leaves."""
        return int(self.tile[i]) % (s * leaf) == 0

    def numbers(self, sizes: Ints) -> Ints:
        """Numbers of the tiles of these sizes, divisors all."""
        order = np.argsort(self.tile)
        found: Ints = order[np.searchsorted(self.tile, sizes, sorter=order)]
        return found

    def clamp(self, box: TileAxis) -> Ints:
        """[n] index in `box` of the largest value of `box` that divides the tile."""
        return np.array([box.index[int(v)] for v in np.gcd(self.tile, box.size)])
