"""One axis of the tile lattice a rank: the divisors of its size, and merging ranks that no tensor tells apart.

Index = mixed-radix exponents (one digit a prime), so "divides" is coordinate-wise <= and "best over all divisors" is
`minimum.accumulate` along every digit. L1: ranks indexing the same tensors multiply into one rank, exactly, for
perfect factors: an exponent chain of the product splits, prime by prime, into chains of the parts.
"""

from functools import cached_property
from math import prod

import numpy as np

from rackmodel.nests.problem import NestProblem, NestTensor


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


class DivisorAxis:
    """Divisors of `size`. tile: [n] values · low: [n] the size that a footprint counts (the same here)."""

    aligned = True

    def __init__(self, size: int):
        self.size = size
        self.factors = factorize(size)
        self.dims = tuple(e + 1 for _, e in self.factors) or (1,)
        tile = np.ones(1, dtype=np.int64)
        for p, e in self.factors:
            tile = np.multiply.outer(tile, np.array([p**i for i in range(e + 1)], dtype=np.int64)).ravel()
        self.tile, self.low = tile, tile
        self.index = {int(v): i for i, v in enumerate(tile)}
        self.top = len(tile) - 1

    def __len__(self) -> int:
        return len(self.tile)

    @cached_property
    def count(self) -> np.ndarray:
        """[n] tiles of the whole rank."""
        return (self.size // self.tile).astype(float)

    @cached_property
    def below(self) -> np.ndarray:
        """[inner, outer] True where the inner tile nests in the outer one."""
        return self.tile[None, :] % self.tile[:, None] == 0

    def below_of(self, inner: "DivisorAxis") -> np.ndarray:
        """As `below`, with the inner tiles taken from a coarser (boxed) axis."""
        return self.tile[None, :] % inner.tile[:, None] == 0

    def zeta(self, array: np.ndarray, axis: int) -> np.ndarray:
        """min over the divisors of every cell, along one numpy axis; a new array."""
        shape = array.shape
        work = array.reshape(shape[:axis] + self.dims + shape[axis + 1 :]).copy()
        for d in range(len(self.dims)):
            np.minimum.accumulate(work, axis=axis + d, out=work)
        return work.reshape(shape)

    def over(self, s: int) -> np.ndarray:
        """[n] index of tile / s, -1 where s does not divide it."""
        return np.array([self.index.get(int(v) // s, -1) if v % s == 0 else -1 for v in self.tile])

    def parts(self, fan) -> list[int]:
        """Numbers of parts the rank may be cut into: its divisors."""
        return sorted(int(t) for t in self.tile)

    def allows(self, i: int, s: int, leaf: int) -> bool:
        """Tile number i can be cut into s parts of whole leaves."""
        return int(self.tile[i]) % (s * leaf) == 0

    def clamp(self, box: "DivisorAxis") -> np.ndarray:
        """[n] index in `box` of the largest value of `box` that divides the tile."""
        return np.array([box.index[int(v)] for v in np.gcd(self.tile, box.size)])


def merged_ranks(problem: NestProblem, apart: set[str]) -> dict[str, list[str]]:
    """Merged rank → its parts; ranks in `apart` and ranks inside a sum stay alone (L1)."""
    apart = apart | {r for t in problem.tensors for r in t.affine_ranks}
    groups: dict[tuple, list[str]] = {}
    for r in problem.sizes:
        signature = tuple(t.name for t in problem.tensors if r in t.ranks)
        groups.setdefault((signature, r if r in apart else ""), []).append(r)
    return {"__".join(parts): parts for parts in groups.values()}


def merge_problem(problem: NestProblem, groups: dict[str, list[str]]) -> NestProblem:
    """The same einsum in merged ranks."""
    name_of = {r: name for name, parts in groups.items() for r in parts}
    tensors = []
    for t in problem.tensors:
        plain = dict.fromkeys(name_of[r] for r in t.ranks if r not in t.affine_ranks)
        sums = tuple(i for i in t.indices if len(i) > 1 or i[0] not in name_of)
        tensors.append(NestTensor(t.name, tuple((r,) for r in plain) + sums, t.bits, t.is_output))
    sizes = {name: prod(problem.sizes[r] for r in parts) for name, parts in groups.items()}
    return NestProblem(problem.name, sizes, tuple(tensors), problem.density)


def split_factor(factor: int, left: dict[str, int]) -> dict[str, int]:
    """Share out the primes of `factor` over the parts; `left` holds what each part has and is reduced."""
    taken = dict.fromkeys(left, 1)
    for p, e in factorize(factor):
        for _ in range(e):
            r = next(r for r in left if left[r] % p == 0)
            left[r] //= p
            taken[r] *= p
    return taken
