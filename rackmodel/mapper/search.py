"""The search: every point of the mapspace bounded in arrays, points run by the clock in the order of their bounds.

A point is (layout, recompute, homes, offload) x (mesh, placement, micro-batch) x (overlap on or off) x (schedule, chunks).
Layers are priced once for each plan and column; composing them is arithmetic on arrays. Those arrays hold a lower bound of
a step's time; points are then timed exactly in the order of the bound until none left can be better. So the answer is the optimum
of the declared space, with proof. Layouts that are free are found first (mapper/layouts), each with its own bound.
Ties: the objective's second figure, then the order of the file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.blocks import PLAIN, Blocks
from rackmodel.mapper.infeasible import no_point, over_limit, over_memory
from rackmodel.mapper.layouts.solve import solve_layouts
from rackmodel.mapper.mapspace import Group, Mapspace, Variant
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Clocked, Point, held_by
from rackmodel.mapper.stages import free_cut
from rackmodel.mapper.stages.best_cuts import BestCuts
from rackmodel.model.mapping import Certificate

Array = NDArray[np.float64]
KEPT = 64  # points that are kept for the clock before the space is looked at again
BATCH = 16  # points timed together
LIMITS = ("power", "memory", "latency", "energy")


@dataclass(kw_only=True)
class Found:
    """What a search found. points: best first, exact · front: of the figures asked for."""

    points: list[Point]
    groups: tuple[Group, ...]
    prices: list[GroupPrice]
    certificate: Certificate
    front: list[Point] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked. limits: 'power' in W, 'memory' in bytes, 'latency' in s, 'energy' in J · front: figures of a Pareto front."""

    goal: Objective
    top: int = 1
    limits: Mapping[str, float] = field(default_factory=dict)
    front: Sequence[Objective] = ()


def search_space(job: Job, space: Mapspace, question: Question) -> Found:
    """The best points of a space. Raises InfeasibleError, InputError."""
    started = time.perf_counter()
    search = _Search(job, space, question)
    points = search.best_of_all()
    pareto = search.pareto(question.front) if question.front else []
    best = search.value(points[0])
    bound = min(best, search.bound)
    gap = (best - bound) / best if best > 0 else 0.0
    proven = gap <= 1e-9
    counts = search.counts
    notes = [space.note] if space.note else []
    if job.profile.name == "ideal":
        notes.append("optimal under ideal assumptions: no launch cost, no contention, peak rates")
    certificate = Certificate(
        solver=", ".join(dict.fromkeys(group.solver for group in search.groups if group.solver)) or "enumerate",
        minimize=question.goal.name,
        space=search.points,
        evaluated=int(search.blocks.counts["priced"]),
        objective=best,
        bound=best if proven else bound,
        gap=0.0 if proven else gap,
        pruned={name: counts[name] for name in ("layouts covered by the solver", "timed", "cut") if counts.get(name)},
        infeasible={**space.skipped, **search.blocks.infeasible},
        seconds=time.perf_counter() - started,
        profile=job.profile.name,
        note="; ".join(notes),
    )
    return Found(points=points, groups=search.groups, prices=search.prices, certificate=certificate, front=pareto)


