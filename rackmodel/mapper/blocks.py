"""Every point of a space, in blocks: which of them fit, and what their figures are at least.

A block is points of one group, pipeline depth, schedule and chunk count. Seconds are bounded by what the devices themselves do and what
their lanes move, first for families of plans (mapper/families), then where that leaves a point worth looking at for itself; what is left
then by the longest of all paths (cost/step/bounds/bound). So most points cost no more than their memory, which is exact: which of them fit
is found out once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.bounds.cut_rows import CutRows, branch, least_of
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.memory import Known, memory_of
from rackmodel.cost.step.bounds.most import most_seconds
from rackmodel.cost.step.cut import Cut, even_cut
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.families import Families, FamilyBound, least_of_plans
from rackmodel.mapper.infeasible import Nearest, home_misses
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.mapspace import PLAIN, Group, Mapspace
from rackmodel.mapper.outlined import Outlined
from rackmodel.mapper.pipelines import Pipelines
from rackmodel.mapper.points import Point
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.profile import Host, ProfileSpec
from rackmodel.model.room import room_of
from rackmodel.model.schedules import CHUNKED, FOLDED, TABLE

Cells = tuple[Ints, Ints]  # of a shape: plans, and places among its columns
Wanted = Callable[[Array, Array, Array], Bools]
"""(seconds, joules, memory) of points, at least → whether they are worth a look."""
Value = Callable[[Array, Array, Array], Array]
"""The same → what is minimised, at least."""
CELLS = 16_384  # points of one block: an array of them fits the processor's cache
FIRST = 32  # points of a pipeline that are looked at before the others
BEST = 512  # points that are looked at together at first
MORE = 8  # times as many then, as less and less of what is wanted changes
UNDIVIDED = "layers do not divide"


def all_wanted(seconds: Array, joules: Array, memory: Array) -> Bools:
    """Every point is worth a look."""
    return np.ones(np.broadcast_shapes(seconds.shape, joules.shape, memory.shape), dtype=bool)


def overlaps_of(mapper: MapperSpec, profile: ProfileSpec) -> list[tuple[int, int]]:
    """(windows used, gathers and gradients beside compute) that the mapper allows under a profile."""
    overlap, windows = profile.overlap, profile.overlap.windowed
    sides = overlap.weights or overlap.hides_gradients
    if mapper.overlap == "profile":
        return [(int(windows), int(sides))]
    return [(a, g) for a in ((1, 0) if windows else (0,)) for g in ((1, 0) if sides else (0,))]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Points that fit and were wanted. plans, columns: [cells] of the group · seconds: [cells, overlaps], at least · joules: with static
    power · memory: exact."""

    group: int
    number: int
    cut: Cut
    schedule: str
    plans: Ints
    columns: Ints
    seconds: Array
    joules: Array
    memory: Array


@dataclass(frozen=True)
class _Open:
    """Some columns of a group as one pipeline. columns: [columns] of the group · fits: [plans, columns] which points can run · memory:
    [plans, columns] bytes on the fullest device."""

    group: int
    number: int
    cut: Cut
    schedule: str
    columns: Ints
    fits: Bools
    memory: Array


@dataclass(frozen=True, kw_only=True)
class _Shape(_Open):
    """With what is known of it. least: figures that none of its points is below · looked: [plans, columns] of which points more was found
    out."""

    least: FamilyBound
    looked: Bools


def _branches(some: Sequence[tuple[_Shape, Cells]]) -> Iterable[list[int]]:
    """Numbers of the shapes of each group whose cuts are alike in what branches, of those that have points."""
    found: dict[object, list[int]] = {}
    for number, (shape, (plans, _)) in enumerate(some):
        if len(plans):
            found.setdefault((shape.group, branch(shape.cut, shape.schedule)), []).append(number)
    return found.values()


def _where(which: Bools) -> Cells:
    """The cells of a shape that a mask [plans, columns] says."""
    plans, places = np.nonzero(which)
    return plans, places


