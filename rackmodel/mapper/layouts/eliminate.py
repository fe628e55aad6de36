"""Variable elimination: exact dynamic programming on the graph of cost tables.

One variable after another is minimised out: the tables that mention it are added over the union of their variables and
reduced along it, remembering the argmin. The order is greedy by the size of the resulting table. Walking back gives the
optimum; its value is a proof, since every assignment was covered. Source: Dechter, bucket elimination (1999).

Tables stay over classes throughout: a result has, for each variable, one entry for each combination of the classes that the
joined tables tell apart. Prices are (first, tie) pairs compared lexicographically; of the eliminated variable as many values are added
up at once as make a small table, one where the result alone is large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array
from rackmodel.mapper.layouts.factors import Factors
from rackmodel.mapper.layouts.interfaces import Index
from rackmodel.mapper.layouts.refinement import Refinement
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import Weights, prices

CELLS = 5e7
TOGETHER = 1e5  # cells that are added up at once


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
    counts, refine = factors.counts, factors.refinement
    found: list[Bucket] = []
    for variable in _order(tables, counts, refine):
        found.append(_reduce([t for t in tables if variable in t.variables], variable, counts[variable], refine))
        tables = [*(t for t in tables if variable not in t.variables), found[-1].message]
    return found


def _order(tables: Sequence[FactorTable], counts: Mapping[str, int], refine: Refinement) -> tuple[str, ...]:
    """Variables in the order in which they are minimised out: the least table next, ties in their own order. Classes alone decide it,
    whatever the prices: it is told once. Raises TooLarge."""
    if refine.order:
        return refine.order
    scopes = [_classes_of(table) for table in tables]
    left = {name: number for number, name in enumerate(counts)}
    cells = {name: _cells(scopes, name, refine) for name in left}
    order: list[str] = []
    while left:
        variable = min(left, key=lambda v: (cells[v], left[v]))
        if cells[variable] > CELLS:
            raise TooLarge(f"eliminating {variable} needs a table of {cells[variable]:.3g} cells, the limit is {CELLS:.0g}")
        del left[variable]
        order.append(variable)
        message = {other: refine(which)[0] for other, which in _scope(scopes, variable).items()}
        scopes = [*(one for one in scopes if variable not in one), message]
        for other in message:
            cells[other] = _cells(scopes, other, refine)
    refine.order = tuple(order)
    return refine.order


def _classes_of(table: FactorTable) -> dict[str, Index]:
    return dict(zip(table.variables, table.classes, strict=True))


def _scope(scopes: Sequence[Mapping[str, Index]], variable: str) -> dict[str, list[Index]]:
    """Other variables of the tables that mention this one, with the classes each table tells apart. scopes: of each table, its variables
    with their classes."""
    scope: dict[str, list[Index]] = {}
    for one in scopes:
        if variable in one:
            for other, which in one.items():
                if other != variable:
                    scope.setdefault(other, []).append(which)
    return scope


def _cells(scopes: Sequence[Mapping[str, Index]], variable: str, refine: Refinement) -> float:
    """Cells of the table that eliminating a variable leaves."""
    return prod([float(len(refine(which)[1][0])) for which in _scope(scopes, variable).values()], start=1.0)


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
    scope = {other: refine(which)[0] for other, which in _scope([_classes_of(t) for t in parts], variable).items()}
    shape = tuple(int(which.max()) + 1 for which in scope.values())
    slices = [
        (aligned(t, t.first, variable, scope), aligned(t, t.tie, variable, scope), which) for t, which in zip(parts, mine, strict=True)
    ]
    first, tie, best = _least(value, (own_first, own_tie), slices, shape)
    return Bucket(variable, unary, parts, classes, value, FactorTable(tuple(scope), tuple(scope.values()), first, tie), best)


def _least(
    value: Index, own: tuple[Array, Array], slices: Sequence[tuple[Array, Array, Index]], shape: tuple[int, ...]
) -> tuple[Array, Array, NDArray[np.int32]]:
    """(least price, its tie, which of `value` is the first that has both) for each cell; some of the values at a time. own: what each
    value adds · slices: what it adds in each cell, by its class."""
    first, tie, best = np.empty(shape), np.empty(shape), np.zeros(shape, dtype=np.int32)
    together = max(1, int(TOGETHER // max(1, prod(shape))))
    for begin in range(0, len(value), together):
        some = value[begin : begin + together]
        price, second = (np.broadcast_to(of[some].reshape(-1, *(1 for _ in shape)), (len(some), *shape)).copy() for of in own)
        for by_first, by_tie, which in slices:
            price += by_first[which[some]]
            second += by_tie[which[some]]
        least = np.asarray(price.min(axis=0))
        cheapest = price == least
        ties = np.where(cheapest, second, np.inf)
        at = np.where(np.isinf(ties.min(axis=0)), cheapest.argmax(axis=0), ties.argmin(axis=0))
        second = np.take_along_axis(second, at[None], axis=0)[0]
        better = (least < first) | ((least == first) & (second < tie)) if begin else np.ones(shape, dtype=bool)
        np.copyto(first, least, where=better)
        np.copyto(tie, second, where=better)
        np.copyto(best, (begin + at).astype(np.int32), where=better)
    return first, tie, best


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
