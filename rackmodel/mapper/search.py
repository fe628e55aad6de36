"""The search: every point of the mapspace bounded in arrays, points run by the clock in the order of their bounds.

A point is (layout, recompute, homes, offload) x (mesh, placement, micro-batch) x (overlap on or off) x (schedule, chunks).
Layers are priced once for each plan and column; composing them is arithmetic on arrays (blocks). Those arrays hold a lower bound of
a step's time; points are then timed exactly in the order of the bound until none left can be better. So the answer is the optimum
of the declared space, with proof; where a time limit ends the search before that, the best found with what is known of the rest.
Layouts that are free are found first (mapper/layouts), each with its own bound.
Ties: the objective's second figure, then the order of the file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.cycles import rarely_looked_for
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.blocks import Block, Blocks
from rackmodel.mapper.free_layouts import FreeLayouts
from rackmodel.mapper.fronts import first_hopes, grown, pareto
from rackmodel.mapper.infeasible import no_point, out_of_time, over_cuts, over_host, over_latency, over_limits, over_memory, unknown
from rackmodel.mapper.layouts.solve import KnownTables, LayoutQuestion
from rackmodel.mapper.least_power import steps_by_least_power
from rackmodel.mapper.limits import NO_LIMITS, PRODUCTS, Limits, check_open_cut
from rackmodel.mapper.mapspace import PLAIN, Group, Mapspace
from rackmodel.mapper.nests.without_nests import priced
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.outlined import may_wait
from rackmodel.mapper.points import KEPT as RUNS_KEPT
from rackmodel.mapper.points import Clocked, Point, Took, held_by
from rackmodel.mapper.twins import Twins, What
from rackmodel.model.certificate import Certificate, bound_and_gap
from rackmodel.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from rackmodel.mapper.stages.free_cut import CutSearch

KEPT = 64  # points that are kept for the clock before the space is looked at again
BATCH = 16  # points timed together
PAIR = 2  # that take about as long as one
FIRST_CELLS = 512  # families on columns whose lanes are outlined first, of a space that is outlined
FEWER = 4  # times as few points, the best of these by their own outlines, are priced then (chosen by timing: it decides speed alone)
POWER = "power"
NO_NEST = "no loop nest"
PRUNED = ("layouts covered by the solver", "bounded with others", "timed", "cut")  # what a certificate says of how few points were run


@dataclass(kw_only=True)
class Found:
    """What a search found. points: best first, exact · clocked: what timed them · front: of the figures asked for · complete: whether no
    point of it is missing."""

    points: list[Point]
    groups: tuple[Group, ...]
    prices: list[GroupPrice]
    clocked: Clocked
    certificate: Certificate
    front: list[Point] = field(default_factory=list)
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked. limits: what no step may exceed · front: figures of a Pareto front · least: bound of the objective over what the
    file opens beside the points listed · below: points that are not below it are not asked for · watch: time limit and progress · known:
    tables of its layout problems, kept for a search of the same space on another capacity of memory."""

    goal: Objective
    top: int = 1
    limits: Limits = NO_LIMITS
    front: Sequence[Objective] = ()
    least: float = math.inf
    below: float = math.inf
    watch: Watch = UNWATCHED
    known: KnownTables | None = None


@rarely_looked_for()
def search_space(job: Job, space: Mapspace, question: Question) -> Found:
    """The best points of a space. Raises InfeasibleError, InputError."""
    started = time.perf_counter()
    search = _Search(job, space, question)
    points = search.best_of_all()
    front, complete = search.pareto(question.front) if question.front else ([], True)
    return Found(
        points=points,
        groups=tuple(search.groups),
        prices=search.prices,
        clocked=search.clocked,
        certificate=search.certificate(points[0], time.perf_counter() - started),
        front=front,
        complete=complete,
    )


