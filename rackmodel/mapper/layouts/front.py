"""The layouts of one problem that no other beats in some figures: all of them where they can be listed, else some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.mapper.layouts.exhaustive import spread
from rackmodel.mapper.layouts.factors import Array, Factors
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.skyline import skyline

CELLS = 300_000  # layouts that are listed


def front_of(factors: Factors, figures: Sequence[Objective]) -> tuple[list[dict[str, int]], bool]:
    """(assignments of the front by their sums, whether it has all of them)."""
    order = tuple(factors.counts)
    if factors.size > CELLS:
        return [], False
    shape = tuple(factors.counts[v] for v in order)
    seconds, joules, held, working = (np.zeros(shape) for _ in range(4))
    for factor in factors.factors:
        for total, table in ((seconds, factor.latency), (joules, factor.energy), (held, factor.memory)):
            total += _wide(factor.variables, table, order)
    for name, sizes in factors.working.items():
        working = np.maximum(working, _wide((name,), sizes, order))
    memory = held + working
    fits = np.ones(shape, dtype=bool) if factors.capacity is None else memory <= factors.capacity
    for cap in factors.caps:
        fits &= cap.latency * seconds + cap.energy * joules <= cap.most
    flat = np.flatnonzero(fits)
    values = np.stack([np.asarray(f.value(seconds, joules, memory)).reshape(-1)[flat] for f in figures])
    chosen = [np.unravel_index(int(flat[one]), shape) for one in skyline(values)]
    return [dict(zip(order, (int(i) for i in index), strict=True)) for index in chosen], True


def _wide(variables: tuple[str, ...], table: Array, order: tuple[str, ...]) -> Array:
    return np.asarray(spread(variables, table.astype(np.complex128), order).real)
