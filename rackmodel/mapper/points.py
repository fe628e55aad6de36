"""Points of a mapspace: where each lies, its exact figures, and the structure that prices it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.step.bounds.bound import step_joules
from rackmodel.cost.step.bounds.figures import Figures, SharedFigures
from rackmodel.cost.step.bounds.memory import fullest_device, memory_of
from rackmodel.cost.step.cut import Cut, cut_by_counts, partition
from rackmodel.cost.step.exact import ExactStep, Structure, seconds_of
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.objective import Objective
from rackmodel.model.plan import Plan

PRICERS = 64  # sets of columns whose layers' prices are remembered
WIDE = 64  # columns that are priced together
TOGETHER = 8  # such sets that are remembered
STEPS = 256  # points whose steps are remembered
KEPT = 2_000_000  # passes of pipelines whose runs are: about a hundred bytes each
Together = tuple[int, dict[int, int], LayerPricer]
"""A group's number, where each of some of its columns is, and what prices their layers."""
Took = tuple[float, float]
"""Seconds of a step by the clock, and what kernels draw longer in it that collectives slow, in joules."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point. bound: of the objective · seconds, joules (with static power), memory: bounds until exact · order: what settles ties ·
    layers: of each stage of an uneven cut · plans, mixes: a plan a policy, stage → section → policy → layers, where they mix · pools: of
    each stage, where accelerators are of several kinds."""

    group: int
    variant: int
    column: int
    overlap: tuple[int, int]
    schedule: str
    stages: int
    chunks: int
    bound: float
    seconds: float
    joules: float
    memory: float
    order: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    plans: tuple[int, ...] = ()
    mixes: tuple[tuple[tuple[int, ...], ...], ...] = ()
    pools: tuple[int, ...] = ()

    @property
    def power_w(self) -> float:
        """Mean power of the step."""
        return self.joules / self.seconds if self.seconds > 0 else 0.0

    def value(self, goal: Objective) -> float:
        """An objective's figure of it."""
        return float(goal.value(self.seconds, self.joules, self.memory))


def cut_of(point: Point, group: Group, price: GroupPrice) -> tuple[Cut, tuple[tuple[int, Plan], ...]]:
    """(the cut, the plan of every run of equal layers) of a point."""
    if point.mixes:
        dealt = partition(price.layers, price.repeats, point.mixes)
        parts = tuple((x, group.variants[point.plans[policy]].plan) for x, policy, _ in dealt)
        return cut_by_counts(np.stack([where for *_, where in dealt], axis=1)), parts
    made = price.cut(point.stages, point.chunks, point.layers, point.schedule)
    assert made is not None
    plan = group.variants[point.variant].plan
    return made, ((0, plan),) if price.staged else tuple((x, plan) for x in range(len(price.sections)))


def structure_of(point: Point, group: Group, price: GroupPrice) -> Structure:
    """What prices a point."""
    made, parts = cut_of(point, group, price)
    return Structure(
        parts=parts,
        cut=made,
        schedule=point.schedule,
        micro_batches=int(price.columns.micro_batches[point.column]),
        overlap=point.overlap,
        offload=group.variants[point.variant].offload,
    )


def exact_step(job: Job, point: Point, group: Group, price: GroupPrice, layers: LayerPricer | None = None) -> ExactStep:
    """The step of one point. layers: what prices layers on its column, where it is there already."""
    return ExactStep(job, structure_of(point, group, price), price.columns.pick(np.array([point.column])), layers)


