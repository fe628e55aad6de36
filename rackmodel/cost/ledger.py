"""The ledger: one row a charge, the only source of every figure shown.

Inside the search a row's figures are arrays that broadcast over the mappings being priced; `at(i)` takes one of them.
Totals use math.fsum, so that every group-by adds up to the same total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from rackmodel.arrays import Array

Component = Literal["compute", "memory", "network", "static"]
Figure = float | Array
KEYS = ("phase", "einsum", "tensor", "level", "component", "action")
FIGURES = ("amount", "joules", "seconds", "exposed_seconds")
COLUMNS = ("phase", "einsum", "tensor", "level", "component", "action", "amount", "unit", "joules", "seconds", "exposed_seconds")


@dataclass(slots=True, unsafe_hash=True)
class Charge:
    """One row. amount, joules: sums over all accelerators · seconds: on the worst accelerator or group, as if nothing
    overlapped · exposed_seconds: its share of the critical path. (Never changed; but frozen ones take long to make, and there are many.)"""

    phase: str
    einsum: str
    tensor: str
    level: str
    component: Component
    action: str
    amount: Figure
    unit: str
    joules: Figure
    seconds: Figure
    exposed_seconds: Figure = 0.0

    def at(self, index: int) -> Charge:
        """The row of one mapping of an array."""
        return replace(
            self,
            amount=_pick(self.amount, index),
            joules=_pick(self.joules, index),
            seconds=_pick(self.seconds, index),
            exposed_seconds=_pick(self.exposed_seconds, index),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data in column order."""
        return {name: getattr(self, name) for name in COLUMNS}


def _pick(figure: Figure, index: int) -> float:
    values = np.asarray(figure, dtype=np.float64)
    return float(values) if values.ndim == 0 else float(values[index if values.shape[0] > 1 else 0])


@dataclass(frozen=True)
class Ledger:
    """The rows of one result (or of an array of mappings)."""

    rows: tuple[Charge, ...]

    def __iter__(self) -> Iterator[Charge]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: int) -> Ledger:
        """The ledger of one mapping; rows that charge nothing are left out."""
        rows = (row.at(index) for row in self.rows)
        return Ledger(tuple(row for row in rows if row.amount or row.joules or row.seconds))

    def where(self, **keys: str | Iterable[str]) -> Ledger:
        """Rows whose columns equal the given values (or are among them)."""
        rows = self.rows
        for key, value in keys.items():
            of, allowed = attrgetter(key), {value} if isinstance(value, str) else set(value)
            rows = tuple([row for row in rows if of(row) in allowed])
        return Ledger(rows)

    def total(self, figure: str = "joules") -> float:
        """Sum of a figure over the rows of one mapping."""
        return math.fsum(map(float, map(attrgetter(figure), self.rows)))

    def group(self, by: Iterable[str], figure: str = "joules") -> dict[tuple[str, ...], float]:
        """Sums of a figure by key columns, in order of first appearance."""
        columns, of = [map(attrgetter(column), self.rows) for column in by], attrgetter(figure)
        groups: dict[tuple[str, ...], list[Figure]] = {}
        for key, value in zip(zip(*columns, strict=True) if columns else ((),) * len(self.rows), map(of, self.rows), strict=True):
            groups.setdefault(key, []).append(value)
        return {key: math.fsum(values) for key, values in groups.items()}

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, columns as COLUMNS. Raises ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame([row.to_dict() for row in self.rows], columns=list(COLUMNS))

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame, columns as COLUMNS. Raises ImportError where polars is not installed."""
        import polars

        return polars.DataFrame({name: [getattr(row, name) for row in self.rows] for name in COLUMNS})
