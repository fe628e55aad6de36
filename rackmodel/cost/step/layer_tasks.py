"""What the tasks of a layer take, whatever runs beside what: priced once for columns of several profiles.

What an operation or a collective takes follows from kernels, fusion and libraries; when it runs, and what hides it, from overlap and the
host. Profiles that say the same of the former (model/profile_columns) are columns of one array of tasks: each then has windows, lanes and
passes of its own on the columns that are its.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import picked
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.program.tasks import Program
from rackmodel.cost.step.items import Priced
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Section

if TYPE_CHECKING:
    from rackmodel.cost.step.layers import LayerPricer

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
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


@dataclass(frozen=True)
class Beside:
    """Where tasks of some columns are priced. wide: prices tasks of these and of other profiles' columns · which: of its columns these ·
    sections: names of those whose tasks all of these profiles price alike."""

    wide: LayerPricer
    which: Ints
    sections: Collection[str]

    def tasks(self, section: Section, plan: Plan, *, together: bool) -> LayerTasks | None:
        """What the tasks of a layer take; None where profiles differ in more than columns have. together: as of LayerPricer."""
        if section.name not in self.sections:
            return None
        own = next(one for one in self.wide.workload.sections if one.name == section.name)
        fresh = replace(plan, known={})  # what it knows of operations is of other columns' sizes
        layers = self.wide.of_steps(together=together)
        return layers.tasks(own, fuse(own.workload, fresh, layers.profile)).pick(self.which)
