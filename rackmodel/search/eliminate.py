"""Variable elimination: exact dynamic programming on the graph of cost tables.

One variable after another is minimised out: the tables that mention it are added over the union of their variables and
reduced along it, remembering the argmin. The order is greedy by the size of the resulting table. Walking back gives the
optimum; its value is a proof, since every assignment was covered. Source: Dechter, bucket elimination (1999).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rackmodel.search.factors import Factors, TooLarge
from rackmodel.search.objective import Weights, prices

Table = tuple[tuple[str, ...], NDArray[np.complex128]]
CELLS = 5e7


def eliminate(factors: Factors, weights: Weights, penalty: float = 0.0) -> dict[str, int]:
    """Variable → position of its best value. penalty: price of a byte of memory (Lagrangian). Raises TooLarge."""
    tables: list[Table] = []
    priced = prices(factors, weights)
    for factor in factors.factors:
        table = priced[factor.name]
        tables.append((factor.variables, table + penalty * factor.memory if penalty else table))
    steps: list[tuple[str, tuple[str, ...], NDArray[np.intp]]] = []
    sizes = {name: len(values) for name, values in factors.strategies.items()}
    left = list(sizes)
    while left:
        variable = min(left, key=lambda v: (_cells(tables, v, sizes), left.index(v)))
        left.remove(variable)
        if _cells(tables, variable, sizes) * sizes[variable] > CELLS:
            raise TooLarge(f"eliminating {variable} needs {_cells(tables, variable, sizes) * sizes[variable]:.3g} cells")
        steps.append(_reduce(tables, variable, sizes))
    chosen: dict[str, int] = {}
    for variable, others, best in reversed(steps):
        chosen[variable] = int(best[tuple(chosen[other] for other in others)])
    return chosen


def _neighbours(tables: list[Table], variable: str) -> tuple[str, ...]:
    found = dict.fromkeys(v for variables, _ in tables if variable in variables for v in variables)
    return tuple(v for v in found if v != variable)


def _cells(tables: list[Table], variable: str, sizes: dict[str, int]) -> float:
    return float(np.prod([float(sizes[v]) for v in _neighbours(tables, variable)], initial=1.0))


def _reduce(tables: list[Table], variable: str, sizes: dict[str, int]) -> tuple[str, tuple[str, ...], NDArray[np.intp]]:
    """Replace the tables that mention `variable` by their sum, minimised along it."""
    others = _neighbours(tables, variable)
    order = (*others, variable)
    joined = np.zeros([sizes[v] for v in order], dtype=np.complex128)
    for variables, table in [t for t in tables if variable in t[0]]:
        joined = joined + spread(variables, table, order)
    tables[:] = [t for t in tables if variable not in t[0]]
    best = np.argmin(joined, axis=-1)
    tables.append((others, np.take_along_axis(joined, best[..., None], axis=-1)[..., 0]))
    return variable, others, best


def spread(variables: tuple[str, ...], table: NDArray[np.complex128], order: tuple[str, ...]) -> NDArray[np.complex128]:
    """`table` with its dimensions in the order of `order`, length 1 where it does not depend on one."""
    wanted = [v for v in order if v in variables]
    moved = np.transpose(table, [variables.index(v) for v in wanted])
    shape = [table.shape[variables.index(v)] if v in variables else 1 for v in order]
    return moved.reshape(shape)
