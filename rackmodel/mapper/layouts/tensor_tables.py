"""Cost tables of tensors over interfaces, all entries of a table at once.

    cost(T) = copies(produced → wanted, saved) + re-gathers(saved → read back) + Σ merged contributions → gradient's target

A step of n micro-batches counts activations n times; of weights it counts what is made again for each micro-batch (ZeRO-3
gathers, ZeRO-2/3 reductions) n times and the rest once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.buckets import bucketed
from rackmodel.cost.program.tasks import Kind, Task, local, message
from rackmodel.cost.program.update_ops import optimizer_op, sharded_sum_op, swept_op
from rackmodel.cost.step.bounds.memory import BUFFERS
from rackmodel.mapper.layouts.codes import Codes, LayoutCodes, Mover
from rackmodel.mapper.layouts.interfaces import Cells, Index, Interfaces
from rackmodel.model.conversion import convert
from rackmodel.model.layout import FLAT, PARTIAL, REPLICATE, Layout
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


@dataclass(frozen=True)
class TableSetting:
    """What every table is made in. made_again: tensors recomputed instead of saved · spend: seconds and joules of a task ·
    share: bytes on the fullest accelerator · plan: what all plans have alike · backing: level that inputs and weights come from, '' =
    none · micro_batches: passes in a step · on_chip: tensors that are never held · limit: cells of a table ·
    tail: shape of what `spend` and `share` say, () of one column; tables have it last."""

    workload: Workload
    axes: tuple[str, ...]
    made_again: frozenset[str]
    spend: Spend
    share: Callable[[float, Layout, Tensor], Any]
    plan: Plan
    backing: str
    micro_batches: int = 1
    on_chip: frozenset[str] = frozenset()
    limit: float = 5e6
    tail: tuple[int, ...] = ()


class TooLarge(Exception):
    """A table would have too many cells: the mapper should fix some choices."""


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
        if count > self.setting.limit:
            raise TooLarge(f"{name} couples {count:.3g} combinations, the limit is {self.setting.limit:.0g}")
        codes = LayoutCodes((layout for part in parts for face in part.known for layout in face.layouts), len(self.setting.axes))
        cells = Cells(self.workload, name, parts, codes)
        tensor = self.workload.tensors[name]
        if tensor.kind == "weight":
            columns = [self._weight(tensor, cells, home) for home in homes]
        elif cells.read_back or tensor.name in self.setting.made_again or options == 1:
            columns = [self._activation(tensor, cells, policy) for policy in policies]
        else:
            columns = [self._activation(tensor, cells, policies[0])] * options
        tail = self.setting.tail
        figures = np.stack(columns, axis=2).reshape(5, *shape, *([options] if options > 1 else []), *tail) * self.workload.repeat
        return TensorTable(tuple(part.operation for part in parts), tuple(part.which for part in parts), *figures)

    def _activation(self, tensor: Tensor, cells: Cells, policy: str) -> Array:
        """[5, cells] figures of an activation, an input or an output, as a table has them."""
        codes, setting = cells.codes, self.setting
        mover = Mover(codes, lambda a, b: self._convert(tensor.name, a, b, tensor.bytes, "device"), setting.tail)
        held = np.zeros((cells.count, *setting.tail))
        if tensor.name in setting.made_again:
            back = cells.back + cells.again
            ahead = mover.copies(cells.produced, cells.wanted)
            cost = ahead + mover.copies(cells.produced, [*cells.wanted, *cells.back], back)
            if cells.back and tensor.name not in setting.on_chip:  # of one layer at a time, what a backward pass reads
                kept = codes.saved(policy == "gathered", cells.produced, cells.wanted, cells.back)
                each = self.workload.repeat
                held = self._per_layout(codes, kept, lambda layout: (setting.share(tensor.bytes, layout, tensor) / each, 0.0))[0]
        elif cells.read_back:
            back = cells.back + cells.again
            saved = codes.saved(policy == "gathered", cells.produced, cells.wanted, back)
            ahead = mover.copies(cells.produced, [*cells.wanted, saved])
            cost = ahead + mover.copies(saved, back)
            held = self._per_layout(codes, saved, lambda layout: (setting.share(tensor.bytes, layout, tensor), 0.0))[0]
        else:
            cost = ahead = mover.copies(cells.produced, cells.wanted)
        if cells.target is not None:
            reducer = Mover(codes, lambda a, b: self._convert(tensor.name, a, b, tensor.gradient_bytes, "device"), setting.tail)
            for layout in codes.sums(cells.contributions):
                cost = cost + reducer.convert(layout, cells.target)
        if cells.boundary is not None:
            cost = cost + self._per_layout(codes, cells.boundary, lambda layout: self._edge(tensor, layout))
        return np.stack([*(cost * setting.micro_batches), held, *(ahead * setting.micro_batches)])

    def _weight(self, tensor: Tensor, cells: Cells, home: HomeSpec) -> Array:
        """[5, cells] of a weight in one home."""
        codes, setting, name = cells.codes, self.setting, tensor.name
        compute = codes.map_axes(lambda p: REPLICATE if p == PARTIAL else p, cells.wanted[0])
        rest = self._sharded(codes, compute, home, home.state)
        apart = self._sharded(codes, compute, home.model_copy(update={"axes": home.apart}), home.state)
        produced = self._sharded(codes, compute, home, home.param)
        gradient = tensor.elements * self.workload.gradient_bits / 8
        mover = Mover(codes, lambda a, b: self._convert(name, a, b, tensor.bytes, "weights"), setting.tail)
        reducer = Mover(codes, lambda a, b: self._convert(name, a, b, gradient, "weights"), setting.tail)
        n = setting.micro_batches
        cost = (mover.copies(produced, cells.wanted) + mover.copies(produced, cells.back + cells.again)) * n
        if home.at is not None:
            fetch = self._per_layout(codes, compute, lambda layout: self._stream(name, layout, "broadcast", tensor.bytes, home))
            cost = cost + fetch * n * (1 + bool(cells.read_back) + bool(cells.again))
        elif setting.backing and not self.workload.resident:
            cost = cost + self._per_layout(codes, produced, lambda layout: self._backing(tensor, "load", "read", layout))
        times = 1 if home.grad == "replicate" else n
        for layout in codes.sums(cells.contributions):
            if home.at is not None:
                reduce = self._per_layout(codes, layout, lambda at: self._stream(name, at, "reduce", gradient, home))
                cost = cost + reduce * n
                continue
            there = layout >= 0
            summed = np.where(there, codes.map_axes(lambda now, end, then: now if end == FLAT else then, layout, apart, compute), -1)
            cost = cost + (reducer.convert(layout, summed) + reducer.convert(summed, np.where(there, rest, -1))) * times
            if home.grad == "shard":
                added = self._per_layout(codes, np.where(there, rest, -1), lambda at: setting.spend(self._sum_so_far(tensor, at)))
                cost = cost + added * n
            if home.gathered_after(self.workload.phases):
                cost = cost + mover.convert(np.where(there, rest, -1), compute)
        if "optimizer" in self.workload.phases and tensor.trained and home.at is None:
            cost = cost + self._per_layout(codes, rest, lambda layout: setting.spend(self._update(tensor, layout)))
            summed = self._sharded(codes, compute, home, home.grad)
            cost = cost + self._per_layout(codes, summed, lambda layout: self._swept(tensor, layout))
        held = self._per_layout(codes, compute, lambda layout: (self._weight_bytes(tensor, layout, home), 0.0))[0]
        return np.stack([*cost, held, *np.zeros_like(cost)])

    def _sharded(self, codes: LayoutCodes, layout: Codes, home: HomeSpec, said: str) -> Codes:
        """A layout further sharded over the axes of the home, where `said` is 'shard'."""
        return np.array([codes.code(self._at_home(known, home, said)) for known in codes.layouts], dtype=np.int32)[layout]

    def _at_home(self, layout: Layout, home: HomeSpec, said: str) -> Layout:
        axes = home.axes if said == "shard" else ()
        return tuple(FLAT if p == REPLICATE and axis in axes else p for p, axis in zip(layout, self.setting.axes, strict=True))

    def _weight_bytes(self, tensor: Tensor, compute: Layout, home: HomeSpec) -> float:
        if home.at is not None:
            return 0.0
        parts = [(tensor.bytes, home.param)]
        if self.workload.backward and tensor.trained:
            parts.append((tensor.elements * self.workload.gradient_bits / 8, home.grad))
        if "optimizer" in self.workload.phases and tensor.trained:
            parts.append((tensor.elements * self.workload.state_bits / 8, home.state))
        kept = sum(self.setting.share(total, self._at_home(compute, home, said), tensor) for total, said in parts)
        over = tuple(FLAT if axis in home.axes else REPLICATE for axis in self.setting.axes)
        ranks, passes = 1.0 / self.setting.share(1.0, over, tensor), self.setting.micro_batches
        moving = [parts[0][0]] if home.param == "shard" and ranks > 1 else []  # gathered
        if self.workload.backward and tensor.trained and home.grad == "shard" and ranks * passes > 1:
            moving.append(parts[1][0])  # about to be reduced, or to be added to the sum
        return float(kept + BUFFERS / self.workload.repeat * sum(self.setting.share(total, compute, tensor) for total in moving))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _per_layout(self, codes: LayoutCodes, at: Codes, figure: Callable[[Layout], tuple[float, float]]) -> Array:
        """[2, cells] a figure of one layout; nothing where the code is -1."""
        table = np.zeros((2, codes.count + 1, *self.setting.tail))
        for code in np.unique(at[at >= 0]):
            table[0, code], table[1, code] = figure(codes.layouts[code])
        return table[:, at]

    def _convert(self, name: str, source: Layout, target: Layout, total: float, channel: str) -> tuple[float, float]:
        seconds = joules = 0.0
        weight = self.workload.tensors[name].kind == "weight"
        together = bucketed(self.workload, name, total, self.workload.repeat) if weight else None
        for step in convert(source, target):
            volume = message(total, step, self.workload.tensors[name], self.setting.plan)
            task = Task("collective", "forward", "", name, 0, step.collective, (), channel, step.axes, volume, bucketed=together)
            spent = self.setting.spend(task)
            seconds, joules = seconds + spent[0], joules + spent[1]
        return seconds, joules

    def _stream(self, name: str, layout: Layout, action: str, total: float, home: HomeSpec) -> tuple[float, float]:
        volume = local(total, layout, self.workload.tensors[name], self.setting.plan)
        channel = "weights" if action == "broadcast" else "gradients"
        task = Task("stream", "forward", "", name, 0, action, (), channel, (), volume, level=home.at or "", layout=layout)
        return self.setting.spend(task)

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

    def _sum_so_far(self, tensor: Tensor, shard: Layout) -> Task:
        """What a micro-batch's reduction leaves here is added to the sum so far, as cost/program/derive has it."""
        local_op = sharded_sum_op(tensor, shard, self.setting.plan, self.workload)
        return Task("op", "backward", "", tensor.name, 0, "vector", (), "weights", local_op=local_op)

    def _swept(self, tensor: Tensor, summed: Layout) -> tuple[float, float]:
        """Passes over the gradient as it is summed here, as cost/program/derive has them."""
        local_op = swept_op(tensor, summed, self.setting.plan, self.workload)
        if local_op is None:
            return 0.0, 0.0
        return self.setting.spend(Task("op", "optimizer", "", tensor.name, 0, "vector", (), local_op=local_op, once=True))

    def _update(self, tensor: Tensor, shard: Layout) -> Task:
        """One step of the optimizer on the shard of the state that lives here, as cost/program/derive has it."""
        local_op = optimizer_op(tensor, shard, self.setting.plan, self.workload)
        return Task("op", "optimizer", "", tensor.name, 0, "vector", (), local_op=local_op, once=True)
