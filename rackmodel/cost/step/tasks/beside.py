"""Tasks of columns of several profiles, priced beside each other.

What an operation or a collective takes follows from kernels, fusion and libraries; when it runs, and what hides it, from overlap and the
host. Profiles that say the same of the former (model/profile_columns) are columns of one array of tasks: each then has windows, lanes and
passes of its own on the columns that are its.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from rackmodel.arrays import Ints
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.step.tasks.layer_tasks import LayerTasks
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Section


@dataclass(frozen=True)
class BesideProfiles:
    """Where tasks of some columns are priced. wide: prices tasks of these and of other profiles' columns · which: of its columns these ·
    sections: names of those whose tasks all of these profiles price alike · known: what plans know of these columns' operations, by what
    they know of others'."""

    wide: LayerPricer
    which: Ints
    sections: Collection[str]
    known: dict[int, tuple[object, dict[Any, Any]]] = field(default_factory=dict)

    def tasks(self, section: Section, plan: Plan, *, together: bool) -> LayerTasks | None:
        """What the tasks of a layer take; None where profiles differ in more than columns have. together: as of LayerPricer."""
        if section.name not in self.sections:
            return None
        own = next(one for one in self.wide.workload.sections if one.name == section.name)
        _, known = self.known.setdefault(id(plan.known), (plan.known, {}))  # (which stays, and with it its id)
        layers = self.wide.of_steps(together=together)
        return layers.tasks(own, fuse(own.workload, replace(plan, known=known), layers.profile)).pick(self.which)
