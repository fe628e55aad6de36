"""Operations that may run as one kernel, in a layout problem's tables: priced together, by the layouts of all.

    group = what makes and reads the tensors of regions that have operations in common        seconds, joules of a group: one table

A region may be fused where its members have equal shares of what lies between and no link carries that (mapper/nests/around). What it takes
then, and what its operations take alone, say the loop nests of these very shares; of regions that exclude each other those are fused that
save most together, as in a step (mapper/nests/found_fusion).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.layouts.interfaces import Index, Strategy
from rackmodel.mapper.layouts.region_savings import Price, RegionAtShares, summed
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.nests.around import share_of
from rackmodel.mapper.nests.found_fusion import Fused, best_set, operations, rivals
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.model.conversion import convert
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import Layout
from rackmodel.model.workload import Op, Workload
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

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


@dataclass(eq=False)
class _Entry:
    """A region under some combinations of its operations' classes. region: at their shares · tasks: of one of these · figures: seconds and
    joules that it saves of them, at most where it is not solved (when they were looked at: `solved`)."""

    region: RegionAtShares
    tasks: list[Task]
    figures: tuple[float, float]
    solved: bool

    def look(self, price: Price) -> None:
        """Figures of a region that was solved since."""
        if self.region.solved and not self.solved:
            self.figures, self.solved = self.region.figures(self.tasks, price), True


@dataclass(eq=False)
class _Choice:
    """Cells that have the same regions to choose from. entries: those that may save something · figures: seconds and joules saved, at most
    where it is not settled which are fused."""

    entries: list[_Entry]
    figures: tuple[float, float] = (0.0, 0.0)
    settled: bool = False


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
    """The table of one group, which settling a cell changes (`version`). pricer: of operations alone · strategies: of each operation ·
    tasks: what an operation runs forward and again, and collectives of its forward pass, under a strategy · layouts: what it leaves its
    result in, and reads each operand in."""

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
        self.degrees, self.version = pricer.degrees[0], 0
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
    def open(self, inside: NestInside, price: Price) -> None:
        """Look at what may be fused under each combination of classes. inside: of the step · price: seconds and joules of a task that is
        not fused. Raises TooLarge."""
        shape = tuple(map(len, self.faces))
        if prod(map(float, shape)) > CELLS:
            raise TooLarge.coupled([op.name for op in self.ops], prod(map(float, shape)), CELLS, "may be one kernel and ")
        self.price, self.tables, self.apart = price, SharedTables(), np.zeros((2, *shape))
        for axis, faces in enumerate(self.faces):
            each = np.array([summed(map(price, face.tasks)) for face in faces]).T
            self.apart += each.reshape(2, *(len(faces) if other == axis else 1 for other in range(len(shape))))
        self._choose([self._entries(one, inside) for one in self.options], shape)
        if inside.spec.fuse != "free" or inside.at_least:  # declared: whether some layout leaves it room is said of all of them
            self.settle_all()

    def table(self) -> GroupTable:
        """Seconds and joules of each combination of classes: at least where it is open what is fused."""
        saved = np.array([choice.figures for choice in self.choices]).T[:, self.which]
        return GroupTable(tuple(op.name for op in self.ops), tuple(self.classes), *(self.apart - saved))

    def settle(self, cell: tuple[int, ...]) -> bool:
        """Find what is fused under one combination of classes; whether that was open."""
        choice = self.choices[int(self.which[cell])]
        if choice.settled:
            return False
        changed: set[RegionAtShares] = set()
        while not choice.settled:
            if open_ := [one for one in self._best(choice) if not one.solved]:
                changed.add(self._solve(choice, open_))
            self._tell(choice)
        for other in self.choices:
            if not other.settled and changed & {entry.region for entry in other.entries}:
                self._tell(other)
        self.version += 1
        return True

    def settle_all(self) -> None:
        """Find what is fused under every combination of classes."""
        for cell in zip(*(place.tolist() for place in np.unravel_index(self.firsts, self.which.shape)), strict=True):
            self.settle(cell)

    def least(self) -> tuple[float, float]:
        """The least seconds and the least joules of any combination of classes."""
        return self._least(0), self._least(1)

    def _least(self, kind: int) -> float:
        while True:
            table = self.table()
            figures = (table.seconds, table.joules)[kind]
            cell = tuple(int(n) for n in np.unravel_index(int(figures.argmin()), figures.shape))
            if not self.settle(cell):
                return float(figures[cell])

    def _choose(self, each: Sequence[tuple[tuple[int, ...], Ints, list[_Entry]]], shape: tuple[int, ...]) -> None:
        """Tell cells apart by the regions that they may choose from. each: of a region, its operations, [classes of these] number of an
        entry, 0 = none, and the entries."""
        several, wide = np.zeros(shape, dtype=np.int64), []
        for axes, cells, entries in each:
            wide.append(np.broadcast_to(cells.reshape([n if axis in axes else 1 for axis, n in enumerate(shape)]), shape))
            if entries:
                several = np.unique(several * (len(entries) + 1) + wide[-1], return_inverse=True)[1].reshape(shape)
        _, self.firsts, which = np.unique(several, return_index=True, return_inverse=True)
        self.which, self.choices = which.reshape(shape), []
        for place in self.firsts:
            numbers = [int(cells[np.unravel_index(int(place), shape)]) for cells in wide]
            self.choices.append(_Choice([entries[n - 1] for n, (*_, entries) in zip(numbers, each, strict=True) if n]))
            self._tell(self.choices[-1])

    # -- what is fused of some regions
    @staticmethod
    def _best(choice: _Choice) -> list[RegionAtShares]:
        """The disjoint regions that save most together, at most where they are open."""
        saves = {entry.region.one: entry.region.gain for entry in choice.entries if entry.region.gain > 0}
        best = best_set(list(saves), saves) if len(saves) > 1 else list(saves)
        return [entry.region for entry in choice.entries if entry.region.one in best]

    @staticmethod
    def _solve(choice: _Choice, open_: Sequence[RegionAtShares]) -> RegionAtShares:
        """Search one region for more than what others leave it to save."""
        saves = {entry.region.one: entry.region.gain for entry in choice.entries if entry.region.gain > 0}
        sure = {entry.region.one: entry.region.gain for entry in choice.entries if entry.region.gain > 0 and entry.region.solved}
        most, known = (sum(some[one] for one in best_set(list(some), some)) for some in (saves, sure))
        region = max(open_, key=lambda one: one.gain)
        region.solve(max(0.0, region.gain - (most - known)))
        return region

    def _tell(self, choice: _Choice) -> None:
        """What a choice saves by what is known of its regions."""
        best = self._best(choice)
        choice.settled = all(one.solved for one in best)
        for entry in choice.entries:
            entry.look(self.price)
        if choice.settled:
            choice.figures = summed(entry.figures for entry in choice.entries if entry.region in best)
            return
        most = []
        for kind in (0, 1):
            saves = {entry.region.one: entry.figures[kind] for entry in choice.entries if entry.figures[kind] > 0}
            most.append(sum(saves[one] for one in best_set(list(saves), saves)))
        choice.figures = most[0], most[1]

    # -- one region
    def _entries(self, one: Fused, inside: NestInside) -> tuple[tuple[int, ...], Ints, list[_Entry]]:
        """Which of the group's operations a region has, [their classes] the number of its entry, 0 = it is not fused, and the entries."""
        mine = [n for n, op in enumerate(self.ops) if op.out.tensor in operations(one)]
        cells = np.zeros([len(self.faces[n]) for n in mine], dtype=np.int64)
        numbering, regions = inside.of_region(one), dict[int, RegionAtShares]()
        entries: dict[tuple[int, float, float], int] = {}
        found: list[_Entry] = []
        for at in self._on_chip(one, mine):
            tasks = [task for n, face in zip(mine, at, strict=True) for task in self.faces[n][face].tasks]
            numbering.prepare(tasks)
            number = numbering.around.number(self.degrees)
            if number not in regions:
                regions[number] = RegionAtShares(one, inside, self.pricer, tasks, self.tables)
            if regions[number].gain > 0:
                key = (number, *summed(map(self.price, tasks)))
                if key not in entries:
                    found.append(_Entry(regions[number], tasks, regions[number].figures(tasks, self.price), regions[number].solved))
                    entries[key] = len(found)
                cells[at] = entries[key]
        return tuple(mine), cells, found

    def _on_chip(self, one: Fused, mine: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Classes of a region's operations under which all that lies between is handed on in equal shares, and no link carries it."""
        kept = one.between | frozenset(one.resident)
        makers = {self.ops[n].out.tensor: place for place, n in enumerate(mine)}
        own = [[face for face, said in enumerate(self.faces[n]) if not said.moved & kept] for n in mine]
        pairs: dict[int, list[tuple[int, Bools]]] = {}  # later operation → earlier one, and which classes of both agree
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

    def _agree(self, name: str, maker: int, reader: int, whole: bool) -> Bools:
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
