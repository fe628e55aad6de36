"""The clock: how long a step takes, exactly (docs/clock.md); `critical_path.py` reads back which tasks that is made of.

A layer's pass maps the state of a stage (`stage_state.py`) to the next by max and + alone, so that it is a matrix over (max, +):

    exit_j = max_i (entry_i + M_ij)        L equal layers: M^L        a pass: a product        a pipeline: a product a pass

Arrays are [state, state, n] over n mappings of one structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.clock.max_plus import Matrix, applied, chain, identity, power
from rackmodel.cost.step.clock.pass_plan import HANDS, LAYER_PASSES, PassPlan, pass_name, pass_plan
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, WEIGHT
from rackmodel.cost.step.clock.stage_state import Run, Seconds, StageState, Step, T, Times
from rackmodel.cost.step.clock.wave_run import WIDE, Ended, Waiting, run_together
from rackmodel.cost.step.tasks.jobs import PASSES, LayerPass
from rackmodel.model.schedules import SPLIT, TABLE, device_of, lane_of

FORWARDS = ("first", "forward")
MANY = 1_000_000  # passes that run together: their arrays take about a hundred bytes each
Steps = tuple[tuple[Step, int], ...]  # layer passes in the order in which they run, each so many times in a row


@dataclass(frozen=True, kw_only=True)
class StepJobs:
    """A step of n mappings of one structure. sections: each one's passes by name · counts: [stages x chunks, sections] layers ·
    backward: whether there are backward passes · send_s: [n] of one hand-over · update_s: of a layer of each section, [n] ·
    tied_s: [n] summing shared weights between the first and the last stage; 0 where they share none · hops_s: [2, stages, n] of the
    hand-over of each stage to the next, and of each to the one before, where they differ."""

    sections: tuple[dict[str, LayerPass], ...]
    counts: Ints
    schedule: str
    stages: int
    chunks: int
    micro_batches: int
    backward: bool
    send_s: Array
    sends_overlap: bool
    update_s: tuple[Array, ...]
    tied_s: Array
    hops_s: Array | None = None

    @property
    def n(self) -> int:
        """Mappings."""
        return int(np.size(self.send_s))

    def hop_s(self, lane: int, stage: int) -> Array:
        """[n] seconds of what a stage hands to the next one (lane 0), or to the one before (1)."""
        return self.send_s if self.hops_s is None else np.asarray(self.hops_s[lane, stage])


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A step as it ran. state: [stages, state, n] at its end · starts: each stage's first layer pass · matrices: what passes run (None:
    nothing to do), and which: [passes] each one's, of a pipeline in the order of its waves · before: of one stage alone, which is one such
    pass, [state, n] before it · ended: the same of the passes of a pipeline, where that is kept, and more.
    """

    state: Array
    starts: list[Step | None]
    matrices: list[Matrix | None]
    which: Ints
    before: Array | None = None
    ended: Ended | None = None


def step_seconds(jobs: StepJobs) -> Array:
    """[n] seconds of the step."""
    return seconds_together([Clock(jobs)])[0]


def seconds_together(clocks: Sequence[Clock], room: int = 0) -> list[Array]:
    """[n] seconds of each step. Pipelines run side by side, those of about as many passes together. room: passes, of pipelines of one
    mapping, whose runs their clocks keep (`Clock.kept`)."""
    found: dict[int, Array] = {}
    for some in pieces([run_size(clock.jobs) for clock in clocks]):
        found |= {number: clocks[number].finished(clocks[number].run().state) for number in some if clocks[number].alone}
        piped = {number: clocks[number] for number in some if not clocks[number].alone}
        keeps = sum(clock.passes for clock in piped.values()) <= room
        ended = run_together([clock.waiting() for clock in piped.values()], int(keeps)) if piped else []
        for (number, clock), one in zip(piped.items(), ended, strict=True):
            found[number] = clock.finished(one.state)
            if one.keeps and clock.jobs.n == 1:
                clock.kept, room = one, room - clock.passes
    return [np.asarray(found[number].max(axis=0)) for number in range(len(clocks))]


def pieces(sizes: Sequence[tuple[int, int]], most: int = MANY, wide_enough: int = WIDE) -> Iterator[list[int]]:
    """Numbers of steps that run together: of about as many passes, whose waves have about so many passes, and no more than `most` in all.
    sizes: `run_size` of each."""
    some: list[int] = []
    wide = passes = 0
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number][1]):
        own, length = sizes[number]
        if some and (wide >= wide_enough or passes + own * length > most):
            yield some
            some, wide, passes = [], 0, 0
        some.append(number)
        wide, passes = wide + own, passes + own * length
    if some:
        yield some


