"""The state of a pipeline stage between two layers, and how a layer's pass changes it (docs/clock.md, rules 1, 4, 5, 6 and 8).

Places of the state, all of them times: ends of the stage's lanes, ends of the reductions of the last layer that had any and of the one
before it, ends of the gathers under way. A pass is written once, over any kind of time with `later` and `plus`: arrays of seconds make
its matrix, ways (seconds with what they are made of) its critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.clock.max_plus import NEVER, identity
from rackmodel.cost.step.tasks.jobs import DEVICE, LANES, SPREAD, WEIGHTS, LaneJob, LayerPass

Step = tuple[int, str]  # section, name of the pass
Run = tuple[Step, LayerPass]  # a layer's pass with its name in the step
T = TypeVar("T")


class Times(Protocol[T]):
    """A kind of time. never: before everything."""

    never: T

    def later(self, one: T, other: T) -> T:
        """The later of two."""

    def plus(self, start: T, seconds: Array, step: Step, job: LaneJob | None, times: int = 1) -> T:
        """So many times `seconds` after `start`, spent on a job of a layer's pass (None: on its host)."""


class Seconds:
    """Times as arrays [state, n]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.never: Array = np.full(shape, NEVER)

    def later(self, one: Array, other: Array) -> Array:
        """See `Times`."""
        return one if one is other else np.asarray(np.maximum(one, other))

    def plus(self, start: Array, seconds: Array, step: Step, job: LaneJob | None, times: int = 1) -> Array:
        """See `Times`."""
        return np.asarray(start + times * seconds)


class StageState:
    """The places of the state, for all passes of a step's sections."""

    def __init__(self, sections: Sequence[dict[str, LayerPass]]) -> None:
        passes = [one for section in sections for one in section.values()]
        jobs = [job for one in passes for job in (*one.ahead, *one.body)]
        used = {job.lane for job in jobs} | {DEVICE}
        self.at = {lane: place for place, lane in enumerate(lane for lane in LANES if lane in used)}
        self.lanes = len(self.at)
        self.limited = any(job.feeds for job in jobs) and any(job.reduces for job in jobs)
        self.reduced = self.lanes  # of the last layer that reduced, and of the one before
        self.gathered = self.lanes + 2 * self.limited
        self.size = self.gathered + max((1 if in_a_row(one.ahead) else len(one.ahead) for one in passes), default=0)

    def matrix(self, run: Run, following: Run | None, n: int) -> Array:
        """[state, state, n] of a layer's pass that goes before another."""
        units = identity(self.size, n)
        state = [units[:, place] for place in range(self.size)]
        places: list[Array] = self.after(Seconds((self.size, n)), state, run, following)
        return np.stack(places, axis=1)

    def start(self, times: Times[T], zero: T, first: Run | None, spread: Sequence[tuple[Run, int]]) -> list[T]:
        """The state before the first layer's pass, its gathers issued at 0, behind what all layers spread. spread: passes that do, and
        how many layers of each there are; the lane of weights is behind all of it, the lane `spread` goes through it pass by pass."""
        state = [zero] * self.gathered
        end = zero
        for (step, one), count in spread:
            for job in one.body:
                if job.lane == SPREAD:
                    end = times.plus(end, job.seconds, step, job, count)
        if WEIGHTS in self.at:
            state[self.at[WEIGHTS]] = end
        return state + self._gathers(times, state, first, zero)

    def after(self, times: Times[T], state: Sequence[T], run: Run, following: Run | None) -> list[T]:
        """The state after a layer's pass, the gathers of the one that follows issued before its own jobs."""
        step, one = run
        gathered = self._gathered(times, state, run)
        state = list(state[: self.gathered])
        entry = state[0]
        coming = self._gathers(times, state, following, entry)
        ends: list[T] = []
        last: T | None = None
        for job in one.body:
            start = state[self.at[job.lane]] if job.lane in (DEVICE, SPREAD) else entry  # the device is free no sooner than that
            for before in [*(ends[k] for k in job.after), *(gathered[k] for k in job.needs)]:
                start = times.later(start, before)
            if job.feeds and self.limited:
                start = times.later(start, state[self.reduced + 1])
            ends.append(self._job(times, state, step, job, start))
            if job.reduces:
                last = ends[-1] if last is None else times.later(last, ends[-1])
        if np.any(one.host_s):
            state[0] = times.later(state[0], times.plus(entry, np.asarray(one.host_s), step, None))
        if last is not None and self.limited:
            state[self.reduced], state[self.reduced + 1] = last, state[self.reduced]
        return state + coming

    def _job(self, times: Times[T], state: list[T], step: Step, job: LaneJob, start: T) -> T:
        """Run a job that may start at `start`; its end."""
        lane = self.at[job.lane]
        state[lane] = times.plus(times.later(start, state[lane]), job.seconds, step, job)
        return state[lane]

    def _gathers(self, times: Times[T], state: list[T], run: Run | None, ready: T) -> list[T]:
        """Issue the gathers of a layer, which may start at `ready`; the state's places that tell their ends."""
        ends: list[T] = []
        if run is not None:
            for job in run[1].ahead:
                start = ready
                for before in job.after:
                    start = times.later(start, ends[before])
                ends.append(self._job(times, state, run[0], job, start))
            if in_a_row(run[1].ahead):
                ends = ends[:1]
        return ends + [times.never] * (self.size - self.gathered - len(ends))

    def _gathered(self, times: Times[T], state: Sequence[T], run: Run) -> list[T]:
        """Ends of the gathers of the layer that runs now."""
        ends = list(state[self.gathered :])
        if in_a_row(run[1].ahead):
            del ends[1:]
            for job in run[1].ahead[1:]:
                ends.append(times.plus(ends[-1], job.seconds, run[0], job))
        return ends


def in_a_row(ahead: Sequence[LaneJob]) -> bool:
    """Whether nothing comes between gathers that are issued together, all on one lane: the first one's end tells the others'."""
    return len({job.lane for job in ahead}) == 1
