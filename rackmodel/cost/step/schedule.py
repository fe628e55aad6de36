"""When each task of a step runs: docs/clock.md in one pass forward over its jobs, for one mapping.

The clock (`clock.py`) multiplies equal layers as powers of a matrix and keeps no event. Here every layer's pass of every micro-batch is
run once, by the same rules (`stage_state.py`) over times that remember what was spent: each job is a span on a lane of its stage. Passes
go in the order of the pipeline's waves, so that what a pass takes has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.clock import Clock, StepJobs
from rackmodel.cost.step.jobs import DEVICE, SPREAD, WEIGHTS, LaneJob
from rackmodel.cost.step.pass_plan import pass_name
from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, WEIGHT, Waves, waves
from rackmodel.cost.step.stage_state import Run, Step, in_a_row
from rackmodel.cost.step.staged import StagedJobs, staged_visits

Array = NDArray[np.float64]
SENDS = ("send forward", "send backward")
HOST = "host"
NO_SECTION = -1


@dataclass(slots=True, unsafe_hash=True)
class Span:
    """One job as it ran. kind: pass (the device from the begin of a pass to its end), job, host, send, hand-over, tied or update · section,
    name: of the layer's pass, NO_SECTION and '' of what belongs to none · micro_batch: -1 where there is none · members: numbers of its
    tasks. (Never changed; but frozen ones take long to make, and there are many.)"""

    kind: str
    stage: int
    lane: str
    start: float
    end: float
    section: int = NO_SECTION
    name: str = ""
    micro_batch: int = -1
    members: tuple[int, ...] = ()


def schedule_of(jobs: StepJobs) -> list[Span]:
    """Every job of a step of one mapping. The end of the last is the step's seconds."""
    assert jobs.n == 1
    return _Forward(jobs).spans()


def staged_schedule(jobs: StagedJobs) -> list[Span]:
    """The same of a cut below the layer: every task, its lane as the clock has it, and the optimizers."""
    found = [Span("job", *visit[:2], visit[3], visit[4], 0, "staged", visit[2], (visit[5],)) for visit in staged_visits(jobs)]
    for stage, seconds in enumerate(jobs.update_s):
        end = max((span.end for span in found if span.stage == stage), default=0.0)
        found.append(Span("update", stage, DEVICE, end, end + float(np.ravel(seconds)[0])))
    return found


def spans_at_most(jobs: StepJobs) -> int:
    """How many jobs a schedule has at most: what who asks for one may first look at."""
    each = [max(len(one.ahead) + len(one.body) for one in section.values()) for section in jobs.sections]
    return int(jobs.counts.sum(axis=0) @ np.array(each)) * jobs.micro_batches * (3 if jobs.backward else 1)


class _Noted:
    """Times as plain seconds; what is spent is noted as a span of the stage and pass that run now."""

    never = -np.inf

    def __init__(self) -> None:
        self.found: list[Span] = []
        self.stage = 0
        self.micro_batch = 0

    def later(self, one: float, other: float) -> float:
        """See `stage_state.Times`."""
        return max(one, other)

    def plus(self, start: float, seconds: Array, step: Step, job: LaneJob | None, times: int = 1) -> float:
        """See `stage_state.Times`."""
        each = float(np.asarray(seconds).item(0))
        for number in range(times):
            begin, end = start + number * each, start + (number + 1) * each
            lane = HOST if job is None else WEIGHTS if job.lane == SPREAD else job.lane
            kind, members = (HOST, ()) if job is None else ("job", job.members)
            self.found.append(Span(kind, self.stage, lane, begin, end, *step, self.micro_batch, members))
        return start + times * each