class _Search:
    def __init__(self, job: Job, space: Mapspace, question: Question, *, explain: bool = True) -> None:
        self.job, self.space, self.question, self.explain = job, space, question, explain
        self.static_w = second_watts(job.setting, job.pools)
        self.goal, self.limits, self.watch = question.goal, replace(question.limits, static_w=self.static_w), question.watch
        self.counts = {"timed": 0.0}
        self.bound, self.worst = question.least, math.inf  # worst: of the points kept, the last one's bound
        self.least_power = math.inf  # of the steps that were run
        several = bool(question.front) or question.top > 1 or any(name in PRODUCTS for name in self.limits.most)
        limits = self.limits if explain else self.limits.without(POWER)  # who asks for the least power wants layouts of any
        asked = LayoutQuestion(self.goal, space.mapper.solver, limits, several, self.watch, question.known)
        self.free = FreeLayouts(job, space.problems, asked)
        self.groups: list[Group] = []
        self.prices: list[GroupPrice] = []
        self.blocks = Blocks(job, space, self.groups, self.prices, self.limits, self.static_w)
        groups = [cut for group in space.groups if len((cut := self.blocks.cuttable(group)).columns)]
        self.without_nest = 0  # points
        self.no_nest: InfeasibleError | None = None  # of the first of them
        waits = may_wait(job, space, groups) and not question.front
        if waits:
            self._outline(groups)
        self._add((*(() if waits else groups), *self.free.solved()))
        self.bound = min(self.bound, self.free.bound)
        self.short_of: Point | None = None  # of dealt cuts that do not fit, the one that needs least
        self.unsure = question.least < math.inf or self.free.unsure  # whether layouts that were not looked at may be better
        self.clocked = Clocked(job, self.groups, self.prices, self.static_w, RUNS_KEPT if question.front else 0)
        self.twins = Twins(self.groups, self.prices)
        self.took: dict[What, Took] = {}  # of mappings that were run
        self.overlaps = self.blocks.overlaps
        if self.groups and not any(fits.any() for fits, _ in self.blocks.home_fits):
            raise next(problem for _, problem in self.blocks.home_fits if problem is not None)

    def _outline(self, groups: Sequence[Group]) -> None:
        """Outline groups, to be priced where that is worth it."""
        for _, some in groupby(groups, lambda group: group.pattern):
            alike = list(some)
            self.watch.say(f"outlining group {len(self.groups) + 1} of {len(groups)}")
            self.groups += alike
            self.blocks.outlined.add(alike)

    def _add(self, groups: Sequence[Group]) -> None:
        """Price groups, as far as there is time."""
        for number, group in enumerate(groups, start=1):
            if self.prices and self.watch.over():
                self.bound = 0.0
                break
            self.watch.say(f"pricing group {number} of {len(groups)}")
            parts, out, why = priced(self.job, group)
            self.groups += [part for part, _ in parts]
            self.prices += [price for _, price in parts]
            self.without_nest, self.no_nest = self.without_nest + out, self.no_nest or why
        if self.no_nest is not None and not self.groups:
            raise self.no_nest

    @property
    def points(self) -> float:
        """Points of the space."""
        return self.blocks.counts["space"] + self.free.size + self.counts.get("open cuts", 0.0)

    def certificate(self, first: Point, seconds: float) -> Certificate:
        """How good the best point is."""
        best = self.value(first)
        bound, gap = bound_and_gap(best, self.bound)
        counts = self.counts | {"layouts covered by the solver": self.free.size, "bounded with others": self.blocks.passed_over}
        notes = [self.space.note] if self.space.note else []
        if self.watch.stopped:
            notes.append(f"stopped by the time limit of {self.watch.seconds:g} s")
        said = self.job.setting.algorithms
        if "ring" not in said:
            notes.append(f"a ring stands in where {' or '.join(said)} cannot do a collective")
        if self.job.profile.name == "ideal":
            notes.append("optimal under ideal assumptions: no launch cost, no contention, peak rates")
        return Certificate(
            solver=", ".join(dict.fromkeys(group.solver for group in self.groups if group.solver)) or "enumerate",
            minimize=self.goal.name,
            space=self.points,
            evaluated=int(self.blocks.counts["priced"]),
            objective=best,
            bound=bound,
            gap=gap,
            pruned={name: counts[name] for name in PRUNED if counts.get(name)},
            infeasible={**self.space.skipped, **self.blocks.infeasible, **({NO_NEST: float(n)} if (n := self.without_nest) else {})},
            seconds=seconds,
            profile=self.job.profile.name,
            note="; ".join(notes),
        )

    # -- figures of a point ------------------------------------------------------------------------------------------------

    def value(self, point: Point) -> float:
        """What is minimised."""
        return point.value(self.goal)

    def _rank(self, point: Point) -> tuple[object, ...]:
        tie = float(self.goal.tie(point.seconds, point.joules))
        return (float(f"{self.value(point):.11e}"), float(f"{tie:.11e}"), point.order)

    def timed(self, points: Sequence[Point]) -> list[Point]:
        """The points exactly; those that a limit refuses left out."""
        self.counts["timed"] += len(points)
        kept = []
        for point in self._exact(points):
            broken = self.limits.broken(point)
            if not broken and self.value(point) < self.question.below:
                kept.append(point)
            if broken in ([], [POWER]):
                self.least_power = min(self.least_power, point.power_w)
        return kept

    def _exact(self, points: Sequence[Point]) -> list[Point]:
        """The points by the clock: those that are one mapping take as long, and one of them is run."""
        mappings = [self.twins.mapping(point) for point in points]
        first: dict[What, Point] = {}
        for mapping, point in zip(mappings, points, strict=True):
            if mapping not in self.took:
                first.setdefault(mapping, point)
        self.took |= dict(zip(first, self.clocked.took(list(first.values())), strict=True))
        return [self.clocked.lasting(point, self.took[mapping]) for mapping, point in zip(mappings, points, strict=True)]

    # -- the best ----------------------------------------------------------------------------------------------------------

    def best_of_all(self) -> list[Point]:
        """The best even cuts, and where the mapper opens the cut or each layer's policy the best of those as well."""
        mapper, top = self.space.mapper, self.question.top
        if self.space.even:
            return self.best(top)
        check_open_cut(mapper, self.goal, self.limits)
        try:
            found = self.best(top)
        except InfeasibleError as problem:
            found, short = [], problem
        found, cuts = self._opened(found, top, mapper.recompute == "per layer")
        if not found:
            raise self._no_cut(cuts, short)
        return found

    def best(self, top: int) -> list[Point]:
        """The `top` best points, exact. Raises InfeasibleError where nothing fits."""
        found = self._of_free_layouts(self._best_priced(top), top)
        if not found:
            raise self._infeasible()
        return found

    def _best_priced(self, top: int) -> list[Point]:
        """The `top` best points of the groups, exact; none where nothing fits."""
        keep, cells, run, exact, below = KEPT + top, FIRST_CELLS, set[tuple[int, ...]](), list[Point](), self.question.below
        while True:
            least = self.value(exact[top - 1]) * (1 + 1e-12) if len(exact) >= top else below
            reach = self.blocks.reach(self._step_at_least, cells)
            reach = min(reach, self.blocks.price_below(self._step_at_least, min(least, reach), cells // FEWER))
            points, cutoff = self._candidates(keep, least, reach)
            if not points and not exact and cutoff >= below:
                return []
            self.clocked.goes_on(self.blocks.outlined.layers)
            points = [point for point in points if point.order not in run]
            points = [point for point in points if point.bound <= cutoff] or points[:top]  # what is not known yet may beat others
            run |= {point.order for point in points}
            exact, rest = self._run(self.twins.without(points) if top > 1 else points, exact, top)
            proven = len(exact) >= top and self.value(exact[top - 1]) <= cutoff
            if proven or cutoff >= below or self.watch.over():
                if self.watch.stopped:
                    self.bound = min(self.bound, rest, cutoff)
                return exact[:top]
            keep, cells = keep * 16, cells * 16

    def _of_free_layouts(self, exact: list[Point], top: int) -> list[Point]:
        """The best with those of layouts that were listed and may be better."""
        while self.free.may_go_on and (numbers := self.free.first(partial(self._hope, exact=exact, top=top))).size:
            first = len(self.groups)
            self._add(self.free.groups(numbers))
            points = [point for block in self.blocks.walk(first=first) for point in self._points_of(block, exact, top)]
            exact = sorted([*exact, *self.timed(points)], key=self._rank)[:top]
            self.watch.say(f"{self.free.priced} layouts priced", self.value(exact[0]) if exact else None)
        least = float(self._hope(self.free.values[:, self.free.left], exact, top).min(initial=math.inf))
        self.bound, self.unsure = min(self.bound, least), self.unsure or least < math.inf
        return exact

    def _points_of(self, block: Block, exact: list[Point], top: int) -> list[Point]:
        """The points of a block that may be among the `top` best."""
        least = (*self.limits.least(block.seconds, block.joules), block.memory)
        values = self._kept(block, self._hope(least, exact, top)).reshape(-1)
        return [self.blocks.point(block, int(flat), float(values[flat])) for flat in np.flatnonzero(values < np.inf)]

    def _hope(self, least: Array | Sequence[Array], exact: list[Point], top: int) -> Array:
        """What is minimised, at least; inf where that, and of equals what settles ties, cannot be among the `top` best."""
        values = self._at_least(*least)
        if len(exact) < top:
            return values
        last, (seconds, joules, _) = exact[top - 1], least
        worst, tie = self.value(last), float(self.goal.tie(last.seconds, last.joules))
        sooner = (values <= worst * (1 + 1e-12)) & (self.goal.tie(seconds, joules) < tie * (1 - 1e-11))
        return np.where((values < worst * (1 - 1e-11)) | sooner, values, np.inf)

    def _run(self, points: Sequence[Point], exact: list[Point], top: int) -> tuple[list[Point], float]:
        """(exact points with those known, best first, until those left cannot be better; the least bound of those that were not run)."""
        size = max(PAIR, min(top, BATCH))
        self.clocked.expect(points)
        for first, last in _batches(len(points), size, 16 * BATCH):
            batch = points[first:last]
            if exact and self.watch.over():
                return exact, batch[0].bound
            if len(exact) >= top:
                worst = self.value(exact[top - 1]) * (1 + 1e-12)
                batch = [point for point in batch if point.bound <= worst]
                if not batch:
                    break
            exact = sorted([*exact, *self.timed(batch)], key=self._rank)
            best = self.value(exact[0]) if exact else None
            self.watch.say(f"{int(self.counts['timed'])} steps run", best, min(batch[-1].bound, self.bound))
        return exact, math.inf

    def least_power_of_all(self) -> float | None:
        """The least power of the steps that keep the limits; None where none does."""
        for some in steps_by_least_power(self.blocks, self.static_w, self._step_at_least, lambda: self.least_power):
            self.clocked.expect(some)
            self.timed(some)
            self.watch.say(f"{int(self.counts['timed'])} steps run")
            if self.watch.over():
                break
        else:
            self._of_free_layouts([], 1)
        return self.least_power if self.least_power < math.inf else None

    def _candidates(self, keep: int, most: float, reach: float) -> tuple[list[Point], float]:
        """The points of least bound, below `most`, in order, and the least bound that was not kept. reach: of families looked at."""
        points: list[Point] = []
        cutoff, self.worst = reach, most
        for block in self.blocks.walk_best_first(lambda *least: self._step_at_least(*least) < min(self.worst, reach), self._step_at_least):
            if points and self.watch.over():
                cutoff = 0.0  # blocks that were not looked at
                break
            values = self._kept(block, self._step_at_least(block.seconds, block.joules, block.memory)).reshape(-1)
            good = np.flatnonzero(values < self.worst)
            if len(good) > keep:
                good = good[np.argsort(values[good], kind="stable")]
                cutoff = min(cutoff, float(values[good[keep]]))
                good = good[:keep]
            points += [self.blocks.point(block, int(flat), float(values[flat])) for flat in good]
            if len(points) > keep:
                points.sort(key=lambda point: (point.bound, point.order))
                cutoff = min(cutoff, points[keep].bound)
                points = points[:keep]
                self.worst = min(self.worst, points[-1].bound * (1 + 1e-12))
            self.watch.say(f"{int(self.blocks.counts['space'])} mappings bounded")
        points.sort(key=lambda point: (point.bound, point.order))
        return points, min(cutoff, self.worst)

    def _at_least(self, seconds: Array, joules: Array, memory: Array) -> Array:
        """What is minimised, at least, of points that are at least so long and take at least so many joules; inf beyond the limits."""
        return np.where(self.limits.open(seconds, joules), self.goal.value(seconds, joules, memory), np.inf)

    def _step_at_least(self, seconds: Array, joules: Array, memory: Array) -> Array:
        """The same of steps, whose joules are those of their tasks with static power for the seconds."""
        return self._at_least(*self.limits.least(seconds, joules), memory)

    def _kept(self, block: Block, values: Array) -> Array:
        """The same of a block's points, but inf of those that are never so long that their joules keep a limit of power."""
        if POWER not in self.limits.most:
            return values
        long = self.limits.long_enough(block.seconds, block.joules, self.blocks.most_seconds(block))
        return np.where(long, values, np.inf)

    # -- open cuts -----------------------------------------------------------------------------------------------------------

    def _opened(self, found: list[Point], top: int, per_layer: bool) -> tuple[list[Point], CutSearch]:
        """(the best with those of every column whose cut and mixes could be better, the search for these)."""
        from rackmodel.mapper.stages import dealt_cuts, free_cut  # of open cuts alone, and slow to load
        from rackmodel.mapper.stages.best_cuts import OpenCuts

        others = dealt_cuts.apart(self.space.schedules, self.space.interleave)
        schedules = [s for s in self.space.schedules if s in free_cut.BOUNDED] or ([] if others else [PLAIN])
        asked = free_cut.Asked(schedules, self.overlaps, self.job.profile, per_layer)
        listed = [
            one
            for one in free_cut.candidates(self.groups, self.prices, asked)
            if all(self.blocks.home_fits[one.group][0][plan] for plan in one.plans)
        ]
        every = OpenCuts(
            job=self.job, groups=self.groups, prices=self.prices, capacity=self.blocks.capacity, limits=self.limits, watch=self.watch
        )
        best, cuts = every.search(listed, found, top, self._rank)
        self.counts["open cuts"] = float(len(listed))
        self.counts["cut"] = self.counts.get("cut", 0.0) + cuts.opened
        self.counts["timed"] += len(best.seen)
        self.bound = min(self.bound, cuts.bound)
        if not others:
            return best.points, cuts
        homes = [fits for fits, _ in self.blocks.home_fits]
        tried = dealt_cuts.Asked(
            kinds=others,
            overlaps=self.overlaps,
            home_fits=homes,
            capacity=self.blocks.capacity,
            most_s=min(best.worst, self.limits.latency),
        )
        dealt = dealt_cuts.DealtCuts(self.job, self.groups, self.prices, self.static_w, tried)
        found, left = self._run(dealt.points(), best.points, top)
        self.short_of, self.counts["open cuts"] = dealt.nearest, self.counts["open cuts"] + dealt.listed
        self.bound = min(self.bound, dealt.least_s, left)
        return found[:top], cuts

    # -- the front -----------------------------------------------------------------------------------------------------------

    def pareto(self, figures: Sequence[Objective]) -> tuple[list[Point], bool]:
        """(points that no other beats or equals in every one of `figures`, by ascending first figure; whether none is missing)."""

        def timed(points: Sequence[Point]) -> list[Point]:
            self.clocked.expect(points)
            return self.timed(points)

        found, complete = pareto(self.blocks, figures, timed, self.watch)
        while complete and self.free.may_go_on and (numbers := first_hopes(self.free, self.limits, found, figures)).size:
            first = len(self.groups)
            self._add(self.free.groups(numbers))
            found = grown(self.blocks, figures, timed, found, first)
            self.watch.say(f"front: {len(found)} points, {int(self.free.left.sum())} layouts left")
        whole = self.space.even and self.question.least == math.inf and not self.free.unsure
        return found, complete and whole and not first_hopes(self.free, self.limits, found, figures).size

    # -- nothing fits --------------------------------------------------------------------------------------------------------

    def _infeasible(self) -> InfeasibleError:
        if not self.explain:
            return unknown("nothing keeps the limits")
        problem = next((problem for _, problem in self.blocks.home_fits if problem is not None), None)
        nearest = self.blocks.nearest
        if self.watch.stopped:
            return out_of_time(self.watch)
        if nearest is None:
            return problem or no_point(self.blocks.infeasible)
        if self.question.below < math.inf:
            return unknown(f"nothing is below {self.question.below:g}")
        if nearest.need > self.blocks.capacity:
            return self._over_memory(nearest.point, nearest.need)
        if problem is not None:
            return problem
        if nearest.host > nearest.host_have:
            return over_host(nearest, host_of(self.job.setting.architecture, self.job.host).level)
        if self.unsure:
            return unknown("no step that was tried keeps the limits, and layouts that are free were not all tried")
        most, listed = self.limits.most, not self.space.problems
        problem = over_limits(self.limits, self._least, listed=listed) if most else no_point(self.blocks.infeasible)
        return out_of_time(self.watch) if self.watch.stopped else problem

    def _over_memory(self, point: Point, need: float) -> InfeasibleError:
        held = held_by(point, self.prices[point.group], self.groups[point.group])
        name = self.job.setting.architecture.accelerator.name
        return over_memory(name, need, self.blocks.room, held, limit=self.limits.memory if self.blocks.limited else None)

    def _no_cut(self, cuts: CutSearch, even: InfeasibleError) -> InfeasibleError:
        """No cut is an answer: what is in the way, of latency and memory. even: why no even cut is one."""
        if not self.explain:
            return even
        if self.watch.stopped:
            return out_of_time(self.watch)
        if "latency" in self.limits.most:
            loose = Question(goal=self.goal, limits=self.limits.without("latency"), watch=self.watch)
            return over_latency(self.limits, self.watch, lambda: _Search(self.job, self.space, loose).best_of_all()[0].seconds)
        dealt, other = self.short_of, math.inf if cuts.nearest is None else cuts.nearest[1].need
        if dealt is not None and self.blocks.capacity < dealt.memory <= min(other, even.need if even.unit == "byte" else math.inf):
            return self._over_memory(dealt, dealt.memory)
        if cuts.nearest is None or (even.unit == "byte" and even.need <= cuts.nearest[1].need):
            return even
        nearest = cuts.nearest[1]
        return over_cuts(nearest, [(self.job.setting.architecture, nearest.need)], self.job.profile, self.limits.memory)

    def _least(self, name: str, limits: Limits) -> float | None:
        """The least of a limited figure under other limits; None where nothing keeps those."""
        goal, power = self.limits.goal(name), name == POWER
        others = limits.without(POWER) if power else limits
        asked = Question(goal=goal, limits=others, below=0.0 if power else math.inf, watch=self.watch)  # (of power no point is kept)
        search = _Search(self.job, self.space, asked, explain=False)
        if not self.space.problems:  # the same groups: what one search ran another need not
            search.took = self.took
        if power:
            return search.least_power_of_all()
        try:
            found = search.best_of_all() if goal.name == "latency" else search.best(1)
        except InfeasibleError:
            return None
        return self.limits.figure(name, found[0])


def _batches(count: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of numbers: a short one, then longer ones."""
    at = 0
    while at < count:
        yield at, min(at + first, count)
        at += first
        first = min(size, first * 2)
