"""The clock of a cut below the layer (docs/clock.md, rule 11): tasks at several stages, hand-overs that are tasks of their own.

Stages run passes in the order of a pipeline; each task waits for its data, wherever that is made, and for its lanes. What a stage runs of a
pass is a layer to contention and to the host (rules 7 and 8), whose time begins when the stage's device is free and what the pass takes
from elsewhere is there, and which hands nothing over before it has launched all of it. Every task of every micro-batch is visited once, in
the order of the waves: exact, in arrays over n mappings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.clock.critical_path import HOST, Path
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, WEIGHT, waves
from rackmodel.cost.step.tasks.jobs import DEVICE, Lanes, LayerPass, roles_of
from rackmodel.cost.step.tasks.timed_task import TimedTask
from rackmodel.model.schedules import SPLIT

SENDS = ("send forward", "send backward")


@dataclass(frozen=True, kw_only=True)
class StagedJobs:
    """timed: tasks of one layer, at their stages · passes: of each stage, by name · update_s: of each stage, [n] · sends_overlap: sends
    queue on links, not the device."""

    timed: tuple[TimedTask, ...]
    passes: tuple[dict[str, LayerPass], ...]
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


def staged_path(jobs: StagedJobs) -> tuple[float, Path, int]:
    """Of one mapping: (seconds, times each task, of part 0, and each stage's host is on the critical path, the stage whose optimizer ends
    it)."""
    clock = _Staged(jobs)
    clock.run()
    return clock.path()


def staged_visits(jobs: StagedJobs) -> list[tuple[int, str, int, float, float, int]]:
    """Every task of a step of one mapping that takes time, and the host: (stage, lane, micro-batch, start, end, number or HOST)."""
    clock = _Staged(jobs)
    clock.run()
    found = []
    for (number, micro_batch), end in clock.ends.items():
        if isinstance(number, Host):
            if not number.over:
                seconds = float(np.ravel(jobs.passes[number.stage][number.name].host_s)[0])
                found.append((number.stage, "host", micro_batch, float(end[0]) - seconds, float(end[0]), HOST))
            continue
        one = jobs.timed[number]
        if one.task.kind != "op" or one.task.local_op is not None:
            seconds = float(np.ravel(clock.seconds_of(number, micro_batch))[0])
            found.append((one.task.stage, clock.lane(number), micro_batch, float(end[0]) - seconds, float(end[0]), number))
    return found


@dataclass(frozen=True)
class Host:
    """What holds a stage's pass until the host has launched it, and (over) the later end of both."""

    stage: int
    name: str
    over: bool = False


Visit = tuple[int | Host, int]  # task, micro-batch


