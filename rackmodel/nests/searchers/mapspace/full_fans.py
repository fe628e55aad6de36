"""Parts of the ranks that keep all units of a fan busy, or nearly all: where mappings are looked for. Its numbers are chosen; no bound
hangs on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from rackmodel.nests.problem import NestFan

BUSY = 0.9  # of the units of a side that are at work at least
LISTED = 1024  # units of a side: a longer one is not listed

Parts = tuple[int, ...]  # by rank


def full_fans(fan: NestFan, allowed: Sequence[tuple[bool, bool]], most: Sequence[int], count: int) -> list[Parts]:
    """Parts by rank, both sides together, the fullest first, `count` of them at most.

    allowed: of every rank, on x and on y · most: parts of every rank.
    """
    if max(fan.x, fan.y) > LISTED:
        return []
    sides = [
        _fullest([min(n, end) if on[k] else 1 for on, end in zip(allowed, most, strict=True)], n, count)
        for k, n in enumerate((fan.x, fan.y))
    ]
    both = dict.fromkeys(tuple(a * b for a, b in zip(x, y, strict=True)) for x, y in product(*sides))
    fit = [parts for parts in both if all(n <= end for n, end in zip(parts, most, strict=True))]
    return sorted(fit, key=lambda parts: (-prod(parts), parts))[:count]


def _fullest(most: Sequence[int], units: int, count: int) -> list[Parts]:
    """Of one side."""
    found: list[Parts] = [()]
    for end in most[:-1]:
        found = [(*parts, n) for parts in found for n in range(1, min(end, units // prod(parts)) + 1)]
    found = [(*parts, min(most[-1], units // prod(parts))) for parts in found]
    return sorted((parts for parts in found if prod(parts) >= BUSY * units), key=lambda parts: (-prod(parts), parts))[:count]
