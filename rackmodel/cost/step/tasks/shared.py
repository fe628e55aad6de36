"""What searches of one study share: programs that were derived, and what operations cost inside an accelerator.

A program depends on the workload and the plan, not on the machine's numbers; a pass of an operation on the inside of an accelerator and the
degrees, not on the networks. So points that differ in a bandwidth above, or in a degree that another point had, price it once. What is
found is the very object that was made, so that figures are the same to the last digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import LocalPricer, Row
from rackmodel.cost.network.asked import Conversations, plainly
from rackmodel.cost.program.tasks import Degrees, LocalOp, Program
from rackmodel.cost.step.tasks.layer_inside import looks_at_layers
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

MOST_MADE = 128  # workloads, profiles and mappers whose programs are remembered, and spaces of mappers
MOST_PASSES = 20_000
MOST_MACHINES = 1_000
WIDE = 64  # columns of a pass that is remembered

Rows = tuple[list[Row], Array]
Made = TypeVar("Made")


@dataclass
class Shared:
    """Empty at first, filled by the searches it is given to. conversations: answers of whole searches, by what the networks above said ·
    ask: puts a question to them for the search at hand."""

    _made: dict[Hashable, tuple[tuple[object, ...], Any]] = field(default_factory=dict)
    _passes: dict[Hashable, Rows] = field(default_factory=dict)
    _machines: dict[Hashable, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    conversations: Conversations = field(default_factory=Conversations)
    ask: Callable[..., Any] = plainly

    def programs(self, workload: Workload, profile: ProfileSpec, mapper: MapperSpec, backing: str) -> dict[object, Program]:
        """Programs of these very objects. backing: the level above that the workload starts and ends in."""
        return self.once((workload, profile, mapper), backing, dict[object, Program])

    def once(self, of: tuple[object, ...], said: Hashable, make: Callable[[], Made]) -> Made:
        """What is made of these very objects and of `said`, which tells kinds apart as well, made once."""
        key = (*map(id, of), said)
        if key not in self._made:
            made = make()
            while len(self._made) >= MOST_MADE:
                del self._made[next(iter(self._made))]
            self._made[key] = of, made
        return self._made[key][1]  # type: ignore[no-any-return]

    def inside(self, pricer: LocalPricer, architecture: Architecture) -> LocalPricer:
        """The same pricer, which remembers the passes of this machine. One that prepares itself, or has own arrays, stays as it is."""
        try:
            machine: Hashable = hash(pricer), pricer, tuple((level.model_dump_json(), count) for level, count in architecture.inside[:1])
        except TypeError:
            return pricer
        if looks_at_layers(pricer):
            return pricer
        return _Remembered(pricer, self._number(machine), self._passes)

    def _number(self, machine: Hashable) -> int:
        """One for each machine, never given again: a short word for it in the keys of its passes."""
        if machine not in self._machines:
            if len(self._machines) >= MOST_MACHINES:
                self._machines.clear()
            self._machines[machine] = next(self._numbers)
        return self._machines[machine]


@dataclass(frozen=True)
class _Remembered:
    pricer: LocalPricer
    machine: int
    passes: dict[Hashable, Rows]

    def __call__(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> Rows:
        """Rows and duration [n], as the pricer's."""
        return self._once(local_op, degrees, None, lambda: self.pricer(architecture, local_op, degrees))

    def waiting_watts(self, architecture: Architecture) -> Any:
        """As the pricer's."""
        told = getattr(self.pricer, "waiting_watts", None)
        return 0.0 if told is None else told(architecture)

    def on_all(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees, count: Ints) -> Rows:
        """The same with the amounts and joules of `count` [n] accelerators, which do it at once."""

        def all_of_them() -> Rows:
            rows, duration = self(architecture, local_op, degrees)
            return [row.scaled(count) for row in rows], duration

        return self._once(local_op, degrees, count, all_of_them)

    def _once(self, local_op: LocalOp, degrees: Degrees, count: Ints | None, price: Callable[[], Rows]) -> Rows:
        if len(degrees) > WIDE or any(isinstance(size, np.ndarray) for _, size, _ in local_op.space):  # sizes of these very degrees
            return price()
        key = self.machine, local_op, degrees.shape, degrees.tobytes(), None if count is None else count.tobytes()
        found = self.passes.get(key)
        if found is None:
            found = price()
            if len(self.passes) >= MOST_PASSES:
                self.passes.clear()
            self.passes[key] = found
        return found