class _Forward:
    """A step that is run pass by pass."""

    def __init__(self, jobs: StepJobs) -> None:
        self.jobs, self.clock, self.noted = jobs, Clock(jobs), _Noted()
        self.plan: Waves = waves(jobs.schedule, jobs.stages, jobs.micro_batches, jobs.chunks)
        self.runs = np.flatnonzero((self.plan.kind == FORWARD) | jobs.backward).tolist()
        self.send_s = float(np.ravel(jobs.send_s)[0])

    def spans(self) -> list[Span]:
        """Run it."""
        layers = {number: self._layers(number) for number in self.runs}
        coming = {stage: [(number, run) for number in self.runs if self.plan.device[number] == stage for run in layers[number]]
                  for stage in range(self.jobs.stages)}  # fmt: skip
        states = [self._begin(stage, coming[stage]) for stage in range(self.jobs.stages)]
        place = [0] * self.jobs.stages
        arrivals: dict[int, float] = {}
        sent = [[0.0] * self.jobs.stages for _ in SENDS]
        read = set(self.plan.feeds[self.runs].tolist())
        for number in self.runs:
            stage = int(self.plan.device[number])
            state, begin = states[stage], max(states[stage][0], arrivals.get(int(self.plan.feeds[number]), 0.0))
            state[0] = begin
            for run in layers[number]:
                self._at(stage, number)
                following = coming[stage][place[stage] + 1 : place[stage] + 2]
                state = self._layer(state, run, following)
                place[stage] += 1
            state[0] = self._handed_over(number, stage, state[0])
            self.noted.found.append(self._of_pass(number, stage, begin, state[0]))
            arrivals[number] = self._sent(number, stage, state[0], sent, number in read)
            states[stage] = state
        self._end([max(state[: self.clock.stage.lanes]) for state in states])
        return self.noted.found

    def _at(self, stage: int, number: int) -> None:
        self.noted.stage, self.noted.micro_batch = stage, int(self.plan.micro_batch[number])

    def _layers(self, number: int) -> list[Run]:
        """The layers that a pass runs, each once."""
        jobs, plan = self.jobs, self.plan
        name = pass_name(int(plan.kind[number]), int(plan.micro_batch[number]), jobs.micro_batches)
        counts = jobs.counts[int(plan.virtual[number])].tolist()
        sections = range(len(counts)) if plan.kind[number] == FORWARD else range(len(counts) - 1, -1, -1)
        return [((x, name), jobs.sections[x][name]) for x in sections if jobs.sections[x][name] for _ in range(counts[x])]

    def _begin(self, stage: int, coming: Sequence[tuple[int, Run]]) -> list[float]:
        """The state of a stage before its first pass; what is spread then is noted by the layers that it is of."""
        self.noted.stage, self.noted.micro_batch, begin = stage, 0, len(self.noted.found)
        passes: list[Run] = [((x, "first"), section["first"]) for x, section in enumerate(self.jobs.sections)]
        spread = list(zip(passes, self.clock.layers[stage].tolist(), strict=True))
        state = self.clock.stage.start(self.noted, 0.0, coming[0][1] if coming else None, spread)
        told = sum(count * sum(job.lane == SPREAD for job in one.body) for (_, one), count in spread)
        del self.noted.found[begin : begin + told]
        return [float(time) for time in state]

    def _layer(self, state: list[float], run: Run, following: Sequence[tuple[int, Run]]) -> list[float]:
        """The state after a layer's pass, which issues the gathers of the following one."""
        begin = len(self.noted.found)
        after = self.clock.stage.after(self.noted, state, run, following[0][1] if following else None)
        self.noted.found[begin:] = self._once(self.noted.found[begin:], run, following)
        return [float(time) for time in after]

    def _once(self, found: Sequence[Span], run: Run, following: Sequence[tuple[int, Run]]) -> Iterator[Span]:
        """What a layer's pass noted, less the gathers that it told again (the first of `found`), the next one's under their own pass."""
        told = len(run[1].ahead) - 1 if in_a_row(run[1].ahead) else 0
        coming = len(following[0][1][1].ahead) if following else 0
        for number, span in enumerate(found):
            if told <= number < told + coming:
                yield replace(span, micro_batch=int(self.plan.micro_batch[following[0][0]]))
            elif number >= told:
                yield span

    def _handed_over(self, number: int, stage: int, end: float) -> float:
        """The end of a pass on its device, with a hand-over that holds it (rule 9)."""
        if self.jobs.stages == 1 or self.jobs.sends_overlap or self.plan.kind[number] == WEIGHT:
            return end
        self.noted.found.append(Span("hand-over", stage, DEVICE, end, end + self.send_s, micro_batch=int(self.plan.micro_batch[number])))
        return end + self.send_s

    def _sent(self, number: int, stage: int, end: float, sent: list[list[float]], read: bool) -> float:
        """When what a pass made arrives."""
        if not self.jobs.sends_overlap or self.jobs.stages == 1 or not read:
            return end
        way = int(self.plan.kind[number] == BACKWARD)
        begin = max(end, sent[way][stage])
        sent[way][stage] = begin + self.send_s
        self.noted.found.append(Span("send", stage, SENDS[way], begin, begin + self.send_s, micro_batch=int(self.plan.micro_batch[number])))
        return begin + self.send_s

    def _of_pass(self, number: int, stage: int, begin: float, end: float) -> Span:
        word = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight"}[int(self.plan.kind[number])]
        return Span("pass", stage, DEVICE, begin, end, int(self.plan.virtual[number]), word, int(self.plan.micro_batch[number]))

    def _end(self, done: list[float]) -> None:
        """Rule 10."""
        tied = float(np.ravel(self.jobs.tied_s)[0])
        if self.jobs.stages > 1 and tied > 0:
            both = max(done[0], done[-1])
            self.noted.found += [Span("tied", stage, DEVICE, both, both + tied) for stage in (0, self.jobs.stages - 1)]
            done[0] = done[-1] = both + tied
        for stage, (end, seconds) in enumerate(zip(done, self.clock.updates()[:, 0].tolist(), strict=True)):
            self.noted.found.append(Span("update", stage, DEVICE, end, end + seconds))
