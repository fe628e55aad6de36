"""A priced task as the clock takes it, of which jobs on lanes are made (jobs)."""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.arrays import Array
from rackmodel.cost.program.tasks import Task


@dataclass(frozen=True, kw_only=True)
class TimedTask:
    """A priced task. seconds: [n] on its lane, windows taken off · port_s: [n] of a home's shared port, at most its seconds · weight:
    whether it makes a weight's gradient · launches: of the host for it, one for each mapping or for all."""

    task: Task
    seconds: Array
    port_s: Array | None = None
    weight: bool = False
    launches: Array | float = 0

    @property
    def waits_for_port(self) -> bool:
        """Whether others at a home's shared port slow it: a stream; an update there takes its turn, and keeps streams waiting."""
        return self.port_s is not None and self.task.channel != "home"
