"""Variable elimination: exact dynamic programming on the graph of cost tables.

One variable after another is minimised out: the tables that mention it are added over the union of their variables and
reduced along it, remembering the argmin. The order is greedy by the size of the resulting table. Walking back gives the
optimum; its value is a proof, since every assignment was covered. Source: Dechter, bucket elimination (1999).

Tables stay over classes throughout: a result has, for each variable, one entry for each combination of the classes that the
joined tables tell apart. Prices are (first, tie) pairs compared lexicographically; the eliminated variable is walked value by
value, so that nothing larger than the result is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.mapper.layouts.factors import Factors, TooLarge
from rackmodel.mapper.layouts.interfaces import Index
from rackmodel.mapper.layouts.weights import Weights, prices

Array = NDArray[np.float64]
CELLS = 5e7


@dataclass(frozen=True, eq=False)
class FactorTable:
    """Prices over classes of some variables. first, tie: one dimension a variable · classes: value → class, for each."""

    variables: tuple[str, ...]
    classes: tuple[Index, ...]
    first: Array
    tie: Array


@dataclass(frozen=True, eq=False)
class Bucket:
    """One variable minimised out of the tables that mention it. unary: those that mention nothing else, by value · parts: the rest ·
    classes: value → class told apart by the parts · value: class → its best value by unary price · others: what is left, with
    `message` the least price over the classes `message.classes` and `best` the class that attains it."""

    variable: str
    unary: list[FactorTable]
    parts: list[FactorTable]
    classes: Index
    value: Index
    message: FactorTable
    best: NDArray[np.int32]


def eliminate(factors: Factors, weights: Weights, penalty: float = 0.0) -> dict[str, int]:
    """Variable → position of its best value. penalty: price of a byte of memory (Lagrangian). Raises TooLarge."""
    chosen: dict[str, int] = {}
    for bucket in reversed(buckets(factors, weights, penalty)):
        message = bucket.message
        cell = tuple(which[chosen[v]] for v, which in zip(message.variables, message.classes, strict=True))
        chosen[bucket.variable] = int(bucket.value[bucket.best[cell]])
    return chosen


def buckets(factors: Factors, weights: Weights, penalty: float = 0.0) -> list[Bucket]:
    """Every variable minimised out, in order. Raises TooLarge."""
    priced = prices(replace(factors, factors=tuple(f.by_class for f in factors.factors)), weights)
    tables = [
        FactorTable(f.variables, f.classes, priced[f.name].real + (penalty * f.bytes if penalty else 0.0), priced[f.name].imag)
        for f in factors.factors
    ]
    refine = Refinement()
    counts = factors.counts
    left = {name: number for number, name in enumerate(counts)}
    cells = {name: _cells(tables, name, refine) for name in left}
    found: list[Bucket] = []
    while left:
        variable = min(left, key=lambda v: (cells[v], left[v]))
        if cells[variable] > CELLS:
            raise TooLarge(f"eliminating {variable} needs a table of {cells[variable]:.3g} cells, the limit is {CELLS:.0g}")
        del left[variable]
        bucket = _reduce([t for t in tables if variable in t.variables], variable, counts[variable], refine)
        tables = [*(t for t in tables if variable not in t.variables), bucket.message]
        found.append(bucket)
        for other in bucket.message.variables:
            cells[other] = _cells(tables, other, refine)
    return found


class Refinement:
    """Classes told apart by several tables at once: value → joint class, and for each joint class the class in each table."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], tuple[Index, list[Index]]] = {}
        self.kept: list[Sequence[Index]] = []  # keeps the arrays, whose ids are the keys, alive

    def __call__(self, classes: Sequence[Index]) -> tuple[Index, list[Index]]:
        key = tuple(id(which) for which in classes)
        if key not in self.known:
            self.kept.append(list(classes))
            together = classes[0]
            for which in classes[1:]:
                together = together * (int(which.max()) + 1) + which
            _, first, joint = np.unique(together, return_index=True, return_inverse=True)
            self.known[key] = joint, [which[first] for which in classes]
        return self.known[key]


def _scope(tables: Sequence[FactorTable], variable: str) -> dict[str, list[Index]]:
    """Other variables of the tables that mention this one, with the classes each table tells apart."""
    scope: dict[str, list[Index]] = {}
    for table in tables:
        if variable in table.variables:
            for other, which in zip(table.variables, table.classes, strict=True):
                if other != variable:
                    scope.setdefault(other, []).append(which)
    return scope


def _cells(tables: Sequence[FactorTable], variable: str, refine: Refinement) -> float:
    """Cells of the table that eliminating a variable leaves."""
    return float(np.prod([float(len(refine(which)[1][0])) for which in _scope(tables, variable).values()], initial=1.0))


def _reduce(tables: Sequence[FactorTable], variable: str, values: int, refine: Refinement) -> Bucket:
    """Add tables up and minimise them along a variable."""
    unary = [t for t in tables if len(t.variables) == 1]
    parts = [t for t in tables if len(t.variables) > 1]
    own_first = np.sum([t.first[t.classes[0]] for t in unary], axis=0) if unary else np.zeros(values)
    own_tie = np.sum([t.tie[t.classes[0]] for t in unary], axis=0) if unary else np.zeros(values)
    mine = [t.classes[t.variables.index(variable)] for t in parts]
    classes = refine(mine)[0] if mine else np.zeros(values, dtype=np.intp)
    order = np.lexsort((np.arange(values), own_tie, own_first))[::-1]
    value = np.empty(int(classes.max()) + 1, dtype=np.intp)
    value[classes[order]] = order  # the last written of each class is its best
    scope = {other: refine(which)[0] for other, which in _scope(parts, variable).items()}
    shape = [int(which.max()) + 1 for which in scope.values()]
    first, tie, best = np.empty(shape), np.empty(shape), np.zeros(shape, dtype=np.int32)
    slices = [(aligned(t, t.first, variable, scope), aligned(t, t.tie, variable, scope), t) for t in parts]
    for number, representative in enumerate(value):
        price, second = np.full(shape, own_first[representative]), np.full(shape, own_tie[representative])
        for by_first, by_tie, table in slices:
            row = table.classes[table.variables.index(variable)][representative]
            price += by_first[row]
            second += by_tie[row]
        if number == 0:
            first, tie = price, second
            continue
        better = (price < first) | ((price == first) & (second < tie))
        np.copyto(first, price, where=better)
        np.copyto(tie, second, where=better)
        best[better] = number
    return Bucket(variable, unary, parts, classes, value, FactorTable(tuple(scope), tuple(scope.values()), first, tie), best)


def aligned(table: FactorTable, figures: Array, variable: str, scope: dict[str, Index]) -> Array:
    """A table's figures with `variable` first (its classes), then the variables of `scope` over the classes given there; length 1
    where it does not depend on one."""
    wanted = [v for v in scope if v in table.variables]
    moved = np.transpose(figures, [table.variables.index(v) for v in (variable, *wanted)])
    for axis, v in enumerate(wanted, start=1):
        moved = np.take(moved, coarser(scope[v], table.classes[table.variables.index(v)]), axis=axis)
    return moved.reshape(moved.shape[0], *(moved.shape[1 + wanted.index(v)] if v in wanted else 1 for v in scope))


def coarser(fine: Index, coarse: Index) -> Index:
    """Class of `fine` → the class of `coarse` it lies in."""
    inside = np.empty(int(fine.max()) + 1, dtype=np.intp)
    inside[fine] = coarse
    return inside
