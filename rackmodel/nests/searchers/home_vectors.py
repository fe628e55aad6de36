"""Spatial vectors of a large fan: parts of every rank on X and on Y, as arrays.

Perfect factors: all divisors. Ceil: all numbers up to 32, beyond that parts ceil(D / t), the ones that tiles of t fill;
where there would be too many pairs, per rank and dimension fewer of them, the largest below the size over 1, 2, 3, ...
"""

import numpy as np

from rackmodel.nests.arrays import Ints
from rackmodel.nests.problem import NestFan
from rackmodel.nests.searchers.list_axes import divisors

FEW = 32  # parts of a rank up to which every number is tried, ceil factors
PAIRS = 400_000  # pairs of vectors on X and on Y looked at, ceil factors


def fan_vectors(fan: NestFan, sizes: list[int], allowed: list[list[bool]], perfect: bool) -> tuple[Ints, Ints, Ints, str]:
    """(s, x, y, note): [S, ranks] int arrays, s = x * y distinct; note says which parts were tried.

    allowed: for X and Y, whether each rank may lie there.
    """
    sides = list(zip((fan.x, fan.y), allowed, strict=True))
    options = [[_parts(n, limit, perfect) if may else [1] for n, may in zip(sizes, on, strict=True)] for limit, on in sides]
    all_parts = perfect or all(min(n, limit) <= FEW or not may for limit, on in sides for n, may in zip(sizes, on, strict=True))
    keep, note = max(len(o) for side in options for o in side), "every spatial vector" if all_parts else "spatial parts ceil(D/t)"
    found = [_vectors(side, limit, keep) for side, (limit, _) in zip(options, sides, strict=True)]
    while not perfect and len(found[0]) * len(found[1]) > PAIRS and keep > 4:
        keep = keep * 3 // 4
        found = [_vectors(side, limit, keep) for side, (limit, _) in zip(options, sides, strict=True)]
        note = f"at most {keep} numbers of parts for a rank and dimension"
    xs, ys = found
    x, y = np.repeat(xs, len(ys), axis=0), np.tile(ys, (len(xs), 1))
    s, size = x * y, np.array(sizes)
    fits = (size % s == 0).all(axis=1) if perfect else ((s - 1) * np.ones_like(size) < size).all(axis=1)
    x, y, s = x[fits], y[fits], s[fits]
    _, first = np.unique(s, axis=0, return_index=True)
    first = np.sort(first)
    return s[first], x[first], y[first], note


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