def _some(cells: Cells, which: Bools) -> Cells:
    """Some of the cells."""
    return cells[0][which], cells[1][which]


class Blocks:
    """The blocks of a space. counts: points, and how many of them could run · infeasible: why the others cannot → points · nearest: the
    point of least memory; of all groups that a walk has seen · room: of an accelerator's memory · capacity: bytes that it may hold
    · limited: whether a limit says so · outlined: what of the groups is not priced yet. Groups may be added to the lists between walks."""

    def __init__(
        self, job: Job, space: Mapspace, groups: Sequence[Group], prices: list[GroupPrice], limits: Limits, static_w: float
    ) -> None:
        self.job, self.space, self.groups, self.prices, self.limits, self.static_w = job, space, groups, prices, limits, static_w
        self.outlined = Outlined(job, groups, prices)
        self.room = room_of(job.setting.architecture, job.profile)
        self.capacity, self.limited = min(self.room.bytes, limits.memory), limits.memory < self.room.bytes
        self._home_fits: list[tuple[Bools, InfeasibleError | None]] = []
        self.overlaps = overlaps_of(space.mapper, job.profile)
        self.layers: list[Layers] = []
        self.counts = {"space": 0.0, "priced": 0.0}
        self.infeasible: dict[str, float] = {}
        self.nearest: Nearest | None = None
        self._shapes: list[_Shape] = []
        self._number = 0

    @property
    def home_fits(self) -> list[tuple[Bools, InfeasibleError | None]]:
        """Of each group, which plans' homes fit where they are, and why none does."""
        for price in self.prices[len(self._home_fits) :]:
            self._home_fits.append(home_misses(self.job.setting.architecture, price.home, len(price.sends.seconds)))
        return self._home_fits

    @property
    def passed_over(self) -> float:
        """Points that could run and of which no more was found out: the bound of their family said enough."""
        return float(sum(int((shape.fits & ~shape.looked).sum()) for shape in self._shapes)) * len(self.overlaps)

    def _choices(self, price: GroupPrice) -> StepChoices:
        """What is composed at once. The host's time of stages below the layer is in no bound: what their paths wait for is not."""
        profile = self.job.profile.model_copy(update={"host": Host()}) if price.staged else self.job.profile
        return StepChoices.of(profile, self.overlaps)

    def walk(self, wanted: Wanted = all_wanted, first: int = 0) -> Iterator[Block]:
        """Every block of the space, its points that fit and are wanted. (What is wanted may change from one block to the next.) first: the
        group to begin with."""
        return self._rounds(((shape, self._cells(shape, wanted)) for shape in self._known() if shape.group >= first), wanted)

    def walk_best_first(self, wanted: Wanted, value: Value) -> Iterator[Block]:
        """The same, those of least value first, and of each its best points before the others, which fewer may be wanted of then."""
        return self._rounds(self._best_first(wanted, value), wanted)

    def _best_first(self, wanted: Wanted, value: Value) -> Iterator[tuple[_Shape, Cells]]:
        """A few points of every shape, which tell what is worth a look, then the others."""
        known, later = [(value(*shape.least.figures), shape) for shape in self._known()], list[tuple[_Shape, Bools]]()
        known.sort(key=lambda pair: float(pair[0].min()))
        for values, shape in known:
            plans, places = self._cells(shape, wanted)
            if len(plans) > 2 * FIRST:
                best, rest = np.argpartition(values[shape.least.of[plans], places], FIRST)[:FIRST], np.zeros_like(shape.fits)
                rest[plans, places] = True
                plans, places = plans[best], places[best]
                rest[plans, places] = False
                later.append((shape, rest))
            yield shape, (plans, places)
        for shape, rest in later:
            yield shape, self._cells(shape, wanted, rest)

    def _rounds(self, listed: Iterator[tuple[_Shape, Cells]], wanted: Wanted) -> Iterator[Block]:
        """The blocks of points as they are listed: a few at first, then more and more together, as less of what is wanted changes."""
        together, some, most = 0, list[tuple[_Shape, Cells]](), BEST
        for shape, cells in listed:
            if len(cells[0]):
                together += len(cells[0])
                some.append((shape, cells))
            if together >= most:
                yield from self._blocks(some, wanted)
                together, some, most = 0, [], max(most, min(MORE * most, CELLS // len(self.overlaps)))
        yield from self._blocks(some, wanted)

    def _cells(self, shape: _Shape, wanted: Wanted, among: Bools | None = None) -> tuple[Ints, Ints]:
        """(plans, places of columns) of a shape's points that fit and are wanted. among: [plans, columns] which to look at."""
        worth = wanted(*shape.least.figures)
        here = worth[shape.least.of] & shape.fits if worth.any() else np.zeros_like(shape.fits)
        return _where(here if among is None else here & among)

    def _known(self) -> list[_Shape]:
        """The shapes of every group so far."""
        for group in range(len(self.layers), len(self.prices)):
            self.layers.append(Layers.of(self.prices[group].sections, self._choices(self.prices[group])))
            self._shapes += self._bounded(group)
        return self._shapes

    def cuttable(self, group: Group) -> Group:
        """A group, to be priced, without the columns whose pipelines have more stages than the layers divide into under any schedule:
        their points are counted."""
        if not self.space.even or group.variants[0].plan.stage_count > 1:
            return group
        sections, stages = self.job.workload.sections, group.columns.stages
        repeats, layers = (tuple(getattr(one, name) for one in sections) for name in ("repeat", "layer"))
        kept = np.ones(len(stages), dtype=bool)
        for depth in sorted(set(stages.tolist())):
            schedules, here = self._schedules(depth, staged=False), stages == depth
            if not any(even_cut(repeats, layers, depth, chunks, schedule in FOLDED) for schedule, chunks in schedules):
                kept &= ~here
                points = float(len(group.variants) * int(here.sum()) * len(self.overlaps) * len(schedules))
                self.counts["space"] += points
                self._miss(UNDIVIDED, points)
        return group if kept.all() else replace(group, columns=group.columns.pick(np.flatnonzero(kept)))

    # -- what is priced --------------------------------------------------------------------------------------------------------

    def reach(self, value: Value, most: int) -> float:
        """The value up to which about so many families on columns lie, of which some plan waits; inf where there are no more."""
        found: dict[int, Array] = {}
        for shape, values in self._waiting(value):
            columns = len(self.prices[shape.group].columns)
            least = found.setdefault(shape.group, np.full((len(shape.least.seconds), columns), np.inf))
            least[:, shape.columns] = np.minimum(least[:, shape.columns], least_of_plans(shape.least.of, values))
        every = np.concatenate([values[values < np.inf] for values in found.values()]) if found else np.zeros(0)
        return float(np.partition(every, most)[most]) if len(every) > most else math.inf

    def price_below(self, value: Value, most: float, few: int) -> float:
        """Price every cell that fits somewhere and is there below a value, by its family's bound and, where not too many are to be looked
        at one by one, by its own outline. Returns that value: `most`, or the one below which so few points are."""
        some = [(shape, _where(values < most)) for shape, values in self._waiting(value)]
        if sum(len(plans) for _, (plans, _) in some) > CELLS:
            self._find(self.outlined.price, some)
            return most
        self._find(self.outlined.move, some)
        own = [value(*figures) for figures in self._own(some)]
        every = np.concatenate(own) if own else np.zeros(0)
        below = min(most, float(np.partition(every, few)[few])) if len(every) > few else most
        self._find(self.outlined.price, [(shape, _some(cells, here < below)) for (shape, cells), here in zip(some, own, strict=True)])
        return below

    def _waiting(self, value: Value) -> Iterator[tuple[_Shape, Array]]:
        """The shapes of which something waits, and [plans, columns] what it is worth at least: inf where it is priced or does not fit."""
        for shape in self._known():
            waiting = self.outlined.waiting.get(shape.group)
            if waiting is None:
                continue
            here = waiting[:, shape.columns] & shape.fits
            if here.any():
                yield shape, np.where(here, value(*shape.least.figures)[shape.least.of], np.inf)

    def _find(self, of: Callable[[int, Bools], bool], some: Sequence[tuple[_Shape, Cells]]) -> None:
        """Find out more of the cells of some shapes. of: of those of a group, whether there was any more."""
        asked = {group: np.zeros_like(waiting) for group, waiting in self.outlined.waiting.items()}
        for shape, (plans, places) in some:
            if shape.group in asked:
                asked[shape.group][plans, shape.columns[places]] = True
        for group, cells in asked.items():
            if of(group, cells):
                self.layers[group] = Layers.of(self.prices[group].sections, self.layers[group].choices)

    def _pieces(self, stages: Ints, rows: int) -> Iterator[tuple[int, Ints]]:
        """Columns of equal pipeline depth, in pieces whose arrays of so many rows stay in the processor's cache."""
        wide = max(1, CELLS // rows)
        for depth in sorted(set(stages.tolist())):
            columns = np.flatnonzero(stages == depth)
            for first in range(0, len(columns), wide):
                yield depth, columns[first : first + wide]

    def _schedules(self, stages: int, *, staged: bool) -> list[tuple[str, int]]:
        """(schedule, chunks) of a pipeline depth; one for no pipeline. staged: of a cut below the layer."""
        if staged:
            return [(schedule, 1) for schedule in self.space.schedules if schedule not in CHUNKED | FOLDED] or [(PLAIN, 1)]
        return self.space.pipelines(stages)

    # -- which fit -----------------------------------------------------------------------------------------------------------

    def _bounded(self, group: int) -> Iterator[_Shape]:
        """All columns of a group as every pipeline that they can be cut into, with what no plan is below. Counts all points."""
        price, plans = self.prices[group], len(self.groups[group].variants)
        families, (apart, of) = Families(self.groups[group].variants, price), np.unique(price.first, return_inverse=True)
        sections, whole = [one.like(apart) for one in price.sections], Layers.of(families.sections, self.layers[group].choices)
        choices = whole.choices.fastest(moving=bool(whole.has))
        for stages, columns in self._pieces(price.columns.stages, max(len(families) * len(choices.windows), len(apart))):
            holdings, known = [one.holding((slice(None), columns)) for one in sections], Known()
            layers = Layers([one.columns(columns) for one in families.sections], choices, whole.has)
            sends = families.sends.columns(columns)
            listed: list[_Open] = []
            for schedule, chunks in self._schedules(stages, staged=price.staged):
                made, points = price.cut(stages, chunks, schedule=schedule), plans * len(columns) * len(self.overlaps)
                self.counts["space"] += 0 if self.groups[group].found else points
                if made is None:
                    self._miss(UNDIVIDED, points)
                    continue
                self._number += 1
                memory, host = (held[of] for held in memory_of(holdings, made, schedule, price.columns.micro_batches[columns], known))
                fits = self._fits(group, made, schedule, columns, (memory, host))
                if fits.any():
                    listed.append(_Open(group, self._number, made, schedule, columns, fits, memory))
            alike: dict[object, list[_Open]] = {}
            for one in listed:
                alike.setdefault(branch(one.cut, one.schedule), []).append(one)
            steps = partial(Pipelines, layers=layers, sends=sends, micro_batches=price.columns.micro_batches[columns], apart=price.staged)
            for own in alike.values():
                yield from self._least(own, families.of, steps)

    def _least(self, listed: Sequence[_Open], of: Ints, steps: Callable[..., Pipelines]) -> Iterator[_Shape]:
        """With what none of their points is below. Devices' own work is the same under all schedules of a cut that branch alike. of: the
        family of each plan · steps: of families, but for their cuts."""
        cuts = {one.cut: one for one in listed}
        parts = [(cut, one.schedule, least_of(cut, self._micro_batches(one))) for cut, one in cuts.items()]
        rows = {cut: row for row, cut in enumerate(cuts)}
        memory = [(rows[one.cut], one.memory) for one in listed]
        bounds = FamilyBound.each(of, steps(rows=CutRows.of(parts, beside=3)), memory, self.static_w)
        for one, least in zip(listed, bounds, strict=True):
            yield _Shape(**vars(one), least=least, looked=np.zeros_like(one.fits))

    def _micro_batches(self, shape: _Open) -> Ints:
        return np.asarray(self.prices[shape.group].columns.micro_batches[shape.columns])

    def _fits(self, group: int, made: Cut, schedule: str, columns: Ints, held: tuple[Array, Array]) -> Bools:
        """[plans, columns] whether points can run, and are no other's step; the others are counted by what they miss. held: bytes on the
        fullest device, and at the host."""
        price, overlaps, (memory, host) = self.prices[group], len(self.overlaps), held
        counts = price.columns.micro_batches[columns]
        is_open = np.asarray(TABLE[schedule].takes(made.stages, counts), dtype=bool)
        why = "no multiple of the stages" if schedule in CHUNKED else "fewer than the schedule takes"
        runs = is_open & self.home_fits[group][0][:, None]
        self._near((memory, np.broadcast_to(host, memory.shape)), runs, (group, made, schedule, columns))
        self._miss(f"micro-batches are {why}", float((~is_open).sum()) * len(memory) * overlaps)
        fits = (memory <= self.capacity) & (host <= price.host_bytes) & self.home_fits[group][0][:, None]
        self._miss("memory", float((~fits & is_open).sum()) * overlaps)
        self.counts["priced"] += float(is_open.sum()) * len(memory) * overlaps
        return np.asarray(fits & is_open & (price.first == np.arange(len(memory)))[:, None])

    def _near(self, held: tuple[Array, Array], runs: Bools, where: tuple[int, Cut, str, Ints]) -> None:
        """Remember the point that lacks least: of those that may run and whose host has room, the one that needs least memory; where no
        host has, the one that keeps least there. held: as `_fits` has it · runs: [plans, columns] · where: group, cut, schedule,
        columns."""
        (memory, host), (group, made, schedule, columns) = held, where
        have = self.prices[group].host_bytes
        kept, over = runs & (host <= have), False
        if not kept.any():
            fits = runs & (memory <= self.capacity)
            kept, over = fits if fits.any() else runs, True
        if not kept.any():
            return
        plan, column = (int(i) for i in np.unravel_index(int(np.argmin(np.where(kept, host if over else memory, np.inf))), memory.shape))
        point = self._point((group, plan, int(columns[column]), 0, 0), made, schedule)
        found = Nearest(float(memory[plan, column]), point, float(host[plan, column]), have)
        if self.nearest is None or found.lacks < self.nearest.lacks:
            self.nearest = found

    def _miss(self, why: str, points: float) -> None:
        if points:
            self.infeasible[why] = self.infeasible.get(why, 0.0) + points

    # -- blocks --------------------------------------------------------------------------------------------------------------

    def _blocks(self, some: Sequence[tuple[_Shape, Cells]], wanted: Wanted) -> Iterator[Block]:
        """The blocks of some points of each of some shapes. Cuts that are alike in what branches are bounded together."""
        for shape, (plans, places) in some:
            shape.looked[plans, places] = True
        left = [one for one in self._left(some, wanted) if len(one[1][0])]
        self._find(self.outlined.price, left)
        found: dict[int, Block] = {}
        for numbers in _branches(left):
            found |= zip(numbers, self._together([left[number] for number in numbers]), strict=True)
        for number in sorted(found):
            yield found[number]

    def _left(self, some: Sequence[tuple[_Shape, Cells]], wanted: Wanted) -> list[tuple[_Shape, Cells]]:
        """The points that are wanted by what their own devices and lanes do: their families were."""
        return [(shape, _some(cells, wanted(*own))) for (shape, cells), own in zip(some, self._own(some), strict=True)]

    def _own(self, some: Sequence[tuple[_Shape, Cells]]) -> list[tuple[Array, Array, Array]]:
        """Of the points of each shape what they are at least by what their own devices and lanes do: seconds, joules, memory."""
        found = [(np.zeros(0),) * 3] * len(some)
        for numbers in _branches(some):
            steps, own = self._steps([some[number] for number in numbers])
            seconds = steps.quick().min(axis=-1)
            joules = steps.joules() + self.static_w * seconds
            for number, mine in zip(numbers, own, strict=True):
                shape, cells = some[number]
                found[number] = seconds[mine], joules[mine], shape.memory[cells]
        return found

    def _steps(self, some: Sequence[tuple[_Shape, Cells]]) -> tuple[Pipelines, list[slice]]:
        """(points of one group whose cuts are of one branch, which of them each shape has)."""
        group, plans = some[0][0].group, np.concatenate([cells[0] for _, cells in some])
        price, columns = self.prices[group], np.concatenate([shape.columns[places] for shape, (_, places) in some])
        counts, ends = price.columns.micro_batches[columns], np.cumsum([len(cells[0]) for _, cells in some])
        own = [slice(end - len(cells[0]), end) for end, (_, cells) in zip(ends.tolist(), some, strict=True)]
        parts = [(shape.cut, shape.schedule, least_of(shape.cut, counts[mine])) for (shape, _), mine in zip(some, own, strict=True)]
        steps = Pipelines(
            layers=self.layers[group].cells(plans, columns),
            sends=price.sends.cells(plans, columns),
            rows=CutRows.of(parts, np.repeat(np.arange(len(some)), np.diff(ends, prepend=0))),
            micro_batches=counts,
            apart=price.staged,
        )
        return steps, own

    def _together(self, some: Sequence[tuple[_Shape, Cells]]) -> list[Block]:
        """Blocks of one group, whose cuts are of one branch."""
        steps, own = self._steps(some)
        seconds = steps.seconds()
        joules = steps.joules()[:, None] + self.static_w * seconds
        return [
            Block(
                group=shape.group,
                number=shape.number,
                cut=shape.cut,
                schedule=shape.schedule,
                plans=plans,
                columns=shape.columns[places],
                seconds=seconds[mine],
                joules=joules[mine],
                memory=np.broadcast_to(shape.memory[plans, places][:, None], seconds[mine].shape),
            )
            for (shape, (plans, places)), mine in zip(some, own, strict=True)
        ]

    def most_seconds(self, block: Block) -> Array:
        """[cells, overlaps] seconds of a block's points at most; inf of stages below the layer, of which nothing is known."""
        price = self.prices[block.group]
        if price.staged:
            return np.full(block.seconds.shape, np.inf)
        layers, sends = self.layers[block.group].cells(block.plans, block.columns), price.sends.cells(block.plans, block.columns)
        found = most_seconds(layers, sends, block.cut, block.schedule, price.columns.micro_batches[block.columns])
        return np.broadcast_to(found, block.seconds.shape)

    # -- a point -------------------------------------------------------------------------------------------------------------

    def point(self, block: Block, flat: int, bound: float) -> Point:
        """The point at a place of a block's flat arrays."""
        cell, overlap = divmod(flat, len(self.overlaps))
        order = (block.group, int(block.plans[cell]), int(block.columns[cell]), block.number, overlap)
        figures = (float(values[cell, overlap]) for values in (block.seconds, block.joules, block.memory))
        return self._point(order, block.cut, block.schedule, (bound, *figures))

    def _point(
        self, order: tuple[int, int, int, int, int], made: Cut, schedule: str, figures: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
    ) -> Point:
        """A point. figures: bound, seconds, joules and memory; zeros where they are not known."""
        (group, plan, column, _, overlap), (bound, seconds, joules, memory) = order, figures
        return Point(
            group=group,
            variant=plan,
            column=column,
            overlap=self.overlaps[overlap],
            schedule=schedule,
            stages=made.stages,
            chunks=made.chunks,
            bound=bound,
            seconds=seconds,
            joules=joules,
            memory=memory,
            order=order,
        )
