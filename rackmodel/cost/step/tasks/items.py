"""A priced task: what equal tasks of all plans share, and what one of them is in a layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.power import BUSY, WAITING
from rackmodel.cost.inside.roofline import Row, picked
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.shaped_rows import CountedRows, LazyRows, ShapedRows, figures_of
from rackmodel.cost.step.tasks.timed_task import TimedTask


class PickedRows(LazyRows):
    """Rows of a priced task on some columns, without links that these do not use. Made when they are asked for: the clock asks for seconds
    alone."""

    def __init__(self, priced: Priced, which: Ints) -> None:
        self._from = priced, which

    @cached_property
    def _used(self) -> list[int]:
        """Numbers of the rows that these columns use."""
        priced, which = self._from
        rows, figures = priced.named
        links = (row.component == "network" for row in rows)
        return [k for k, link in enumerate(links) if not link or figures[k, 0].take(which).any() or figures[k, 2].take(which).any()]

    @cached_property
    def named(self) -> tuple[tuple[Row, ...], Array]:
        """(rows of the task whose names hold, [rows, 4, n] figures of these)."""
        priced, which = self._from
        rows, figures = priced.named
        return tuple(rows[k] for k in self._used), figures[self._used].take(which, axis=2)

    def exposed(self, count: int) -> list[tuple[str, str, Array]]:
        """(component, action, exposed seconds on the first so many columns) of each row."""
        priced, which = self._from
        rows, figures = priced.named
        return [(rows[k].component, rows[k].action, figures[k, 3].take(which[:count])) for k in self._used]

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(
            Row(row.tensor, row.level, row.component, row.action, amount, row.unit, joules, seconds, exposed)
            for row, (amount, joules, seconds, exposed) in zip(*self.named, strict=True)
        )

    def __len__(self) -> int:
        return len(self._used)


def _one(figure: Array) -> float:
    return float(figure.item(0)) if isinstance(figure, np.ndarray) else float(figure)


@dataclass(frozen=True)
class Priced:
    """What a task takes. rows: its charges on all accelerators of a stage · seconds: [n] · launches: of the host, as of the task that the
    clock takes."""

    rows: Sequence[Row]
    seconds: Array
    launches: Array | float = 0

    @cached_property
    def joules(self) -> Array | float:
        """[n] of all its rows."""
        return self.rows.joules if isinstance(self.rows, ShapedRows | CountedRows) else sum((row.joules for row in self.rows), 0.0)

    @cached_property
    def lasting(self) -> tuple[Array | float, Array | float]:
        """[n] joules that follow how long its kernels take (inside/power): what they draw at work, and what accelerators would draw that
        wait as long, no more of it than that: a kernel that takes longer draws no less than one that waits."""
        busy, spared = self._joules_of(BUSY), -self._joules_of(WAITING)
        return busy, np.minimum(busy, spared)

    def longer(self, more: Array | float) -> dict[str, Array | float]:
        """Action → times as many joules as it has alone, of those that follow how long its kernels take. more: [n] of their seconds that
        they take longer."""
        spared, waiting = self.lasting[1], np.asarray(-self._joules_of(WAITING))
        none = np.zeros(np.broadcast_shapes(np.shape(spared), waiting.shape))
        return {BUSY: 1.0 + more, WAITING: 1.0 + more * np.divide(spared, waiting, out=none, where=waiting > 0)}

    def _joules_of(self, action: str) -> Array | float:
        if isinstance(self.rows, ShapedRows | CountedRows):
            return self.rows.joules_of(action)
        rows, figures = self.named
        return sum((figures[k, 1] for k, row in enumerate(rows) if row.action == action), 0.0)

    def exposed(self, some: int) -> Iterable[tuple[str, str, Array | float]]:
        """(component, action, exposed seconds on the first so many columns) of each row."""
        if isinstance(self.rows, CountedRows | PickedRows):
            return self.rows.exposed(some)
        return [(row.component, row.action, picked(row.exposed, slice(some))) for row in self.rows]

    @cached_property
    def named(self) -> tuple[tuple[Row, ...], Array]:
        """(rows whose names hold, [rows, 4, n] amount, joules, seconds and exposed seconds of each)."""
        if isinstance(self.rows, PickedRows):
            return self.rows.named
        return tuple(self.rows), figures_of(self.rows, len(self.seconds))

    @cached_property
    def first(self) -> list[tuple[Row, tuple[float, ...]]]:
        """On the first column: (a row whose names hold, its amount, joules, seconds and exposed seconds)."""
        if isinstance(self.rows, ShapedRows):
            return self.rows.first
        if isinstance(self.rows, PickedRows) or len(self.seconds) != 1:
            rows, figures = self.named
            return list(zip(rows, map(tuple, figures[:, :, 0].tolist()), strict=True))
        return [(row, (_one(row.amount), _one(row.joules), _one(row.seconds), _one(row.exposed))) for row in self.rows]

    def pick(self, which: Ints) -> Priced:
        """The same on some columns."""
        rows = self.rows.pick(which) if isinstance(self.rows, ShapedRows | CountedRows) else PickedRows(self, which)
        return Priced(rows, picked(self.seconds, which), picked(self.launches, which))


@dataclass(kw_only=True)
class Item:
    """A task of a layer, priced. (Never changed, as tasks.) role: in the clock (layers) · part: 'forward', 'recompute', 'backward',
    'weight' (the part of backward that makes weights' gradients) or 'optimizer' · hidden: [n] seconds that a window can hide · beside: [n]
    seconds of collectives that windows can hide beside it · port_s: [n] that it holds a home's shared port."""

    task: Task
    role: str
    part: str
    priced: Priced
    hidden: Array | None = None
    beside: Array | None = None
    port_s: Array | None = None

    @property
    def rows(self) -> Sequence[Row]:
        """Its charges on all accelerators of a stage."""
        return self.priced.rows

    @property
    def seconds(self) -> Array:
        """[n] of one time."""
        return self.priced.seconds

    @property
    def launches(self) -> Array | float:
        """Of the host."""
        return self.priced.launches

    @property
    def waits_for_port(self) -> bool:
        """As of the task that the clock takes."""
        return self.port_s is not None and self.task.channel != "home"

    @property
    def once(self) -> bool:
        """Whether it happens once a step."""
        return self.task.once or self.role in ("update", "spread", "home", "tail")

    @property
    def phase_of_bubble(self) -> str:
        """The phase in which another stage waits for it."""
        return "forward" if self.part == "forward" else "backward"

    def pick(self, which: Ints) -> Item:
        """The same on some columns."""
        hidden, beside, port_s = (picked(figure, which) for figure in (self.hidden, self.beside, self.port_s))
        priced = self.priced.pick(which)
        return Item(task=self.task, role=self.role, part=self.part, priced=priced, hidden=hidden, beside=beside, port_s=port_s)

    def timed(self, hide: Array | float) -> TimedTask:
        """The task as the clock takes it. hide: share of what its window can hide that is hidden."""
        seconds = self.on_lane(hide)
        return TimedTask(task=self.task, seconds=seconds, port_s=self.port_s, weight=self.part == "weight", launches=self.launches)

    def on_lane(self, hide: Array | float, count: int | None = None) -> Array:
        """[n] seconds on its lane, what its window hides taken off. count: of so many columns, the first, None = all."""
        first = slice(count)
        seconds: Array = picked(self.seconds, first)
        return seconds if self.hidden is None or not np.any(hide) else seconds - picked(hide, first) * picked(self.hidden, first)


def launched(count: Array | float, seconds: Array) -> Array | float:
    """What the host launches for a task, of each mapping: nothing where it takes no time (it runs with another, or in a group of one)."""
    runs = np.asarray(seconds) > 0
    return count if runs.all() else np.where(runs, count, 0.0) if runs.any() else 0
