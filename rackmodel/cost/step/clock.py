"""The clock: how long a step takes, exactly (docs/clock.md); `critical_path.py` reads back which tasks that is made of.

A layer's pass maps the state of a stage (`stage_state.py`) to the next by max and + alone, so that it is a matrix over (max, +):

    exit_j = max_i (entry_i + M_ij)        L equal layers: M^L        a pass: a product        a pipeline: a product a pass

Arrays are [state, state, n] over n mappings of one structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.jobs import LayerPass
from rackmodel.cost.step.max_plus import Matrix, applied, chain, identity, power
from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, SPLIT, WEIGHT, Waves, waves
from rackmodel.cost.step.stage_state import Run, Seconds, StageState, Step

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Steps = tuple[tuple[Step, int], ...]  # layer passes in the order in which they run, each so many times in a row


@dataclass(frozen=True, kw_only=True)
class StepJobs:
    """A step of n mappings of one structure. sections: each one's passes by name · counts: [stages x chunks, sections] layers ·
    backward: whether there are backward passes · send_s: [n] of one hand-over · update_s: of a layer of each section, [n] ·
    tied_s: [n] summing shared weights between the first and the last stage; 0 where they share none."""

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

    @property
    def n(self) -> int:
        """Mappings."""
        return int(np.size(self.send_s))


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A step as it ran. state: [stages, state, n] at its end · starts: each stage's first layer pass, and where a pipeline ran, by pass
    in the order of its waves: passes: their matrices (None: nothing to do) · entries: [passes, state, n] states before them ·
    arrivals: [passes + 1, n] when what they made arrived · behind: [passes] the pass whose send the send of this one waited for, of
    the first mapping; `passes` for none."""

    state: Array
    starts: list[Step | None]
    passes: list[Matrix | None]
    entries: Array
    arrivals: Array
    behind: Ints


def step_seconds(jobs: StepJobs) -> Array:
    """[n] seconds of the step."""
    clock = Clock(jobs)
    return np.asarray(clock.finished(clock.run().state).max(axis=0))


