"""All stages: the bound of every stage and what follows, in arrays with the least way back alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.step.clock.pipeline_orders import weave
from rackmodel.mapper.stages.cut_problem import FIRST, LAST, SPREAD, TAIL, UPDATE, CutProblem
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem
from rackmodel.mapper.stages.mixes import Tables


@dataclass(frozen=True)
class Bounds:
    """least: no cut is faster, NEVER where none fits · through: [p, L + 1, width + 1] U_i(n) with c layers, at the least S · onward: the
    same, seconds before the next stage: what stage i adds to P_i+1; NEVER · rest: [p + 1, L + 1] least S."""

    least: int
    through: Ints
    onward: Ints
    rest: Ints


@dataclass(frozen=True)
class Terms:
    """The bound's terms of one stage: everything but what goes before it. lead, last_lead: c of it and of the last stage · backward:
    whether there are backward passes; else the way to the last stage is one way, behind the last micro-batch."""

    micro_batches: int
    lead: int
    last_lead: int
    backward: bool

    def of(self, own: Ints, forward: Ints, far: Ints, far_first: Ints, far_last: Ints) -> Ints:
        """own: seconds of a steady micro-batch · forward: [2, ...] its least and most seconds of it · far: S; far_first, far_last: what
        the first forward and the last backward passes there take longer; all broadcast."""
        if not self.backward:
            return np.asarray(self.micro_batches * own + far)
        at_start = np.maximum(far + far_first - (self.lead - 1) * forward[1], 0)
        at_end = np.maximum(far + far_last - (self.lead - 1) * (own - forward[0]), 0)
        ends = at_start + at_end if self.micro_batches > self.lead else np.maximum(at_start, at_end)
        return np.asarray(self.micro_batches * own + ends + self.rounds * np.maximum(far - self.others * own, 0))

    @property
    def others(self) -> int:
        """Stages that a round trip to the last one visits."""
        return self.lead - self.last_lead

    @property
    def rounds(self) -> int:
        """Round trips in the steady state."""
        return max(self.micro_batches - self.lead - 1, 0) // (self.others + 1)


def terms_of(problem: CutProblem) -> list[Terms]:
    """Of every stage."""
    lead = weave(problem.schedule, problem.stages, problem.micro_batches, 1, np.arange(problem.stages))[0].tolist()
    return [Terms(problem.micro_batches, c, lead[-1], problem.backward) for c in lead]


class StageBounds:
    """The bound's terms of one stage with any run of layers under any mix of them."""

    def __init__(self, problem: CutProblem, integers: IntegerProblem, tables: Tables, stage: int) -> None:
        self.problem, self.integers, self.tables, self.stage = problem, integers, tables, stage
        self.terms = terms_of(problem)[stage]
        self.hop = int(integers.hop[stage])
        none = np.zeros(len(problem.kinds) + 1, dtype=np.int64)
        last = stage == problem.stages - 1
        self.far_first, self.far_last = (none, none) if last else (integers.after(FIRST), integers.after(LAST))

    def through(self, run: Ints, own: Ints, following: Ints, far: Ints, then: Ints) -> tuple[Ints, Ints]:
        """(U of this stage and those after it, what this one adds to P of the next).

        run: of the tables · own: its seconds under some mix · following: the layer after it · far: S · then: U after it."""
        forward = self.tables.forward[:, self.stage, run] + self.integers.extra[1, self.stage]
        once = self.tables.once[FIRST, self.stage, run] + self.tables.once[LAST, self.stage, run]
        once = once + self.integers.extra_once[[FIRST, LAST], self.stage].sum()
        around = self._around(run, own, forward[0]) if self.stage == 0 else 0
        here = self.terms.of(own, forward, far, self.far_first[following], self.far_last[following]) + once
        onward = own + once + self.hop
        return np.asarray(around + np.maximum(here, onward + then)), np.asarray(around + onward)

    def _around(self, run: Ints, own: Ints, forward: Ints) -> Ints:
        """What precedes the first pass and follows the last one of the first stage, with which every path begins and ends: its lanes
        where they outlast these passes, its optimizer."""
        here = {what: self.tables.once[what, 0, run] + self.integers.extra_once[what, 0] for what in range(len(self.integers.once))}
        before = np.maximum(here[SPREAD] - (self.tables.forward[1, 0, run] + self.integers.extra[1, 0] + here[FIRST]), 0)
        if not self.problem.backward:  # the paths end at the last stage
            return np.asarray(before)
        after = np.maximum(here[TAIL] - (own - forward + here[LAST]), 0)
        return np.asarray(before + after + here[UPDATE] + self.integers.tied)


def bounds_of(problem: CutProblem, integers: IntegerProblem, tables: Tables) -> Bounds:
    """Of every stage from every layer on."""
    length, p, width = len(problem.kinds), problem.stages, tables.width
    value, rest = np.full((p + 1, length + 1), NEVER), np.full((p + 1, length + 1), NEVER)  # rest: least Σ t + hops
    value[p, length] = rest[p, length] = 0
    onward, through = (np.empty((p, length + 1, width + 1), dtype=np.int64) for _ in range(2))
    following = np.minimum(np.arange(length + 1)[:, None] + np.arange(width + 1), length)
    for i in range(p - 1, -1, -1):
        stage, seconds = StageBounds(problem, integers, tables, i), tables.at(tables.seconds, i)
        never = (seconds >= NEVER) | (value[i + 1][following] >= NEVER)
        own, far, then = (np.where(never, 0, x) for x in (seconds, stage.hop + rest[i + 1][following], value[i + 1][following]))
        found = stage.through(tables.which, own, following, far, then)
        through[i], onward[i] = (np.where(never, NEVER, x) for x in found)
        value[i] = through[i].min(axis=1)
        rest[i] = np.where(never, NEVER, own + far).min(axis=1)
    return Bounds(int(value[0, 0]), through, onward, rest)


def seed(problem: CutProblem, bounds: Bounds) -> tuple[int, ...]:
    """A good cut: at each stage the layers of least bound, nearest to an even cut."""
    length, p = len(problem.kinds), problem.stages
    before, at, layers = 0, 0, []
    for i in range(p):
        sizes = np.flatnonzero(bounds.through[i, at] < NEVER)
        most = np.maximum(before + bounds.through[i, at, sizes], bounds.least)
        size = int(sizes[np.lexsort((np.abs(p * (at + sizes) - length * (i + 1)), most))[0]])
        before += int(bounds.onward[i, at, size])
        at += size
        layers.append(size)
    return tuple(layers)