class _Staged:
    def __init__(self, jobs: StagedJobs) -> None:
        self.jobs = jobs
        self.roles = [jobs.lanes.timed(role) for role in roles_of(one.task for one in jobs.timed)]
        self.n = int(np.size(jobs.update_s[0]))
        self.zero = np.zeros(self.n)
        self.ends: dict[Visit, Array] = {}
        self.waits: dict[Visit, list[Visit]] = {}
        self.last: dict[tuple[int, str], Visit] = {}  # (stage, lane) → the visit that used it last
        self.reduced: list[list[list[Visit]]] = [[] for _ in range(jobs.stages)]  # of each stage, of its passes that had any
        self.reduces = {n for n, role in enumerate(self.roles) if role in ("reduce", "up") and self.lane(n) != DEVICE}
        self.after = self._waits()
        self.feeds = {before for n in self.reduces for before in self.after[n]}  # what makes what these reduce

    def name(self, kind: int, micro_batch: int) -> str:
        """The name of a pass among those of its stage."""
        last = micro_batch == self.jobs.micro_batches - 1
        if kind == FORWARD:
            return "first" if micro_batch == 0 else "forward"
        return ("last weight" if last else "weight") if kind == WEIGHT else ("last" if last else "backward")

    def seconds_of(self, number: int, micro_batch: int) -> Array:
        """[n] of a task in the pass that runs it (rule 7)."""
        one, kind = self.jobs.timed[number], self._kind(number)
        if one.task.kind == "send":
            return one.seconds
        where = self.jobs.passes[one.task.stage][self.name(kind, micro_batch)]
        return np.asarray(one.seconds * where.slowed(self.lane(number), port=one.waits_for_port))

    def lane(self, number: int) -> str:
        """The lane of a task at its stage."""
        task = self.jobs.timed[number].task
        if task.kind == "send":
            return SENDS[task.phase != "forward"] if self.jobs.sends_overlap else DEVICE
        return self.jobs.lanes.of(self.roles[number])

    def run(self) -> None:
        """Visit every task."""
        jobs = self.jobs
        plan = waves(jobs.schedule, jobs.stages, jobs.micro_batches, 1)
        tasks: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(jobs.timed):
            tasks.setdefault((one.task.stage, self._kind(number)), []).append(number)
        runs = zip(plan.device.tolist(), plan.kind.tolist(), plan.micro_batch.tolist(), strict=True)
        passes = [(device, kind, micro_batch) for device, kind, micro_batch in runs if (device, kind) in tasks]
        of = [[one for one in passes if one[0] == stage] for stage in range(jobs.stages)]
        begun = [0] * jobs.stages
        for stage, kind, micro_batch in passes:
            begun[stage] += 1
            if begun[stage] == 1:  # its own are issued at 0 (rule 4)
                self._ahead(stage, tasks[stage, kind], micro_batch, [])
            begins = self._begins(stage, tasks[stage, kind], micro_batch)
            for _, later, number in of[stage][begun[stage] : begun[stage] + 1]:
                self._ahead(stage, tasks[stage, later], number, begins)
            self._pass(stage, self.name(kind, micro_batch), tasks[stage, kind], micro_batch, begins)

    def _kind(self, number: int) -> int:
        one, role, split = self.jobs.timed[number], self.roles[number], self.jobs.schedule in SPLIT
        if role == "update" or one.task.joins:
            return -1
        if one.task.phase == "forward" or role == "spread":
            return FORWARD
        return WEIGHT if split and (one.weight or role in ("reduce", "tail", "up", "home")) else BACKWARD

    def _waits(self) -> list[list[int]]:
        """Of each task those that it waits for, of a join's the ones that it stands for: they may be of another stage than it."""
        real, found = list[list[int]](), list[list[int]]()
        for number, one in enumerate(self.jobs.timed):
            found.append(sorted({n for before in one.task.after for n in real[before]}))
            real.append(found[-1] if one.task.joins else [number])
        return found

    def _early(self, number: int) -> bool:
        """Whether it is issued a pass ahead."""
        return self.roles[number] in ("gather", "spread") and self.lane(number) != DEVICE

    def _left_out(self, number: int, micro_batch: int) -> bool:
        """Whether it happens once a step, and not in this micro-batch."""
        at = 0 if self.roles[number] in ("spread", "device") else self.jobs.micro_batches - 1
        return self.jobs.timed[number].task.once and micro_batch != at

    def _before(self, number: int, micro_batch: int) -> list[Visit]:
        """What it waits for in its micro-batch."""
        return [wait for before in self.after[number] if (wait := (before, micro_batch)) in self.ends]

    def _begins(self, stage: int, numbers: Sequence[int], micro_batch: int) -> list[Visit]:
        """What a pass waits for: the device, and all that comes from other stages (rule 3)."""
        others = sorted({before for n in numbers for before in self.after[n]} - set(numbers))
        tasks = ((n, self.jobs.timed[n].task) for n in others)
        found: list[Visit] = [(n, micro_batch) for n, task in tasks if task.kind == "send" or task.stage != stage]
        found = [wait for wait in found if wait in self.ends]
        return [*found, self.last[stage, DEVICE]] if (stage, DEVICE) in self.last else found

    def _ahead(self, stage: int, numbers: Sequence[int], micro_batch: int, begins: list[Visit]) -> None:
        """What a pass gathers, issued as the pass before it begins (rule 4)."""
        for n in numbers:
            if self._early(n) and not self._left_out(n, micro_batch):
                self._visit(stage, n, micro_batch, [*self._before(n, micro_batch), *begins])

    def _pass(self, stage: int, name: str, numbers: Sequence[int], micro_batch: int, begins: list[Visit]) -> None:
        host = self._host(stage, name, micro_batch, begins)
        for n in numbers:
            if self._early(n) or self._left_out(n, micro_batch):
                continue
            waits, task = self._before(n, micro_batch), self.jobs.timed[n].task
            if self.roles[n] == "device" and task.local_op is not None:
                read = {flow.tensor for flow in task.local_op.reads if not flow.gradient}
                brought = (k for k, role in enumerate(self.roles) if role == "spread" and self.jobs.timed[k].task.tensor in read)
                waits += [(k, 0) for k in brought if (k, 0) in self.ends]
            if self.roles[n] == "gather":  # on the device: no sooner than the pass (rule 3)
                waits += begins
            if n in self.feeds and len(self.reduced[stage]) > 1:  # rule 5
                waits += self.reduced[stage][-2]
            if host is not None and task.kind == "send":
                waits.append(host)
            self._visit(stage, n, micro_batch, waits)
        if host is not None:
            self._over(stage, host)
        if reduced := [visit for n in numbers if n in self.reduces and (visit := (n, micro_batch)) in self.ends]:
            self.reduced[stage].append(list[Visit](reduced))

    def _host(self, stage: int, name: str, micro_batch: int, begins: list[Visit]) -> Visit | None:
        """The host's time of a pass; None where it takes none (rule 8)."""
        seconds, host = self.jobs.passes[stage][name].host_s, (Host(stage, name), micro_batch)
        if not np.any(seconds):
            return None
        self.ends[host] = np.maximum.reduce([self.zero, *(self.ends[wait] for wait in begins)]) + seconds
        self.waits[host] = begins
        return host

    def _over(self, stage: int, host: Visit) -> None:
        """The device is not done with a pass before the host is."""
        assert isinstance(host[0], Host)
        over, ended = (Host(stage, host[0].name, over=True), host[1]), self.last[stage, DEVICE]
        self.ends[over] = np.maximum(self.ends[ended], self.ends[host])
        self.waits[over] = [ended, host]
        self.last[stage, DEVICE] = over

    def _visit(self, stage: int, number: int, micro_batch: int, waits: list[Visit]) -> None:
        one, here = self.jobs.timed[number], (number, micro_batch)
        start, lanes = self.zero, [(stage, self.lane(number))]
        if one.task.kind in ("load", "store"):
            lanes.append((-1, one.task.level))  # one memory above serves all stages
        waits = [*waits, *(self.last[lane] for lane in lanes if lane in self.last)]
        for wait in waits:
            start = np.maximum(start, self.ends[wait])
        self.ends[here] = start + self.seconds_of(number, micro_batch)
        self.waits[here] = waits
        for lane in lanes:
            self.last[lane] = here

    def _stage(self, visit: Visit) -> int | None:
        """The stage whose optimizer waits for it; none for a send (rule 10)."""
        number = visit[0]
        if isinstance(number, Host):
            return number.stage
        task = self.jobs.timed[number].task
        return None if task.kind == "send" and self.jobs.sends_overlap else task.stage

    def _stage_ends(self) -> list[Array]:
        found = [self.zero] * self.jobs.stages
        for visit, end in self.ends.items():
            stage = self._stage(visit)
            if stage is not None:
                found[stage] = np.maximum(found[stage], end)
        return found

    def seconds(self) -> Array:
        """[n] when the last stage's optimizer ends."""
        return np.asarray(np.maximum.reduce([end + update for end, update in zip(self._stage_ends(), self.jobs.update_s, strict=True)]))

    def path(self) -> tuple[float, Path, int]:
        """See `staged_path`."""
        totals = [float((end + update)[0]) for end, update in zip(self._stage_ends(), self.jobs.update_s, strict=True)]
        stage = int(np.argmax(totals))
        found: Path = Counter()
        mine = [visit for visit in self.ends if self._stage(visit) == stage]
        at: Visit | None = max(mine, key=lambda visit: float(self.ends[visit][0])) if mine else None
        while at is not None:
            number, micro_batch = at
            if not isinstance(number, Host):
                found[(0, self.name(self._kind(number), micro_batch)), number] += 1
            elif not number.over:
                found[(number.stage, number.name), HOST] += 1
            waits = self.waits[at]
            before = max(waits, key=lambda visit: float(self.ends[visit][0])) if waits else None
            at = before if before is not None and float(self.ends[before][0]) > 0 else None
        return totals[stage], found, stage
