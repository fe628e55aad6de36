"""Every layout of one problem by its tables' sums, where they are few enough to be listed: what each takes, or what it takes at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.mapper.layouts.factors import Factors
from rackmodel.mapper.layouts.min_sum import spread

CELLS = 300_000  # layouts that are listed


@dataclass(frozen=True)
class Listing:
    """The layouts that fit and keep the caps. cells: [layouts] their places in the grid of all · values: [3, layouts] the sums of seconds,
    joules and bytes."""

    factors: Factors
    cells: Ints
    values: Array

    def chosen(self, number: int) -> dict[str, int]:
        """The assignment of a layout."""
        counts = self.factors.counts
        index = np.unravel_index(int(self.cells[number]), tuple(counts.values()))
        return dict(zip(counts, (int(i) for i in index), strict=True))

    def where(self, chosen: Mapping[str, int]) -> Ints:
        """The layout of an assignment, as a list of one or none."""
        counts = self.factors.counts
        cell = np.ravel_multi_index(tuple(chosen[name] for name in counts), tuple(counts.values()))
        return np.flatnonzero(self.cells == cell)


def list_layouts(factors: Factors) -> Listing | None:
    """The layouts of a problem; None where they are too many."""
    if factors.size > CELLS:
        return None
    factors = factors.whole()
    order = tuple(factors.counts)
    shape = tuple(factors.counts[v] for v in order)
    seconds, joules, held, working = (np.zeros(shape) for _ in range(4))
    for factor in factors.factors:
        for total, table in ((seconds, factor.latency), (joules, factor.energy), (held, factor.memory)):
            total += spread(table, factor.variables, order)
    for name, sizes in factors.working.items():
        working = np.maximum(working, spread(sizes, (name,), order))
    memory = held + working
    fits = np.ones(shape, dtype=bool) if factors.capacity is None else memory <= factors.capacity
    for cap in factors.caps:
        fits &= cap.latency * seconds + cap.energy * joules <= cap.most
    cells = np.flatnonzero(fits)
    return Listing(factors, cells, np.stack([part.reshape(-1)[cells] for part in (seconds, joules, memory)]))
