"""Cost tables of tensors over interfaces, all entries of a table at once.

    cost(activation) = copies(produced → wanted, saved) + re-gathers(saved → read back) + Σ merged contributions → gradient's target
    cost(weight)     = what derivation makes of the weight alone, under each combination of its readers' interfaces and each home

A step of n micro-batches counts activations n times, and of weights what its program does once a step once. An activation couples so many
operations that a program for each cell of its table would take minutes: its rules are on arrays of codes (`codes`), those of
model/copies and cost/program/traffic again. `tests/layout_tables` holds both against the engine, layout by layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.tasks import Kind, Program, Task, local, message
from rackmodel.cost.program.widths import kept_bytes, sent_bytes
from rackmodel.mapper.layouts.codes import Codes, LayoutCodes, Mover
from rackmodel.mapper.layouts.interfaces import Cells, Faces, Index, Interfaces, Strategy
from rackmodel.model.conversion import convert
from rackmodel.model.layout import Layout
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Tensor, Workload

Spend = Callable[[Task], tuple[Any, Any]]
"""Two figures of a task: a number each, or [n] of many columns."""
SAVES = ("shard", "gathered")


@dataclass(frozen=True)
class TensorTable:
    """seconds, joules, bytes: one dimension for each of `variables`, over its classes · classes: strategy → class · ahead_seconds,
    ahead_joules: of those, an activation's forward passes' alone; of weights 0."""

    variables: tuple[str, ...]
    classes: tuple[Index, ...]
    seconds: Array
    joules: Array
    bytes: Array
    ahead_seconds: Array
    ahead_joules: Array


CELLS = 5e6  # of a table


@dataclass(frozen=True, kw_only=True)
class TableSetting:
    """What every table is made in. plan: what all plans have alike · made_again: tensors recomputed instead of saved · spend: seconds and
    joules of a task · share: bytes on the fullest accelerator · derived: what a program does of a weight, under choices of its readers and
    a home · held: bytes of that, of one layer · backing: level that inputs come from, '' = none · micro_batches: passes in a step ·
    tail: shape of what `spend` and `share` say, () of one column; tables have it last."""

    workload: Workload
    plan: Plan
    made_again: frozenset[str]
    spend: Spend
    share: Callable[[float, Layout, Tensor], Any]
    derived: Callable[[str, dict[str, Strategy], HomeSpec], Program]
    held: Callable[[Program], float]
    backing: str
    micro_batches: int
    tail: tuple[int, ...]


class TooLarge(Exception):
    """A table would have too many cells: the mapper should fix some choices."""

    @classmethod
    def coupled(cls, names: Sequence[str], cells: float, limit: float, how: str = "") -> TooLarge:
        """What some names (of operations, or of a tensor) couple. how: words between the two, which end in a space."""
        verb = "couple" if how or len(names) > 1 else "couples"
        return cls(f"{', '.join(names)} {how}{verb} {cells:.3g} combinations, the limit is {limit:.0g}")


class TensorTables:
    """Builds the table of one tensor after another."""

    def __init__(self, setting: TableSetting, interfaces: Interfaces) -> None:
        self.setting, self.workload, self.interfaces = setting, setting.workload, interfaces

    # -- one table -----------------------------------------------------------------------------------------------------

    def table(self, name: str, policies: Sequence[str], homes: Sequence[HomeSpec]) -> TensorTable:
        """policies, homes: the options; the last dimension is theirs, in that order, if there is more than one. Raises TooLarge."""
        parts = self.interfaces.of(name)
        options = max(len(policies), len(homes))
        shape = tuple(len(part.known) for part in parts)
        count = float(np.prod([float(n) for n in (*shape, options)]))
        if count > CELLS:
            raise TooLarge.coupled([name], count, CELLS)
        tensor = self.workload.tensors[name]
        if tensor.kind == "weight":
            columns = [self._weight(name, parts, home) for home in homes]
            return self._table(parts, columns)
        codes = LayoutCodes((layout for part in parts for face in part.known for layout in face.layouts), len(self.setting.plan.axes))
        cells = Cells(self.workload, name, parts, codes)
        if cells.read_back or tensor.name in self.setting.made_again or options == 1:
            columns = [self._activation(tensor, cells, policy) for policy in policies]
        else:
            columns = [self._activation(tensor, cells, policies[0])] * options
        return self._table(parts, columns)

    def _table(self, parts: Sequence[Faces], columns: Sequence[Array]) -> TensorTable:
        """columns: [5, cells, ...] figures of each option."""
        shape, options = tuple(len(part.known) for part in parts), [len(columns)] if len(columns) > 1 else []
        figures = np.stack(columns, axis=2).reshape(5, *shape, *options, *self.setting.tail) * self.workload.repeat
        return TensorTable(tuple(part.operation for part in parts), tuple(part.which for part in parts), *figures)

    def _activation(self, tensor: Tensor, cells: Cells, policy: str) -> Array:
        """[5, cells] figures of an activation, an input or an output, as a table has them."""
        codes, setting = cells.codes, self.setting
        sent, kept_whole = sent_bytes(tensor, setting.plan), kept_bytes(tensor, setting.plan)
        mover = Mover(codes, lambda a, b: self._convert(tensor.name, a, b, sent), setting.tail)
        held = np.zeros((cells.count, *setting.tail))
        if tensor.name in setting.made_again:
            back = cells.back + cells.again
            ahead = mover.copies(cells.produced, cells.wanted)
            cost = ahead + mover.copies(cells.produced, [*cells.wanted, *cells.back], back)
            if cells.back and tensor.name not in setting.plan.on_chip:  # of one layer at a time, what a backward pass reads
                kept = codes.saved(policy == "gathered", cells.produced, cells.wanted, cells.back)
                each = self.workload.repeat
                held = self._per_layout(codes, kept, lambda layout: (setting.share(tensor.bytes, layout, tensor) / each, 0.0))[0]
        elif cells.read_back:
            back = cells.back + cells.again
            saved = codes.saved(policy == "gathered", cells.produced, cells.wanted, back)
            ahead = mover.copies(cells.produced, [*cells.wanted, saved])
            cost = ahead + mover.copies(saved, back)
            held = self._per_layout(codes, saved, lambda layout: (setting.share(kept_whole, layout, tensor), 0.0))[0]
        else:
            cost = ahead = mover.copies(cells.produced, cells.wanted)
        if cells.target is not None:
            reducer = Mover(codes, lambda a, b: self._convert(tensor.name, a, b, tensor.gradient_bytes), setting.tail)
            for layout in codes.sums(cells.contributions):
                cost = cost + reducer.convert(layout, cells.target)
        if cells.boundary is not None:
            cost = cost + self._per_layout(codes, cells.boundary, lambda layout: self._edge(tensor, layout))
        return np.stack([*(cost * setting.micro_batches), held, *(ahead * setting.micro_batches)])

    def _weight(self, name: str, parts: Sequence[Faces], home: HomeSpec) -> Array:
        """[5, cells] of a weight in one home: what derivation says of it under each."""
        setting, shape = self.setting, tuple(len(part.known) for part in parts)
        figures = np.zeros((3, *shape))
        for cell in np.ndindex(*shape):
            choices = {part.operation: part.strategies[which] for part, which in zip(parts, cell, strict=True)}
            program = setting.derived(name, choices, home)
            for task in (task for task in program.tasks if not task.joins):
                times = 1 if task.once else setting.micro_batches
                figures[(slice(2), *cell)] += [times * spent for spent in setting.spend(task)]
            figures[(2, *cell)] = setting.held(program)
        return np.concatenate([figures.reshape(3, -1), np.zeros((2, prod(shape)))])

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _per_layout(self, codes: LayoutCodes, at: Codes, figure: Callable[[Layout], tuple[float, float]]) -> Array:
        """[2, cells] a figure of one layout; nothing where the code is -1."""
        table = np.zeros((2, codes.count + 1, *self.setting.tail))
        for code in np.unique(at[at >= 0]):
            table[0, code], table[1, code] = figure(codes.layouts[code])
        return table[:, at]

    def _convert(self, name: str, source: Layout, target: Layout, total: float) -> tuple[float, float]:
        seconds = joules = 0.0
        for step in convert(source, target):
            volume = message(total, step, self.workload.tensors[name], self.setting.plan)
            task = Task("collective", "forward", "", name, 0, step.collective, (), axes=step.axes, volume=volume)
            spent = self.setting.spend(task)
            seconds, joules = seconds + spent[0], joules + spent[1]
        return seconds, joules

    def _edge(self, tensor: Tensor, boundary: Layout) -> tuple[float, float]:
        if not self.setting.backing or tensor.bytes == 0:
            return 0.0, 0.0
        ends: list[tuple[Kind, str]] = [("load", "read")] if tensor.kind == "input" else [("store", "write")]
        if self.workload.backward:
            ends.append(("store", "write") if tensor.kind == "input" else ("load", "read"))
        spent = [self._backing(tensor, kind, action, boundary) for kind, action in ends]
        return sum(s for s, _ in spent), sum(j for _, j in spent)

    def _backing(self, tensor: Tensor, kind: Kind, action: str, layout: Layout) -> tuple[float, float]:
        volume = local(tensor.bytes, layout, tensor, self.setting.plan)
        if volume.total == 0:
            return 0.0, 0.0
        level = self.setting.backing
        return self.setting.spend(Task(kind, "forward", "", tensor.name, 0, action, (), volume=volume, level=level, layout=layout))
