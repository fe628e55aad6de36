"""What no layout of a model undercuts, where layouts are free and only a shortlist of them is priced.

`least_steps` bounds the columns that it knows, conversions and memory among what it counts. Here the others, by their operations alone:

    T >= passes · layers on a stage · Σ over operations of the least seconds of any choice        no conversion, gradient or optimizer
    E >= Σ over operations of the least joules of any choice on all accelerators + static power · T

On a pipeline of equal layers the last stage also waits for the first micro-batch to come through the stages before it and, unless
weight gradients are passes of their own, for none of its way back less: (p − 1) / (p v) of one pass through all layers. Axes that split
something else than the batch divide seconds evenly, which no split of an operation beats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.tasks.layer_inside import looks_at_layers
from rackmodel.errors import InputError
from rackmodel.mapper.layouts.factors import least_operations
from rackmodel.mapper.layouts.layer_tables import Attained
from rackmodel.mapper.layouts.least_steps import LeastSteps, Placed, Seen
from rackmodel.mapper.layouts.one_layer import one_axis, resized
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.mapspace import Group, Mapspace, build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.model.schedules import SPLIT
from rackmodel.model.workload import Section
from rackmodel.watch import UNWATCHED, Watch

Column = tuple[Group, int]  # its group, and its number there


@dataclass(frozen=True)
class ModelPass:
    """One micro-batch through a model. layers, ends: seconds of all its layers, and of what is before and after them · last: of what is
    after them · joules: of a group of the free axis · alike: whether all layers are equal."""

    layers: float
    ends: float
    last: float
    joules: float
    alike: bool


class LeastOperations:
    """Bounds of steps whose layouts over `axis` are free. watch: where its time is up, nothing is said of them: the bound is 0 · seen:
    as of `LeastSteps`."""

    def __init__(self, job: Job, space: Mapspace, axis: str, watch: Watch = UNWATCHED, seen: Seen | None = None) -> None:
        self.job, self.space, self.axis, self.watch = job, space, axis, watch
        self.seen: Seen = {} if seen is None else seen
        self.split = bool(SPLIT & set(space.schedules))
        self.deepest = max(space.interleave, default=1)
        self.known: dict[tuple[int, int], ModelPass] = {}

    def bound(self, goal: Objective) -> float:
        """No step of the space whose layouts are free is below this."""
        return min((bound for *_, bound in self.columns(goal)), default=math.inf)

    def columns(self, goal: Objective) -> list[tuple[int, int, float]]:
        """(degree of the free axis, samples of a micro-batch on all its ranks, what no step is below) of each column that is free."""
        steps, asked, known = self._known()
        try:
            bounds = steps.bounds(known, goal) if known else []
        except (InputError, TooLarge):
            known, bounds = [], []
        rest = asked if not known else [one for one in asked if not steps.knows(*one)]
        bounds = [*bounds, *(self._column(group, at, goal) for group, at in rest)]
        each = zip([*known, *rest], bounds, strict=True)
        return [(self._degree(group, at), self._samples(group, at), bound) for (group, at), bound in each]

    def closed(self, goal: Objective, enough: float) -> tuple[float, list[Placed]]:
        """(what no step of the space whose layouts are free is below, layouts of the least nodes), looked at as closely as `closing` does
        where the bounds are below what is enough. Of latency alone: of others as `bound`, without layouts."""
        steps, asked, known = self._known()
        try:
            if goal.name == "latency" and known and not self.watch.over():
                least, leaves = steps.closed(known, goal, enough)
                rest = [self._column(group, at, goal) for group, at in asked if not steps.knows(group, at)]
                return min([least, *rest]), leaves
        except (InputError, TooLarge):
            pass
        return self.bound(goal), []

    def attaining(self, goal: Objective) -> list[Attained]:
        """Choices of a layer that bounds of the columns with the least ones are of, where those know them."""
        steps, _, known = self._known()
        try:
            return steps.attaining(known, goal) if known and not self.watch.over() else []
        except (InputError, TooLarge):
            return []

    def _known(self) -> tuple[LeastSteps, list[Column], list[Column]]:
        """The bounds, columns whose layouts are free, and those of them that the bounds know."""
        steps = LeastSteps(self.job, self.space, self.axis, self.watch, self.seen)
        asked = [(group, at) for group in self.space.groups for at in self._open(group)]
        return steps, asked, [one for one in asked if steps.applies and steps.knows(*one)]

    def _degree(self, group: Group, at: int) -> int:
        """Ranks of the free axis in a column."""
        mine = [number for number, parent in enumerate(group.parents) if parent == self.axis]
        return int(group.columns.degrees[at, mine].prod())

    def _samples(self, group: Group, at: int) -> int:
        """Samples of a micro-batch that the ranks of the free axis have together."""
        columns = group.columns
        batched = [n for n, parent in enumerate(group.parents[:-1]) if parent != self.axis and self._over_batch(parent)]
        ranks = int(columns.degrees[at, batched].prod()) * int(columns.micro_batches[at])
        return max(1, self.job.workload.sizes[self.space.workload.batch] // ranks) if self.space.workload.batch else 1

    def _over_batch(self, parent: str) -> bool:
        return self.space.mapper.split.get(parent) == [self.space.workload.batch]

    def _open(self, group: Group) -> list[int]:
        """Columns whose free axis splits something, and whose layers divide."""
        mine = [number for number, parent in enumerate(group.parents) if parent == self.axis]
        split = group.columns.degrees[:, mine].prod(axis=1) > 1
        return [at for at in np.flatnonzero(split).tolist() if self._divides(int(group.columns.stages[at]))]

    def _column(self, group: Group, at: int, goal: Objective) -> float:
        """What no layout of a column is below, of its operations alone."""
        if self.watch.over():
            return 0.0
        self.watch.say(f"bounds of free layouts, {len(self.known)} micro-batches so far")
        columns = group.columns
        other = [n for n, parent in enumerate(group.parents[:-1]) if parent != self.axis and not self._over_batch(parent)]
        degree, spread = self._degree(group, at), float(columns.degrees[at, other].prod())
        if spread > 1 and looks_at_layers(self.job.setting.inside):
            return 0.0  # what is split once more may have room on chip, and take less than its part
        count, size = int(columns.micro_batches[at]), self._samples(group, at)
        seconds, joules = self._step(degree, spread, size, count, int(columns.stages[at]))
        return float(goal.value(seconds, joules, 0.0))

    def _divides(self, stages: int) -> bool:
        """Whether the layers can be cut into so many stages: one chunk each, or several."""
        repeats = tuple((section.repeat, section.layer) for section in self.job.workload.sections)
        count, is_layer = (tuple(figures) for figures in zip(*repeats, strict=True))
        return not self.space.even or even_cut(count, is_layer, stages, 1) is not None

    def _step(self, degree: int, spread: float, size: int, count: int, stages: int) -> tuple[float, float]:
        """(seconds, joules) of a step at least."""
        one, m = self._pass(degree, size), float(count)
        seconds = m * (one.layers + one.ends) / stages / spread
        if self.space.even and one.alike and stages > 1:
            way = 0.0 if self.split else one.layers * (stages - 1) / (stages * self.deepest)
            seconds = max(seconds, (way + m * (one.layers / stages + one.last)) / spread)
        machine = self.job.setting.architecture
        groups = machine.used / stages / degree / spread
        return seconds, m * groups * one.joules + second_watts(self.job.setting, self.job.pools) * seconds

    def _pass(self, degree: int, size: int) -> ModelPass:
        if (degree, size) not in self.known:
            each = [(section, *self._least(section, degree, size)) for section in self.job.workload.sections]
            layers = [(section, seconds) for section, seconds, _ in each if section.layer]
            after = len(each) - 1 - max((n for n, (section, *_) in enumerate(each) if section.layer), default=-1)
            self.known[degree, size] = ModelPass(
                layers=sum(section.repeat * seconds for section, seconds in layers),
                ends=sum(section.repeat * seconds for section, seconds, _ in each if not section.layer),
                last=sum(section.repeat * seconds for section, seconds, _ in each[len(each) - after :]),
                joules=sum(section.repeat * joules for section, _, joules in each),
                alike=len(layers) == 1,
            )
        return self.known[degree, size]

    def _least(self, section: Section, degree: int, size: int) -> tuple[float, float]:
        """(seconds, joules) of one micro-batch through one layer of a section on one group of the axis, at least."""
        job = self.job
        machine = job.setting.architecture.model_copy(update={"accelerators": degree})
        layer = resized(section, {job.workload.batch: size})
        try:
            problems = build_mapspace(one_axis(self.space.mapper, self.axis, degree, layer), layer, degree).problems
        except InputError:
            return 0.0, 0.0
        setting = replace(job.setting, architecture=machine)
        return min((least_operations(setting, problem, job.profile) for problem in problems), default=(0.0, 0.0))
