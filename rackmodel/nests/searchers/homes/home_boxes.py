"""Spatial vectors of a large fan that no list holds: ranges of parts of every rank, halved where they may still be better.

A range of parts bounds every vector within: tiles are no smaller than its most parts leave, copies lie between its ends, and no more
parts are at work than there are cores. Those of least bound are halved first, down to single vectors. What is not taken apart has a bound.
"""

from collections.abc import Callable
from itertools import product
from math import inf

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.problem import NestFan

BOXES = 400_000  # ranges taken apart
POINTS = 1000  # vectors met
AT_ONCE = 1024
Bounds = Callable[[Ints, Ints], tuple[Array, Array]]  # (fewest parts [B, ranks], most) → (primary, tie-break) [B]
Beats = Callable[[Array, Array], Bools]
Layout = tuple[Bools, Ints, Ints]  # ranks of which more are laid out than are at work, parts on X, on Y


class OpenRanges:
    """Ranges that may hold a better vector. most: parts of each rank that there may be · cores: parts of all · done, met: ranges taken
    apart, vectors that they left."""

    def __init__(self, most: list[int], cores: int, bounds: Bounds) -> None:
        self.cores, self.bounds, self.done, self.met = cores, bounds, 0, 0
        self.low, self.high = np.ones((1, len(most)), dtype=np.int64), np.array([most], dtype=np.int64)
        self.first, self.second = bounds(self.low, self.high)

    @property
    def left(self) -> bool:
        """Is there a range to take apart, and may it be?"""
        return len(self.low) > 0 and self.done < BOXES and self.met < POINTS

    @property
    def least(self) -> float:
        """The least bound of what was not taken apart."""
        return float(self.first.min(initial=inf))

    def step(self, beats: Beats) -> Ints:
        """[V, ranks] vectors met while the ranges of least bound are halved; what does not beat is dropped."""
        order = np.lexsort((self.second, self.first))
        order = order[beats(self.first[order], self.second[order])]
        some, others = order[:AT_ONCE], order[AT_ONCE:]
        low, high = self.low[some], self.high[some]
        single = (low == high).all(axis=1)
        points: Ints = low[single]
        low, high = _halves(low[~single], high[~single])
        low, high = self._that_fit(low, high)
        first, second = self.bounds(low, high)
        keep = beats(first, second)
        self.done, self.met = self.done + len(some), self.met + len(points)
        self.low, self.high = (np.concatenate([a[keep], b[others]]) for a, b in ((low, self.low), (high, self.high)))
        self.first, self.second = (np.concatenate([a[keep], b[others]]) for a, b in ((first, self.first), (second, self.second)))
        return points

    def _that_fit(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Ranges with a vector of no more parts than cores, their ends no higher than the others leave."""
        parts = np.prod(low, axis=1, keepdims=True)
        high = np.minimum(high, self.cores * low // parts)
        fits = (low <= high).all(axis=1)
        return low[fits], high[fits]


def _halves(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Every range in two, along the rank whose ends are furthest apart by ratio."""
    rows = np.arange(len(low))
    rank = np.argmax(high / low, axis=1)
    a, b = low[rows, rank], high[rows, rank]
    middle = np.clip(np.sqrt(a * b.astype(float)).astype(np.int64), a, b - 1)
    left, right = high.copy(), low.copy()
    left[rows, rank], right[rows, rank] = middle, middle + 1
    return np.concatenate([low, right]), np.concatenate([left, high])


def layouts_of(parts: Ints, fan: NestFan, allowed: list[list[bool]]) -> list[Layout]:
    """Ways to have `parts` at work: one for each smallest set of ranks of which more must be laid out; [] where none fits.
    allowed: for X and Y, whether each rank may lie there."""
    found: dict[frozenset[int], list[tuple[int, int, tuple[int, ...]]]] = {frozenset(): [(1, 1, ())]}
    for r, n in enumerate(int(p) for p in parts):
        grown: dict[frozenset[int], list[tuple[int, int, tuple[int, ...]]]] = {}
        for (more, ways), (x, y) in product(found.items(), _sides(n, fan, allowed[0][r], allowed[1][r])):
            idle = more | {r} if x * y > n else more
            grown.setdefault(idle, []).extend((a * x, b * y, (*on, x)) for a, b, on in ways if a * x <= fan.x and b * y <= fan.y)
        found = {idle: _least(ways) for idle, ways in grown.items() if ways}
    chosen = [idle for idle in found if not any(other < idle for other in found)]
    layouts = []
    for idle in chosen:
        on_x = np.array(found[idle][0][2], dtype=np.int64)
        layouts.append((np.array([r in idle for r in range(len(parts))]), on_x, -(-parts // on_x)))
    return layouts


def _sides(parts: int, fan: NestFan, on_x: bool, on_y: bool) -> list[tuple[int, int]]:
    """(x, y) of a rank with x * y >= parts, neither larger than the other asks for."""
    pairs = [(x, -(-parts // x)) for x in range(1, (min(parts, fan.x) if on_x else 1) + 1)]
    return [(x, y) for x, y in pairs if y <= (fan.y if on_y else 1) and x == -(-parts // y)]


def _least(ways: list[tuple[int, int, tuple[int, ...]]]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Those of which none has less on X and on Y, ascending on X."""
    kept: list[tuple[int, int, tuple[int, ...]]] = []
    for way in sorted(ways):
        if not kept or way[1] < kept[-1][1]:
            kept.append(way)
    return kept
