"""What kernels that take several operations together change in a layout problem's tables, by the layouts of these operations.

    together = one kernel of those whose shares agree, as a step merges them (cost/step/tasks/merged, cost/program/fusion)
    change   = what is together - what its operations take alone         seconds, joules: one table for each such group

Products of one operand, and what norms sum over accelerators, are one kernel where all but their columns is split alike; a norm makes the
sum before it where both lie alike, and an all-reduce's kernel may go on with both. The tables of operations are of each alone; sums of
these and of changes are what a step's tasks take one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.fusion import summed_axes, sums_before_norms
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.merged import RUNS, products_alike, run_of, side_by_side, statistics_alike, summed_message
from rackmodel.mapper.layouts.interfaces import Index, Strategy
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.model.layout import PARTIAL
from rackmodel.model.plan import Plan
from rackmodel.model.profile import Merged
from rackmodel.model.workload import Op, Workload

Pair = tuple[Any, Any]
Figures = tuple[Any, ...]  # of a change, in its order
Share = Callable[[Sequence[tuple[str, Task]]], float]
"""(Operation, one of its products) of each partner that is in a kernel → the part of the kernel that is counted."""
CELLS = 5e6  # of a table, columns among them


@dataclass(frozen=True)
class Change:
    """What a group's kernels change, one dimension an operation over its classes, the columns last. classes: strategy → class, for each ·
    ahead, behind: seconds of a micro-batch's forward pass, and of what follows it · joules: of both · launches, launches_weight: of the
    host, those of products that make weights' gradients apart."""

    operations: tuple[str, ...]
    classes: tuple[Index, ...]
    ahead: Array
    behind: Array
    joules: Array
    launches: Array
    launches_weight: Array

    @property
    def seconds(self) -> Array:
        """Of a micro-batch."""
        return self.ahead + self.behind

    def of_values(self, figures: Array) -> Array:
        """Some of its figures, over strategies."""
        return figures[np.ix_(*self.classes)] if self.classes else figures


