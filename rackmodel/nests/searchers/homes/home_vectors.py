"""Spatial vectors of a large fan: parts of every rank on X and on Y, as arrays.

Perfect factors: all divisors. Ceil: all numbers up to 32, beyond that parts ceil(D / t), the ones that tiles of t fill;
where there would be too many pairs, per rank and dimension fewer of them, the largest below the size over 1, 2, 3, ...
Of parts laid out some may idle (3 at work of 2 x 2, 5 of 3 x 2), of a tile that is one group: with those, no layout has just as many.
"""

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.nests.problem import NestFan
from rackmodel.nests.searchers.mapspace.list_axes import divisors
from rackmodel.nests.searchers.mapspace.spatial_vectors import idle_vectors

FEW = 32  # parts of a rank up to which every number is tried, ceil factors
EVERY = "every spatial vector"
PAIRS = 400_000  # pairs of vectors on X and on Y looked at, ceil factors


@dataclass(frozen=True)
class FanVectors:
    """[S, ranks] parts at work, `idle` where more of a rank are laid out · x, y: [layouts, ranks] parts on either side · note: which parts
    were tried."""

    parts: Ints
    idle: Bools
    x: Ints
    y: Ints
    note: str

    def layout(self, i: int) -> tuple[Ints, Ints]:
        """Parts on X and on Y of vector i: of the smallest layout that has them."""
        laid, parts = self.x * self.y, self.parts[i]
        fits = np.flatnonzero(np.where(self.idle[i], laid >= parts, laid == parts).all(axis=1))
        chosen = int(fits[np.argmin(np.prod(laid[fits], axis=1))])
        return self.x[chosen], self.y[chosen]


def fan_vectors(fan: NestFan, sizes: list[int], allowed: list[list[bool]], perfect: bool) -> FanVectors:
    """Every vector of distinct parts at work. allowed: for X and Y, whether each rank may lie there."""
    sides = list(zip((fan.x, fan.y), allowed, strict=True))
    options = [[_parts(n, limit, perfect) if may else [1] for n, may in zip(sizes, on, strict=True)] for limit, on in sides]
    all_parts = perfect or all(min(n, limit) <= FEW or not may for limit, on in sides for n, may in zip(sizes, on, strict=True))
    keep, note = max(len(o) for side in options for o in side), EVERY if all_parts else "spatial parts ceil(D/t)"
    found = [_vectors(side, limit, keep) for side, (limit, _) in zip(options, sides, strict=True)]
    while not perfect and len(found[0]) * len(found[1]) > PAIRS and keep > 4:
        keep = keep * 3 // 4
        found = [_vectors(side, limit, keep) for side, (limit, _) in zip(options, sides, strict=True)]
        note = f"at most {keep} numbers of parts for a rank and dimension"
    xs, ys = found
    x, y = np.repeat(xs, len(ys), axis=0), np.tile(ys, (len(xs), 1))
    s, size = x * y, np.array(sizes)
    spared = ((s <= size) | (((x - 1) * y < size) & (x * (y - 1) < size))).all(axis=1)  # (no row or column of a rank idles whole)
    fits = (size % s == 0).all(axis=1) if perfect else spared
    x, y, s = x[fits], y[fits], s[fits]
    _, first = np.unique(s, axis=0, return_index=True)
    first = np.sort(first)
    x, y, s = x[first], y[first], s[first]
    more = None if perfect or note != EVERY else idle_vectors(s, PAIRS)
    if more is None:  # those that idle of a rank that is no larger than what is laid out
        _, first = np.unique(np.where(s > size, -size, s), axis=0, return_index=True)
        first = np.sort(first)
        return FanVectors(np.minimum(s, size)[first], (s > size)[first], x, y, note)
    parts, idle = np.concatenate([s, more[0]]), np.concatenate([np.zeros(s.shape, dtype=bool), more[1]])
    real = (parts <= size).all(axis=1)
    return FanVectors(parts[real], idle[real], x, y, note)


def _parts(size: int, limit: int, perfect: bool) -> list[int]:
    """Numbers of parts of a rank on a dimension of `limit`, ascending."""
    if perfect:
        return [d for d in divisors(size) if d <= limit]
    top = min(size, limit)
    return [n for n in range(1, top + 1) if top <= FEW or -(-size // -(-size // n)) == n]


def _vectors(options: list[list[int]], limit: int, keep: int) -> Ints:
    """[V, ranks] every choice with product <= limit, from at most `keep` parts a rank."""
    found = np.ones((1, 0), dtype=np.int64)
    for choices in options:
        some = np.array(_thinned(choices, limit, keep), dtype=np.int64)
        found = np.concatenate([np.repeat(found, len(some), axis=0), np.tile(some, len(found))[:, None]], axis=1)
        found = found[np.prod(found, axis=1) <= limit]
    return found


def _thinned(choices: list[int], limit: int, keep: int) -> list[int]:
    """At most `keep` of the choices: the largest below limit / 1, limit / 2, ..., spaced by ratio."""
    if len(choices) <= keep:
        return choices
    marks = np.unique(np.floor(limit / np.geomspace(1, limit, keep)))
    return sorted({choices[i] for i in np.searchsorted(choices, marks, side="right") - 1 if i >= 0} | {1})