def run_size(jobs: StepJobs, mappings: int | None = None) -> tuple[int, int]:
    """(stages of all mappings, passes of each of them), about. mappings: that run, None = all."""
    length = jobs.micro_batches * jobs.chunks * (2 if jobs.backward else 1) + jobs.stages
    return (jobs.n if mappings is None else mappings) * jobs.stages, length


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """matrices: of distinct passes (None: nothing to do), and the (lane, stage) whose hand-over holds their device (None: they have none) ·
    matrix: [alike] which of them each of the plan's distinct passes has · starts: each stage's first layer pass."""

    plan: PassPlan
    matrices: list[tuple[Matrix | None, tuple[int, int] | None]]
    matrix: Ints
    starts: list[Step | None]


class Clock:
    """The matrices of a step's layers and passes, and the step run with them. kept: of a pipeline that has run, what its path is read
    back from, where that was asked for."""

    kept: Ended | None = None

    def __init__(self, jobs: StepJobs) -> None:
        self.deal(jobs)
        kept = PASSES if jobs.backward else FORWARDS
        sections = [{name: section[name] for name in kept} for section in jobs.sections]
        self.stage = StageState(sections)
        self.steps = {(x, name): one for x, section in enumerate(sections) for name, one in section.items()}
        self.alike: dict[Step, Step] = {}  # the first of the passes that share their jobs: they share their matrices
        known: dict[tuple[int, int, bytes], Step] = {}
        for step, one in self.steps.items():
            self.alike[step] = known.setdefault((id(one.ahead), id(one.body), np.asarray(one.host_s).tobytes()), step)
        self.ran: dict[Matrix, tuple[Run, Run | None]] = {}  # which layer's pass, and before which, a matrix is of
        self._layers: dict[tuple[Step, Step | None], Matrix] = {}
        self._passes: dict[tuple[Steps, Step | None], Matrix | None] = {}
        self._squares: dict[Matrix, Matrix] = {}
        self._starts: dict[tuple[bytes, Step | None], Array] = {}

    def deal(self, jobs: StepJobs) -> None:
        """Run the layers of these jobs: the same but for their counts, so that the matrices of layers are kept."""
        self.jobs = jobs
        self.__dict__.pop("_planned", None)
        self.devices = device_of(np.arange(len(jobs.counts)), jobs.schedule, jobs.stages)  # of each virtual stage
        self.layers = np.zeros((jobs.stages, jobs.counts.shape[1]), dtype=np.int64)  # [stages, sections]
        np.add.at(self.layers, self.devices, jobs.counts)

    def device_seconds(self, step: Step) -> Array:
        """[n] seconds of a layer's pass on its device: the longest way from its begin to its end there, nothing gathered beside it."""
        return self._layer(step, None).value[0, 0] if self.steps[step] else np.zeros(self.jobs.n)

    def run(self, *, keep: int = 0) -> Timeline:
        """The whole step, up to its optimizer. keep: mappings, the first, whose states before every pass are kept: paths are read back
        from them."""
        return self._alone() if self.alone else self._pipeline(keep)

    def run_by_pass(self) -> Timeline:
        """The whole step, with the states before every pass, of one stage alone too."""
        return self._pipeline(self.jobs.n)

    @property
    def passes(self) -> int:
        """Of all stages and mappings, about."""
        return prod(run_size(self.jobs))

    @property
    def alone(self) -> bool:
        """Whether there is one stage that runs all layers of a micro-batch in a row."""
        return self.jobs.stages == 1 and self.jobs.chunks == 1

    # -- layers and passes -----------------------------------------------------------------------------------------------------

    def step_run(self, step: Step | None) -> Run | None:
        """A layer's pass with its name."""
        return None if step is None else (step, self.steps[step])

    def _steps(self, counts: Sequence[int], name: str) -> Steps:
        """What a pass runs of so many layers of each section; layers with nothing to do in it are left out."""
        names = LAYER_PASSES[name]
        if not self.jobs.backward and name not in FORWARDS:
            return ()
        sections = range(len(counts)) if name in FORWARDS else range(len(counts) - 1, -1, -1)
        found = [tuple((self.alike[(x, each)], counts[x]) for each in names if self.steps[(x, each)]) for x in sections if counts[x]]
        if len(names) < 2:
            return tuple(step for steps in found for step in steps)
        return tuple((step, 1) for steps in found for _, times in steps[:1] for _ in range(times) for step, _ in steps)

    def _layer(self, step: Step, following: Step | None) -> Matrix:
        """The matrix of one layer's pass, which issues the gathers of the next."""
        ahead = following if following is not None and self.steps[following].ahead else None
        if (step, ahead) not in self._layers:
            run, then = (step, self.steps[step]), self.step_run(ahead)
            matrix = Matrix(self.stage.matrix(run, then, self.jobs.n))
            self._layers[(step, ahead)], self.ran[matrix] = matrix, (run, then)
        return self._layers[(step, ahead)]

    def _pass(self, steps: Steps, following: Step | None) -> Matrix | None:
        """The matrix of layers in a row before a pass that begins with `following`; None for none."""
        following = following if following is not None and self.steps[following].ahead else None
        if (steps, following) not in self._passes:
            parts: list[Matrix | None] = []
            for number, (step, times) in enumerate(steps):
                then = steps[number + 1][0] if number + 1 < len(steps) else following
                parts += [power(self._layer(step, step), times - 1, self._squares) if times > 1 else None, self._layer(step, then)]
            self._passes[(steps, following)] = chain(parts)
        return self._passes[(steps, following)]

    def start(self, times: Times[T], zero: T, stage: int, first: Step | None) -> list[T]:
        """The state of a stage before its first pass."""
        return self.stage.start(times, zero, self.step_run(first), self.spread(stage))

    def spread(self, stage: int) -> list[tuple[Run, int]]:
        """What spreads before a stage's first pass: the first passes of its layers, and how many of each there are."""
        passes = [((x, "first"), self.steps[(x, "first")]) for x in range(len(self.jobs.sections))]
        return list(zip(passes, self.layers[stage].tolist(), strict=True))

    def _start(self, stage: int, first: Step | None) -> Array:
        """[state, n] before a stage's first pass; remembered, as stages are alike, and steps that are dealt one after another."""
        key = (self.layers[stage].tobytes(), first)
        if key not in self._starts:
            places: list[Array] = self.start(Seconds((self.jobs.n,)), np.zeros(self.jobs.n), stage, first)
            self._starts[key] = np.stack(places)
        return self._starts[key]

    # -- one stage: its rounds of passes are powers --------------------------------------------------------------------------

    def _alone(self) -> Timeline:
        parts: list[Matrix | None] = []
        following: Step | None = None
        for steps, times in reversed(self._rounds()):
            if steps and times:
                again = self._pass(steps, steps[0][0]) if times > 1 else None
                parts = [power(again, times - 1, self._squares) if again is not None else None, self._pass(steps, following), *parts]
                following = steps[0][0]
        matrix, entry = chain(parts), self._start(0, following)[None]
        state = entry if matrix is None else applied(entry, matrix.value[None])
        first = np.zeros(1, dtype=np.int64)
        return Timeline(state=state, starts=[following], matrices=[matrix], which=first, before=entry[0])

    def _rounds(self) -> list[tuple[Steps, int]]:
        """The layers of all passes of a single stage in their order, as rounds that run so many times."""
        m, schedule = self.jobs.micro_batches, self.jobs.schedule
        spans = [(0, 1), (1, m - 2), (m - 1, 1)] if m > 1 else [(0, 1)]
        kinds = (FORWARD, BACKWARD, WEIGHT) if schedule in SPLIT else (FORWARD, BACKWARD)
        counts = self.jobs.counts[0].tolist()
        groups = [(kind,) for kind in kinds] if TABLE[schedule].forwards_first else [kinds]

        def steps(group: Sequence[int], micro_batch: int) -> Steps:
            return tuple(step for kind in group for step in self._steps(counts, pass_name(kind, micro_batch, m)))

        return [(steps(group, k), times) for group in groups for k, times in spans]

    # -- the pipeline ------------------------------------------------------------------------------------------------------

    def waiting(self) -> Waiting:
        """A pipeline before its first wave."""
        planned = self._planned
        return Waiting(
            plan=planned.plan,
            matrix=planned.matrix,
            state=np.stack([self._start(*first) for first in enumerate(planned.starts)]),
            values=self._values(planned),
            link_s=self._link_s(),
        )

    def _link_s(self) -> Array:
        """[ways, stages, n] that a send keeps its link, forward and back; [n] where that is one for all."""
        jobs = self.jobs
        if not jobs.sends_overlap or jobs.stages == 1:
            return np.zeros(jobs.n)
        return jobs.send_s if jobs.hops_s is None else jobs.hops_s

    @cached_property
    def _planned(self) -> _Planned:
        """The order of a pipeline's passes with what they run."""
        jobs = self.jobs
        numbers: dict[tuple[int, ...], int] = {}  # of the counts of virtual stages, most of which are alike
        rows = [numbers.setdefault(tuple(row), len(numbers)) for row in jobs.counts.tolist()]
        layers = {(number, name): self._steps(row, name) for row, number in numbers.items() for name in LAYER_PASSES}
        idle = frozenset((virtual, name) for virtual, row in enumerate(rows) for name in LAYER_PASSES if not layers[row, name])
        plan = pass_plan(jobs.schedule, jobs.stages, jobs.micro_batches, jobs.chunks, jobs.backward, idle)
        known: dict[object, int] = {}
        matrices: list[tuple[Matrix | None, tuple[int, int] | None]] = []
        matrix = np.empty(len(plan.alike), dtype=np.int64)
        for number, ((virtual, name), then) in enumerate(plan.alike):
            where = None if jobs.hops_s is None else self._hop(virtual, name)
            key = rows[virtual], name, None if then is None else (rows[then[0]], then[1]), where
            if key not in known:
                known[key] = len(matrices)
                following = layers[rows[then[0]], then[1]][0][0] if then is not None else None
                matrices.append((self._pass(layers[rows[virtual], name], following), self._hop(virtual, name)))
            matrix[number] = known[key]
        starts = [layers[rows[first[0]], first[1]][0][0] if first is not None else None for first in plan.starts]
        return _Planned(plan=plan, matrix=matrix, matrices=matrices, starts=starts)

    def _hop(self, virtual: int, name: str) -> tuple[int, int] | None:
        """(lane, stage) of the hand-over that a pass ends with; None where it has none."""
        if name not in HANDS:
            return None
        return int(lane_of(HANDS[name], virtual, self.jobs.schedule, self.jobs.stages)), int(self.devices[virtual])

    def _pipeline(self, keep: int) -> Timeline:
        return self.timeline(run_together([self.waiting()], keep)[0])

    def timeline(self, ended: Ended, state: Array | None = None) -> Timeline:
        """Of a pipeline that has run. state: at its end, where not all of its mappings ran with those that are kept."""
        planned = self._planned
        return Timeline(
            state=ended.state if state is None else state,
            starts=planned.starts,
            matrices=[matrix for matrix, _ in planned.matrices],
            which=planned.matrix[planned.plan.which],
            ended=ended,
        )

    def _values(self, planned: _Planned) -> Array:
        """[matrices, state, state, n] of passes, with the hand-overs that hold their device."""
        none = identity(self.stage.size, self.jobs.n)
        values = np.stack([none if matrix is None else matrix.value for matrix, _ in planned.matrices])
        if self.jobs.stages > 1 and not self.jobs.sends_overlap:
            for number, (_, hop) in enumerate(planned.matrices):
                if hop is not None:
                    values[number, :, 0] += self.jobs.hop_s(*hop)
        return values

    # -- the end -----------------------------------------------------------------------------------------------------------

    def done(self, state: Array) -> Array:
        """[stages, n] when all lanes of a stage are done."""
        return np.asarray(state[:, : self.stage.lanes].max(axis=1))

    def updates(self) -> Array:
        """[stages, n] seconds of the optimizer."""
        each = np.stack([np.broadcast_to(seconds, (self.jobs.n,)) for seconds in self.jobs.update_s])
        return np.asarray(self.layers.astype(float) @ each)

    def finished(self, state: Array) -> Array:
        """[stages, n] when the optimizer of a stage is done; the first and the last begin together where they share weights."""
        done = self.done(state)
        if self.jobs.stages > 1:
            both = np.maximum(done[0], done[-1]) + self.jobs.tied_s
            done[[0, -1]] = np.where(self.jobs.tied_s > 0, both, done[[0, -1]])
        return np.asarray(done + self.updates())
