"""When each task of a step runs: docs/clock.md with all that it spends noted, for one mapping.

The clock (`clock.py`) says in which state a stage enters each pass. Passes that run the same layers, and before the same ones, are run
again side by side, each from its own state, by the rules of `stage_state.py`, over times that remember what was spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.clock.clock import Clock, StepJobs
from rackmodel.cost.step.clock.pass_plan import LAYER_PASSES, pass_name
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, RELEASE, WEIGHT, WHOLE, Waves, waves
from rackmodel.cost.step.clock.stage_state import Run, Step, Times, in_a_row
from rackmodel.cost.step.clock.staged import StagedJobs, staged_visits
from rackmodel.cost.step.tasks.jobs import DEVICE, SPREAD, WEIGHTS, LaneJob

SENDS = ("send forward", "send backward")
HOST = "host"
NO_SECTION = -1
WORDS = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight", WHOLE: "whole backward"}


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


@dataclass(frozen=True, kw_only=True)
class Spans:
    """One job as often as it ran, its words those of `Span`. stage, micro_batch: [times] integers · start, end: [times] seconds."""

    kind: str
    lane: str
    stage: Ints
    start: Array
    end: Array
    micro_batch: Ints
    section: int = NO_SECTION
    name: str = ""
    members: tuple[int, ...] = ()

    def each(self) -> Iterator[Span]:
        """One by one."""
        columns = (self.stage, self.start, self.end, self.micro_batch)
        for stage, start, end, micro_batch in zip(*(some.tolist() for some in columns), strict=True):
            yield Span(self.kind, stage, self.lane, start, end, self.section, self.name, micro_batch, self.members)


def schedule_of(jobs: StepJobs) -> list[Spans]:
    """Every job of a step of one mapping. The end of the last is the step's seconds."""
    assert jobs.n == 1
    return _Again(jobs).spans()


def staged_schedule(jobs: StagedJobs) -> list[Spans]:
    """The same of a cut below the layer: every task, its lane as the clock has it, and the optimizers."""
    times: dict[tuple[str, int], list[tuple[int, float, float, int]]] = {}
    ends: dict[int, float] = {}
    for stage, lane, micro_batch, start, end, task in staged_visits(jobs):
        times.setdefault((lane, task), []).append((stage, start, end, micro_batch))
        if lane not in SENDS:  # (rule 10)
            ends[stage] = max(ends.get(stage, 0.0), end)
    found = []
    for (lane, task), some in times.items():
        kind, members = (HOST, ()) if lane == HOST else ("job", (task,))
        found.append(_told(kind, lane, some, section=0, name="staged", members=members))
    for stage, seconds in enumerate(jobs.update_s):
        end = ends.get(stage, 0.0)
        found.append(_told("update", DEVICE, [(stage, end, end + float(np.ravel(seconds)[0]), -1)]))
    return found


def _told(kind: str, lane: str, times: Sequence[tuple[int, float, float, int]], **own: Any) -> Spans:
    """From (stage, start, end, micro-batch)."""
    stage, start, end, micro_batch = zip(*times, strict=True)
    stages, batches = np.array(stage, dtype=np.int64), np.array(micro_batch, dtype=np.int64)
    return Spans(kind=kind, lane=lane, stage=stages, start=np.array(start), end=np.array(end), micro_batch=batches, **own)


def spans_at_most(jobs: StepJobs) -> int:
    """How many jobs a schedule has at most: what who asks for one may first look at."""
    each = [max(len(one.ahead) + len(one.body) for one in section.values()) for section in jobs.sections]
    return int(jobs.counts.sum(axis=0) @ np.array(each)) * jobs.micro_batches * (3 if jobs.backward else 1)


