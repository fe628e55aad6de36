"""Cuts of one column by the clock (docs/clock.md), and what no mix of policies can beat.

Parts are (section, policy): each has the passes that the clock runs; a cut says how many layers of each part a stage holds. A layer's
pass is a matrix M. Under each policy let N be the least, entry by entry, of that policy's M and those of all policies after it:

    step by N of a mix   <=   step by M of every mix of these layers in which no layer's policy comes sooner

Layers of a stage are in the order of their policies, so that such a mix has, place by place, policies that come no sooner, and the
clock is max and + of entries alone (DERIVED). Where each policy takes no longer than the next, M is N but for contention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.clock.clock import Clock, StepJobs
from rackmodel.cost.step.clock.max_plus import Matrix
from rackmodel.cost.step.clock.stage_state import Step
from rackmodel.cost.step.tasks.jobs import SPREAD, LaneJob, picked

Part = tuple[int, int]  # section, policy


@dataclass(frozen=True)
class CutTime:
    """seconds: of a cut and its mixes · least: of every cut with the same layers and mixes that come no sooner (0: not known)."""

    seconds: float
    least: float


class CutClock:
    """The clock of one column. jobs: a step with a section a part · parts: of each · layers: whether each section is one of layers ·
    repeats: of each section · policies: of a layer on accelerators of one kind (None: there is one kind); those of the next follow ·
    among: the clock of this column among others, the parts there that these are, and which of the columns it is."""

    def __init__(
        self,
        jobs: StepJobs,
        parts: Sequence[Part],
        layers: Sequence[bool],
        repeats: Sequence[int],
        policies: int | None = None,
        among: tuple[Clock, Sequence[int], int] | None = None,
    ) -> None:
        self.jobs, self.parts, self.layers, self.repeats = jobs, tuple(parts), tuple(layers), tuple(repeats)
        self.exact = Clock(jobs)
        self.among = among or (self.exact, range(len(self.parts)), 0)
        self.least = _LeastClock(self.exact, self.parts, policies or 1 + max(policy for _, policy in parts))
        self.known: dict[bytes, CutTime] = {}

    def time(self, mixes: Ints) -> CutTime:
        """Of a cut. mixes: [stages, sections of layers, policies] layers."""
        key = mixes.tobytes()
        if key not in self.known:
            counts = self.counts(mixes)
            seconds = _seconds(self.exact, counts)
            self.known[key] = CutTime(seconds, _seconds(self.least, counts) if self.least.comparable else 0.0)
        return self.known[key]

    def counts(self, mixes: Ints) -> Ints:
        """[stages, parts] layers of each."""
        found = np.zeros((len(mixes), len(self.parts)), dtype=np.int64)
        number = {section: k for k, section in enumerate(x for x, layer in enumerate(self.layers) if layer)}
        first = next(iter(number))
        for part, (section, policy) in enumerate(self.parts):
            if section in number:
                found[:, part] = mixes[:, number[section], policy]
            else:
                found[0 if section < first else -1, part] = self.repeats[section]
        return found

    def device_s(self, part: int, name: str) -> float:
        """Seconds of a layer's pass on the device, at least: the longest way from its begin there to its end there."""
        clock, there, column = self.among
        return float(clock.device_seconds((there[part], name))[column])


def _seconds(clock: Clock, counts: Ints) -> float:
    clock.deal(replace(clock.jobs, counts=counts))
    return float(clock.finished(clock.run().state).max())


class _LeastClock(Clock):
    """The clock with N for M. exact: with M, its layers dealt as here · policies: on accelerators of one kind."""

    def __init__(self, exact: Clock, parts: Sequence[Part], policies: int) -> None:
        def after(section: int, policy: int) -> tuple[int, ...]:
            own = range(policy, (policy // policies + 1) * policies)
            return tuple(x for x, (s, q) in enumerate(parts) if s == section and q in own)

        self.later = [after(*part) for part in parts]
        updates = exact.jobs.update_s
        super().__init__(replace(exact.jobs, update_s=tuple(reduce(np.minimum, [updates[x] for x in own]) for own in self.later)))
        self.exact = exact
        self.alike = {step: step for step in self.steps}  # passes that are alike under one policy need not be under another

    @cached_property
    def comparable(self) -> bool:
        """Whether policies of a section spread the same before the first pass and have something to do in the same ones: else N says
        nothing."""
        spread = [[float(job.seconds[0]) for job in one["first"].body if job.lane == SPREAD] for one in self.jobs.sections]
        runs = [[bool(one) for one in section.values()] for section in self.jobs.sections]
        return all(spread[x] == spread[own[0]] and runs[x] == runs[own[0]] for own in self.later for x in own)

    def _layer(self, step: Step, following: Step | None) -> Matrix:
        ahead = following if following is not None and self.steps[following].ahead else None
        if (step, ahead) not in self._layers:
            afters = [None] if ahead is None else [(x, ahead[1]) for x in self.later[ahead[0]]]
            every = [self.exact._layer((x, step[1]), then).value for x in self.later[step[0]] for then in afters]
            self._layers[(step, ahead)] = Matrix(reduce(np.minimum, every))
        return self._layers[(step, ahead)]

    def _start(self, stage: int, first: Step | None) -> Array:
        key = (self.layers[stage].tobytes(), first)
        if key not in self._starts:
            every = [None] if first is None else [(x, first[1]) for x in self.later[first[0]]]
            self._starts[key] = np.asarray(reduce(np.minimum, [self.exact._start(stage, one) for one in every]))
        return self._starts[key]


def one_column(jobs: StepJobs, column: int) -> StepJobs:
    """The step of one of its mappings."""
    which = np.array([column])
    known: dict[int, tuple[LaneJob, ...]] = {}  # passes that share their jobs still do
    return replace(
        jobs,
        sections=tuple({name: one.pick(which, known) for name, one in section.items()} for section in jobs.sections),
        send_s=picked(jobs.send_s, which),
        update_s=tuple(picked(seconds, which) for seconds in jobs.update_s),
        tied_s=picked(jobs.tied_s, which),
    )
