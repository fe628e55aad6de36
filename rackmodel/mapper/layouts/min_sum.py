"""The least sum of tables on many columns at once: variable elimination with a column's figures side by side.

    min over all assignments of Σ tables(assignment)         one figure a column, exact

As `eliminate`, without what attains it. Source: Dechter, bucket elimination (1999).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array

CELLS = 4e6  # of a joined table, columns among them
Figure = TypeVar("Figure", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Table:
    """figures: one dimension a variable, over its values, and the columns last."""

    variables: tuple[str, ...]
    figures: Array


def least_sum(tables: Sequence[Table], counts: Mapping[str, int], columns: int, copies: int = 1) -> Array:
    """[columns] the least sum. counts: values of each variable. A table that would grow too large is left out from then on in the
    variable that makes it so: it counts with its least over that one, which is no more than its share. copies: of the columns, one after
    another, that are told the same as each alone."""
    left, order = list(tables), _order(tuple(dict.fromkeys(t.variables for t in tables)), tuple(counts.items()))
    if copies > 1 and any(prod(counts[v] for v in scope) * columns > CELLS for _, scope in order):
        alone = columns // copies
        parts = [slice(n * alone, (n + 1) * alone) for n in range(copies)]
        each = [[Table(t.variables, t.figures[..., part]) for t in tables] for part in parts]
        return np.concatenate([least_sum(own, counts, alone) for own in each])
    for name, scope in order:
        mine = [t for t in left if name in t.variables]
        left = [t for t in left if name not in t.variables]
        if prod(counts[v] for v in scope) * columns > CELLS and len(mine) > 1:
            left += [_without(table, name) for table in mine]
        elif mine:
            left.append(_without(_joined(mine, scope), name))
    return np.asarray(sum((t.figures for t in left), np.zeros(columns)))


def least_of_operations(alone: Mapping[str, Array], coupled: Sequence[Table], columns: int) -> Array:
    """[columns] the least sum of what operations take. alone: operation → [choices, columns] · coupled: what some take more, or less,
    together."""
    linked = {name for table in coupled for name in table.variables}
    least = sum((figures.min(axis=0) for name, figures in alone.items() if name not in linked), np.zeros(columns))
    if not coupled:
        return np.asarray(least)
    tables = [Table((name,), alone[name]) for name in alone if name in linked]
    return least + least_sum([*tables, *coupled], {name: len(alone[name]) for name in linked}, columns)


def least_choice(tables: Sequence[Table], counts: Mapping[str, int]) -> dict[str, int]:
    """Variable → its value in an assignment of the least sum, the first of several, on one column: the least where no table is left out."""
    left, joined = list(tables), []
    for name, scope in _order(tuple(dict.fromkeys(t.variables for t in tables)), tuple(counts.items())):
        mine = [t for t in left if name in t.variables]
        left = [t for t in left if name not in t.variables]
        if not mine:
            joined.append((name, [Table((name,), np.zeros((counts[name], 1)))]))
        elif prod(counts[v] for v in scope) > CELLS and len(mine) > 1:
            left += [_without(table, name) for table in mine]
            joined.append((name, mine))
        else:
            whole = _joined(mine, scope)
            left.append(_without(whole, name))
            joined.append((name, [whole]))
    found: dict[str, int] = {}
    for name, own in reversed(joined):
        each = [t.figures[tuple(slice(None) if v == name else found[v] for v in t.variables)][..., 0] for t in own]
        found[name] = int(np.argmin(sum(each[1:], each[0])))
    return found


@lru_cache(maxsize=256)
def _order(tables: tuple[tuple[str, ...], ...], counts: tuple[tuple[str, int], ...]) -> list[tuple[str, list[str]]]:
    """Variables in the order in which they are taken out, each with the variables of the table that joins those which mention it."""
    sizes, left, found = dict(counts), [frozenset(table) for table in tables], []
    open_ = sorted(sizes)
    while open_:
        scopes = {v: frozenset[str]().union(*(t for t in left if v in t)) for v in open_}
        name = min(open_, key=lambda v: prod(sizes[u] for u in scopes[v]))
        open_.remove(name)
        left = [*(t for t in left if name not in t), scopes[name] - {name}]
        found.append((name, [name, *sorted(scopes[name] - {name})]))
    return found


def _without(table: Table, name: str) -> Table:
    at = table.variables.index(name)
    return Table((*table.variables[:at], *table.variables[at + 1 :]), table.figures.min(axis=at))


def _joined(tables: Sequence[Table], variables: Sequence[str]) -> Table:
    """Tables added over the union of their variables."""
    first, *rest = (spread(table.figures, table.variables, variables) for table in tables)
    return Table(tuple(variables), sum(rest, first))


def spread(figures: NDArray[Figure], mine: Sequence[str], variables: Sequence[str]) -> NDArray[Figure]:
    """Figures over the values of some variables as over those of all, whose order they take: a dimension is of length 1 where they do not
    depend on it. What lies behind these dimensions (columns) stays there. mine: the variables of the figures."""
    wanted = [v for v in variables if v in mine]
    moved = np.transpose(figures, [*(mine.index(v) for v in wanted), *range(len(mine), figures.ndim)])
    counts = dict(zip(wanted, moved.shape, strict=False))
    return moved.reshape(*(counts.get(v, 1) for v in variables), *moved.shape[len(wanted) :])
