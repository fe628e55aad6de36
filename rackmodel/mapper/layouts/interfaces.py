"""Interfaces: what each operation shows a tensor, rather than which choice it made.

Many choices of an operation look the same from one tensor: whether Q splits g, q or e, N1 is wanted whole and its gradient
comes back Partial. A cost table needs one entry for each combination of distinct interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.program.around import around
from rackmodel.cost.program.recompute import Recompute
from rackmodel.mapper.layouts.codes import Codes, LayoutCodes
from rackmodel.model.layout import Choice, Layout
from rackmodel.model.plan import Plan, twin_input
from rackmodel.model.workload import Workload

Strategy = tuple[Choice, ...]
Index = NDArray[np.intp]
Boundary = Callable[[Mapping[str, Strategy], str], Layout]


@dataclass(frozen=True)
class Interface:
    """What one strategy of an operation shows one tensor: layouts it produces, wants, reads back, contributes gradients in."""

    produced: Layout | None = None
    target: Layout | None = None
    wanted: tuple[Layout, ...] = ()
    back: tuple[Layout, ...] = ()
    again: tuple[Layout, ...] = ()  # wanted when the operation runs again
    contributions: tuple[Layout, ...] = ()
    boundary: Layout | None = None

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """All of them."""
        ends = tuple(layout for layout in (self.produced, self.target, self.boundary) if layout is not None)
        return (*ends, *self.wanted, *self.back, *self.again, *self.contributions)


@dataclass(frozen=True)
class Faces:
    """The distinct interfaces of one operation to one tensor. which: strategy → which of them · strategies: the first that has each."""

    operation: str
    known: tuple[Interface, ...]
    which: Index
    strategies: tuple[Strategy, ...]


class Interfaces:
    """Finds them. boundary: (strategies of the operation that decides it, tensor) → layout in which it arrives or leaves · planned: the
    plan of some strategies."""

    def __init__(
        self,
        workload: Workload,
        recompute: Recompute,
        boundary: Boundary,
        strategies: Mapping[str, tuple[Strategy, ...]],
        planned: Callable[[Mapping[str, Strategy]], Plan],
    ) -> None:
        self.workload, self.recompute, self.boundary = workload, recompute, boundary
        self.strategies, self.planned = strategies, planned

    def operations(self, name: str) -> tuple[str, ...]:
        """Operations whose choices the tensor's cost depends on: its producer, its readers, and the one that decides its edge."""
        producer = [self.workload.producer[name]] if name in self.workload.producer else []
        return tuple(dict.fromkeys((*producer, *self.workload.readers[name], *self._edge_op(name))))

    def _edge_op(self, name: str) -> tuple[str, ...]:
        if name not in (*self.workload.inputs, *self.workload.outputs):
            return ()
        reads = self.workload.readers[twin_input(name, self.workload) or name]
        return (reads[0] if reads else self.workload.producer[name],)

    def of(self, name: str) -> list[Faces]:
        """Those of every operation that the tensor's cost depends on."""
        found = []
        for operation in self.operations(name):
            known: dict[Interface, int] = {}
            which = [known.setdefault(self._interface(name, operation, s), len(known)) for s in self.strategies[operation]]
            first = tuple(self.strategies[operation][which.index(number)] for number in range(len(known)))
            found.append(Faces(operation, tuple(known), np.array(which, dtype=np.intp), first))
        return found

    def _interface(self, name: str, operation: str, strategy: Strategy) -> Interface:
        op, workload, chosen = self.workload.ops[operation], self.workload, {operation: strategy}
        plan = self.planned(chosen)
        near = around(op, plan, workload)
        produces = workload.producer.get(name) == operation
        mine = [i for i, access in enumerate(op.ins) if access.tensor == name]
        wanted = tuple(near.needs[i] for i in mine)
        trained = workload.backward and workload.tensors[name].bits > 0
        return Interface(
            near.leaves if produces else None,
            near.gradient if produces else None,
            wanted,
            tuple(layout for tensor, layout in near.reads if tensor == name) if trained else (),
            wanted if self._again(operation, name) else (),
            tuple(plan.gradient_leaves(op, i, workload) for i in mine if i in near.wanting) if trained else (),
            self.boundary(chosen, name) if operation in self._edge_op(name) else None,
        )

    def _again(self, operation: str, name: str) -> bool:
        """Whether an operation that runs again reads the tensor again."""
        inside = operation in self.recompute.inside and name not in self.recompute.made
        return operation in self.recompute.rerun or inside


class Cells:
    """The codes of every cell of a table, flat: what is produced, wanted, read back and contributed there."""

    def __init__(self, workload: Workload, name: str, parts: Sequence[Faces], codes: LayoutCodes) -> None:
        self.codes, self.shape = codes, tuple(len(part.known) for part in parts)
        self.count = int(np.prod(self.shape, initial=1))
        self._parts = {part.operation: (position, part.known) for position, part in enumerate(parts)}
        readers = [op for op in self._parts if op in workload.readers[name]]
        producer = [workload.producer[name]] if name in workload.producer else []
        edge = next((op for op, (_, known) in self._parts.items() if known[0].boundary is not None), None)
        self.boundary = self._column(edge, lambda face: face.boundary) if edge is not None else None
        self.wanted = self._columns(readers, lambda face: face.wanted)
        self.back = self._columns([*producer, *readers], lambda face: face.back)
        self.again = self._columns(readers, lambda face: face.again)
        self.contributions = self._columns(readers[::-1], lambda face: face.contributions)
        self.target: Codes | None = self.boundary
        self.produced = self.boundary if self.boundary is not None else self.wanted[0]
        if producer:
            self.produced = self._column(producer[0], lambda face: face.produced)
            self.target = self._column(producer[0], lambda face: face.target)
        if self.boundary is not None and name in workload.outputs:
            self.wanted.append(self.boundary)
            if workload.backward and workload.tensors[name].bits > 0:
                self.contributions.insert(0, self.boundary)

    @property
    def read_back(self) -> bool:
        """Whether the backward pass reads the tensor."""
        return bool(self.back or self.again)

    def _columns(self, operations: Sequence[str], pick: Callable[[Interface], tuple[Layout, ...]]) -> list[Codes]:
        columns = []
        for operation in operations:
            for slot in range(len(pick(self._parts[operation][1][0]))):
                columns.append(self._column(operation, lambda face, slot=slot: pick(face)[slot]))  # type: ignore[misc]
        return columns

    def _column(self, operation: str, pick: Callable[[Interface], Layout | None]) -> Codes:
        position, known = self._parts[operation]
        values = []
        for face in known:
            layout = pick(face)
            assert layout is not None
            values.append(self.codes.code(layout))
        shape = [1] * len(self.shape)
        shape[position] = len(known)
        return np.broadcast_to(np.array(values, dtype=np.int32).reshape(shape), self.shape).reshape(-1)
