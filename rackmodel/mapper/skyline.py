"""Which of many points no other beats or equals in every figure. Arrays are [figures, points]."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array, Bools, Ints

SAME = 1e-11  # relative: figures this close are equal; a bound is that much below what it bounds
PIECE = 4096  # points compared at once


def beaten(values: Array, by: Array) -> Bools:
    """[points] whether one of `by` is as good in every figure."""
    found = np.zeros(values.shape[1], dtype=bool)
    for first in range(0, values.shape[1], PIECE):
        some = values[:, None, first : first + PIECE] * (1 + SAME)
        found[first : first + PIECE] = (by[:, :, None] <= some).all(axis=0).any(axis=0)
    return found


def skyline(values: Array) -> Ints:
    """Numbers of the points that no other beats or equals, by ascending first figure; of equals the first."""
    order = np.lexsort(values[::-1])
    found: list[int] = []
    best = np.zeros((len(values), 0))
    for first in range(0, len(order), PIECE):
        some = order[first : first + PIECE]
        some = some[~beaten(values[:, some], best)]
        while some.size:  # the first in order is beaten by none after it
            found.append(int(some[0]))
            mine = values[:, some[:1]]
            best = np.hstack([best, mine])
            some = some[1:][~beaten(values[:, some[1:]], mine)]
    return np.array(found, dtype=np.int64)
