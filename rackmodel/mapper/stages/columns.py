"""Columns whose cut is open: priced once for all their cuts, and what `stage_cut` takes of one of them.

Every plan of a family (they differ in policy alone) is priced on the columns of a block together; an `ExactStep` with a part for each
section and policy has the passes that the clock runs. A cut only says how many layers of each part a stage holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.clock import StepJobs
from rackmodel.cost.step.cut import cut_by_counts
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.figures import Figures
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.jobs import DEVICE, SPREAD
from rackmodel.cost.step.layers import LayerPricer
from rackmodel.cost.step.memory import BUFFERS
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.stages.cut_clock import CutClock, one_column
from rackmodel.mapper.stages.cut_problem import CutProblem, Ends, Once

Array = NDArray[np.float64]
BLOCK = 64  # columns priced together


@dataclass(frozen=True)
class Candidate:
    """One column whose cut is open. plans: a plan a policy · bound: of the step."""

    group: int
    plans: tuple[int, ...]
    column: int
    overlap: tuple[int, int]
    schedule: str
    bound: float


class OpenColumns:
    """Prices the candidates of groups."""

    def __init__(self, job: Job, groups: Sequence[Group], prices: Sequence[GroupPrice], capacity: float) -> None:
        self.job, self.groups, self.prices, self.capacity = job, groups, prices, capacity
        self.layers: dict[tuple[int, int], LayerPricer] = {}
        self.steps: dict[object, StepJobs] = {}

    def opened(self, candidate: Candidate) -> tuple[CutProblem, CutClock]:
        """The cut problem of a candidate, and its clock. Raises InputError where a cut of these layers is none."""
        price = self.prices[candidate.group]
        column = np.array([candidate.column])
        own = [section.columns(column).plans(np.array(candidate.plans)) for section in price.sections]
        parts = [(x, q) for x, layer in enumerate(price.layers) for q in (range(len(candidate.plans)) if layer else (0,))]
        jobs = one_column(self._jobs(candidate, parts), candidate.column % BLOCK)
        jobs = replace(
            jobs,
            schedule=candidate.schedule,
            stages=int(price.columns.stages[candidate.column]),
            micro_batches=int(price.columns.micro_batches[candidate.column]),
            counts=np.zeros((int(price.columns.stages[candidate.column]), len(parts)), dtype=np.int64),
        )
        clock = CutClock(jobs, parts, price.layers, price.repeats)
        return problem_of(clock, own, self.capacity), clock

    def _jobs(self, candidate: Candidate, parts: Sequence[tuple[int, int]]) -> StepJobs:
        """The passes of every part on the block of columns that the candidate is in."""
        group, block = self.groups[candidate.group], candidate.column // BLOCK
        key = (candidate.group, block, candidate.plans, candidate.overlap)
        if key not in self.steps:
            columns = group.columns.pick(np.arange(block * BLOCK, min((block + 1) * BLOCK, len(group.columns))))
            plans = [group.variants[number].plan for number in candidate.plans]
            structure = Structure(
                parts=tuple((x, plans[q]) for x, q in parts),
                cut=cut_by_counts(np.zeros((1, len(parts)), dtype=np.int64)),
                schedule=candidate.schedule,
                micro_batches=1,
                overlap=candidate.overlap,
                offload=group.variants[candidate.plans[0]].offload,
            )
            step = ExactStep(self.job, structure, columns, self.layers.get((candidate.group, block)))
            self.layers[candidate.group, block] = step.layers
            self.steps[key] = step.jobs
        return self.steps[key]


def problem_of(clock: CutClock, own: Sequence[Figures], capacity: float) -> CutProblem:
    """The cut problem of one column. own: figures of its sections, a plan a policy."""
    return _Filled(clock, own).problem(capacity)


class _Filled:
    """A cut problem, filled from a column's figures (bytes, joules) and the clock's passes (seconds)."""

    def __init__(self, clock: CutClock, own: Sequence[Figures]) -> None:
        self.own, self.clock = own, clock
        self.part = {part: number for number, part in enumerate(clock.parts)}
        self.policies = 1 + max(policy for _, policy in clock.parts)
        self.layers = [x for x, layer in enumerate(clock.layers) if layer]
        self.busiest = self._busiest()

    def problem(self, capacity: float) -> CutProblem:
        """The whole."""
        jobs, own = self.clock.jobs, [self.own[x] for x in self.layers]
        steady = [[self._steady(x, q) for q in range(self.policies)] for x in self.layers]
        return CutProblem(
            kinds=tuple(k for k, section in enumerate(own) for _ in range(section.repeat)),
            forward_s=np.array([[forward for forward, _ in row] for row in steady]),
            backward_s=np.array([[backward for _, backward in row] for row in steady]),
            saved_bytes=np.stack([_held(section, "activations") for section in own]),
            state_bytes=np.array([float(_held(section, "weights", "gradients", "optimizer").min()) for section in own]),
            stages=jobs.stages,
            micro_batches=jobs.micro_batches,
            working_bytes=np.stack([_held(section, "working", "remade") for section in own]),
            gathered_bytes=np.stack([BUFFERS * _held(section, "gathered") for section in own]),
            once=Once(**{name: np.array([self._once(x)[name] for x in self.layers]) for name in vars(Once())}),
            joules=np.stack([section.joules[:, 0] for section in own]),
            capacity_bytes=capacity,
            first=self._ends(range(self.layers[0])),
            last=self._ends(x for x in range(self.layers[0], len(self.own)) if x not in self.layers),
            send_s=float(jobs.send_s[0]),
            sends_overlap=jobs.sends_overlap,
            tied_s=float(jobs.tied_s[0]) if jobs.stages > 1 else 0.0,
            schedule=jobs.schedule,
            backward=jobs.backward,
        )

    def _steady(self, section: int, policy: int) -> tuple[float, float]:
        """Seconds of a steady micro-batch on the device, forward and backward: at most those of the first and the last one."""
        at, jobs = self.part[section, policy], self.clock.jobs
        forward = min(self.clock.device_s(at, name) for name in ("first", "forward"))
        return forward, min(self.clock.device_s(at, name) for name in ("backward", "last")) if jobs.backward else 0.0

    def _busiest(self) -> str:
        """The lane beside the device that moves most in the last passes: what follows them is bounded by one lane."""
        load: dict[str, float] = {}
        for (section, _), passes in zip(self.clock.parts, self.clock.jobs.sections, strict=True):
            for job in passes["last"].body:
                if job.lane != DEVICE:
                    load[job.lane] = load.get(job.lane, 0.0) + self.clock.repeats[section] * float(job.seconds.flat[0])
        return max(load, key=lambda lane: load[lane], default="")

    def _once(self, section: int) -> dict[str, float]:
        """What a layer does once a step, at least, whatever its policy."""
        found = [self._once_of(section, q) for s, q in self.clock.parts if s == section]
        return {name: min(one[name] for one in found) for name in found[0]}

    def _once_of(self, section: int, policy: int) -> dict[str, float]:
        at, jobs = self.part[section, policy], self.clock.jobs
        forward, backward = self._steady(section, policy)
        passes = jobs.sections[at]
        first = passes["first"].body
        read = max((k for job in first if job.lane == DEVICE for k in job.after if first[k].lane == SPREAD), default=-1)
        spread = sum(float(job.seconds.flat[0]) for job in first[: read + 1] if job.lane == SPREAD)
        tail = sum(float(job.seconds.flat[0]) for job in passes["last"].body if job.lane == self.busiest) if jobs.backward else 0.0
        return {
            "first": self.clock.device_s(at, "first") - forward,
            "last": self.clock.device_s(at, "last") - backward if jobs.backward else 0.0,
            "spread": spread,
            "tail": tail,
            "update": float(jobs.update_s[at].flat[0]),
        }

    def _ends(self, sections: Iterable[int]) -> Ends:
        """Sections beside the layers, each in one place."""
        found = Ends()
        for x in sections:
            own, repeat = self.own[x], self.own[x].repeat
            forward, backward = self._steady(x, 0)
            once = {name: getattr(found.once, name) + repeat * seconds for name, seconds in self._once(x).items()}
            found = Ends(
                forward_s=found.forward_s + repeat * forward,
                backward_s=found.backward_s + repeat * backward,
                state_bytes=found.state_bytes + repeat * float(_held(own, "weights", "gradients", "optimizer")[0]),
                saved_bytes=found.saved_bytes + float(_held(own, "activations")[0]),
                working_bytes=max(found.working_bytes, float(_held(own, "working", "remade")[0])),
                gathered_bytes=max(found.gathered_bytes, float(_held(own, "gathered")[0])),
                once=Once(**once),
            )
        return found


def _held(section: Figures, *what: str) -> Array:
    """[policies] bytes."""
    return np.asarray(sum((section.held[name][:, 0] for name in what), np.zeros(len(section.joules))))

