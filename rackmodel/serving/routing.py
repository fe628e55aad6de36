"""Requests that are dealt to alike workers at random: how many of those that are there find a place.

A closed network of D stations of r places each, to which a client's next request goes by chance: of N clients, B are served. By the product
form (Gordon and Newell 1967; Buzen 1973), with f(n) = 1 / prod min(i, r), G its D-fold convolution:

    B(N) = D G(N - 1) / G(N)        D = 1: min(N, r) · r = 1: D N / (N + D - 1)

Service times count by their mean alone; where a worker has very many clients, chance evens out, and B = min(N, D r).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MANY = 256.0
"""Clients of a worker from which on chance evens out."""


class Dealt:
    """n pools of `workers`, a number or [n], of room [n] requests each, for up to clients [n]."""

    def __init__(self, clients: Array, workers: Any, room: Array) -> None:
        self.workers, self.room = (np.broadcast_to(np.asarray(one, dtype=np.float64), clients.shape) for one in (workers, room))
        self.tables = [_table(*(float(x) for x in one)) for one in zip(clients, self.workers, self.room, strict=True)]

    def served(self, there: Array) -> Array:
        """[n] requests that have a place, of `there` [n]."""
        even = np.asarray(np.minimum(there, self.room * self.workers))
        found = even.copy()
        for place, table in enumerate(self.tables):
            if table is not None:
                found[place] = min(even[place], np.interp(there[place], np.arange(len(table)), table))
        return found


def _table(clients: float, workers: float, places: float) -> Array | None:
    """Served of 0, 1, 2 ... clients; None where chance does not matter."""
    if workers <= 1 or places >= clients or clients > MANY * workers:
        return None
    return np.array(_served(int(np.ceil(clients)), round(workers), int(places)))


@lru_cache(maxsize=256)
def _served(clients: int, workers: int, places: int) -> tuple[float, ...]:
    scale = min(clients / workers, float(places))  # any positive number gives the same; this one keeps sums within a float
    own = np.cumprod(np.concatenate([[1.0], scale / np.minimum(np.arange(1.0, clients + 1.0), places)]))
    all_of = np.ones(1)
    for _ in range(workers):
        all_of = np.convolve(all_of, own)[: clients + 1]
        all_of = all_of / all_of.max()
    there = np.arange(1.0, len(all_of))
    share = np.divide(all_of[:-1], all_of[1:], out=np.full(len(there), np.inf), where=all_of[1:] > 0)
    return (0.0, *np.minimum(workers * scale * share, there))  # of so few that their sums vanish, all have a place
