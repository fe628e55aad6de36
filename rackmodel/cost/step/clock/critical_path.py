"""Which tasks the longest path of a step runs (docs/clock.md), read back through the matrices of the clock.

At every matrix the path came from the place i that gives M_ij + entry_i its maximum; a product is read back through its two parts, a
layer's pass by running it once more with ways (seconds with the jobs they are made of) for times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.clock.clock import Clock, StepJobs, Timeline, pieces, run_size
from rackmodel.cost.step.clock.max_plus import NEVER, Matrix, identity
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, RELEASE, WHOLE, Waves, waves
from rackmodel.cost.step.clock.stage_state import Step
from rackmodel.cost.step.clock.timelines import timelines
from rackmodel.cost.step.clock.wave_run import run_together
from rackmodel.cost.step.tasks.jobs import LaneJob

SEND, UPDATE, TIED = "send", "update", "tied"
KEPT = 200_000  # passes whose states are kept at once, about a hundred bytes each
HOST = -1
Path = dict[tuple[Step, int], int]  # (a section's pass, number of its task or HOST) → times on the path


def critical_path(jobs: StepJobs) -> tuple[float, Path, Counter[str]]:
    """Of one mapping: (seconds, times each task is on the critical path, times 'send 0' (forward), 'send 1' (backward), 'update' of a
    layer of section x as 'update x', 'tied'; where hand-overs differ also 'send 0 0 i' of what stage i hands to the next one, 'send 0 1 i'
    of what it hands to the one before, and 'send 1 ...'). Times x seconds add up to the step's."""
    assert jobs.n == 1
    return next(critical_paths([(jobs, 1)]))[0]


def critical_paths(steps: Sequence[tuple[StepJobs, int]]) -> Iterator[list[tuple[float, Path, Counter[str]]]]:
    """The same of each mapping of some steps, step by step: their pipelines run side by side. With each step how many of its mappings, the
    first, have a path: an empty one stands for those of the others."""
    clocks = [Clock(jobs) for jobs, _ in steps]
    for clock, ran, (jobs, wanted) in zip(clocks, timelines(clocks, [wanted for _, wanted in steps]), steps, strict=True):
        ends = clock.finished(ran.state), clock.done(ran.state)
        totals = ends[0].max(axis=0).tolist()
        walked = [_Walk(clock, ran, column).path(*ends) for column in range(wanted)]
        yield [*walked, *((totals[column], {}, Counter[str]()) for column in range(wanted, jobs.n))]


def paths_together(clocks: Sequence[Clock]) -> list[tuple[float, Path, Counter[str]]]:
    """`critical_path` of each of some steps of one mapping. Pipelines run side by side."""
    found: dict[int, tuple[float, Path, Counter[str]]] = {}
    for some in pieces([run_size(clock.jobs) for clock in clocks], KEPT):
        kept = {number: before for number in some if (before := clocks[number].kept) is not None}
        piped = [number for number in some if not clocks[number].alone and number not in kept]
        ended = run_together([clocks[number].waiting() for number in piped], 1) if piped else []
        kept |= dict(zip(piped, ended, strict=True))
        for number in some:
            clock = clocks[number]
            ran = clock.run() if clock.alone else clock.timeline(kept[number])
            found[number] = _Walk(clock, ran, 0).path(clock.finished(ran.state), clock.done(ran.state))
            clock.kept = None  # as large as all else there is of a step
    return [found[number] for number in range(len(clocks))]


@dataclass(slots=True)
class _Way:
    """A time, and the last thing that was spent to get there, so many times. (Never changed; but frozen ones take long to make, and there
    are many.)"""

    end: float
    spent: tuple[_Way, tuple[Step, int], int] | None = None

    def path(self) -> Path:
        """All that was spent on it."""
        found: Path = {}
        way = self
        while way.spent is not None:
            way, key, times = way.spent
            found[key] = found.get(key, 0) + times
        return found


class _Ways:
    """Times as ways (`stage_state.Times`), of one mapping."""

    never = _Way(NEVER)

    def __init__(self, column: int) -> None:
        self.column = column

    def later(self, one: _Way, other: _Way) -> _Way:
        """See `stage_state.Times`."""
        return other if other.end > one.end else one

    def plus(self, start: _Way, seconds: Array, step: Step, job: LaneJob | None, times: int = 1) -> _Way:
        """See `stage_state.Times`."""
        end = start.end + times * _of(seconds, self.column)
        way = _Way(end, start.spent)
        for member in (HOST,) if job is None else job.members:
            way = _Way(end, (way, (step, member), times))
        return way


def _add(path: Path, other: Path, times: int = 1) -> None:
    """Put another path, so many times, behind one. (A Counter takes several times as long, and there are many.)"""
    for key, count in other.items():
        path[key] = path.get(key, 0) + count * times


def _of(seconds: Array, column: int) -> float:
    """Seconds of one mapping: one for each, or one for all."""
    flat = seconds.reshape(-1)
    return float(flat[column if flat.size > 1 else 0])


