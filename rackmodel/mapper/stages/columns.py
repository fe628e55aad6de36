"""Columns whose cut is open: priced once for all their cuts, and what `stage_cut` takes of one of them.

Every plan of a family (they differ in policy alone) is priced on the columns of a block together; an `ExactStep` with a part for each
section and policy has the passes that the clock runs. A cut only says how many layers of each part a stage holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.figures import BETWEEN, Figures, Holding
from rackmodel.cost.step.bounds.memory import IN_FLIGHT, kept_between
from rackmodel.cost.step.clock.clock import StepJobs
from rackmodel.cost.step.cut import cut_by_counts
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.hand_overs import in_places, summed
from rackmodel.cost.step.tasks.jobs import DEVICE, SPREAD
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.points import Point
from rackmodel.mapper.stages.cut_clock import CutClock, one_column
from rackmodel.mapper.stages.cut_problem import CutProblem, Ends, Once

BLOCK = 64  # columns priced together


@dataclass(frozen=True)
class Candidate:
    """One column whose cut is open. plans: a plan a policy · bound: of the step · stages: the pool of each stage, where accelerators are of
    several kinds."""

    group: int
    plans: tuple[int, ...]
    column: int
    overlap: tuple[int, int]
    schedule: str
    bound: float
    stages: tuple[int, ...] = ()

    def point(self, mixes: Ints, seconds: float, order: tuple[int, ...]) -> Point:
        """A cut of it as a point, of which joules and memory are not known yet. mixes: [stage, section, policy] layers · seconds: of a
        step · order: what settles ties."""
        return Point(
            group=self.group,
            variant=self.plans[0],
            column=self.column,
            overlap=self.overlap,
            schedule=self.schedule,
            stages=len(mixes),
            chunks=1,
            bound=self.bound,
            seconds=seconds,
            joules=0.0,
            memory=0.0,
            order=order,
            layers=tuple(int(n) for n in mixes.sum(axis=(1, 2))),
            plans=self.plans,
            mixes=tuple(tuple(tuple(int(n) for n in kind) for kind in stage) for stage in mixes),
            pools=self.stages,
        )


class OpenColumns:
    """Prices the candidates of groups. prices: of each group on the accelerators of each kind · capacities: bytes of each kind."""

    def __init__(self, job: Job, groups: Sequence[Group], prices: Sequence[Sequence[GroupPrice]], capacities: Sequence[float]) -> None:
        self.job, self.groups, self.prices, self.capacities = job, groups, prices, capacities
        self.layers: dict[tuple[int, int], tuple[LayerPricer, ...]] = {}  # of a block of columns, on each kind of accelerators
        self.alone: dict[tuple[int, int], tuple[LayerPricer, ...]] = {}  # of one column
        self.steps: dict[object, ExactStep] = {}
        self.figures: dict[object, list[list[Figures]]] = {}

    def opened(self, candidate: Candidate) -> tuple[CutProblem, CutClock]:
        """The cut problem of a candidate, and its clock. Raises InputError where a cut of these layers is none."""
        prices, each, place = self.prices[candidate.group], len(candidate.plans), candidate.column % BLOCK
        own = self._figures(candidate)
        step, every = self._step(candidate), self._parts(candidate.group, each)
        ends = self._ends(candidate)
        kept = [n for n, (x, q) in enumerate(every) if prices[0].layers[x] or q == each * ends[x]]
        stages, parts = int(prices[0].columns.stages[candidate.column]), [every[n] for n in kept]
        jobs = one_column(step.jobs, place)
        jobs = replace(
            jobs,
            sections=tuple(jobs.sections[n] for n in kept),
            update_s=tuple(jobs.update_s[n] for n in kept),
            schedule=candidate.schedule,
            stages=stages,
            micro_batches=int(prices[0].columns.micro_batches[candidate.column]),
            counts=np.zeros((stages, len(parts)), dtype=np.int64),
        )
        if candidate.stages:
            jobs = _handed(jobs, step, candidate.stages, place)
        clock = CutClock(jobs, parts, prices[0].layers, prices[0].repeats, each, (step.clock, kept, place))
        problem = problem_of(clock, own, self.capacities[0])
        return _on_pools(problem, candidate.stages, each, self.capacities) if candidate.stages else problem, clock

    def bytes_alone(self, candidate: Candidate) -> CutProblem:
        """The cut problem of a candidate in which nothing takes time: what its cuts hold does not ask the clock."""
        price, own, ends = self.prices[candidate.group][0], self._figures(candidate), self._ends(candidate)
        layers = [x for x, layer in enumerate(price.layers) if layer]
        of = [[own[ends[x]][x] for x in range(len(ends)) if x not in layers and (x < layers[0]) == first] for first in (True, False)]
        held, column = _bytes_of(own, layers), candidate.column
        problem = CutProblem(
            kinds=_kinds(own[0], layers),
            forward_s=np.zeros_like(held["saved_bytes"]),
            backward_s=np.zeros_like(held["saved_bytes"]),
            stages=int(price.columns.stages[column]),
            micro_batches=int(price.columns.micro_batches[column]),
            capacity_bytes=self.capacities[0],
            first=Ends(**_bytes_of_end(of[0])),
            last=Ends(**_bytes_of_end(of[1])),
            schedule=candidate.schedule,
            between_bytes=_between_bytes(
                own[0], int(price.columns.stages[column]), price.columns.micro_batches[[column]], candidate.schedule
            ),
            **held,
        )
        return _on_pools(problem, candidate.stages, len(candidate.plans), self.capacities) if candidate.stages else problem

    def _figures(self, candidate: Candidate) -> list[list[Figures]]:
        """Figures of the sections on each kind of accelerators, a plan a policy. Remembered: schedules and overlaps share them."""
        key = candidate.group, candidate.column, candidate.plans
        if key not in self.figures:
            column, plans = np.array([candidate.column]), np.array(candidate.plans)
            self.figures[key] = [[one.columns(column).plans(plans) for one in price.sections] for price in self.prices[candidate.group]]
        return self.figures[key]

    def _ends(self, candidate: Candidate) -> list[int]:
        """The kind of accelerators that each section runs on, were it an end."""
        layers = self.prices[candidate.group][0].layers
        return [candidate.stages[-1 if any(layers[:x]) else 0] if candidate.stages else 0 for x in range(len(layers))]

    def _parts(self, group: int, each: int) -> list[tuple[int, int]]:
        """(section, policy) of every part, kind by kind of accelerators: an end has one policy on each."""
        kinds = range(len(self.prices[group]))
        layers = self.prices[group][0].layers
        return [(x, k * each + q) for x, layer in enumerate(layers) for k in kinds for q in (range(each) if layer else (0,))]

    def _step(self, candidate: Candidate) -> ExactStep:
        """What has the passes of every part on the block of columns that the candidate is in."""
        group, block, each = self.groups[candidate.group], candidate.column // BLOCK, len(candidate.plans)
        key = (candidate.group, block, candidate.plans, candidate.overlap)
        if key not in self.steps:
            parts = self._parts(candidate.group, each)
            columns = group.columns.pick(self._columns(candidate.group, block))
            plans = [group.variants[number].plan for number in candidate.plans]
            structure = Structure(
                parts=tuple((x, plans[q % each]) for x, q in parts),
                cut=cut_by_counts(np.zeros((1, len(parts)), dtype=np.int64)),
                schedule=candidate.schedule,
                micro_batches=1,
                overlap=candidate.overlap,
                offload=group.variants[candidate.plans[0]].offload,
                pools=tuple(q // each for _, q in parts) if self.job.pools else (),
            )
            self.steps[key] = ExactStep(self.job, structure, columns, self._layers(candidate.group, block))
        return self.steps[key]

    def layers_of(self, group: int, column: int) -> tuple[LayerPricer, ...]:
        """What prices the layers of one column on each kind of accelerators: they are picked from those of its block. Remembered."""
        if (group, column) not in self.alone:
            wide, which = self._layers(group, column // BLOCK), np.array([column % BLOCK])
            self.alone[group, column] = tuple(self._pricer(group, k, np.array([column]), (one, which)) for k, one in enumerate(wide))
        return self.alone[group, column]

    def _layers(self, group: int, block: int) -> tuple[LayerPricer, ...]:
        """What prices the layers of a block of columns on each kind of accelerators; what priced the whole group where that is kept."""
        if (group, block) not in self.layers:
            which = self._columns(group, block)
            whole = len(which) == len(self.groups[group].columns)
            known = [price.priced for price in self.prices[group]]
            self.layers[group, block] = tuple(
                one if one is not None and whole else self._pricer(group, k, which, None if one is None else (one, which))
                for k, one in enumerate(known)
            )
        return self.layers[group, block]

    def _columns(self, group: int, block: int) -> Ints:
        """Which columns a block is of."""
        return np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self.groups[group].columns)))

    def _pricer(self, group: int, kind: int, which: Ints, among: tuple[LayerPricer, Ints] | None) -> LayerPricer:
        """What prices layers of some columns on one kind of accelerators."""
        job, own = self.job.of_pool(kind), self.groups[group]
        pricer = Pricer(job.setting, job.workload, own.variants[0].plan, own.columns.pick(which), job.profile.buckets)
        return LayerPricer(pricer, job.workload, job.profile, job.programs, among)


def _handed(jobs: StepJobs, step: ExactStep, stages: tuple[int, ...], place: int) -> StepJobs:
    """A step of one column with the hand-overs of stages on some pools. place: of the column among the step's."""
    one = np.ones(step.pricer.n)
    hops = in_places(step.handed_on(stages), one)[..., [place]]
    tied = summed(step.pricer, step.job.workload, step.structure.parts[0][1], step.ends_of(stages))[0] * one
    return replace(jobs, hops_s=hops, send_s=hops.min(axis=(0, 1)), tied_s=tied[[place]])


