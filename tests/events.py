"""What a step's time means: docs/clock.md run event by event, one mapping, every task of every layer of every micro-batch on its own.

A task has a lane, which it holds, seconds until it ends, and tasks it waits for. Each lane is a queue in the order of issue. Rule 1 is
`_run`: a task starts as soon as what it waits for has ended and it heads the queue of its lane, that being free. The rest only writes
the tasks down.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.clock.clock import StepJobs
from rackmodel.cost.step.clock.pipeline_orders import AWAIT, BACKWARD, FORWARD, RELEASE, WEIGHT, WHOLE, order
from rackmodel.cost.step.tasks.jobs import DEVICE, SPREAD, WEIGHTS, LaneJob, LayerPass
from rackmodel.model.schedules import FOLDED

SENDS = ("send forward", "send backward")  # to the next stage, to the one before
Layer = tuple[int, LayerPass]  # section, pass


@dataclass(eq=False)
class Task:
    """name: for reading · lane: None for one that holds none · after: what it waits for · start, end: when it ran."""

    name: str
    stage: int
    seconds: float
    lane: Hashable
    after: list[Task]
    start: float = -1.0
    end: float = -1.0


@dataclass
class Pass:
    """One entry of a stage's order, the layers it runs, what each of them spreads (rule 6), its begin on the device and what brings its
    result to its reader. paired: a forward pass whose result is released later."""

    kind: int
    micro_batch: int
    virtual: int
    layers: list[Layer] = field(default_factory=list)
    spread: list[list[Task]] = field(default_factory=list)
    begin: Task | None = None
    arrives: Task | None = None
    paired: bool = False

    @property
    def way(self) -> int:
        """0 where what it makes, or waits for, goes forward in the model, 1 back."""
        return int(self.kind not in (FORWARD, RELEASE))


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
    for task in tasks:
        if task.lane is not None:
            queues[task.lane].append(task)
        for before in task.after:
            readers[before].append(task)
    events: list[tuple[float, int, Task]] = []  # (when, number, what ends)
    count = 0

    def start(now: float, candidates: list[Task]) -> None:
        nonlocal count
        for task in candidates:
            if task.start >= 0 or missing[task] or (task.lane is not None and queues[task.lane][0] is not task):
                continue
            task.start = now  # it heads its queue until it ends
            heapq.heappush(events, (now + task.seconds, count, task))
            count += 1

    start(0.0, list(tasks))
    while events:
        now, _, task = heapq.heappop(events)
        task.end = now
        for reader in readers[task]:
            missing[reader] -= 1
        if task.lane is not None:
            queues[task.lane].popleft()
        start(now, [*readers[task], *list(queues[task.lane])[:1]])
    assert all(task.end >= 0 for task in tasks), "the step waits for itself"


class _Writer:
    """All tasks of a step, each stage's in the order of issue."""

    def __init__(self, jobs: StepJobs, column: int) -> None:
        self.jobs, self.column = jobs, column
        self.found: list[Task] = []

    def tasks(self) -> list[Task]:
        """Of all stages, with their ends (rule 10: sends under way hold no optimizer up)."""
        jobs, done = self.jobs, []
        passes = [self._passes(stage) for stage in range(jobs.stages)]
        for stage, own in enumerate(passes):
            begin = len(self.found)
            self._stage(stage, own)
            done.append([task for task in self.found[begin:] if not task.name.startswith("send")])
        every = sorted((one for own in passes for one in own), key=lambda one: one.kind)  # what is released is so for its forward pass
        made = {(one.way, one.micro_batch, one.virtual): one.arrives for one in every if one.kind not in (WEIGHT, AWAIT)}
        for one in every:  # rule 3: it begins when what it takes has arrived
            source = made.get((one.way, one.micro_batch, one.virtual + (1 if one.way else -1)))
            one.begin.after.extend([source] if source and one.kind not in (WEIGHT, RELEASE) else [])
        tied = self._one(jobs.tied_s)
        if jobs.stages > 1 and tied > 0:
            done[0] = done[-1] = [self._add("tied", 0, tied, "", [*done[0], *done[-1]])]
        for stage, tasks in enumerate(done):
            layers = sum(jobs.counts[virtual] for virtual in range(len(jobs.counts)) if self._device(virtual) == stage)
            seconds = sum(int(count) * self._one(s) for count, s in zip(layers, jobs.update_s, strict=True))
            self._add("update", stage, seconds, "", tasks)
        return self.found

    def _one(self, seconds: NDArray[np.float64]) -> float:
        """Of this mapping, where they may be the same for all."""
        return float(seconds.flat[self.column if seconds.size > 1 else 0])

    def _add(self, name: str, stage: int, seconds: float, lane: str, after: list[Task]) -> Task:
        self.found.append(Task(name, stage, seconds, (stage, lane) if lane else None, after))
        return self.found[-1]

    def _passes(self, stage: int) -> list[Pass]:
        """A stage's passes in their order with their layers (rules 3, 5, 6)."""
        jobs, plan = self.jobs, order(self.jobs.schedule, self.jobs.stages, self.jobs.micro_batches, self.jobs.chunks)
        rows = zip(plan.kind[stage].tolist(), plan.micro_batch[stage].tolist(), plan.chunk[stage].tolist(), strict=True)
        runs = [row for row in rows if row[0] in (FORWARD, RELEASE) or jobs.backward]
        found = [Pass(kind, k, self._virtual(stage, chunk)) for kind, k, chunk in runs]
        released = {(one.micro_batch, one.virtual) for one in found if one.kind == RELEASE}
        for one in found:
            one.paired = one.kind == FORWARD and (one.micro_batch, one.virtual) in released
            first, last = one.micro_batch == 0, one.micro_batch == jobs.micro_batches - 1
            back, weight = "last" if last else "backward", "last weight" if last else "weight"
            names = {FORWARD: ["first" if first else "forward"], BACKWARD: [back], WEIGHT: [weight], WHOLE: [back, weight]}
            sections = list(enumerate(jobs.sections))
            for section, passes in sections if one.kind == FORWARD else reversed(sections):
                layer = [(section, passes[name]) for name in names.get(one.kind, []) if passes[name]]
                one.layers += layer * int(jobs.counts[one.virtual, section])
        return found

    def _virtual(self, stage: int, chunk: int) -> int:
        """The virtual stage of a chunk: the stages in turn, or down them and back up."""
        back = chunk == 1 and self.jobs.schedule in FOLDED
        return 2 * self.jobs.stages - 1 - stage if back else chunk * self.jobs.stages + stage

    def _device(self, virtual: int) -> int:
        """The stage that runs a virtual stage."""
        pairs = ((stage, chunk) for stage in range(self.jobs.stages) for chunk in range(self.jobs.chunks))
        return next(stage for stage, chunk in pairs if self._virtual(stage, chunk) == virtual)

    def _stage(self, stage: int, passes: list[Pass]) -> None:
        for one in sorted(passes, key=lambda one: (one.kind, one.micro_batch, one.virtual)):  # rule 6: at 0, before all else
            one.spread = [self._spread(stage, layer) for layer in one.layers]
        coming = [layer for one in passes for layer in one.layers]
        gathered = self._gathers(stage, coming[0], []) if coming else []
        reductions: list[list[Task]] = [[], []]  # of the layers so far that had any
        for one in passes:
            one.begin = self._add("begin", stage, 0.0, DEVICE, [])
            for layer, spread in zip(one.layers, one.spread, strict=True):
                coming = coming[1:]
                began = self._add("layer", stage, 0.0, DEVICE, [])
                following = self._gathers(stage, coming[0], [began]) if coming else []  # rule 4: before the layer's own
                reduced = self._layer(stage, layer, began, spread, gathered, reductions[-2])
                reductions += [reduced] if reduced else []
                gathered = following
            one.arrives = self._sent(stage, one, self._add("end", stage, 0.0, DEVICE, []))

    def _layer(self, stage: int, layer: Layer, began: Task, spread: list[Task], gathered: list[Task], reductions: list[Task]) -> list[Task]:
        """One layer's own tasks, no sooner than it began, and its host's time (rules 5 and 8); its reductions."""
        body: list[Task] = []
        issued = iter(spread)
        for job in layer[1].body:
            if job.lane == SPREAD:
                body.append(next(issued))
                continue
            after = [began, *(body[k] for k in job.after), *(gathered[k] for k in job.needs), *(reductions if job.feeds else [])]
            body.append(self._job(stage, layer, job, after))
        seconds = self._one(np.asarray(layer[1].host_s))
        if seconds:
            host = self._add("host", stage, seconds, "", [began])
            self._add("layer end", stage, 0.0, DEVICE, [host])
        return [task for task, job in zip(body, layer[1].body, strict=True) if job.reduces]

    def _spread(self, stage: int, layer: Layer) -> list[Task]:
        return [self._job(stage, layer, replace(job, lane=WEIGHTS), []) for job in layer[1].body if job.lane == SPREAD]

    def _gathers(self, stage: int, layer: Layer, after: list[Task]) -> list[Task]:
        found: list[Task] = []
        for job in layer[1].ahead:
            found.append(self._job(stage, layer, job, [*after, *(found[k] for k in job.after)]))
        return found

    def _job(self, stage: int, layer: Layer, job: LaneJob, after: list[Task]) -> Task:
        return self._add(f"{layer[0]} {layer[1].name} {job.members}", stage, self._one(job.seconds), job.lane, after)

    def _sent(self, stage: int, one: Pass, end: Task) -> Task:
        """What brings a pass's result to its reader (rule 9)."""
        back = self.jobs.schedule in FOLDED and one.virtual >= self.jobs.stages  # its second chunk goes the other way
        lane = one.way if not back else 1 - one.way
        seconds = self._one(self.jobs.send_s if self.jobs.hops_s is None else self.jobs.hops_s[lane, stage])
        if one.kind in (WEIGHT, AWAIT) or self.jobs.stages == 1:
            return end
        if not self.jobs.sends_overlap:
            return end if one.kind == RELEASE else self._add("hand-over", stage, seconds, DEVICE, [])
        reader = one.virtual + (-1 if one.way else 1)
        if not 0 <= reader < len(self.jobs.counts) or self._device(reader) == stage:  # nobody reads it, or it is there
            return end
        if one.paired:  # what a pair's forward pass made leaves with the pair
            return end
        return self._add(SENDS[lane], stage, seconds, SENDS[lane], [end])