class _Noted:
    """Times as arrays [times]; what is spent is noted as spans of the stages and micro-batches that run now."""

    never: Array = np.array(-np.inf)

    def __init__(self, stage: Ints, micro_batch: Ints) -> None:
        self.found: list[Spans] = []
        self.stage, self.micro_batch = stage, micro_batch

    def later(self, one: Array, other: Array) -> Array:
        """See `stage_state.Times`."""
        return one if one is other else np.asarray(np.maximum(one, other))

    def plus(self, start: Array, seconds: Array, step: Step, job: LaneJob | None, times: int = 1) -> Array:
        """See `stage_state.Times`."""
        end = np.asarray(start + times * float(np.asarray(seconds).item(0)))
        lane = HOST if job is None else WEIGHTS if job.lane == SPREAD else job.lane
        kind, members = (HOST, ()) if job is None else ("job", job.members)
        about = Spans(
            kind=kind, lane=lane, stage=self.stage, start=start, end=end, micro_batch=self.micro_batch,
            section=step[0], name=step[1], members=members,
        )  # fmt: skip
        self.found.append(about)
        return end


Passed = tuple[tuple[int, ...], str]  # the layers of each section that a pass runs, and its name


class _Again:
    """A step whose passes are run again from the states in which the clock enters them."""

    def __init__(self, jobs: StepJobs) -> None:
        self.jobs, self.clock = jobs, Clock(jobs)
        self.plan: Waves = waves(jobs.schedule, jobs.stages, jobs.micro_batches, jobs.chunks)
        self.runs = np.flatnonzero(np.isin(self.plan.kind, (FORWARD, RELEASE)) | jobs.backward)
        self.hops_s = np.array([[float(jobs.hop_s(lane, stage)[0]) for stage in range(jobs.stages)] for lane in (0, 1)])
        self.counts: list[tuple[int, ...]] = [tuple(row) for row in jobs.counts.tolist()]
        self.layers: dict[Passed, list[Run]] = {}

    def spans(self) -> list[Spans]:
        """Run it."""
        ran = self.clock.run_by_pass()
        assert ran.ended is not None
        entries, arrivals = ran.ended.entries, ran.ended.arrivals
        ends, found = np.zeros(self.plan.kind.size), list[Spans]()
        first = np.full(self.jobs.stages, -1)
        for (mine, then), numbers, following in self._alike(first):
            ends[numbers], some = self._passed(mine, then, numbers, following, entries[numbers, :, 0])
            found += some
        found += self._started(first)
        found += self._of_passes(entries[self.runs, 0, 0], ends[self.runs], arrivals[self.runs, 0])
        return found + self._ended(self.clock.done(ran.state)[:, 0], self.clock.finished(ran.state)[:, 0])

    # -- layers ----------------------------------------------------------------------------------------------------------------

    def _alike(self, first: Ints) -> list[tuple[tuple[Passed, Passed | None], Ints, Ints]]:
        """((what passes run, what their device runs next), their numbers, the numbers of what it runs next). first: filled with the
        number of each stage's first pass with something to do."""
        alike: dict[tuple[Passed, Passed | None], list[tuple[int, int]]] = {}
        runs, devices = self.runs.tolist(), self.plan.device[self.runs].tolist()
        mine = [(self.counts[virtual], name) for virtual, name in self._named(self.runs)]
        coming = [-1] * self.jobs.stages
        for place in range(len(runs) - 1, -1, -1):
            stage = devices[place]
            then = coming[stage]
            alike.setdefault((mine[place], mine[then] if then >= 0 else None), []).append((runs[place], runs[then]))
            if self._layers(mine[place]):
                coming[stage] = place
        first[:] = [runs[place] if place >= 0 else -1 for place in coming]
        return [(key, *np.array(some[::-1], dtype=np.int64).T) for key, some in alike.items()]

    def _named(self, numbers: Ints) -> list[tuple[int, str]]:
        """The virtual stage and the name of passes."""
        virtual, kind, batch = (some[numbers].tolist() for some in (self.plan.virtual, self.plan.kind, self.plan.micro_batch))
        count = self.jobs.micro_batches
        return [(where, pass_name(way, number, count)) for where, way, number in zip(virtual, kind, batch, strict=True)]

    def _layers(self, passed: Passed) -> list[Run]:
        """The layers that a pass runs, each once."""
        if passed not in self.layers:
            counts, name = passed
            sections = range(len(counts)) if name in (WORDS[FORWARD], "first") else range(len(counts) - 1, -1, -1)
            each = [[((x, one), self.jobs.sections[x][one]) for one in LAYER_PASSES[name]] for x in sections]
            named = [(x, [run for run in runs if run[1]]) for x, runs in zip(sections, each, strict=True)]
            self.layers[passed] = [run for x, runs in named for _ in range(counts[x]) for run in runs]
        return self.layers[passed]

    def _passed(self, mine: Passed, then: Passed | None, numbers: Ints, following: Ints, entries: Array) -> tuple[Array, list[Spans]]:
        """(when passes are done on their device, what they ran). entries: [times, state]."""
        noted = _Noted(self.plan.device[numbers], self.plan.micro_batch[numbers])
        state = list(entries.T)
        layers = self._layers(mine)
        after = self._layers(then)[:1] if then is not None else []
        for run, next_run in zip(layers, [*layers[1:], *after, None], strict=False):
            begin = len(noted.found)
            state = self.clock.stage.after(noted, state, run, next_run)
            told = len(run[1].ahead) - 1 if in_a_row(run[1].ahead) else 0  # gathers in a row are told again by who waits for them
            del noted.found[begin : begin + told]
        if after and layers:  # what is gathered for the next pass is of that
            coming = slice(begin, begin + len(after[0][1].ahead))
            batch = self.plan.micro_batch[following]
            noted.found[coming] = [replace(one, micro_batch=batch) for one in noted.found[coming]]
        return state[0], noted.found

    def _started(self, first: Ints) -> list[Spans]:
        """The gathers of each stage's first layer; what is spread then is noted by the layers that it is of."""
        found: list[Spans] = []
        for stage, number in enumerate(first.tolist()):
            if number < 0:
                continue
            ((virtual, name),) = self._named(np.array([number]))
            run = self._layers((self.counts[virtual], name))[0]
            noted = _Noted(np.array([stage]), self.plan.micro_batch[[number]])
            times: Times[Array] = noted
            self.clock.stage.start(times, np.zeros(1), run, self.clock.spread(stage))
            found += noted.found[len(noted.found) - len(run[1].ahead) :] if run[1].ahead else []
        return found

    # -- passes ----------------------------------------------------------------------------------------------------------------

    def _of_passes(self, begins: Array, ends: Array, arrivals: Array) -> list[Spans]:
        """Passes as wholes, and what they hand over (rule 9)."""
        jobs, plan, found = self.jobs, self.plan, list[Spans]()
        kind, virtual, lane = plan.kind[self.runs], plan.virtual[self.runs], plan.lane[self.runs]
        piped = jobs.stages > 1
        sends = self.hops_s[lane, plan.device[self.runs]]
        hands = piped & (not jobs.sends_overlap) & np.isin(kind, (FORWARD, BACKWARD, WHOLE))
        if hands.any():
            found.append(self._some(hands, "hand-over", DEVICE, ends, ends + sends))
        ends = np.where(hands, ends + sends, ends)
        for way, word in WORDS.items():
            for number in range(len(jobs.counts)):
                here = (kind == way) & (virtual == number)
                if here.any():
                    found.append(self._some(here, "pass", DEVICE, begins, ends, section=number, name=word))
        if piped and jobs.sends_overlap:
            read = np.zeros(plan.kind.size + 1, dtype=bool)
            read[plan.feeds[self.runs]] = True
            for way, word in enumerate(SENDS):
                here = read[self.runs] & (lane == way)
                if here.any():
                    found.append(self._some(here, "send", word, arrivals - sends, arrivals))
        return found

    def _some(self, here: Bools, kind: str, lane: str, start: Array, end: Array, **own: Any) -> Spans:
        stage, batch = (some[self.runs[here]] for some in (self.plan.device, self.plan.micro_batch))
        return Spans(kind=kind, lane=lane, stage=stage, start=start[here], end=end[here], micro_batch=batch, **own)

    def _ended(self, done: Array, finished: Array) -> list[Spans]:
        """Rule 10."""
        found: list[Spans] = []
        tied, last = float(np.ravel(self.jobs.tied_s)[0]), self.jobs.stages - 1
        begin = done.copy()
        if last and tied > 0:
            both = float(max(done[0], done[-1]))
            begin[[0, last]] = both + tied
            found.append(_told("tied", DEVICE, [(stage, both, both + tied, -1) for stage in (0, last)]))
        stages = np.arange(len(done))
        none = np.full(len(done), -1)
        return [*found, Spans(kind="update", lane=DEVICE, stage=stages, start=begin, end=finished, micro_batch=none)]