@dataclass(frozen=True, kw_only=True)
class MergedLayer:
    """Operations whose kernels may be merged. plan: of some choices · tasks: what an operation runs in a micro-batch under a plan ·
    degrees: of the columns · spend: seconds and joules of a task, each a number or [columns] · unknown: the same of one that is no key ·
    tail: () or (columns,) · starts: what the host launches for a task."""

    workload: Workload
    merged: Merged
    strategies: dict[str, tuple[Strategy, ...]]
    plan: Callable[[dict[str, Strategy]], Plan]
    tasks: Callable[[Op, Plan], list[Task]]
    degrees: Ints
    spend: Callable[[Task], Pair]
    unknown: Callable[[Task], Pair]
    tail: tuple[int, ...] = ()
    starts: Callable[[Task], Any] = lambda task: 0.0

    def changes(self, *, wide: bool) -> list[Change]:
        """Of all groups. wide: where a table would be too large, what it changes at least, whatever is chosen, stands for it; else that
        raises TooLarge."""
        found = [group.change(wide=wide) for group in (*self._products, *self._statistics())]
        return found + [group.change(wide=wide) for group in self._residuals()]

    def rooms(self, share: Share, partners: Sequence[str], variables: Sequence[str]) -> list[Change]:
        """What merging changes, at most, in the seconds of partners' products, each counted by its share. variables: operations whose
        choices are given, the others' are any."""
        return [group.rooms(share, partners, variables) for group in self._products if any(m.name in partners for m in group.members)]

    def alone(self, name: str, number: int) -> list[Task]:
        """What an operation runs under one of its strategies, not merged."""
        return self.tasks(self.workload.ops[name], self.plan({name: self.strategies[name][number]}))

    def wide(self, shape: Sequence[int]) -> bool:
        """Whether a table is too large."""
        return prod(map(float, (*shape, *self.tail))) > CELLS

    # -- groups
    @cached_property
    def _products(self) -> list[_Alike]:
        """Products of one operand."""
        asked = self.merged.projections
        return [group for run in RUNS for group in self._alike(asked, partial(self._product, run), self._side_by_side, run)]

    def _product(self, run: str, op: Op, tasks: Sequence[Task]) -> tuple[Task, Hashable] | None:
        for task in tasks:
            same = products_alike(task, self.merged.apart)
            if same is not None and run_of(task) == run:
                return task, same
        return None

    def _side_by_side(self, tasks: Sequence[Task]) -> Pair:
        members = [task.local_op for task in tasks if task.local_op is not None]
        return self.unknown(replace(tasks[0], local_op=side_by_side(members, self.degrees)))

    def _statistics(self) -> list[_Alike]:
        """What norms sum over accelerators."""
        return self._alike(self.merged.statistics, self._statistic, lambda tasks: self.spend(summed_message(tasks)), "forward")

    def _statistic(self, op: Op, tasks: Sequence[Task]) -> tuple[Task, Hashable] | None:
        for task in tasks:
            same = statistics_alike(task, self.workload)
            if same is not None:
                return task, same
        return None

    def _alike(
        self,
        asked: bool,
        pick: Callable[[Op, Sequence[Task]], tuple[Task, Hashable] | None],
        together: Callable[[Sequence[Task]], Pair],
        run: str,
    ) -> list[_Alike]:
        """Groups of operations some of whose tasks may be alike. pick: that task, and what it has in common with those that run with it ·
        run: which of RUNS it is."""
        members = [] if not asked else [self._member(op, pick) for op in self.workload.ops.values()]
        groups: list[list[_Member]] = []
        for member in members:
            joins = [group for group in groups if any(set(other.alike) & set(member.alike) - {None} for other in group)]
            groups = [group for group in groups if group not in joins] + [[one for group in joins for one in group] + [member]]
        return [_Alike(self, group, together, run) for group in groups if len(group) > 1]

    def _member(self, op: Op, pick: Callable[[Op, Sequence[Task]], tuple[Task, Hashable] | None]) -> _Member:
        known: dict[tuple[Task, Hashable] | None, int] = {}
        each = [pick(op, self.alone(op.name, number)) for number in range(len(self.strategies[op.name]))]
        classes = np.array([known.setdefault(one, len(known)) for one in each], dtype=np.intp)
        return _Member(
            op.name, classes, [None if one is None else one[0] for one in known], [None if one is None else one[1] for one in known]
        )

    def _residuals(self) -> list[_Residual]:
        """Norms that make the sum before them."""
        norms: dict[str, list[Op]] = {}
        for norm, sum_ in sums_before_norms(self.workload) if self.merged.residuals else ():
            norms.setdefault(sum_.name, []).append(norm)
        return [_Residual(self, self.workload.ops[name], own) for name, own in norms.items()]


