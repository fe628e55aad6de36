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
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.bound import StepBound, compose
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.device_times import Layers, StepChoices
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.pipeline_orders import TABLE
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.infeasible import Nearest, home_misses, no_point, over_limit, over_memory
from rackmodel.mapper.layouts.solve import solve_layouts
from rackmodel.mapper.mapspace import Group, Mapspace, Variant
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Point, exact_points, held_by
from rackmodel.mapper.stages import free_cut
from rackmodel.model.mapping import Certificate
from rackmodel.model.profile import Host

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
KEPT = 64  # points of a block that are kept for the clock before the block is looked at again
CELLS = 16_384  # points of one block: an array of them fits the processor's cache
BATCH = 16  # points timed together
PLAIN = "1f1b"  # of one stage, and where a mapper lists schedules that need more than there is
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
        space=counts["space"],
        evaluated=int(counts["priced"]),
        objective=best,
        bound=best if proven else bound,
        gap=0.0 if proven else gap,
        pruned={name: counts[name] for name in ("layouts covered by the solver", "timed", "cut") if counts.get(name)},
        infeasible={**space.skipped, **search.infeasible},
        seconds=time.perf_counter() - started,
        profile=job.profile.name,
        note="; ".join(notes),
    )
    return Found(points=points, groups=search.groups, prices=search.prices, certificate=certificate, front=pareto)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Points of one group, pipeline depth, schedule and chunk count: [plans, columns, overlaps]."""

    group: int
    number: int
    cut: Cut
    schedule: str
    columns: Ints
    step: StepBound
    seconds: Array
    joules: Array
    memory: Array
    fits: NDArray[np.bool_]


class _Search:
    def __init__(self, job: Job, space: Mapspace, question: Question) -> None:
        self.job, self.space, self.question = job, space, question
        self.goal, self.limits = question.goal, dict(question.limits)
        for name in self.limits:
            if name not in LIMITS:
                raise InputError(f"no limit called '{name}'", path="--limit", known=LIMITS, given=name)
        self.architecture = job.setting.architecture
        self.static_w = static_watts(self.architecture)
        self.counts = {"space": 0.0, "priced": 0.0, "timed": 0.0}
        self.infeasible: dict[str, float] = {}
        memory = self.architecture.accelerator.memory
        self.capacity = memory.capacity_bytes if memory is not None and memory.enforce and memory.capacity_bytes else math.inf
        self.nearest: Nearest | None = None
        self.bound = math.inf
        self.groups = (*space.groups, *self._solved())
        self.prices = [
            price_group(job, group.columns, [v.plan for v in group.variants], [v.offload for v in group.variants]) for group in self.groups
        ]
        self.home_fits = [home_misses(self.architecture, price.home, len(price.sends.seconds)) for price in self.prices]
        if not any(fits.any() for fits, _ in self.home_fits):
            raise next(problem for _, problem in self.home_fits if problem is not None)
        self.overlaps = self._overlaps()

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

    def _overlaps(self) -> list[tuple[int, int]]:
        """(windows used, gathers and gradients beside compute) that the mapper allows under the profile."""
        overlap = self.job.profile.overlap
        windows = any(window.beside != "none" for window in overlap.windows.values())
        sides = overlap.weights or overlap.hides_gradients
        if self.space.mapper.overlap == "profile":
            return [(int(windows), int(sides))]
        return [(a, g) for a in ((1, 0) if windows else (0,)) for g in ((1, 0) if sides else (0,))]

    # -- every point -----------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Every block of the space, bounded."""
        number = 0
        for index, price in enumerate(self.prices):
            choices = self._choices(price)
            plans = len(self.groups[index].variants)
            covered = self.groups[index].bound is not None
            for stages, columns in self._pieces(price.columns.stages, plans):
                sections = [figures.columns(columns) for figures in price.sections]
                layers, sends = Layers.of(sections, choices), price.sends.columns(columns)
                counts = price.columns.micro_batches[columns]
                for schedule, chunks in self._schedules(price, int(stages)):
                    made = price.cut(int(stages), chunks)
                    points = plans * len(columns) * len(self.overlaps)
                    self.counts["space"] += 0 if covered else points
                    number += 1
                    if made is None:
                        self._miss("layers do not divide", points)
                        continue
                    step = compose(layers, sends, made, schedule, counts, choices)
                    yield self._block(index, number, made, schedule, columns, _apart(layers, step, counts) if price.staged else step)

    def _choices(self, price: GroupPrice) -> StepChoices:
        """What is composed at once. Stages below the layer do not wait for the host's time of a layer."""
        profile = self.job.profile.model_copy(update={"host": Host()}) if price.staged else self.job.profile
        windows, beside = (np.array([pair[k] for pair in self.overlaps], dtype=float) for k in (0, 1))
        return StepChoices(profile=profile, windows=windows, beside=beside)

    def _block(self, group: int, number: int, made: Cut, schedule: str, columns: Ints, step: StepBound) -> Block:
        counts = self.prices[group].columns.micro_batches[columns]
        is_open = np.ones(len(columns), dtype=bool)
        if TABLE[schedule].chunked:
            is_open = counts % made.stages == 0
            self._miss("micro-batches are no multiple of the stages", float((~is_open).sum()) * step.seconds.size / len(columns))
        seconds = step.seconds
        joules = step.joules + self.static_w * seconds
        cap = min(self.capacity, self.limits.get("memory", math.inf))
        fits = (step.memory <= cap) & (step.host <= self.prices[group].host_bytes) & self.home_fits[group][0][:, None, None]
        short = float((~fits & is_open[None, :, None]).sum()) * seconds.size / fits.size
        self._miss("memory", short)
        fits = fits & is_open[None, :, None]
        if "latency" in self.limits:
            fits = fits & (seconds <= self.limits["latency"])
        if "energy" in self.limits:
            fits = fits & (joules <= self.limits["energy"])
        self.counts["priced"] += float(is_open.sum()) * seconds.size / len(columns)
        return Block(
            group=group,
            number=number,
            cut=made,
            schedule=schedule,
            columns=columns,
            step=step,
            seconds=seconds,
            joules=np.broadcast_to(joules, seconds.shape),
            memory=np.broadcast_to(step.memory, seconds.shape),
            fits=np.broadcast_to(fits, seconds.shape),
        )

    def _pieces(self, stages: Ints, plans: int) -> Iterator[tuple[int, Ints]]:
        """Columns of equal pipeline depth, in pieces whose arrays stay in the processor's cache."""
        wide = max(1, CELLS // (plans * len(self.overlaps)))
        for depth in np.unique(stages):
            columns = np.flatnonzero(stages == depth)
            for first in range(0, len(columns), wide):
                yield int(depth), columns[first : first + wide]

    def _schedules(self, price: GroupPrice, stages: int) -> list[tuple[str, int]]:
        """(schedule, chunks) of a pipeline depth; one for no pipeline."""
        if price.staged:
            return [(schedule, 1) for schedule in self.space.schedules if not TABLE[schedule].chunked] or [(PLAIN, 1)]
        if stages == 1:
            return [(PLAIN, 1)]
        found = []
        for schedule in self.space.schedules:
            if TABLE[schedule].chunked:
                found += [(schedule, v) for v in self.space.interleave if v > 1]
            else:
                found.append((schedule, 1))
        return found or [(PLAIN, 1)]

    def _miss(self, why: str, points: float) -> None:
        if points:
            self.infeasible[why] = self.infeasible.get(why, 0.0) + points

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
        return [point for point in exact_points(self.job, points, self.groups, self.prices, self.static_w) if self._allowed(point)]

    def _point(self, block: Block, flat: int, bound: float) -> Point:
        index = np.unravel_index(flat, block.seconds.shape)
        plan, column, overlap = (int(i) for i in index)
        return Point(
            group=block.group,
            variant=plan,
            column=int(block.columns[column]),
            overlap=self.overlaps[overlap],
            schedule=block.schedule,
            stages=block.cut.stages,
            chunks=block.cut.chunks,
            bound=bound,
            seconds=float(block.seconds[index]),
            joules=float(block.joules[index]),
            memory=float(block.memory[index]),
            order=(block.group, plan, int(block.columns[column]), block.number, overlap),
        )

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
        self.counts.update(space=self.counts.get("layouts covered by the solver", 0.0), priced=0.0)
        self.infeasible.clear()
        points: list[Point] = []
        cutoff = worst = math.inf
        for block in self.blocks():
            value = np.asarray(self.goal.value(block.seconds, block.joules, block.memory))
            value = np.where(block.fits, value, np.inf).reshape(-1)
            self._remember_nearest(block)
            good = np.flatnonzero(value < worst)
            if len(good) > keep:
                part = good[np.argpartition(value[good], keep)]
                cutoff = min(cutoff, float(value[part[keep]]))
                good = part[:keep]
            points += [self._point(block, int(flat), float(value[flat])) for flat in good]
            if len(points) > 4 * keep:
                points.sort(key=lambda point: (point.bound, point.order))
                cutoff = min(cutoff, points[keep].bound)
                points = points[:keep]
                worst = min(worst, points[-1].bound * (1 + 1e-12))
        points.sort(key=lambda point: (point.bound, point.order))
        return points, min(cutoff, worst) if worst < math.inf else cutoff

    # -- open cuts -----------------------------------------------------------------------------------------------------------

    def _opened(self, found: list[Point], top: int, per_layer: bool) -> list[Point]:
        """Cut every column that could be better than the best known, in the order of its bound."""
        cap = min(self.capacity, self.limits.get("memory", math.inf))
        schedules = [s for s in self.space.schedules if s in free_cut.SCHEDULES] or [PLAIN]
        listed = list(free_cut.candidates(self.groups, self.prices, schedules, self.overlaps, self.job.profile, per_layer))
        self.counts["space"] += len(listed)
        for number, candidate in enumerate(sorted(listed, key=lambda one: one.bound)):
            if len(found) >= top and candidate.bound > found[top - 1].seconds * (1 + 1e-12):
                break
            self.counts["cut"] = self.counts.get("cut", 0.0) + 1
            overlap = self.overlaps[candidate.overlap]
            solved = free_cut.solve(self.prices[candidate.group], candidate, overlap, self.job.profile, cap)
            if solved is None:
                continue
            self.bound = min(self.bound, solved.bound)
            if not solved.fits:
                continue
            found += self._timed([self._cut_point(candidate, solved, number)])
            found = sorted(found, key=self._rank)[: max(top, 1)]
        return found

    def _cut_point(self, candidate: free_cut.Candidate, solved: free_cut.FreeCut, number: int) -> Point:
        mixes = tuple(tuple(tuple(int(n) for n in kind) for kind in stage) for stage in solved.answer.mixes)
        return Point(
            group=candidate.group,
            variant=candidate.plans[0],
            column=candidate.column,
            overlap=self.overlaps[candidate.overlap],
            schedule=candidate.schedule,
            stages=len(mixes),
            chunks=1,
            bound=candidate.bound,
            seconds=solved.seconds,
            joules=solved.joules + self.static_w * solved.seconds,
            memory=solved.memory,
            order=(len(self.groups), number),
            layers=tuple(int(n) for n in solved.answer.layers),
            plans=candidate.plans,
            mixes=mixes,
        )

    # -- the front -----------------------------------------------------------------------------------------------------------

    def pareto(self, figures: Sequence[Objective]) -> list[Point]:
        """Points that no other point beats or equals in every one of `figures`, by ascending first figure.

        A point is left out only where an exact point is as good as its bounds: bounds never rule each other out.
        """
        kept: list[Point] = []
        for block in self.blocks():
            flat = np.flatnonzero(block.fits.reshape(-1))
            values = np.stack(
                [np.asarray(f.value(block.seconds, block.joules, block.memory)).reshape(-1)[flat] for f in figures]
            )
            order = np.lexsort(values[::-1])
            for first, last in _batches(len(order), BATCH, 4 * BATCH):
                some = order[first:last]
                open_ = some[~_beaten(values[:, some], self._figures(kept, figures))]
                points = [self._point(block, int(flat[one]), float(values[0, one])) for one in open_]
                kept = _front([*kept, *self._timed(points)], figures)
        return sorted(kept, key=lambda point: (*(_figure(point, f) for f in figures), point.order))

    @staticmethod
    def _figures(points: Sequence[Point], figures: Sequence[Objective]) -> Array:
        return np.array([[_figure(point, f) for point in points] for f in figures]).reshape(len(figures), -1)

    # -- nothing fits --------------------------------------------------------------------------------------------------------

    def _remember_nearest(self, block: Block) -> None:
        least = float(block.step.memory.min())
        if self.nearest is None or least < self.nearest.need:
            index = np.unravel_index(int(np.argmin(block.step.memory)), block.step.memory.shape)
            flat = int(np.ravel_multi_index((int(index[0]), int(index[1]), 0), block.seconds.shape))
            point = self._point(block, flat, 0.0)
            self.nearest = Nearest(least, point, float(block.step.host.min()), self.prices[block.group].host_bytes)

    def _infeasible(self) -> InfeasibleError:
        problem = next((problem for _, problem in self.home_fits if problem is not None), None)
        cap = min(self.capacity, self.limits.get("memory", math.inf))
        if self.nearest is None:
            return no_point(self.infeasible)
        if self.nearest.need <= cap:
            return problem or over_limit(self.limits, self.static_w, self.nearest)
        point = self.nearest.point
        held = held_by(point, self.prices[point.group], self.groups[point.group])
        return over_memory(self.architecture.accelerator.name, self.nearest.need, cap, held)


def _apart(layers: Layers, step: StepBound, micro_batches: Ints) -> StepBound:
    """Stages of a cut below the layer may run side by side: a step lasts at least as long as the busiest of them."""
    m = micro_batches[:, None].astype(np.float64)
    busiest = np.maximum.reduce([m * (one.forward + one.backward) for one in layers.whole])
    return replace(step, seconds=np.minimum(step.seconds, busiest * (1 - 1e-12)))


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