class _Search:
    def __init__(self, job: Job, space: Mapspace, question: Question) -> None:
        self.job, self.space, self.question = job, space, question
        self.goal, self.limits = question.goal, dict(question.limits)
        for name in self.limits:
            if name not in LIMITS:
                raise InputError(f"no limit called '{name}'", path="--limit", known=LIMITS, given=name)
        self.architecture = job.setting.architecture
        self.static_w = static_watts(self.architecture)
        self.counts = {"timed": 0.0}
        self.bound = self.worst = math.inf  # of the points kept, the last one's bound
        self.groups = (*space.groups, *self._solved())
        self.prices = [
            price_group(job, group.columns, [v.plan for v in group.variants], [v.offload for v in group.variants]) for group in self.groups
        ]
        self.blocks = Blocks(job, space, self.groups, self.prices, self.limits, self.static_w)
        self.clocked = Clocked(job, self.groups, self.prices, self.static_w)
        self.overlaps = self.blocks.overlaps
        if not any(fits.any() for fits, _ in self.blocks.home_fits):
            raise next(problem for _, problem in self.blocks.home_fits if problem is not None)

    def _solved(self) -> Iterator[Group]:
        """A group for every layout problem: its best plans on its mesh."""
        for problem in self.space.problems:
            solved = solve_layouts(self.job.setting, problem, self.job.profile, self.goal, self.space.mapper.solver)
            self.counts["layouts covered by the solver"] = self.counts.get("layouts covered by the solver", 0.0) + problem.size
            self.bound = min(self.bound, solved.bound)
            variants = tuple(
                Variant(layout="", recompute=problem.recompute, home=0, offload=(), plan=plan) for plan in solved.plans
            )
            yield Group(
                columns=problem.columns, parents=problem.mesh.parents, variants=variants, bound=solved.bound, solver=solved.solver
            )

    @property
    def points(self) -> float:
        """Points of the space."""
        return self.blocks.counts["space"] + sum(self.counts.get(name, 0.0) for name in ("layouts covered by the solver", "open cuts"))

    # -- figures of a point ------------------------------------------------------------------------------------------------

    def value(self, point: Point) -> float:
        """What is minimised."""
        return float(self.goal.value(point.seconds, point.joules, point.memory))

    def _rank(self, point: Point) -> tuple[object, ...]:
        tie = float(self.goal.tie(point.seconds, point.joules))
        return (float(f"{self.value(point):.11e}"), float(f"{tie:.11e}"), point.order)

    def _allowed(self, point: Point) -> bool:
        """Whether an exact point keeps the limits."""
        figures = {"power": point.power_w, "latency": point.seconds, "energy": point.joules, "memory": point.memory}
        return all(figures[name] <= most for name, most in self.limits.items())

    def _timed(self, points: Sequence[Point]) -> list[Point]:
        """The points exactly; those that a limit refuses left out."""
        self.counts["timed"] += len(points)
        return [point for point in self.clocked.exact(points) if self._allowed(point)]

    # -- the best ----------------------------------------------------------------------------------------------------------

    def best_of_all(self) -> list[Point]:
        """The best even cuts, and where the mapper opens the cut or each layer's policy the best of those as well."""
        mapper, top = self.space.mapper, self.question.top
        per_layer = mapper.recompute == "per layer"
        if mapper.cut != "free" and not per_layer:
            return self.best(top)
        if self.goal.name != "latency":
            raise InputError("an open cut is searched for latency", path="cut" if mapper.cut == "free" else "recompute")
        try:
            found = self.best(top)
        except InfeasibleError as problem:
            found, short = [], problem
        found = self._opened(found, top, per_layer)
        if not found:
            raise short
        return found

    def best(self, top: int) -> list[Point]:
        """The `top` best points, exact. Raises InfeasibleError where nothing fits."""
        keep = KEPT + top
        while True:
            points, cutoff = self._candidates(keep)
            if not points:
                raise self._infeasible()
            exact: list[Point] = []
            size = max(1, min(top, BATCH))
            for first in _batches(len(points), size, BATCH):
                batch = points[first[0] : first[1]]
                if len(exact) >= top:
                    worst = self.value(exact[top - 1]) * (1 + 1e-12)
                    batch = [point for point in batch if point.bound <= worst]
                    if not batch:
                        break
                exact = sorted([*exact, *self._timed(batch)], key=self._rank)
            proven = len(exact) >= top and self.value(exact[top - 1]) <= cutoff
            if proven or math.isinf(cutoff):
                if not exact:
                    raise self._infeasible()
                return exact[:top]
            keep *= 16

    def _candidates(self, keep: int) -> tuple[list[Point], float]:
        """The points of least bound, in order, and the least bound that was not kept."""
        points: list[Point] = []
        cutoff = self.worst = math.inf
        for block in self.blocks.walk(lambda *least: self._least(*least) < self.worst):
            values = self._least(block.seconds, block.joules, block.memory).reshape(-1)
            good = np.flatnonzero(values < self.worst)
            if len(good) > keep:
                part = good[np.argpartition(values[good], keep)]
                cutoff = min(cutoff, float(values[part[keep]]))
                good = part[:keep]
            points += [self.blocks.point(block, int(flat), float(values[flat])) for flat in good]
            if len(points) > keep:
                points.sort(key=lambda point: (point.bound, point.order))
                cutoff = min(cutoff, points[keep].bound)
                points = points[:keep]
                self.worst = min(self.worst, points[-1].bound * (1 + 1e-12))
        points.sort(key=lambda point: (point.bound, point.order))
        return points, min(cutoff, self.worst)

    def _least(self, seconds: Array, joules: Array, memory: Array) -> Array:
        """What is minimised, at least, of points that are at least so long and take at least so many joules; inf beyond the limits."""
        return np.where(self._within(seconds, joules), self.goal.value(seconds, joules, memory), np.inf)

    def _within(self, seconds: Array, joules: Array) -> NDArray[np.bool_]:
        """Whether points, at least so long and so many joules, could keep the limits on those."""
        most_s, most_j = self.limits.get("latency", math.inf), self.limits.get("energy", math.inf)
        return np.asarray((seconds <= most_s) & (joules <= most_j))

    # -- open cuts -----------------------------------------------------------------------------------------------------------

    def _opened(self, found: list[Point], top: int, per_layer: bool) -> list[Point]:
        """The best with those of every column whose cut and mixes could be better."""
        schedules = [s for s in self.space.schedules if s in free_cut.BOUNDED] or [PLAIN]
        asked = free_cut.Asked(schedules, self.overlaps, self.job.profile, per_layer)
        listed = [
            one
            for one in free_cut.candidates(self.groups, self.prices, asked)
            if all(self.blocks.home_fits[one.group][0][plan] for plan in one.plans)
        ]
        best = BestCuts(
            job=self.job,
            groups=self.groups,
            prices=self.prices,
            capacity=self.blocks.capacity,
            top=top,
            allowed=self._allowed,
            rank=self._rank,
        )
        cuts = best.search(listed, found)
        self.counts["open cuts"] = float(len(listed))
        self.counts["cut"] = self.counts.get("cut", 0.0) + cuts.opened
        self.counts["timed"] += len(best.seen)
        self.bound = min(self.bound, cuts.bound)
        return best.points

    # -- the front -----------------------------------------------------------------------------------------------------------

    def pareto(self, figures: Sequence[Objective]) -> list[Point]:
        """Points that no other point beats or equals in every one of `figures`, by ascending first figure.

        A point is left out only where an exact point is as good as its bounds: bounds never rule each other out.
        """
        kept: list[Point] = []
        for block in self.blocks.walk(lambda seconds, joules, _: self._within(seconds, joules)):
            flat = np.flatnonzero(self._within(block.seconds, block.joules).reshape(-1))
            values = np.stack([np.asarray(f.value(block.seconds, block.joules, block.memory)).reshape(-1)[flat] for f in figures])
            order = np.lexsort(values[::-1])
            for first, last in _batches(len(order), BATCH, 4 * BATCH):
                some = order[first:last]
                open_ = some[~_beaten(values[:, some], self._figures(kept, figures))]
                points = [self.blocks.point(block, int(flat[one]), float(values[0, one])) for one in open_]
                kept = _front([*kept, *self._timed(points)], figures)
        return sorted(kept, key=lambda point: (*(_figure(point, f) for f in figures), point.order))

    @staticmethod
    def _figures(points: Sequence[Point], figures: Sequence[Objective]) -> Array:
        return np.array([[_figure(point, f) for point in points] for f in figures]).reshape(len(figures), -1)

    # -- nothing fits --------------------------------------------------------------------------------------------------------

    def _infeasible(self) -> InfeasibleError:
        problem = next((problem for _, problem in self.blocks.home_fits if problem is not None), None)
        nearest, cap = self.blocks.nearest, self.blocks.capacity
        if nearest is None:
            return no_point(self.blocks.infeasible)
        if nearest.need <= cap:
            return problem or over_limit(self.limits, self.static_w, nearest)
        held = held_by(nearest.point, self.prices[nearest.point.group], self.groups[nearest.point.group])
        return over_memory(self.architecture.accelerator.name, nearest.need, cap, held)


def _batches(count: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of numbers: a short one, then longer ones."""
    at = 0
    while at < count:
        yield at, min(at + first, count)
        at += first
        first = min(size, first * 2)


def _figure(point: Point, figure: Objective) -> float:
    return float(figure.value(point.seconds, point.joules, point.memory))


def _beaten(values: Array, exact: Array) -> NDArray[np.bool_]:
    """[points] whether an exact point is as good in every figure. values: [figures, points]."""
    if not exact.size:
        return np.zeros(values.shape[1], dtype=bool)
    return np.asarray((exact[:, :, None] <= values[:, None, :]).all(axis=0).any(axis=0))


def _front(points: Sequence[Point], figures: Sequence[Objective]) -> list[Point]:
    """Points that no other beats or equals in every figure; of equals the first in the file's order."""
    ranked = sorted(points, key=lambda point: (*(_figure(point, f) for f in figures), point.order))
    kept: list[Point] = []
    best = np.zeros((len(figures), 0))
    for point in ranked:
        own = np.array([[_figure(point, f)] for f in figures])
        if not _beaten(own, best)[0]:
            kept.append(point)
            best = np.hstack([best, own])
    return kept


__all__ = ["LIMITS", "Found", "Question", "search_space"]