@dataclass(frozen=True, eq=False)
class _Member:
    """An operation of a group. classes: strategy → class · tasks: of a class, that which may run with others; None: none · alike: what it
    has in common with those."""

    name: str
    classes: Index
    tasks: list[Task | None]
    alike: list[Hashable]


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Several products, or sums, as one. same: what they have in common · cells: those of its members' classes that have it ·
    tasks: (operation, one of its tasks) of each · alone: seconds and joules of each by itself · together: of all · starts: launches."""

    same: Hashable
    cells: tuple[Any, ...]
    tasks: list[tuple[str, Task]]
    alone: list[Pair]
    together: Pair
    starts: list[Any]

    @property
    def changes(self) -> tuple[Any, Any, Any]:
        """Seconds, joules and launches beyond those of each alone: as one it is launched as its first is, or as none is less."""
        seconds, joules = self.together
        launches = reduce(np.minimum, self.starts) - sum(self.starts)
        return seconds - sum(s for s, _ in self.alone), joules - sum(j for _, j in self.alone), launches


@dataclass(frozen=True, eq=False)
class _Alike:
    """Operations whose tasks run as one where they are alike. together: seconds and joules of several · run: which of RUNS these are."""

    layer: MergedLayer
    members: list[_Member]
    together: Callable[[Sequence[Task]], Pair]
    run: str

    def change(self, *, wide: bool) -> Change:
        """What that changes."""
        shape = [len(member.alike) for member in self.members]
        if self.layer.wide(shape):
            if not wide:
                raise TooLarge.coupled([one.name for one in self.members], prod(map(float, shape)), CELLS, "may be one kernel and ")
            return self._at_least()
        found = np.zeros((3, *shape, *self.layer.tail))
        for kernel in self._kernels:
            for kind, figure in enumerate(kernel.changes):
                found[(kind, *kernel.cells)] += figure
        operations, classes = zip(*((member.name, member.classes) for member in self.members), strict=True)
        return self._changing(operations, classes, found)

    def _changing(self, operations: tuple[str, ...], classes: tuple[Index, ...], found: Array) -> Change:
        """The change of seconds, joules and launches [3, ...]."""
        none = np.zeros_like(found[0])
        seconds = (found[0], none) if self.run == "forward" else (none, found[0])
        launches = (none, found[2]) if self.run == "weight" else (found[2], none)
        return Change(operations, classes, *seconds, found[1], *launches)

    def _at_least(self) -> Change:
        """The sums over what may be alike of the least that one kernel changes."""
        least: dict[Hashable, Array] = {}
        for kernel in self._kernels:
            here = np.stack([np.broadcast_to(figure, self.layer.tail) for figure in kernel.changes])
            least[kernel.same] = np.minimum(least.get(kernel.same, 0.0), here)
        found = sum(least.values(), np.zeros((3, *self.layer.tail)))
        return self._changing((), (), found)

    def rooms(self, share: Share, partners: Sequence[str], variables: Sequence[str]) -> Change:
        """What that changes in the seconds of partners' products."""
        shape, kept = [len(member.alike) for member in self.members], [member.name in variables for member in self.members]
        if self.layer.wide(shape):
            return self._rooms_at_most(share, partners)
        found = np.zeros((*shape, *self.layer.tail))
        for kernel in self._kernels:
            found[kernel.cells] += self._room(kernel, share, partners)
        found = found.max(axis=tuple(n for n, one in enumerate(kept) if not one), initial=-np.inf)
        mine = [member for member, one in zip(self.members, kept, strict=True) if one]
        return self._changing(tuple(m.name for m in mine), tuple(m.classes for m in mine), np.stack([found, 0.0 * found, 0.0 * found]))

    def _rooms_at_most(self, share: Share, partners: Sequence[str]) -> Change:
        """The sum over what may be alike of the most that one kernel changes."""
        most: dict[Hashable, Any] = {}
        for kernel in self._kernels:
            most[kernel.same] = np.maximum(most.get(kernel.same, 0.0), self._room(kernel, share, partners))
        found = sum(most.values(), np.zeros(self.layer.tail))
        return self._changing((), (), np.stack([found, 0.0 * found, 0.0 * found]))

    def _room(self, kernel: _Kernel, share: Share, partners: Sequence[str]) -> Any:
        """Seconds that a kernel adds to what partners' products count apart."""
        mine = [one for one in kernel.tasks if one[0] in partners]
        apart = sum(share([one]) * seconds for one, (seconds, _) in zip(kernel.tasks, kernel.alone, strict=True) if one in mine)
        return share(mine) * kernel.together[0] - apart if mine else 0.0

    @cached_property
    def _kernels(self) -> list[_Kernel]:
        """Each kernel of several."""
        found = []
        for same, chosen in self._chosen():
            tasks = self._tasks(chosen)
            cells = [
                [n for n, own in enumerate(member.alike) if own != same] if number is None else [number]
                for member, number in zip(self.members, chosen, strict=True)
            ]
            each = [task for _, task in tasks]
            alone, starts = map(self.layer.spend, each), map(self.layer.starts, each)
            found.append(_Kernel(same, np.ix_(*cells), tasks, list(alone), self.together(each), list(starts)))
        return found

    def _chosen(self) -> Iterator[tuple[Hashable, tuple[int | None, ...]]]:
        """(what they have in common, class of each member in it, None = another) of each kernel of several."""
        for same in dict.fromkeys(one for member in self.members for one in member.alike if one is not None):
            each: list[list[int | None]] = []
            for member in self.members:
                mine: list[int | None] = [n for n, own in enumerate(member.alike) if own == same]
                each.append([*mine, None] if len(mine) < len(member.alike) else mine)
            for chosen in itertools.product(*each):
                if sum(number is not None for number in chosen) > 1:
                    yield same, chosen

    def _tasks(self, chosen: Sequence[int | None]) -> list[tuple[str, Task]]:
        there = [(m.name, m.tasks[number]) for m, number in zip(self.members, chosen, strict=True) if number is not None]
        return [(name, task) for name, task in there if task is not None]


