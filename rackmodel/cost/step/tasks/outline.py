"""What a layer takes at least, found out before it is priced: what its device does in every micro-batch, and all that it holds; then,
where that leaves a layer worth a look, what the lane of weights moves (parameters and gradients on their way), and the optimizer.

What other lanes do, what else happens once a step, and what is waited for are left out. So no figure is above that of the
layer priced in full (of what windows hide: it is the same), and what is held is the same to the last byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.tasks import Degrees, Held, Program, Task
from rackmodel.cost.step.tasks.items import launched
from rackmodel.cost.step.tasks.jobs import DEVICE, launches, roles_of
from rackmodel.cost.step.tasks.layer_cost import LayerCost
from rackmodel.cost.step.tasks.layer_tasks import HeldBytes
from rackmodel.cost.step.tasks.layers import LayerPricer, part_of
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.cost.step.tasks.windows import hidable
from rackmodel.model.plan import Plan
from rackmodel.model.profile import Host, ProfileSpec
from rackmodel.model.workload import Section, Workload
from rackmodel.once import once

MOVING = frozenset({"gather", "reduce", "tail", "spread", "update"})
"""Roles of what the lane of weights moves, and of the optimizer."""


@dataclass(frozen=True)
class Spent:
    """What a task takes. seconds, joules: [n] · launches: of the host."""

    seconds: Array
    joules: Array
    launches: Array | float


class OutlinePricer(LayerPricer):
    """Outlines layers in a LayerPricer's place: its costs have no items."""

    at_once, kept = 16_384, False  # it has no rows

    def __init__(self, pricer: Pricer, workload: Workload, profile: ProfileSpec, programs: dict[object, Program] | None = None) -> None:
        super().__init__(pricer, workload, profile, programs)
        self.none = np.zeros(pricer.n)

    def layer(self, section: Section, plan: Plan) -> LayerCost:
        """One layer of a section, outlined. Remembered."""
        key = self.key(section, plan)
        if key not in self.costs:
            program = self.program(section, plan)
            self.costs[key] = once(self.costs, (section.name, id(program)), lambda: self._outlined(section, program))
        return self.costs[key]

    def _outlined(self, section: Section, program: Program) -> LayerCost:
        roles, waits = self._roles(program), self.profile.host != Host()
        spent = self._spent(program, section.workload, roles)
        parts = {number: part_of(program.tasks[number], role, section.workload) for number, role in roles.items()}
        seconds: dict[tuple[str, str], Array] = {}
        started: dict[str, Array | float] = {}
        joules = self.none
        for number, one in spent.items():
            key, joules = (roles[number], parts[number]), joules + one.joules
            seconds[key] = seconds[key] + one.seconds if key in seconds else one.seconds
            if waits:
                started[key[1]] = started.get(key[1], 0) + one.launches
        held, home, mean = self._held(program.held, self.pricer.degrees)
        return LayerCost(
            section=section,
            items=(),
            seconds=seconds,
            hidden=self._hidden(program, section.workload, parts, spent),
            **dict.fromkeys(("lead", "lag", "lag_apart", "forward_wait", "backward_wait"), self.none),
            **dict.fromkeys(("port", "joules_lanes", "joules_once"), self.none),
            joules_device=joules,
            held=held,
            home=home,
            held_mean=mean,
            launches=started,
        )

    def _roles(self, program: Program) -> dict[int, str]:
        """Number → role of the tasks that are outlined: those that hold the device in every micro-batch."""
        return {number: role for number, role in _with_roles(program) if role == DEVICE and not program.tasks[number].once}

    def _spent(self, program: Program, workload: Workload, numbers: Iterable[int]) -> dict[int, Spent]:
        """Number → what each of some tasks takes."""
        merged, tasks = self.run_as_one(workload, program)[0], program.tasks
        return {
            number: self._spent_as_one(tasks[number], [tasks[member] for member in merged[number]])
            if number in merged
            else self._spent_alone(tasks[number])
            for number in numbers
        }

    def _spent_alone(self, task: Task) -> Spent:
        return once(self.pricer.known, ("spent", self.pricer.key(task)), lambda: self._spends(task, *self.pricer.spent(task)))

    def _spent_as_one(self, task: Task, members: Sequence[Task]) -> Spent:
        """What a task takes with the `members` that run as one with it."""

        def spent() -> Spent:
            rows, seconds = self.as_one(members)
            return self._spends(task, seconds, np.asarray(sum((row.joules for row in rows), self.none)))

        return once(self.pricer.known, ("spent", self._key_of(task, members)), spent)

    def _spends(self, task: Task, seconds: Array, joules: Array) -> Spent:
        return Spent(seconds, joules, launched(launches(task, self.pricer, self.profile), seconds))

    def _hidden(self, program: Program, workload: Workload, parts: dict[int, str], spent: dict[int, Spent]) -> dict[str, Array]:
        """Part → [n] seconds that windows can hide."""
        found: dict[str, Array] = {}
        durations = [spent[number].seconds if number in spent else self.none for number in range(len(program.tasks))]
        kernels = self.run_as_one(workload, program)[1]
        for number, seconds in hidable(program.tasks, durations, self.profile.overlap, kernels).items():
            found[parts[number]] = found.get(parts[number], self.none) + seconds
        return found


class MovedPricer(OutlinePricer):
    """Outlines of layers what the lane of weights moves, and the optimizer, alone: no passes, and nothing that is held."""

    def _roles(self, program: Program) -> dict[int, str]:
        return {number: role for number, role in _with_roles(program) if role in MOVING}

    def _hidden(self, program: Program, workload: Workload, parts: dict[int, str], spent: dict[int, Spent]) -> dict[str, Array]:
        return {}

    def _held(self, held: Iterable[Held], degrees: Degrees) -> HeldBytes:
        return {}, {}, {}


def _with_roles(program: Program) -> list[tuple[int, str]]:
    """(number, role) of the tasks that take time."""
    return [(number, role) for number, role in enumerate(roles_of(program.tasks)) if not program.tasks[number].joins]
