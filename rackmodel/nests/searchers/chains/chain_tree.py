"""Chains of a rank in ever smaller groups, each with its least and its most of every figure; groups are halved when asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.chains.chain_costs import Figure, Figures


class ChainTree:
    """figures: of every chain. low, high: [groups, figures] · spread: [groups] of the logarithms of the widest figure, -1 for one chain ·
    child: [groups] number of the first half, the other one is the next; 0 where there is none yet."""

    def __init__(self, figures: Mapping[Figure, Array]) -> None:
        self.names = list(figures)
        self.values: Array = np.array(list(figures.values())).T
        chains = len(self.values)
        self.low, self.high = np.zeros((2, 2 * chains, len(self.names)))
        self.spread: Array = np.zeros(2 * chains)
        self.child: Ints = np.zeros(2 * chains, dtype=np.int64)
        self.rows: list[Ints] = []
        self._add(np.arange(chains))

    def _add(self, rows: Ints) -> None:
        i = len(self.rows)
        self.rows.append(rows)
        self.low[i], self.high[i] = self.values[rows].min(axis=0), self.values[rows].max(axis=0)
        self.spread[i] = np.log((self.high[i] + 1) / (self.low[i] + 1)).max() if len(rows) > 1 else -1.0

    def halves(self, groups: Ints) -> Ints:
        """[groups] first half of each."""
        for i in np.unique(groups[self.child[groups] == 0]):
            rows = self.rows[i]
            column = self.values[rows, int(np.argmax(np.log((self.high[i] + 1) / (self.low[i] + 1))))]
            middle = np.median(column)
            left = column <= middle if middle < column.max() else column < middle
            if not left.any() or left.all():
                left = np.arange(len(rows)) < len(rows) // 2  # alike in every figure
            self.child[i] = len(self.rows)
            self._add(rows[left])
            self._add(rows[~left])
        return self.child[groups]

    def ends(self, groups: Ints) -> tuple[Figures, Figures]:
        """(least, most) figures: [groups]."""
        low, high = self.low[groups].T, self.high[groups].T
        return dict(zip(self.names, low, strict=True)), dict(zip(self.names, high, strict=True))
