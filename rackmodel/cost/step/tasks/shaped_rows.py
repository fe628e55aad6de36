"""Rows of an operation on many columns: of one accelerator, to be counted, or of a few shapes that columns leave it. Made when they are
asked for: most of what is priced is only summed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.inside.roofline import Row, picked
from rackmodel.once import once


class LazyRows(Sequence[Row]):
    """Rows that are made when one is asked for."""

    @cached_property
    @abstractmethod
    def _rows(self) -> Sequence[Row]: ...

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        return self._rows[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


class _Picked(LazyRows):
    """Rows on some columns."""

    def __init__(self, rows: Sequence[Row], which: Ints) -> None:
        self.source, self.which = rows, which

    @cached_property
    def _rows(self) -> list[Row]:
        return [row.pick(self.which) for row in self.source]

    def __len__(self) -> int:
        return len(self.source)


class CountedRows(LazyRows):
    """rows: of one accelerator · names: of their tensors, where they have others · times: [n] accelerators · slower: as of ShapedRows ·
    wider: the same on more columns, and which of those these are."""

    def __init__(
        self,
        rows: Sequence[Row],
        names: Mapping[str, str],
        times: Ints,
        slower: Array | None,
        wider: tuple[CountedRows, Ints] | None = None,
    ) -> None:
        self._each, self._names, self._times, self._slower, self._wider = rows, names, times, slower, wider

    def exposed(self, some: int) -> Iterator[tuple[str, str, Array | float]]:
        """(component, action, exposed seconds on the first so many columns) of each row, for which no row is made."""
        each, which = (self._each.source, self._each.which[:some]) if isinstance(self._each, _Picked) else (self._each, slice(some))
        for row in each:
            seconds = picked(row.exposed, which)
            if self._slower is not None and row.component == "compute":
                seconds = seconds + seconds * self._slower[:some]
            yield row.component, row.action, seconds

    @cached_property
    def joules(self) -> Array | float:
        """[n] of all rows."""
        if self._wider is not None:
            return picked(self._wider[0].joules, self._wider[1])  # type: ignore[no-any-return]
        return sum((row.joules * self._times for row in self._each), 0.0)

    def joules_of(self, action: str) -> Array | float:
        """[n] of rows of an action."""
        return sum((row.joules * self._times for row in self._each if row.action == action), 0.0)

    @cached_property
    def _rows(self) -> list[Row]:
        timed = self._each if self._slower is None else on_slowest(self._each, self._slower)
        return [row.scaled(self._times, self._names.get(row.tensor, row.tensor)) for row in timed]

    def pick(self, which: Ints) -> CountedRows:
        """The same on some columns."""
        slower = None if self._slower is None else self._slower[which]
        return CountedRows(_Picked(self._each, which), self._names, self._times[which], slower, (self, which))

    def __len__(self) -> int:
        return len(self._each)


class RowsOnShapes:
    """Rows of one accelerator, on each of some shapes."""

    def __init__(self, rows: Sequence[Row], shapes: int) -> None:
        self.rows, self._shapes = rows, shapes
        self._called: dict[tuple[tuple[str, str], ...], list[Row]] = {}

    def called(self, names: Mapping[str, str]) -> list[Row]:
        """The rows of tensors of other names."""
        return once(self._called, tuple(names.items()), lambda: [row.called(names.get(row.tensor, row.tensor)) for row in self.rows])

    @cached_property
    def joules(self) -> Any:
        """[shapes] of all rows, or one for all."""
        return np.asarray(sum((row.joules for row in self.rows), 0.0))

    @cached_property
    def computing(self) -> Any:
        """[shapes] exposed seconds of what computes, or one for all."""
        return np.asarray(sum((row.exposed for row in self.rows if row.component == "compute"), 0.0))

    @cached_property
    def figures(self) -> Array:
        """[rows, 4, shapes] amount, joules, seconds and exposed seconds of each."""
        return figures_of(self.rows, self._shapes)

    @cached_property
    def computes(self) -> Bools:
        """[rows] whether a row is of what computes."""
        return np.array([row.component == "compute" for row in self.rows], dtype=bool)


class ShapedRows(LazyRows):
    """rows: on each shape · names: of their tensors, where they have others · which: [n] the shape of each column · times: [n] accelerators
    · slower: [n] by how much what computes takes longer on the slowest of them, over its seconds; None = no longer."""

    def __init__(self, rows: RowsOnShapes, names: Mapping[str, str], which: Ints, times: Ints, slower: Array | None) -> None:
        self._shared, self._names, self._which, self._times, self._slower = rows, names, which, times, slower

    @property
    def _on_shapes(self) -> list[Row]:
        return self._shared.called(self._names)

    @cached_property
    def first(self) -> list[tuple[Row, tuple[float, ...]]]:
        """On the first column: (a row whose names hold, its amount, joules, seconds and exposed seconds)."""
        found = self._shared.figures[:, :, self._which[0]].copy()
        found[:, :2] *= self._times[0]
        if self._slower is not None:
            computes = self._shared.computes
            found[computes, 2] *= 1.0 + self._slower[0]
            found[computes, 3] += found[computes, 3] * self._slower[0]
        return list(zip(self._on_shapes, map(tuple, found.tolist()), strict=True))

    @cached_property
    def joules(self) -> Array:
        """[n] of all rows."""
        return self._of_each(self._shared.joules) * self._times

    def joules_of(self, action: str) -> Array | float:
        """[n] of rows of an action."""
        found = [row.joules for row in self._shared.rows if row.action == action]
        return self._of_each(np.asarray(sum(found))) * self._times if found else 0.0

    @property
    def longer(self) -> Array | float:
        """[n] seconds that they take longer on the slowest."""
        if self._slower is None:
            return 0.0
        return self._of_each(self._shared.computing) * self._slower

    def _of_each(self, figure: Array) -> Array:
        return np.asarray(np.broadcast_to(picked(figure, self._which), self._which.shape))

    def pick(self, which: Ints) -> ShapedRows:
        """The same on some columns."""
        slower = None if self._slower is None else self._slower[which]
        return ShapedRows(self._shared, self._names, self._which[which], self._times[which], slower)

    @cached_property
    def _rows(self) -> list[Row]:
        found = [row.pick(self._which) for row in self._on_shapes]
        if self._slower is not None:
            found = on_slowest(found, self._slower)
        return [row.scaled(self._times) for row in found]

    def __len__(self) -> int:
        return len(self._shared.rows)


def on_slowest(rows: Sequence[Row], slower: Array) -> list[Row]:
    """Rows on the slowest accelerator in use: what computes takes longer by `slower` [n] times its seconds."""
    return [
        row.lasting(row.seconds * (1.0 + slower), row.exposed + row.exposed * slower) if row.component == "compute" else row for row in rows
    ]


def figures_of(rows: Sequence[Row], n: int) -> Array:
    """[rows, 4, n] amount, joules, seconds and exposed seconds of each."""
    found = np.empty((len(rows), 4, n))
    for place, row in enumerate(rows):
        found[place, 0], found[place, 1], found[place, 2], found[place, 3] = row.amount, row.joules, row.seconds, row.exposed
    return found