class Clocked:
    """Times points by the clock. The columns of points that are likely to be timed are priced together, and each point picks its own.
    room: passes of pipelines whose runs are kept, for paths that are likely to be asked for."""

    def __init__(self, job: Job, groups: Sequence[Group], prices: Sequence[GroupPrice], static_w: float, room: int = 0) -> None:
        self.job, self.groups, self.prices, self.static_w, self.room = job, groups, prices, static_w, room
        self.layers: dict[tuple[int, tuple[int, ...]], LayerPricer] = {}
        self.together: deque[Together] = deque(maxlen=TOGETHER)
        self.expected: dict[tuple[int, bool], dict[int, None]] = {}
        self.timed: dict[object, tuple[ExactStep, int]] = {}  # steps of points that were timed, and where each is among its columns

    def goes_on(self, priced: list[Together]) -> None:
        """Take over what priced some columns already; the list is empty then."""
        self.together.extend(priced)
        priced.clear()

    def expect(self, points: Sequence[Point]) -> None:
        """Points that are likely to be timed, the likeliest first."""
        self.expected.clear()
        for point in points:
            self.expected.setdefault(self._kind(point), {})[point.column] = None

    def step(self, point: Point) -> ExactStep:
        """The step of one point."""
        known, column = self.timed.get(_lies(point), (None, 0))
        if known is not None and len(known.columns) == 1:
            return known
        layers = self._layers([point])
        if known is not None:
            return known.pick(column, layers)
        return exact_step(self.job, point, self.groups[point.group], self.prices[point.group], layers)

    def exact(self, points: Sequence[Point]) -> list[Point]:
        """The points with the clock's seconds, and the joules that follow."""
        return [self.lasting(point, took) for point, took in zip(points, self.took(points), strict=True)]

    def took(self, points: Sequence[Point]) -> list[Took]:
        """What each point takes by the clock; those of one structure run together."""
        alike: dict[object, list[int]] = {}
        for number, point in enumerate(points):
            m = int(self.prices[point.group].columns.micro_batches[point.column])
            key = (point.group, point.variant, point.schedule, point.stages, point.chunks, m, point.overlap, point.layers, point.mixes)
            alike.setdefault(key, []).append(number)
        steps = [self._step([points[number] for number in numbers]) for numbers in alike.values()]
        found: dict[int, Took] = {}
        for step, numbers, seconds in zip(steps, alike.values(), seconds_of(steps, self.room), strict=True):
            self.room -= step.kept
            for column, (number, exact) in enumerate(zip(numbers, seconds, strict=True)):
                self._remember(points[number], step, column)
                found[number] = float(exact), float(step.drawn_longer_j[column])
        return [found[number] for number in range(len(points))]

    def lasting(self, point: Point, took: Took) -> Point:
        """A bounded point with what its mapping takes."""
        seconds, longer_j = took
        return replace(point, seconds=seconds, joules=point.joules + self.static_w * (seconds - point.seconds) + longer_j)

    def _step(self, points: Sequence[Point]) -> ExactStep:
        """The steps of points of one structure."""
        one, columns = points[0], np.array([point.column for point in points])
        group, price = self.groups[one.group], self.prices[one.group]
        return ExactStep(self.job, structure_of(one, group, price), price.columns.pick(columns), self._layers(points))

    def _remember(self, point: Point, step: ExactStep, column: int) -> None:
        if len(self.timed) == STEPS:
            del self.timed[next(iter(self.timed))]
        self.timed[_lies(point)] = step, column

    # -- prices of layers --------------------------------------------------------------------------------------------------

    def _kind(self, point: Point) -> tuple[int, bool]:
        """Points whose columns may be priced together: of one group, and one device runs all sections or it does not."""
        return point.group, bool(self.prices[point.group].columns.stages[point.column] == 1)

    def _layers(self, points: Sequence[Point]) -> LayerPricer:
        """What prices the layers of points of one structure. Remembered."""
        key = points[0].group, tuple(point.column for point in points)
        if key not in self.layers:
            wide, where = self._wide(points)
            which = np.array([where[point.column] for point in points])
            if len(self.layers) == PRICERS:
                del self.layers[next(iter(self.layers))]
            whole = len(which) == len(where) and bool((which == np.arange(len(where))).all())
            self.layers[key] = wide if whole else self._pricer(points[0], np.array(key[1]), (wide, which))
        return self.layers[key]

    def _wide(self, points: Sequence[Point]) -> tuple[LayerPricer, dict[int, int]]:
        """What prices the columns of some points among others, and where each column is."""
        kind, own = self._kind(points[0]), dict.fromkeys(point.column for point in points)
        for group, where, layers in self.together:
            if group == kind[0] and own.keys() <= where.keys() and layers.together == kind[1]:
                return layers, where
        price, among = self.prices[kind[0]], None
        if price.priced is not None:
            alike = np.flatnonzero((price.columns.stages == 1) == kind[1])
            if len(alike) == len(price.columns):
                return price.priced, {column: column for column in range(len(alike))}
            columns, among = alike.tolist(), (price.priced, alike)  # the layers are priced; what else there is depends on the kind
        else:
            waiting = self.expected.get(kind, {})
            columns = list(own | dict.fromkeys(islice((column for column in waiting if column not in own), WIDE)))
            for column in columns:
                waiting.pop(column, None)
        layers, where = self._pricer(points[0], np.array(columns), among), {column: place for place, column in enumerate(columns)}
        self.together.append((kind[0], where, layers))
        return layers, where

    def _pricer(self, point: Point, columns: Ints, among: tuple[LayerPricer, Ints] | None = None) -> LayerPricer:
        job, price = self.job, self.prices[point.group]
        plan = self.groups[point.group].variants[point.variant].plan
        pricer = Pricer(job.setting, job.workload, plan, price.columns.pick(columns), job.profile.buckets, price.wider(columns))
        return LayerPricer(pricer, job.workload, job.profile, job.programs, among)


def _lies(point: Point) -> object:
    """Where a point lies: what its step depends on."""
    where = point.group, point.variant, point.column, point.overlap
    return *where, point.schedule, point.stages, point.chunks, point.layers, point.plans, point.mixes


@dataclass(frozen=True)
class Sums:
    """Of one point, exact. joules: without static power · memory: bytes on the fullest device · host: bytes that one keeps at the host."""

    joules: float
    memory: float
    host: float


def sums_of(point: Point, price: GroupPrice, group: Group) -> Sums:
    """What needs no clock."""
    column = np.array([point.column])
    made, _ = cut_of(point, group, price)
    sends = price.sends.columns(column).plans(np.array([point.variant]))
    sections, count = _sections(point, price), price.columns.micro_batches[column]
    memory, host = memory_of(sections, made, point.schedule, count)
    return Sums(float(step_joules(sections, sends, made.stages, made.hops, count).item()), float(memory.item()), float(host.item()))


def held_by(point: Point, price: GroupPrice, group: Group) -> dict[str, float]:
    """Bytes by what holds them on the device of a point that holds most."""
    made, _ = cut_of(point, group, price)
    return fullest_device(_sections(point, price), made, point.schedule, price.columns.micro_batches[np.array([point.column])])


def _sections(point: Point, price: GroupPrice) -> list[Figures]:
    """The figures of every run of equal layers of a point."""
    column = np.array([point.column])
    if point.mixes:
        dealt = partition(price.layers, price.repeats, point.mixes)
        return [_picked(price.sections[x], column, point.plans[policy], int(where.sum())) for x, policy, where in dealt]
    return [_picked(one, column, point.variant, one.repeat) for one in price.sections]


def _picked(one: SharedFigures, column: np.ndarray[tuple[int], np.dtype[np.int64]], plan: int, repeat: int) -> Figures:
    return replace(one.columns(column).plans(np.array([plan])), repeat=repeat)
