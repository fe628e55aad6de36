"""What the tasks of a layer take, whatever runs beside what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import picked
from rackmodel.cost.program.tasks import Program
from rackmodel.cost.step.tasks.items import Priced
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Section

HeldBytes = tuple[dict[str, Array], dict[str, Array], dict[str, Array]]
"""Of a layer, as of LayerCost: held, home and held_mean."""


@dataclass(frozen=True)
class LayerTasks:
    """Tasks of one layer. priced: what each takes · ports: [n] seconds that each holds a home's shared port · held: bytes."""

    program: Program
    priced: tuple[Priced, ...]
    ports: tuple[Array | None, ...]
    held: HeldBytes

    def pick(self, which: Ints) -> LayerTasks:
        """The same on some columns. (Of the program itself, sizes stay those of all.)"""
        known: dict[int, Priced] = {}  # equal tasks are one
        for one in self.priced:
            if id(one) not in known:
                known[id(one)] = one.pick(which)
        priced = tuple(known[id(one)] for one in self.priced)
        ports = tuple(picked(port, which) for port in self.ports)
        here, home, mean = ({name: picked(size, which) for name, size in table.items()} for table in self.held)
        return LayerTasks(self.program, priced, ports, (here, home, mean))


class Beside(Protocol):
    """Where tasks of some columns are priced, if not alone (cost/step/tasks/beside)."""

    def tasks(self, section: Section, plan: Plan, *, together: bool) -> LayerTasks | None:
        """What the tasks of a layer take; None where they are to be priced alone. together: as of LayerPricer."""