@dataclass(frozen=True, eq=False)
class _Residual:
    """A sum and the norms that read it. Where an all-reduce goes on with a norm, who makes what is summed says over which axes."""

    layer: MergedLayer
    sum_: Op
    norms: list[Op]

    def change(self, *, wide: bool) -> Change:
        """What norms that make the sum change."""
        layer, ops = self.layer, self._ops
        classes = {op.name: self._classes(op) for op in ops}
        shape = [int(own.max()) + 1 for own in classes.values()]
        if layer.wide(shape):
            if not wide:
                raise TooLarge.coupled(list(classes), prod(map(float, shape)), CELLS)
            return self._at_least()
        found = np.zeros((5, *shape, *layer.tail))
        firsts = [np.unique(own, return_index=True)[1] for own in classes.values()]
        for cell in itertools.product(*map(range, shape)):
            for kind, figure in enumerate(self._at([int(first[n]) for first, n in zip(firsts, cell, strict=True)], ops)):
                found[(kind, *cell)] = figure
        return Change(tuple(classes), tuple(classes.values()), *found)

    @property
    def _ops(self) -> list[Op]:
        """The operations that say what is merged: the sum, its norms and who makes what it takes, each once."""
        makers = [self.layer.workload.producer.get(access.tensor, "") for access in self.sum_.ins] if self.layer.merged.reductions else []
        return [self.layer.workload.ops[name] for name in dict.fromkeys([self.sum_.name, *(op.name for op in self.norms), *makers]) if name]

    def _classes(self, op: Op) -> Index:
        """Strategy → class: of who makes what is summed, the axes over which it leaves partial sums are all that counts."""
        layer, strategies = self.layer, self.layer.strategies[op.name]
        if op is self.sum_ or op in self.norms:
            return np.arange(len(strategies))
        known: dict[tuple[bool, ...], int] = {}
        left = [tuple(said == PARTIAL for said in layer.plan({op.name: strategy}).leaves(op)) for strategy in strategies]
        return np.array([known.setdefault(one, len(known)) for one in left], dtype=np.intp)

    def _at(self, numbers: Sequence[int], ops: Sequence[Op]) -> Figures:
        """What is changed under one strategy of each operation."""
        layer, number = self.layer, {op.name: n for op, n in zip(ops, numbers, strict=True)}
        plan = layer.plan({name: layer.strategies[name][n] for name, n in number.items()})
        left = plan.leaves(self.sum_)
        making = [norm for norm in self.norms if plan.needs(norm, 0, layer.workload) == left]
        found: Figures = (0.0,) * 5
        for norm in making:
            axes = summed_axes(norm, layer.workload, plan) if layer.merged.reductions else ()
            found = _added(found, self._changed(norm, number[norm.name], axes))
        return _added(found, self._changed(self.sum_, number[self.sum_.name], None)) if making else found

    def _changed(self, op: Op, number: int, axes: tuple[int, ...] | None) -> Figures:
        """What an operation that is merged takes beyond what it takes alone. axes: over which an all-reduce goes on with a norm; None: of
        the sum."""
        layer, name = self.layer, op.name
        plan = layer.plan({name: layer.strategies[name][number]})
        merged = replace(plan, joined=plan.joined | {name})
        if axes is not None:
            merged = replace(plan, handed=plan.handed | {name}, summed={**plan.summed, name: axes})
        found: Figures = (0.0,) * 5
        for sign, one in ((1.0, merged), (-1.0, plan)):
            for task in layer.tasks(op, one):
                seconds, joules = layer.spend(task)
                passes = (seconds, 0.0) if task.phase == "forward" else (0.0, seconds)
                found = _added(found, [sign * figure for figure in (*passes, joules, layer.starts(task), 0.0)])
        return found

    def _at_least(self) -> Change:
        """Of each operation the least that it changes, whatever the others choose."""
        layer, found = self.layer, np.zeros((5, *self.layer.tail))
        every = [()] if not layer.merged.reductions else list(_subsets(range(len(next(iter(layer.strategies.values()))[0]))))
        for op in (self.sum_, *self.norms):
            for number in range(len(layer.strategies[op.name])):
                for axes in [None] if op is self.sum_ else every:
                    here = self._changed(op, number, axes)
                    found = np.minimum(found, np.stack([np.broadcast_to(part, layer.tail) for part in here]))
        return Change((), (), *(found * (1 + len(self.norms))))


def _added(one: Sequence[Any], other: Sequence[Any]) -> Figures:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _subsets(axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(axes) + 1):
        yield from itertools.combinations(axes, count)
