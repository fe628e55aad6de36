"""The grid: every combination of choices, priced by broadcasting the cost tables. Exact by exhaustion.

One dimension a variable; a table is only as wide as what it depends on. It is the plainest search there is, and the
referee of the other two.
"""

from __future__ import annotations

import numpy as np

from rackmodel.mapper.layouts.factors import Factors
from rackmodel.mapper.layouts.min_sum import spread
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import Weights, prices

CELLS = 4e7


def exhaust(factors: Factors, weights: Weights) -> dict[str, int] | None:
    """Variable → position of its value in the best assignment that fits in memory; None if none fits. Raises TooLarge."""
    if factors.size > CELLS:
        raise TooLarge(f"{factors.size:.3g} mappings are too many to enumerate")
    counts = factors.counts
    order = tuple(counts)
    if not order:
        return {}
    priced = prices(factors, weights)
    best: tuple[complex, tuple[int, ...]] | None = None
    for first in range(counts[order[0]]):
        shape = [1, *(counts[v] for v in order[1:])]
        cost = np.zeros(shape, dtype=np.complex128)
        memory = np.zeros(shape)
        for factor in factors.factors:
            cost = cost + _slice(factor.variables, priced[factor.name], order, first)
            memory = memory + _slice(factor.variables, factor.memory, order, first)
        if factors.capacity is not None:
            cost = np.where(memory + _working(factors, order, first) > factors.capacity, np.inf, cost)
        where = np.unravel_index(int(np.argmin(cost)), cost.shape)
        value = complex(cost[where])
        if np.isfinite(value.real) and (best is None or (value.real, value.imag) < (best[0].real, best[0].imag)):
            best = (value, (first, *(int(i) for i in where[1:])))
    return None if best is None else dict(zip(order, best[1], strict=True))


def _slice(variables: tuple[str, ...], table: np.ndarray, order: tuple[str, ...], first: int) -> np.ndarray:
    wide = spread(table, variables, order)
    return wide if wide.shape[0] == 1 else wide[first : first + 1]


def _working(factors: Factors, order: tuple[str, ...], first: int) -> np.ndarray:
    worst = np.zeros([1] * len(order))
    for name, sizes in factors.working.items():
        worst = np.maximum(worst, _slice((name,), sizes, order, first))
    return worst