class _Walk:
    """Back from the end of a step to its start, counting."""

    def __init__(self, clock: Clock, ran: Timeline, column: int) -> None:
        self.clock, self.jobs, self.ran, self.column = clock, clock.jobs, ran, column
        self.tasks: Path = {}
        self.other: Counter[str] = Counter()
        self.known: dict[tuple[Matrix, int, int], Path] = {}
        self.crossed: Counter[tuple[Matrix, int, int]] = Counter()  # matrices that the path goes through, and between which places

    def path(self, ends: Array, idle: Array) -> tuple[float, Path, Counter[str]]:
        """See `critical_path`. ends, idle: [stages, n] when their optimizers, and before them their lanes, are done."""
        finished, done = ends[:, self.column], idle[:, self.column]
        device, last = int(np.argmax(finished)), self.jobs.stages - 1
        total = float(finished[device])
        self.other.update({f"{UPDATE} {x}": int(count) for x, count in enumerate(self.clock.layers[device]) if count})
        if last and device in (0, last) and _of(self.jobs.tied_s, self.column) > 0:
            self.other[TIED] += 1
            device = 0 if done[0] >= done[-1] else last
        place = int(np.argmax(self.ran.state[device, : self.clock.stage.lanes, self.column]))
        if self.clock.alone:
            assert self.ran.before is not None
            source = self._sources(self.ran.before[:, self.column, None]).item(0, place)
            self._cross(0, source, place)
            self._begin(device, source)
        else:
            self._pipeline(device, place)
        for (matrix, source, target), times in self.crossed.items():
            _add(self.tasks, self._between(matrix, source, target), times)
        return total, self.tasks, self.other

    def _pipeline(self, device: int, place: int) -> None:
        total = waves(self.jobs.schedule, self.jobs.stages, self.jobs.micro_batches, self.jobs.chunks)
        number, none = int(total.last[device]), total.kind.size
        assert self.ran.ended is not None
        entry, arrived = self.ran.ended.of(self.column)
        runs = np.isin(total.kind, (FORWARD, RELEASE)) | self.jobs.backward
        hands = runs & np.isin(total.kind, (FORWARD, BACKWARD, WHOLE)) & (not self.jobs.sends_overlap and self.jobs.stages > 1)
        fed, sources = runs & (total.feeds < none) & (entry[0] == arrived[total.feeds]), self._sources(entry)
        crossed = list[tuple[int, int, int]]()
        while True:  # (a path goes through few of the passes)
            if place == 0 and hands.item(number):
                self._count(total, number)
            if runs.item(number):
                source = sources.item(number, place)
                crossed.append((self.ran.which.item(number), source, place))
                place = source
            before = total.before.item(number)
            if place == 0 and fed.item(number):
                number = self._sent(total, total.feeds.item(number))
            elif before < none:
                number = before
            else:
                break
        for (which, source, target), times in Counter(crossed).items():
            self._cross(which, source, target, times)
        self._begin(int(total.device[number]), place)

    def _sources(self, entry: Array) -> Ints:
        """[passes, state] the place of the state before a pass from which each place after it came. entry: [state, passes]."""
        none = identity(len(entry), 1)[..., 0]
        values = np.stack([none if matrix is None else matrix.value[..., self.column] for matrix in self.ran.matrices])
        ways = (values[self.ran.which, :, place].T for place in range(len(entry)))
        return np.stack([(entry + way).argmax(axis=0) for way in ways], axis=1)

    def _cross(self, which: int, source: int, target: int, times: int = 1) -> None:
        """The path goes through a matrix, where there is something to do."""
        matrix = self.ran.matrices[which]
        if matrix is not None:
            self.crossed[(matrix, source, target)] += times

    def _sent(self, total: Waves, number: int) -> int:
        """The pass at whose end the path takes to the links; sends that are not hand-overs are counted."""
        if self.jobs.sends_overlap and self.jobs.stages > 1:
            assert self.ran.ended is not None
            self._count(total, number)
            behind = self.ran.ended.behind
            while behind.item(number, self.column) < len(behind):
                number = behind.item(number, self.column)
                self._count(total, number)
        return number

    def _count(self, total: Waves, number: int) -> None:
        """What a pass hands over is on the path."""
        way = total.way.item(number)
        self.other[f"{SEND} {way}"] += 1
        if self.jobs.hops_s is not None:
            self.other[f"{SEND} {way} {total.lane.item(number)} {total.device.item(number)}"] += 1

    def _begin(self, device: int, place: int) -> None:
        """What is issued at 0."""
        _add(self.tasks, self.clock.start(_Ways(self.column), _Way(0.0), device, self.ran.starts[device])[place].path())

    def _between(self, matrix: Matrix, source: int, target: int) -> Path:
        """The tasks on the longest way from a place before a matrix to one after it."""
        key = (matrix, source, target)
        if key not in self.known:
            if matrix.parts is not None:
                first, second = matrix.parts
                middle = int(np.argmax(first.value[source, :, self.column] + second.value[:, target, self.column]))
                both = dict(self._between(first, source, middle))
                _add(both, self._between(second, middle, target))
                self.known[key] = both
            else:
                run, following = self.clock.ran[matrix]
                ways = [_Way(0.0 if place == source else NEVER) for place in range(self.clock.stage.size)]
                self.known[key] = self.clock.stage.after(_Ways(self.column), ways, run, following)[target].path()
        return self.known[key]
