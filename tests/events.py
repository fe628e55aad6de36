"""What a step's time means: docs/clock.md run event by event, one mapping, every task of every layer of every micro-batch on its own.

A task has lanes (with the seconds for which it holds each), seconds until it ends, and tasks it waits for. Each lane is a queue in the
order of issue. Rule 1 is `_run`: a task starts as soon as what it waits for has ended and it heads the queue of every lane it holds,
those lanes being free. The rest only writes the tasks down.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rackmodel.cost.step.clock import StepJobs
from rackmodel.cost.step.jobs import DEVICE, PORT, Job, LayerPass
from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, WEIGHT, order

SENDS = {FORWARD: "send forward", BACKWARD: "send backward"}
Layer = tuple[int, LayerPass]  # section, pass


@dataclass(eq=False)
class Task:
    """name: for reading · lanes: lane → seconds it is held · start, end: when it ran."""

    name: str
    stage: int
    seconds: float
    lanes: dict[Hashable, float]
    after: list[Task]
    start: float = -1.0
    end: float = -1.0


@dataclass
class Pass:
    """One entry of a stage's order, the layers that it runs, its end on the device and what brings its result to its reader."""

    kind: int
    micro_batch: int
    virtual: int
    layers: list[Layer]
    arrives: Task | None = None


@dataclass
class Stage:
    """What a stage has issued so far. gathered: of the layer to run next · reductions: of each layer run so far that has any."""

    number: int
    gathered: list[Task] = field(default_factory=list)
    reductions: list[list[Task]] = field(default_factory=list)


def simulate(jobs: StepJobs, column: int = 0) -> tuple[float, list[Task]]:
    """(seconds of the step, every task with its start and end), of one of the mappings."""
    tasks = _Writer(jobs, column).tasks()
    _run(tasks)
    return max(task.end for task in tasks), tasks


def _run(tasks: list[Task]) -> None:
    """Rule 1."""
    queues: dict[Hashable, deque[Task]] = defaultdict(deque)
    readers: dict[Task, list[Task]] = defaultdict(list)
    missing = {task: len(task.after) for task in tasks}
    free = {lane: True for task in tasks for lane in task.lanes}
    for task in tasks:
        for lane in task.lanes:
            queues[lane].append(task)
        for before in task.after:
            readers[before].append(task)
    events: list[tuple[float, int, Task, Hashable]] = []  # (when, number, task, the lane it leaves; None: it ends)
    count = 0

    def start(now: float, candidates: list[Task]) -> None:
        nonlocal count
        for task in candidates:
            if task.start >= 0 or missing[task] or any(queues[lane][0] is not task or not free[lane] for lane in task.lanes):
                continue
            task.start = now
            for lane, seconds in [*task.lanes.items(), (None, task.seconds)]:
                free[lane] = False
                heapq.heappush(events, (now + seconds, count, task, lane))
                count += 1

    start(0.0, list(tasks))
    while events:
        now, _, task, lane = heapq.heappop(events)
        if lane is None:
            task.end = now
            for reader in readers[task]:
                missing[reader] -= 1
            start(now, readers[task])
        else:
            free[lane] = True
            queues[lane].popleft()
            start(now, [queues[lane][0]] if queues[lane] else [])
    assert all(task.end >= 0 for task in tasks), "the step waits for itself"


