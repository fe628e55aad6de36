"""Operations that may run as one kernel, in a layout problem's tables: priced together, by the layouts of all.

    group = what makes and reads the tensors of regions that have operations in common        seconds, joules of a group: one table

A region may be fused where its members have equal shares of what lies between and no link carries that (mapper/around). What it takes
then, and what its operations take alone, say the loop nests of these very shares; of regions that exclude each other those are fused that
save most together, as in a step (mapper/found_fusion).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.step.pricer import Pricer
from rackmodel.mapper.around import share_of
from rackmodel.mapper.found_fusion import Fused, best_set, operations, rivals
from rackmodel.mapper.layouts.interfaces import Index, Strategy
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.loop_nests import NestInside
from rackmodel.model.conversion import convert
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import Layout
from rackmodel.model.workload import Op, Workload

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
CELLS = 5e6  # of a group's table


@dataclass(frozen=True)
class Face:
    """What choices of an operation have in common to its group. tasks: what it runs forward, and again · made: layout that it leaves its
    result in · read: layout that it reads a tensor in · moved: tensors of the group that its own collectives carry."""

    tasks: tuple[Task, ...]
    made: Layout
    read: tuple[tuple[str, Layout], ...]
    moved: frozenset[str]

    @property
    def forward(self) -> LocalOp:
        """Its forward pass."""
        local_op = self.tasks[0].local_op
        assert local_op is not None
        return local_op


@dataclass(frozen=True)
class GroupTable:
    """Seconds and joules of a group, one dimension an operation over its classes. classes: strategy → class, for each."""

    operations: tuple[str, ...]
    classes: tuple[Index, ...]
    seconds: Array
    joules: Array


@dataclass(frozen=True)
class _Saved:
    """What a region saves where it is fused. cells: [classes of its operations] number of what it saves there, 0 = it is not fused ·
    gains: by number, of what nests have least · figures: [2, numbers] seconds and joules."""

    region: Fused
    axes: tuple[int, ...]
    cells: Numbers
    gains: list[float]
    figures: Array


def alone(inside: LocalPricer) -> LocalPricer:
    """What prices an operation that is not fused."""
    return inside.apart_from_others() if isinstance(inside, NestInside) else inside


def groups_of(inside: LocalPricer, workload: Workload, saved: frozenset[str]) -> list[list[Fused]]:
    """Regions of a workload's operations that may be fused, in groups that are priced together. saved: tensors that the backward pass
    reads."""
    if not isinstance(inside, NestInside) or inside.aim.name == "edp" or inside.given is not None:
        return []
    there = [one for one in inside.fused if set(operations(one)) <= set(workload.producer)]
    return rivals([one for one in there if not saved & {*one.between, *one.resident}])


class KernelGroup:
    """The table of one group. pricer: of operations alone · strategies: of each operation · tasks: what an operation runs forward and
    again, and collectives of its forward pass, under a strategy · layouts: what it leaves its result in, and reads each operand in."""

    def __init__(
        self,
        options: Sequence[Fused],
        pricer: Pricer,
        strategies: dict[str, tuple[Strategy, ...]],
        tasks: Callable[[Op, Strategy], list[Task]],
        layouts: Callable[[Op, Strategy], tuple[Layout, Sequence[Layout]]],
    ) -> None:
        self.options, self.pricer, self.workload = options, pricer, pricer.workload
        names = {name for one in options for name in operations(one)}
        self.ops = [op for op in self.workload.ops.values() if op.out.tensor in names]
        self.on_chip = frozenset(name for one in options for name in (*one.between, *one.resident))
        self.degrees = pricer.degrees[0]
        self.faces: list[list[Face]] = []
        self.classes: list[Index] = []
        for op in self.ops:
            known: dict[Face, int] = {}
            each = [self._face(op, tasks(op, s), *layouts(op, s)) for s in strategies[op.name]]
            self.classes.append(np.array([known.setdefault(face, len(known)) for face in each], dtype=np.intp))
            self.faces.append(list(known))

    def _face(self, op: Op, tasks: Sequence[Task], made: Layout, read: Sequence[Layout]) -> Face:
        runs = tuple(task for task in tasks if task.kind == "op")
        moved = frozenset(task.tensor for task in tasks if task.kind == "collective" and self._moves(task.axes))
        reads = tuple((a.tensor, layout) for a, layout in zip(op.ins, read, strict=True) if a.tensor in self.on_chip)
        return Face(runs, made if op.out.tensor in self.on_chip else (), reads, moved & self.on_chip)

    def _moves(self, axes: Iterable[int]) -> bool:
        """Whether a collective over some axes has more than one rank."""
        return prod(int(self.degrees[axis]) for axis in axes) > 1

    # -- the table
    def table(self, inside: NestInside, price: Callable[[Pricer, Task], tuple[float, float]]) -> GroupTable:
        """Seconds and joules of each combination of classes. inside: of the step · price: seconds and joules of a task. Raises TooLarge."""
        shape = tuple(map(len, self.faces))
        if prod(map(float, shape)) > CELLS:
            names = ", ".join(op.name for op in self.ops)
            raise TooLarge(f"{names} may be one kernel and couple {prod(map(float, shape)):.3g} combinations, the limit is {CELLS:.0g}")
        total = np.zeros((2, *shape))
        for axis, faces in enumerate(self.faces):
            each = np.array([_summed(price(self.pricer, task) for task in face.tasks) for face in faces]).T
            total += each.reshape(2, *(len(faces) if other == axis else 1 for other in range(len(shape))))
        total -= self._fused([self._saved(one, inside, price) for one in self.options], shape)
        return GroupTable(tuple(op.name for op in self.ops), tuple(self.classes), *total)

    def _fused(self, saved: Sequence[_Saved], shape: tuple[int, ...]) -> Array:
        """[2, classes] seconds and joules that the regions save that are fused under each combination."""
        several, which = np.zeros(shape, dtype=np.int64), []
        for one in saved:
            cells = one.cells.reshape([n if axis in one.axes else 1 for axis, n in enumerate(shape)])
            which.append(cells)
            if cells.any():
                several = np.unique(several * len(one.gains) + cells, return_inverse=True)[1].reshape(shape)
        numbers, first = np.unique(several, return_index=True)
        figures = np.zeros((2, len(numbers)))
        for number, at in zip(numbers, first, strict=True):
            cell = np.unravel_index(int(at), shape)
            here = {one.region: (one, int(np.broadcast_to(cells, shape)[cell])) for one, cells in zip(saved, which, strict=True)}
            gains = {region: one.gains[n] for region, (one, n) in here.items() if n}
            for region in best_set(list(gains), gains) if len(gains) > 1 else gains:
                one, n = here[region]
                figures[:, number] += one.figures[:, n]
        return figures[:, several]

    # -- one region
    def _saved(self, one: Fused, inside: NestInside, price: Callable[[Pricer, Task], tuple[float, float]]) -> _Saved:
        """What a region saves under each combination of its operations' classes."""
        mine = [n for n, op in enumerate(self.ops) if op.out.tensor in operations(one)]
        cells = np.zeros([len(self.faces[n]) for n in mine], dtype=np.int64)
        nests = inside.of_region(one)
        plain = self.pricer
        setting = replace(plain.setting, inside=nests)
        pricer = Pricer(setting, self.workload, plain.plan, plain.columns, plain.buckets)
        gains, figures, known = [0.0], [(0.0, 0.0)], dict[int, float]()
        for at in self._on_chip(one, mine):
            tasks = [task for n, face in zip(mine, at, strict=True) for task in self.faces[n][face].tasks]
            nests.prepare(tasks)
            number = nests.around.number(self.degrees)
            if number not in known:
                nests.gained.clear()
                nests.nest(self.pricer.architecture, nests.local_ops[one.members[0]], self.degrees)
                known[number] = nests.gained.get(one, 0.0)
            gain = known[number]
            if gain > 0:
                before, after = (_summed(price(by, task) for task in tasks) for by in (plain, pricer))
                cells[at] = len(gains)
                gains.append(gain)
                figures.append((before[0] - after[0], before[1] - after[1]))
        inside.told_by(nests)
        return _Saved(one, tuple(mine), cells, gains, np.array(figures).T)

    def _on_chip(self, one: Fused, mine: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Classes of a region's operations under which all that lies between is handed on in equal shares, and no link carries it."""
        kept = one.between | frozenset(one.resident)
        makers = {self.ops[n].out.tensor: place for place, n in enumerate(mine)}
        own = [[face for face, said in enumerate(self.faces[n]) if not said.moved & kept] for n in mine]
        pairs: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}  # later operation → earlier one, and which classes of both agree
        for place, n in enumerate(mine):
            for name in dict.fromkeys(access.tensor for access in self.ops[n].ins if access.tensor in kept):
                pairs.setdefault(place, []).append((makers[name], self._agree(name, mine[makers[name]], n, name in one.between)))

        def grow(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            place = len(chosen)
            if place == len(mine):
                yield chosen
                return
            for face in own[place]:
                if all(agree[chosen[other], face] for other, agree in pairs.get(place, ())):
                    yield from grow((*chosen, face))

        return grow(())

    def _agree(self, name: str, maker: int, reader: int, whole: bool) -> NDArray[np.bool_]:
        """[classes of the maker, classes of the reader] whether no link carries a tensor between them. whole: and both have equal shares
        of it."""
        names = self.ops[maker].out.names
        found = np.zeros((len(self.faces[maker]), len(self.faces[reader])), dtype=bool)
        for cell in itertools.product(*map(range, found.shape)):
            made, read = self.faces[maker][cell[0]], self.faces[reader][cell[1]]
            wanted = [layout for tensor, layout in read.read if tensor == name]
            steps = [step for to, source in plan_copies([made.made], wanted).items() for step in convert(source, to)]
            shares = [share_of(face.forward, self.degrees) for face in (made, read)]
            alike = not whole or all(shares[0].get(index, 1) == shares[1].get(index, 1) for index in names)
            found[cell] = alike and not any(self._moves(step.axes) for step in steps)
        return found


def _summed(figures: Iterable[tuple[float, float]]) -> tuple[float, float]:
    seconds, joules = 0.0, 0.0
    for one in figures:
        seconds, joules = seconds + one[0], joules + one[1]
    return seconds, joules
