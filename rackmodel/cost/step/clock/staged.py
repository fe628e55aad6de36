"""The clock of a cut below the layer (docs/clock.md, rule 11): tasks at several stages, hand-overs that are tasks of their own.

Stages run passes in the order of a pipeline; each task waits for its data, wherever that is made, and for its lanes. Every task of
every micro-batch is visited once, in the order of the waves: exact, in arrays over n mappings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, waves
from rackmodel.cost.step.tasks.jobs import DEVICE, Lanes, roles_of
from rackmodel.cost.step.tasks.timed_task import TimedTask
from rackmodel.model.schedules import SPLIT

SENDS = ("send forward", "send backward")


@dataclass(frozen=True, kw_only=True)
class StagedJobs:
    """timed: tasks of one layer, at their stages · update_s: of each stage, [n] · sends_overlap: sends queue on links, not the device."""

    timed: tuple[TimedTask, ...]
    lanes: Lanes
    stages: int
    schedule: str
    micro_batches: int
    sends_overlap: bool
    update_s: tuple[Array, ...]


def staged_seconds(jobs: StagedJobs) -> Array:
    """[n] seconds of the step."""
    clock = _Staged(jobs)
    clock.run()
    return clock.seconds()


def staged_path(jobs: StagedJobs) -> tuple[float, Counter[int], int]:
    """Of one mapping: (seconds, times each task is on the critical path, the stage whose optimizer ends it)."""
    clock = _Staged(jobs)
    clock.run()
    return clock.path()


def staged_visits(jobs: StagedJobs) -> list[tuple[int, str, int, float, float, int]]:
    """Every task of a step of one mapping that takes time: (stage, lane, micro-batch, start, end, number)."""
    clock = _Staged(jobs)
    clock.run()
    found = []
    for (number, micro_batch), end in clock.ends.items():
        one = jobs.timed[number]
        if one.task.kind != "op" or one.task.local_op is not None:
            seconds = float(np.ravel(one.seconds)[0])
            found.append((one.task.stage, clock.lane(number), micro_batch, float(end[0]) - seconds, float(end[0]), number))
    return found


Visit = tuple[int, int]  # task, micro-batch


class _Staged:
    def __init__(self, jobs: StagedJobs) -> None:
        self.jobs = jobs
        self.roles = [jobs.lanes.timed(role) for role in roles_of(one.task for one in jobs.timed)]
        self.n = int(np.size(jobs.update_s[0]))
        self.zero = np.zeros(self.n)
        self.ends: dict[Visit, Array] = {}
        self.waits: dict[Visit, list[Visit]] = {}
        self.last: dict[tuple[int, str], Visit] = {}  # (stage, lane) → the visit that used it last
        self.passed: dict[int, list[Visit]] = {}  # stage → last device visit of each pass so far

    def lane(self, number: int) -> str:
        """The lane of a task at its stage."""
        task, role, lanes = self.jobs.timed[number].task, self.roles[number], self.jobs.lanes
        if task.kind == "send":
            return SENDS[task.phase != "forward"] if self.jobs.sends_overlap else DEVICE
        if role in ("gather", "spread"):
            return lanes.gather
        return {"reduce": lanes.reduce, "tail": lanes.reduce, "up": lanes.up, "home": lanes.home}.get(role, DEVICE)

    def run(self) -> None:
        """Visit every task."""
        jobs = self.jobs
        plan = waves(jobs.schedule, jobs.stages, jobs.micro_batches, 1)
        split = jobs.schedule in SPLIT
        tasks: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(jobs.timed):
            tasks.setdefault((one.task.stage, self._kind(number, split)), []).append(number)
        for device, kind, micro_batch in zip(plan.device, plan.kind, plan.micro_batch, strict=True):
            self._pass(int(device), tasks.get((int(device), int(kind)), []), int(micro_batch))

    def _kind(self, number: int, split: bool) -> int:
        one, role = self.jobs.timed[number], self.roles[number]
        if role == "update":
            return -1
        if one.task.phase == "forward" or role == "spread":
            return FORWARD
        return 2 if split and (one.weight or role in ("reduce", "tail", "up", "home")) else BACKWARD

    def _pass(self, stage: int, numbers: Sequence[int], micro_batch: int) -> None:
        first, last = micro_batch == 0, micro_batch == self.jobs.micro_batches - 1
        early = [n for n in numbers if self.roles[n] in ("gather", "spread") and self.lane(n) != DEVICE]
        passed = self.passed.setdefault(stage, [])
        for n in (*early, *(n for n in numbers if n not in set(early))):
            once = self.jobs.timed[n].task.once
            if once and not (first if self.roles[n] in ("spread", "device") else last):
                continue
            waits = [(before, micro_batch) for before in self.jobs.timed[n].task.after if (before, micro_batch) in self.ends]
            if n in early and len(passed) > 1:
                waits.append(passed[-2])
            elif self.roles[n] == "device" and (task := self.jobs.timed[n].task).local_op is not None:
                read = {flow.tensor for flow in task.local_op.reads if not flow.gradient}
                waits += [(k, 0) for k, role in enumerate(self.roles) if role == "spread" and self.jobs.timed[k].task.tensor in read]
            self._visit(stage, n, micro_batch, [wait for wait in waits if wait in self.ends])
        if (stage, DEVICE) in self.last:
            passed.append(self.last[stage, DEVICE])

    def _visit(self, stage: int, number: int, micro_batch: int, waits: list[Visit]) -> None:
        one, here = self.jobs.timed[number], (number, micro_batch)
        start = self.zero
        if one.task.joins:
            lanes: list[tuple[int, str]] = []
        else:
            lanes = [(stage, self.lane(number))]
            if one.task.kind in ("load", "store"):
                lanes.append((-1, one.task.level))  # one memory above serves all stages
        waits = [*waits, *(self.last[lane] for lane in lanes if lane in self.last)]
        for wait in waits:
            start = np.maximum(start, self.ends[wait])
        self.ends[here] = start + one.seconds
        self.waits[here] = waits
        for lane in lanes:
            self.last[lane] = here

    def _stage_ends(self) -> list[Array]:
        found = [self.zero] * self.jobs.stages
        for (number, _), end in self.ends.items():
            stage = self.jobs.timed[number].task.stage
            found[stage] = np.maximum(found[stage], end)
        return found

    def seconds(self) -> Array:
        """[n] when the last stage's optimizer ends."""
        return np.asarray(np.maximum.reduce([end + update for end, update in zip(self._stage_ends(), self.jobs.update_s, strict=True)]))

    def path(self) -> tuple[float, Counter[int], int]:
        """See `staged_path`."""
        totals = [float((end + update)[0]) for end, update in zip(self._stage_ends(), self.jobs.update_s, strict=True)]
        stage = int(np.argmax(totals))
        found: Counter[int] = Counter()
        mine = [visit for visit in self.ends if self.jobs.timed[visit[0]].task.stage == stage]
        at: Visit | None = max(mine, key=lambda visit: float(self.ends[visit][0])) if mine else None
        while at is not None:
            found[at[0]] += 1
            waits = self.waits[at]
            before = max(waits, key=lambda visit: float(self.ends[visit][0])) if waits else None
            at = before if before is not None and float(self.ends[before][0]) > 0 else None
        return totals[stage], found, stage