def _of_links(jobs: StepJobs) -> Array | None:
    """[stages - 1] seconds of a hand-over between a stage and the next: forward; with backward passes the mean of both ways."""
    if jobs.hops_s is None:
        return None
    ahead, back = jobs.hops_s[0, :-1, 0], jobs.hops_s[1, 1:, 0]
    return np.asarray((ahead + back) / 2.0 if jobs.backward else ahead)


def _on_pools(problem: CutProblem, stages: tuple[int, ...], each: int, capacities: Sequence[float]) -> CutProblem:
    """A problem whose stages lie on pools. each: policies of a layer on one kind of accelerators."""
    of = np.arange(problem.forward_s.shape[1]) // each
    return replace(problem, uses=np.array(stages)[:, None] == of, capacities=np.array([capacities[pool] for pool in stages]))


def problem_of(clock: CutClock, own: Sequence[Sequence[Figures]], capacity: float) -> CutProblem:
    """The cut problem of one column. own: figures of its sections on each kind of accelerators, a plan a policy."""
    return _Filled(clock, own).problem(capacity)


class _Filled:
    """A cut problem, filled from a column's figures (bytes, joules) and the clock's passes (seconds)."""

    def __init__(self, clock: CutClock, own: Sequence[Sequence[Figures]]) -> None:
        self.own, self.clock = own, clock
        self.part = {part: number for number, part in enumerate(clock.parts)}
        self.layers = [x for x, layer in enumerate(clock.layers) if layer]
        self.each = len(own[0][self.layers[0]].joules)  # policies on accelerators of one kind
        self.busiest = self._busiest()

    def problem(self, capacity: float) -> CutProblem:
        """The whole."""
        jobs, policies = self.clock.jobs, self.each * len(self.own)
        steady = [[self._steady(x, q) for q in range(policies)] for x in self.layers]
        once = [self._once(x) for x in self.layers]
        return CutProblem(
            kinds=_kinds(self.own[0], self.layers),
            forward_s=np.array([[forward for forward, _ in row] for row in steady]),
            backward_s=np.array([[backward for _, backward in row] for row in steady]),
            stages=jobs.stages,
            micro_batches=jobs.micro_batches,
            once=Once(**{name: np.array([[of[name] for of in own] for own in once]) for name in vars(Once())}),
            joules=_of_layers(self.own, self.layers, lambda one: one.joules[:, 0]),
            capacity_bytes=capacity,
            first=self._ends(range(self.layers[0])),
            last=self._ends(x for x in range(self.layers[0], len(self.own[0])) if x not in self.layers),
            send_s=float(jobs.send_s[0]),
            sends_overlap=jobs.sends_overlap,
            tied_s=float(jobs.tied_s[0]) if jobs.stages > 1 else 0.0,
            schedule=jobs.schedule,
            backward=jobs.backward,
            hops_s=_of_links(jobs),
            between_bytes=_between_bytes(self.own[0], jobs.stages, np.array([jobs.micro_batches]), jobs.schedule),
            **_bytes_of(self.own, self.layers),
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

    def _once(self, section: int) -> list[dict[str, float]]:
        """[Q] what a layer does once a step, at least, whatever its policy on accelerators of that kind."""
        found = {q: self._once_of(section, q) for s, q in self.clock.parts if s == section}
        kinds = [[one for q, one in found.items() if q // self.each == kind] for kind in range(len(self.own))]
        return [{name: min(one[name] for one in kind) for name in kind[0]} for kind in kinds if kind for _ in range(self.each)]

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
        sections, found = list(sections), Ends()
        policies = [next(q for s, q in self.clock.parts if s == x) for x in sections]
        for x, policy in zip(sections, policies, strict=True):
            repeat = self.own[policy // self.each][x].repeat
            forward, backward = self._steady(x, policy)
            once = {name: getattr(found.once, name) + repeat * seconds for name, seconds in self._once_of(x, policy).items()}
            found = Ends(
                forward_s=found.forward_s + repeat * forward,
                backward_s=found.backward_s + repeat * backward,
                once=Once(**once),
            )
        return replace(found, **_bytes_of_end([self.own[q // self.each][x] for x, q in zip(sections, policies, strict=True)]))


def _kinds(own: Sequence[Figures], layers: Sequence[int]) -> tuple[int, ...]:
    """The kind of each layer, first to last."""
    return tuple(k for k, x in enumerate(layers) for _ in range(own[x].repeat))


def _of_layers(own: Sequence[Sequence[Figures]], layers: Sequence[int], figure: Callable[[Figures], Array]) -> Array:
    """[K, Q] of every kind of layer, the policies on each kind of accelerators after one another."""
    return np.stack([np.concatenate([figure(one[x]) for one in own]) for x in layers])


def _bytes_of(own: Sequence[Sequence[Figures]], layers: Sequence[int]) -> dict[str, Any]:
    """What layers hold. own: of the sections on each kind of accelerators."""
    return {
        "saved_bytes": _of_layers(own, layers, lambda one: _held(one, "activations")),
        "state_bytes": _of_layers(own, layers, lambda one: _least(_held(one, "weights", "gradients", "optimizer"))),
        "working_bytes": _of_layers(own, layers, lambda one: _held(one, "working", "remade")),
        "gathered_bytes": _of_layers(own, layers, lambda one: _held(one, "gathered")),
    }


def _between_bytes(sections: Sequence[Figures], stages: int, micro_batches: Ints, schedule: str) -> Array:
    """[stages] kept of what stages hand to each other, whatever layers they hold. micro_batches: [1]."""
    held = [Holding(one.layer, {what: one.held[what][:1] for what in (*BETWEEN, *IN_FLIGHT)}) for one in sections]
    cut = cut_by_counts(np.zeros((stages, len(sections)), dtype=np.int64))
    return np.array([float(kept_between(held, cut, schedule, micro_batches, stage).sum()) for stage in range(stages)])


def _bytes_of_end(sections: Sequence[Figures]) -> dict[str, Any]:
    """What sections beside the layers hold in one place, under their first policy."""
    return {
        "state_bytes": sum((one.repeat * float(_held(one, "weights", "gradients", "optimizer")[0]) for one in sections), 0.0),
        "saved_bytes": sum((float(_held(one, "activations")[0]) for one in sections), 0.0),
        "working_bytes": max((float(_held(one, "working", "remade")[0]) for one in sections), default=0.0),
        "gathered_bytes": max((float(_held(one, "gathered")[0]) for one in sections), default=0.0),
    }


def _least(figures: Array) -> Array:
    """[policies] the least of them."""
    return np.full(len(figures), figures.min())


def _held(section: Figures, *what: str) -> Array:
    """[policies] bytes."""
    return np.asarray(sum((section.held[name][:, 0] for name in what), np.zeros(len(section.joules))))
