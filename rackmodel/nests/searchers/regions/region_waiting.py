"""Cells of a prefix by their bounds, the least first."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.searchers.regions.region_below import Lined


class Waiting:
    """Cells of a prefix by their bounds, and those that lines have bounded: the least first. now: the bound of the last."""

    def __init__(self, first: Array, second: Array) -> None:
        self.first, self.order, self.next, self.now = first, np.lexsort((second, first)), 0, np.inf
        self.lined: list[tuple[float, int, Lined]] = []
        self.pushed = 0

    @property
    def unseen(self) -> int:
        """Cells that no line has bounded."""
        return len(self.order) - self.next

    @property
    def _ahead(self) -> float:
        return float(self.first[self.order[self.next]]) if self.unseen else np.inf

    @property
    def least(self) -> float:
        """What none of them is below."""
        return min(self._ahead, self.lined[0][0] if self.lined else np.inf)

    def pop(self) -> Lined | int:
        """The least: one that was pushed, or the number of a cell."""
        self.now = self.least
        if self.lined and self.lined[0][0] <= self._ahead:
            return heappop(self.lined)[2]
        self.next += 1
        return int(self.order[self.next - 1])

    def push(self, one: Lined) -> None:
        """Wait with the sum of its keys."""
        self.pushed += 1
        heappush(self.lined, (sum(one.keys), self.pushed, one))
