"""What no step of a model undercuts whose layouts over one axis are free, column by column, under each home and recompute policy.

    T >= K · t + layers of a stage · u + ends + what lanes beside the device slow it by        T, M: of one choice of every operation
    M >= samples in flight · a + layers of a stage · w
    least T under M <= capacity  >=  max over µ >= 0 of  min over choices (T + µ M) − µ · capacity

t, a, u, w are sums of tables (layer_tables): elimination finds the least of any weighted sum, conversions among them. K is what
`least_ops` counts: micro-batches times layers of a stage, and the way of the first through a pipeline.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.bounds.memory import in_flight
from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.tasks.layer_inside import looks_at_layers
from rackmodel.mapper.layouts.branches import Column
from rackmodel.mapper.layouts.cases import Case, Cases, KnownColumns, Row, Run, Shape
from rackmodel.mapper.layouts.closing import Closing
from rackmodel.mapper.layouts.layer_tables import Attained
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.room import room_of
from rackmodel.model.schedules import FOLDED, SPLIT, TABLE
from rackmodel.model.workload import Section
from rackmodel.watch import Watch

REFINED = (Case.fitting, Case.in_time)
TOGETHER = 0.005  # columns that far from the least are refined with it
TO_ENOUGH = (0.25, 0.5, 0.75, 1.0)  # of the way from the bound to what is enough, one after another: the nearer, the less is left open
LOOKED_AT = 6  # columns of the least bounds, and homes and policies on them, whose choices are handed on
DEARER = (1.0, 1.5, 4.0)  # prices of memory over the best one, for choices that fit where those of the best one do not
LEAN = 1e6  # a step's seconds for the whole memory: what holds least

Seen = dict[frozenset[str], KnownColumns]  # variants → what is known of their columns


@dataclass(frozen=True)
class Placed:
    """A layout on its mesh: the axis over the batch, its degree and that of the free one, stages, home and policy · known: whether the
    home is that one."""

    axis: str
    data: int
    degree: int
    stages: int
    home: HomeSpec
    recompute: str
    known: bool
    attained: Attained


class LeastSteps:
    """Bounds of the columns of a space, each given as (its group, its number there). seen: what spaces
    of the same job, mapper and objective have found out of the same columns."""

    def __init__(self, job: Job, space: Mapspace, axis: str, watch: Watch, seen: Seen | None = None) -> None:
        self.job, self.space, self.axis, self.watch = job, space, axis, watch
        self.seen: Seen = {} if seen is None else seen
        batch = space.workload.batch
        self.batched = [name for name, said in space.mapper.split.items() if said == [batch]]
        self.data = self.batched[0] if self.batched else "data"
        self.static_w = second_watts(job.setting, job.pools)
        self.capacity = math.inf if space.mapper.offload else room_of(job.setting.architecture, job.profile).bytes

    @property
    def layer(self) -> Section:
        """The model's layers (of one kind, where the bounds apply)."""
        assert self.job.workload.first_layer is not None
        return self.job.workload.first_layer

    @property
    def applies(self) -> bool:
        """Whether a model is one that these bounds know: equal layers, cut evenly, one axis over the batch, kernels priced one by one."""
        mapper, inside = self.space.mapper, self.job.setting.inside
        alike = sum(section.layer for section in self.job.workload.sections) == 1
        even = self.space.even and not mapper.boundary
        plain = not looks_at_layers(inside) and not getattr(inside, "of_columns", False)
        return alike and even and plain and len(self.batched) <= 1 and bool(self.job.workload.batch)

    def knows(self, group: Group, at: int) -> bool:
        """Whether a column splits nothing but the batch beside the free axis, whose ranks lie evenly."""
        columns, parents = group.columns, group.parents[:-1]
        other = [n for n, parent in enumerate(parents) if parent not in (self.axis, self.data)]
        if any(columns.degrees[at, n] > 1 for n in other) or sum(parent == self.data for parent in parents) > 1:
            return False
        mine = self._own(group, at)
        mine.sort(key=lambda n: int(columns.strides[at, n]))
        return all(columns.strides[at, a] * columns.degrees[at, a] == columns.strides[at, b] for a, b in itertools.pairwise(mine))

    def bounds(self, asked: Sequence[tuple[Group, int]], goal: Objective) -> list[float]:
        """What no step of each of these columns is below; the least of them is looked at closest. Raises InputError, TooLarge."""
        rows = {self._row(group, at): (group, at) for group, at in asked}
        shapes = {row: self._shapes(group, at) for row, (group, at) in rows.items()}
        seen = self._known.bounds
        each = [(row, shape) for row, mine in shapes.items() for shape in mine]
        new = [one for one in each if one not in seen]
        if new:
            enough = min(seen.values(), default=math.inf)
            seen.update(zip(new, self._refined(new, goal, enough).min(axis=0).tolist(), strict=True))
        if each and min(seen[one] for one in each) > min(seen.values()):  # the least of all is not among these
            seen.update(zip(each, self._refined(each, goal, math.inf).min(axis=0).tolist(), strict=True))
        return [min((seen[row, shape] for shape in shapes[row]), default=math.inf) for row in (self._row(*one) for one in asked)]

    def attaining(self, asked: Sequence[tuple[Group, int]], goal: Objective) -> list[Attained]:
        """Choices of a layer that the bounds of the least columns are of: without a price, at the prices of memory and of the lanes under
        which those bounds are largest, and those that hold least. Distinct, in that order. Raises InputError, TooLarge."""
        self.bounds(asked, goal)
        seen = self._known.bounds
        each = {(self._row(group, at), shape) for group, at in asked for shape in self._shapes(group, at)}
        ordered = sorted(each, key=lambda one: (seen[one], one[0], one[1].times))
        best = [one for kind in (False, True) for one in [o for o in ordered if self._by_batch(o[0]) == kind][:LOOKED_AT]]
        if not best:
            return []
        cases, places = self._cases.of(best)
        values = np.stack([self._values(goal, case, case.seconds)[places] for case in cases])
        found: dict[str, Attained] = {}
        for number, column in sorted(np.argwhere(~np.isnan(values)).tolist(), key=lambda at: (values[at[0], at[1]], at))[:LOOKED_AT]:
            case, which, shapes = cases[number], places[[column]], [best[column][1]]
            seconds, at = case.at_its_best(which, shapes)
            none = replace(at, memory=0.0 * seconds, lane=0.0 * seconds)
            dear = [replace(at, memory=more * at.memory) for more in DEARER]
            for weights in (none, *dear, replace(none, memory=LEAN * seconds)):
                price = case.price(shapes, weights)
                if np.isfinite(case.tables.least(which, price)).all():
                    one = case.tables.attaining(int(which[0]), price)
                    found.setdefault(repr(one), one)
        return list(found.values())

    def closed(self, asked: Sequence[tuple[Group, int]], goal: Objective, enough: float) -> tuple[float, list[Placed]]:
        """(what no step of some columns is below, layouts of the least nodes), by branch and bound where bounds are below what is enough:
        no more than that. Of latency alone. Raises InputError, TooLarge."""
        self.bounds(asked, goal)
        seen = self._known.bounds
        each = sorted({(self._row(group, at), shape) for group, at in asked for shape in self._shapes(group, at)}, key=repr)
        least = min(seen[one] for one in each) if each else enough
        ways = [least + share * (enough - least) for share in TO_ENOUGH[:-1]] if math.isfinite(enough) and least < enough else []
        closed, spent = least, 0
        for aim in (*ways, enough):
            below = [one for one in each if seen[one] < aim]
            closed, leaves, spent = self._closed_to(below, aim, spent) if below else (aim, [], spent)
            if leaves or closed < aim:
                return closed, leaves
        return closed, []

    def _closed_to(self, below: Sequence[Run], enough: float, spent: int) -> tuple[float, list[Placed], int]:
        """The same of columns whose bounds are below what is enough, and nodes bounded in all. spent: those before."""
        cases, places = self._cases.of(below)
        made = [
            (row, case, self._column_of(case, int(number), shape))
            for case in cases
            for (row, shape), number in zip(below, places, strict=True)
            if case.seconds[number] < enough
        ]
        closing = Closing([column for *_, column in made], enough, self.watch, spent)
        closed = closing.run()
        placed = []
        for leaf in closed.leaves:
            row, case, _ = made[leaf.number]
            open_ = case.tables.open
            placed.append(Placed(self.data, row[0], row[1], row[5], open_.home or HomeSpec(), open_.recompute, case.known, leaf.attained))
        return closed.seconds, placed, closing.spent

    def _column_of(self, case: Case, number: int, shape: Shape) -> Column:
        return Column(
            tables=case.tables,
            number=number,
            shape=shape,
            ends=tuple((tables, *(float(each[number]) for each in often)) for tables, *often in case.ends),  # type: ignore[misc]
            capacity=self.capacity,
            contention=float(np.min(self.job.profile.overlap.contention)),
            known=case.known,
            hosted=bool(case.tables.host.matters[number]),
            least=float(case.seconds[number]),
        )

    def _refined(self, each: Sequence[Run], goal: Objective, enough: float) -> Array:
        """[cases, columns] of the objective at least, refined until the least of all cannot rise or is no less than what is enough."""
        cases, places = self._cases.of(each)
        seconds = np.stack([case.seconds for case in cases])
        refined = np.zeros(seconds.shape, dtype=np.int64)
        shapes = dict(zip(places.tolist(), (shape for _, shape in each), strict=True))
        while True:
            values = np.stack([self._values(goal, case, row) for case, row in zip(cases, seconds, strict=True)])[:, places]
            least = float(values.min())
            level = int(refined[:, places][values <= least].min())
            if level == len(REFINED) or least >= enough or self.watch.over():
                return values
            again = (values <= least * (1.0 + TOGETHER)) & (refined[:, places] == level)
            for number in np.flatnonzero(again.any(axis=1)):
                which = places[again[number]]
                some = [shapes[n] for n in which.tolist()]
                seconds[number, which] = REFINED[level](cases[number], which, some, seconds[number, which])
                refined[number, which] += 1

    def _values(self, goal: Objective, case: Case, seconds: Array) -> Array:
        """[columns] of the objective; infinite where nothing fits."""
        fits = seconds < np.inf
        some = np.where(fits, seconds, 0.0)
        return np.where(fits, goal.value(some, case.joules + self.static_w * some, np.zeros(1)), np.inf)

    # -- columns ------------------------------------------------------------------------------------------------------------------

    def _own(self, group: Group, at: int) -> list[int]:
        """Places, of a column, of what the free axis is made of."""
        return [n for n, parent in enumerate(group.parents[:-1]) if parent == self.axis and group.columns.degrees[at, n] > 1]

    def _row(self, group: Group, at: int) -> Row:
        """What tells columns apart: degrees and strides of both axes, micro-batches and the pipeline."""
        columns, parents = group.columns, group.parents[:-1]
        mine = self._own(group, at)
        data = [n for n, parent in enumerate(parents) if parent == self.data]
        return (
            int(columns.degrees[at, data].prod()),
            int(columns.degrees[at, mine].prod()),
            int(columns.micro_batches[at]),
            int(columns.strides[at, data[0]]) if data else 1,
            int(columns.strides[at, mine].min(initial=2**62)) if mine else 1,
            int(columns.stages[at]),
            int(columns.stage_strides[at]),
            int(columns.micro_batch[at]),
        )

    def _by_batch(self, row: Row) -> bool:
        """Whether a column is of layouts that split the batch over the free axis, too."""
        data, degree, count, *_, samples = row
        return data * degree * count * samples <= self.job.workload.sizes.get(self.job.workload.batch, 1)

    def _shapes(self, group: Group, at: int) -> list[Shape]:
        """How a column runs under each schedule; of those that hold no less and take no less than another, that one."""
        stages, m = int(group.columns.stages[at]), int(group.columns.micro_batches[at])
        sections = self.job.workload.sections
        repeats, is_layer = tuple(s.repeat for s in sections), tuple(s.layer for s in sections)
        layers, found = self.layer.repeat / stages, set[tuple[float, float, bool]]()
        for schedule, chunks in self.space.pipelines(stages):
            made = even_cut(repeats, is_layer, stages, chunks, schedule in FOLDED)
            if made is None or not TABLE[schedule].takes(stages, m):
                continue
            way = 0.0 if schedule in SPLIT or stages == 1 else self.layer.repeat * (stages - 1) / (stages * chunks)
            flying = float(in_flight(schedule, stages, chunks, np.array([m]), 0)[0]) * layers / chunks
            found.add((m * layers + way, flying, schedule in SPLIT))
        best = [one for one in found if not any(other != one and _no_more(other, one) for other in found)]
        return [Shape(times, layers, float(m), flying, split) for times, flying, split in sorted(best)]

    # -- homes and policies -------------------------------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> KnownColumns:
        """What spaces of the same homes and policies have found out of these columns."""
        return self.seen.setdefault(frozenset(map(repr, self._variants())), KnownColumns())

    @cached_property
    def _cases(self) -> Cases:
        """What makes the cases of columns."""
        return Cases(
            job=self.job,
            mapper=self.space.mapper,
            layer=self.layer,
            data=self.data,
            axis=self.axis,
            capacity=self.capacity,
            variants=self._variants(),
            known=self._known,
            watch=self.watch,
        )

    def _variants(self) -> list[tuple[HomeSpec | None, str]]:
        """Distinct (home of the weights, recompute policy); a home that is none of the data-parallel axis alone is None. Replicas lie over
        axes that split nothing on these columns."""
        found: dict[tuple[str, str], tuple[HomeSpec | None, str]] = {}
        for group in self.space.groups:
            for variant in group.variants:
                homes = list(variant.plan.homes.items()) or [("weights", HomeSpec())]
                known = len(homes) == 1 and homes[0][0] == "weights" and homes[0][1].at is None
                of_data = known and set(homes[0][1].axes) <= {self.data}
                home = homes[0][1].model_copy(update={"replicas": None}) if of_data else None
                found.setdefault((repr(home), variant.recompute), (home, variant.recompute))
        return list(found.values())


def _no_more(one: tuple[float, float, bool], other: tuple[float, float, bool]) -> bool:
    """Whether a shape's bounds are no more than another's: its passes, what it holds, and what slows it."""
    return one[0] <= other[0] and one[1] <= other[1] and one[2] >= other[2]