class _Writer:
    """All tasks of a step, each stage's in the order of issue."""

    def __init__(self, jobs: StepJobs, column: int) -> None:
        self.jobs, self.column = jobs, column
        self.found: list[Task] = []
        self.passes = [self._passes(stage) for stage in range(jobs.stages)]
        self.last_virtual = jobs.stages * jobs.chunks - 1

    def tasks(self) -> list[Task]:
        """Of all stages, with their ends (rule 10)."""
        jobs = self.jobs
        done: list[list[Task]] = []
        for number, passes in enumerate(self.passes):
            begin = len(self.found)
            self._stage(Stage(number), passes)
            done.append([task for task in self.found[begin:] if not task.name.startswith("send")])
        self._join_passes()
        tied = self._one(jobs.tied_s)
        if jobs.stages > 1 and tied > 0:
            both = self._add("tied", 0, tied, {}, [*done[0], *done[-1]])
            done[0], done[-1] = [both], [both]
        for number, tasks in enumerate(done):
            layers = jobs.counts[number :: jobs.stages].sum(axis=0)
            update = sum(int(count) * self._one(s) for count, s in zip(layers, jobs.update_s, strict=True))
            self._add("update", number, update, {}, tasks)
        return self.found

    def _one(self, seconds: object) -> float:
        return float(np.broadcast_to(np.asarray(seconds, dtype=float), (self.jobs.n,))[self.column])

    def _add(self, name: str, stage: int, seconds: float, lanes: dict[str, float], after: list[Task]) -> Task:
        task = Task(name, stage, seconds, {(stage, lane): held for lane, held in lanes.items()}, list(after))
        self.found.append(task)
        return task

    # -- which passes, of which layers (rules 3 and 6) ---------------------------------------------------------------------------

    def _passes(self, stage: int) -> list[Pass]:
        jobs, plan = self.jobs, order(self.jobs.schedule, self.jobs.stages, self.jobs.micro_batches, self.jobs.chunks)
        rows = zip(plan.kind[stage].tolist(), plan.micro_batch[stage].tolist(), plan.chunk[stage].tolist(), strict=True)
        found = [Pass(kind, k, chunk * jobs.stages + stage, []) for kind, k, chunk in rows if kind == FORWARD or jobs.backward]
        for one in found:
            one.layers = list(self._layers(one))
        return found

    def _layers(self, one: Pass) -> Iterator[Layer]:
        first, last = one.micro_batch == 0, one.micro_batch == self.jobs.micro_batches - 1
        name = {
            FORWARD: "first" if first else "forward",
            BACKWARD: "last" if last else "backward",
            WEIGHT: "last weight" if last else "weight",
        }[one.kind]
        sections = list(enumerate(self.jobs.sections))
        for section, passes in sections if one.kind == FORWARD else reversed(sections):
            for _ in range(self.jobs.counts[one.virtual, section]):
                if passes[name]:
                    yield section, passes[name]

    # -- a stage (rules 3, 4, 8, 9) -------------------------------------------------------------------------------------------------

    def _stage(self, stage: Stage, passes: list[Pass]) -> None:
        coming = [layer for one in passes for layer in one.layers]
        if coming:
            stage.gathered = self._gathers(stage, coming[0], [])
        for one in passes:
            self._add(f"begin {one.kind}", stage.number, 0.0, {DEVICE: 0.0}, [])
            for layer in one.layers:
                coming = coming[1:]
                self._layer(stage, layer, coming[0] if coming else None)
            end = self._add("end", stage.number, 0.0, {DEVICE: 0.0}, [])
            one.arrives = self._sent(stage.number, one, end)

    def _sent(self, stage: int, one: Pass, end: Task) -> Task:
        seconds = self._one(self.jobs.send_s)
        if one.kind == WEIGHT or self.jobs.stages == 1:
            return end
        if not self.jobs.sends_overlap:
            return self._add("hand-over", stage, seconds, {DEVICE: seconds}, [])
        if one.virtual == (self.last_virtual if one.kind == FORWARD else 0):
            return end
        return self._add(f"send {one.kind}", stage, seconds, {SENDS[one.kind]: seconds}, [end])

    def _join_passes(self) -> None:
        """A pass begins when what it takes has arrived."""
        made = {(one.kind, one.micro_batch, one.virtual): one.arrives for passes in self.passes for one in passes}
        begins = [task for task in self.found if task.name.startswith("begin")]
        for task, one in zip(begins, [one for passes in self.passes for one in passes], strict=True):
            source = made.get((one.kind, one.micro_batch, one.virtual + (-1 if one.kind == FORWARD else 1)))
            if one.kind != WEIGHT and source is not None:
                task.after.append(source)

    def _layer(self, stage: Stage, layer: Layer, following: Layer | None) -> None:
        """One layer's pass: its start, the gathers of the layer after it, its own tasks, its end."""
        _, one = layer
        began = self._add("layer", stage.number, 0.0, {DEVICE: 0.0}, [])
        mine, stage.gathered = stage.gathered, self._gathers(stage, following, [began]) if following is not None else []
        two_before = stage.reductions[-2] if len(stage.reductions) > 1 else []
        body: list[Task] = []
        for job in one.body:
            after = [began, *(body[k] for k in job.after), *(mine[k] for k in job.needs), *(two_before if job.feeds else [])]
            body.append(self._job(stage, layer, job, after))
        reductions = [task for task, job in zip(body, one.body, strict=True) if job.reduces]
        if reductions:
            stage.reductions.append(reductions)
        host = self._add("host", stage.number, one.host_s, {}, [began])
        self._add("layer end", stage.number, 0.0, {DEVICE: 0.0}, [host])

    def _gathers(self, stage: Stage, layer: Layer, after: list[Task]) -> list[Task]:
        found: list[Task] = []
        for job in layer[1].ahead:
            found.append(self._job(stage, layer, job, [*after, *(found[k] for k in job.after)]))
        return found

    def _job(self, stage: Stage, layer: Layer, job: Job, after: list[Task]) -> Task:
        seconds = self._one(job.seconds)
        lanes = {job.lane: seconds}
        if job.port_s is not None:
            lanes[PORT] = self._one(job.port_s)
        return self._add(f"{layer[0]} {layer[1].name} {job.members}", stage.number, seconds, lanes, after)