class Clock:
    """The matrices of a step's layers and passes, and the step run with them."""

    def __init__(self, jobs: StepJobs) -> None:
        self.jobs = jobs
        kept = ("first", "forward") if not jobs.backward else None
        sections = [{name: one for name, one in section.items() if kept is None or name in kept} for section in jobs.sections]
        self.stage = StageState(sections)
        self.steps = {(x, name): one for x, section in enumerate(sections) for name, one in section.items()}
        self.ran: dict[Matrix, tuple[Run, Run | None]] = {}  # which layer's pass, and before which, a matrix is of
        self._layers: dict[tuple[Step, Step | None], Matrix] = {}
        self._passes: dict[tuple[Steps, Step | None], Matrix | None] = {}

    def run(self) -> Timeline:
        """The whole step, up to its optimizer."""
        return self._alone() if self.alone else self._pipeline()

    @property
    def alone(self) -> bool:
        """Whether there is one stage that runs all layers of a micro-batch in a row."""
        return self.jobs.stages == 1 and self.jobs.chunks == 1

    # -- layers and passes -----------------------------------------------------------------------------------------------------

    def step_run(self, step: Step | None) -> Run | None:
        """A layer's pass with its name."""
        return None if step is None else (step, self.steps[step])

    def _steps(self, virtual: int, kind: int, micro_batch: int) -> Steps:
        """What a pass runs; layers with nothing to do in it are left out."""
        if kind != FORWARD and not self.jobs.backward:
            return ()
        last = micro_batch == self.jobs.micro_batches - 1
        if kind == FORWARD:
            name = "first" if micro_batch == 0 else "forward"
        elif kind == BACKWARD:
            name = "last" if last else "backward"
        else:
            name = "last weight" if last else "weight"
        counts = self.jobs.counts[virtual].tolist()
        sections = range(len(counts)) if kind == FORWARD else range(len(counts) - 1, -1, -1)
        return tuple(((x, name), counts[x]) for x in sections if counts[x] and self.steps[(x, name)])

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
                parts += [power(self._layer(step, step), times - 1) if times > 1 else None, self._layer(step, then)]
            self._passes[(steps, following)] = chain(parts)
        return self._passes[(steps, following)]

    def _start(self, first: Step | None) -> Array:
        """[state, n] before a stage's first pass."""
        places: list[Array] = self.stage.start(Seconds((self.jobs.n,)), np.zeros(self.jobs.n), self.step_run(first))
        return np.stack(places)

    # -- one stage: its rounds of passes are powers --------------------------------------------------------------------------

    def _alone(self) -> Timeline:
        parts: list[Matrix | None] = []
        following: Step | None = None
        for steps, times in reversed(self._rounds()):
            if steps and times:
                again = self._pass(steps, steps[0][0]) if times > 1 else None
                parts = [power(again, times - 1) if again is not None else None, self._pass(steps, following), *parts]
                following = steps[0][0]
        matrix, entry = chain(parts), self._start(following)[None]
        state = entry if matrix is None else applied(entry, matrix.value[None])
        return Timeline(
            state=state,
            starts=[following],
            passes=[matrix],
            entries=entry,
            arrivals=np.zeros((2, self.jobs.n)),
            behind=np.array([1]),
        )

    def _rounds(self) -> list[tuple[Steps, int]]:
        """The layers of all passes of a single stage in their order, as rounds that run so many times."""
        m = self.jobs.micro_batches
        spans = [(0, 1), (1, m - 2), (m - 1, 1)] if m > 1 else [(0, 1)]
        if self.jobs.schedule != "gpipe":
            return [(self._steps(0, FORWARD, k) + self._steps(0, BACKWARD, k) + self._weights(k), times) for k, times in spans]
        return [(self._steps(0, kind, k), times) for kind in (FORWARD, BACKWARD) for k, times in spans]

    def _weights(self, micro_batch: int) -> Steps:
        return self._steps(0, WEIGHT, micro_batch) if self.jobs.schedule in SPLIT else ()

    # -- the pipeline ------------------------------------------------------------------------------------------------------

    def _matrices(self, total: Waves) -> tuple[list[Matrix | None], list[Step | None]]:
        """The matrix of every pass, in the order of the waves, and the first layer pass of each stage."""
        found: list[Matrix | None] = []
        following: list[Step | None] = [None] * self.jobs.stages
        columns = (total.device, total.kind, total.micro_batch, total.virtual)
        for device, kind, micro_batch, virtual in zip(*(column[::-1].tolist() for column in columns), strict=True):
            steps = self._steps(virtual, kind, micro_batch)
            found.append(self._pass(steps, following[device]))
            if steps:
                following[device] = steps[0][0]
        return found[::-1], following

    def _pipeline(self) -> Timeline:
        jobs, total = self.jobs, waves(self.jobs.schedule, self.jobs.stages, self.jobs.micro_batches, self.jobs.chunks)
        passes, starts = self._matrices(total)
        values, which = self._stacked(passes)
        count = len(passes)
        runs = (total.kind == FORWARD) | jobs.backward
        reader = np.zeros(count + 1, dtype=bool)
        reader[total.feeds[runs]] = True
        state = np.stack([self._start(first) for first in starts])
        entries, arrivals = np.empty((count, *state.shape[1:])), np.zeros((count + 1, jobs.n))
        sent, sender = np.zeros((2, jobs.stages, jobs.n)), np.full((2, jobs.stages), count)
        behind = np.full(count, count)
        for low, high in zip(total.bounds, total.bounds[1:], strict=False):
            here = np.flatnonzero(runs[low:high]) + low
            device, kind = total.device[here], total.kind[here]
            now = state[device]
            np.maximum(now[:, 0], arrivals[total.feeds[here]], out=now[:, 0])
            entries[here] = now
            now = applied(now, values[which[here]])
            if not jobs.sends_overlap and jobs.stages > 1:  # a hand-over holds the device
                now[:, 0] += np.where(kind == WEIGHT, 0.0, 1.0)[:, None] * jobs.send_s
            arrivals[here] = now[:, 0]
            state[device] = now
            if jobs.sends_overlap and jobs.stages > 1:
                some = reader[here]
                here, way, device = here[some], kind[some], device[some]
                waited = sent[way, device]
                behind[here] = np.where(waited[:, 0] > arrivals[here, 0], sender[way, device], count)
                arrivals[here] = sent[way, device] = np.maximum(arrivals[here], waited) + jobs.send_s
                sender[way, device] = here
        return Timeline(state=state, starts=starts, passes=passes, entries=entries, arrivals=arrivals, behind=behind)

    def _stacked(self, passes: Sequence[Matrix | None]) -> tuple[Array, Ints]:
        """([distinct, state, state, n] the matrices, [passes] which of them each pass is)."""
        distinct = list(dict.fromkeys(passes))
        at = {matrix: number for number, matrix in enumerate(distinct)}
        none = identity(self.stage.size, self.jobs.n)
        return np.stack([none if matrix is None else matrix.value for matrix in distinct]), np.array([at[matrix] for matrix in passes])

    # -- the end -----------------------------------------------------------------------------------------------------------

    def done(self, state: Array) -> Array:
        """[stages, n] when all lanes of a stage are done."""
        return np.asarray(state[:, : self.stage.lanes].max(axis=1))

    def updates(self) -> Array:
        """[stages, n] seconds of the optimizer."""
        layers = self.jobs.counts.reshape(self.jobs.chunks, self.jobs.stages, -1).sum(axis=0)
        each = np.stack([np.broadcast_to(seconds, (self.jobs.n,)) for seconds in self.jobs.update_s])
        return np.asarray(layers.astype(float) @ each)

    def finished(self, state: Array) -> Array:
        """[stages, n] when the optimizer of a stage is done; the first and the last begin together where they share weights."""
        done = self.done(state)
        if self.jobs.stages > 1:
            both = np.maximum(done[0], done[-1]) + self.jobs.tied_s
            done[[0, -1]] = np.where(self.jobs.tied_s > 0, both, done[[0, -1]])
        return np.asarray(done + self.updates())
