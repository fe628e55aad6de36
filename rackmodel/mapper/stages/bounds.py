"""All stages: the bound of every stage and what follows, in arrays with the least way back alone; where no cut fits, the nearest miss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.cost.step.pipeline_orders import weave
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.stages.cut_problem import CutProblem, Ints
from rackmodel.mapper.stages.mixes import Tables
from rackmodel.mapper.stages.whole import BYTE, NEVER, Whole


@dataclass(frozen=True)
class Bounds:
    """least: no cut is faster, NEVER where none fits · through: [p, L + 1, width + 1] U_i(n) with c layers, at the least S ·
    seconds: [p, L + 1, width + 1] t_i; NEVER."""

    least: int
    through: Ints
    seconds: Ints


@dataclass(frozen=True)
class Terms:
    """The bound's terms of one stage: everything but what goes before it. lead, last_lead: c of it and of the last stage."""

    micro_batches: int
    lead: int
    last_lead: int

    def of(self, own: Ints, forward: Ints, far: Ints) -> Ints:
        """own: seconds of a micro-batch · forward: [2, ...] its least and most seconds of it · far: S; all broadcast."""
        at_start = np.maximum(far - (self.lead - 1) * forward[1], 0)
        at_end = np.maximum(far - (self.lead - 1) * (own - forward[0]), 0)
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
    lead = weave(problem.schedule, problem.stages, problem.micro_batches, 1, np.arange(problem.stages))[0].tolist()
    return [Terms(problem.micro_batches, c, lead[-1]) for c in lead]


def bounds_of(problem: CutProblem, whole: Whole, tables: Tables) -> Bounds:
    length, p, width, terms = len(problem.kinds), problem.stages, tables.width, terms_of(problem)
    value, rest = np.full((p + 1, length + 1), NEVER), np.full((p + 1, length + 1), NEVER)  # rest: least Σ t + hops
    value[p, length] = rest[p, length] = 0
    seconds, through = (np.empty((p, length + 1, width + 1), dtype=np.int64) for _ in range(2))
    after = np.minimum(np.arange(length + 1)[:, None] + np.arange(width + 1), length)
    for i in range(p - 1, -1, -1):
        seconds[i] = tables.at(tables.seconds, i)
        never = (seconds[i] >= NEVER) | (value[i + 1][after] >= NEVER)
        hop = whole.hop if i < p - 1 else 0
        own, far, then = (np.where(never, 0, x) for x in (seconds[i], hop + rest[i + 1][after], value[i + 1][after]))
        forward = tables.forward[:, tables.which] + whole.extra[1, i]
        through[i] = np.where(never, NEVER, np.maximum(terms[i].of(own, forward, far), own + hop + then))
        value[i] = through[i].min(axis=1)
        rest[i] = np.where(never, NEVER, own + far).min(axis=1)
    return Bounds(int(value[0, 0]), through, seconds)


def misses(problem: CutProblem, tables: Tables) -> InfeasibleError:
    """No cut fits: the cut whose fullest stage needs least, and that stage."""
    length, p = len(problem.kinds), problem.stages
    after = np.minimum(np.arange(length + 1)[:, None] + np.arange(tables.width + 1), length)
    value = np.full((p + 1, length + 1), NEVER)
    value[p, length] = 0
    need = [tables.at(tables.need, i) for i in range(p)]
    for i in range(p - 1, -1, -1):
        value[i] = np.maximum(need[i], value[i + 1][after]).min(axis=1)
    at, held = 0, []
    for i in range(p):
        count = int(np.maximum(need[i][at], value[i + 1][after[at]]).argmin())
        held.append((int(need[i][at, count]), -i, count))
        at += count
    most, stage, layers = max(held)
    return infeasible(problem, -stage, f"{layers} layers", most / BYTE)


def infeasible(problem: CutProblem, stage: int, holds: str, need: float) -> InfeasibleError:
    have = problem.capacity_bytes
    return InfeasibleError(
        f"memory: of all cuts into {problem.stages} stages the smallest still needs {need / 1e9:.4g} GB on stage {stage} ({holds}), "
        f"an accelerator has {have / 1e9:.4g}; short by {(need - have) / 1e9:.4g} GB",
        resource=f"stage {stage} memory",
        need=need,
        have=have,
        unit="byte",
    )


def seed(problem: CutProblem, whole: Whole, bounds: Bounds) -> tuple[int, ...]:
    """A good cut: at each stage the layers of least bound, nearest to an even cut."""
    length, p = len(problem.kinds), problem.stages
    before, at, layers = 0, 0, []
    for i in range(p):
        sizes = np.flatnonzero(bounds.through[i, at] < NEVER)
        most = np.maximum(before + bounds.through[i, at, sizes], bounds.least)
        size = int(sizes[np.lexsort((np.abs(p * (at + sizes) - length * (i + 1)), most))[0]])
        before += int(bounds.seconds[i, at, size]) + whole.hop
        at += size
        layers.append(size)
    return tuple(layers)
