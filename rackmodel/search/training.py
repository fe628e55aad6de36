"""The search over training steps: every point of the mapspace priced in broadcast arrays, the best then simulated exactly.

A point is (layout, recompute, homes, offload) x (mesh, placement, micro-batch) x (overlap on or off) x (schedule, chunks).
Layers are priced once for each plan and column; composing them is arithmetic on arrays. Those arrays hold a lower bound of
a step's time, exact for equal stages; points are then simulated in order of the bound until none left can be better. So
the answer is the optimum of the declared space, with proof. Ties: the objective's second figure, then the order of the file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import LegPricer
from rackmodel.cost.step.cut import Cut, even_cut
from rackmodel.cost.step.price import static_watts
from rackmodel.cost.step.step import Passes, Step, compose, device_memory, passes
from rackmodel.cost.step.step_price import GroupPrice, cut_of, exact_pipeline_seconds, price_group, step_of
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import BLENDS, Blend, Certificate
from rackmodel.model.profile import ProfileSpec
from rackmodel.search.stages import free_cut
from rackmodel.search.step_space import StepSpace, algorithms_of
from rackmodel.units import byte_unit, bytes_text

Array = NDArray[np.float64]
KEPT = 64  # points of a block that are kept for exact pricing before the block is looked at again
CELLS = 16_384  # points of one block: an array of them fits the processor's cache
LIMITS = ("power", "memory")


@dataclass(frozen=True)
class Point:
    """One point: where it lies in the space, and its figures. bound: of the objective · seconds, joules: exact once simulated ·
    layers: of each stage of an uneven cut · plans, mixes: a plan a policy, stage → section → policy → layers, where they mix."""

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


@dataclass
class FoundSteps:
    """What a search found. points: best first, exact."""

    points: list[Point]
    groups: list[GroupPrice]
    certificate: Certificate
    front: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """Points of one group, pipeline depth, schedule and chunk count: [plans, columns, overlaps]."""

    group: int
    cut: Cut
    schedule: str
    columns: NDArray[np.int64]
    step: Step
    runs: tuple[Passes, ...]
    open: NDArray[np.bool_]


def search_steps(
    architecture: Architecture,
    space: StepSpace,
    minimize: str,
    profile: ProfileSpec,
    inside: LegPricer,
    *,
    top: int = 1,
    limits: Mapping[str, float] | None = None,
    front: Sequence[str] = (),
) -> FoundSteps:
    """Best steps of a space. limits: 'power' in W, 'memory' in bytes · front: figures of a Pareto front. Raises InfeasibleError."""
    started = time.perf_counter()
    search = _Search(architecture, space, minimize, profile, inside, dict(limits or {}))
    points = search.best_of_all(top)
    pareto = search.pareto(front) if front else []
    counts = search.counts
    best = search.objective(points[0].seconds, points[0].joules, points[0].memory)
    bound = min(best, search.cut_bound)
    gap = (best - bound) / best if best > 0 else 0.0
    certificate = Certificate(
        solver="enumerate",
        minimize=minimize,
        space=counts["space"],
        evaluated=int(counts["priced"]),
        objective=best,
        bound=bound if gap > 1e-9 else best,
        gap=gap if gap > 1e-9 else 0.0,
        pruned={name: counts[name] for name in ("simulated", "cut") if name in counts},
        infeasible={**space.skipped, **search.infeasible},
        seconds=time.perf_counter() - started,
        profile=profile.name,
        note="optimal under ideal assumptions: no launch cost, no contention, peak rates" if profile.name == "ideal" else "",
    )
    return FoundSteps(points, search.groups, certificate, pareto)


class _Search:
    def __init__(
        self,
        architecture: Architecture,
        space: StepSpace,
        minimize: str,
        profile: ProfileSpec,
        inside: LegPricer,
        limits: dict[str, float],
    ) -> None:
        self.architecture, self.space, self.minimize, self.profile, self.limits = architecture, space, minimize, profile, limits
        for name in limits:
            if name not in LIMITS:
                raise InputError(f"no limit called '{name}'", path="--limit", known=LIMITS, given=name)
        self.groups = [
            price_group(
                architecture,
                space.workload,
                group.columns,
                [variant.plan for variant in group.variants],
                profile,
                inside,
                algorithms_of(space.mapper),
                [variant.offload for variant in group.variants],
                space.mapper.host,
            )
            for group in space.groups
        ]
        self.static_w = static_watts(architecture)
        self.overlaps = _overlaps(space, profile)
        self.counts = {"space": 0.0, "priced": 0.0, "simulated": 0.0}
        self.infeasible: dict[str, float] = {}
        memory = architecture.accelerator.memory
        self.capacity = memory.capacity_bytes if memory is not None and memory.enforce and memory.capacity_bytes else math.inf
        self.nearest: tuple[float, Block, tuple[int, ...]] | None = None
        self.home_fits = [self._home_room(group) for group in self.groups]
        self.cut_bound = math.inf

    def _home_room(self, group: GroupPrice) -> NDArray[np.bool_]:
        """[plans] whether what lives above the accelerators fits its level. Raises InfeasibleError where no plan's does."""
        fits = np.ones(len(group.sends.seconds), dtype=bool)
        for level, need in group.home.items():
            home = self.architecture.level(level)
            if home.memory is None or home.memory.capacity_bytes is None or not home.memory.enforce:
                continue
            have = home.memory.capacity_bytes * home.count
            fits &= need <= have
            if not fits.any():
                short = float(need.min())
                message = (
                    f"memory: {level} needs {short / 1e12:.4g} TB for the model, it has {have / 1e12:.4g} TB; "
                    f"short by {(short - have) / 1e12:.4g} TB"
                )
                raise InfeasibleError(message, resource=f"{level}.memory", need=short, have=have, unit="byte")
        return fits

    # -- every point -----------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Every block of the space, priced."""
        hide_a = np.array([a for a, _ in self.overlaps], dtype=float)
        hide_g = np.array([g for _, g in self.overlaps], dtype=float)
        for number, group in enumerate(self.groups):
            own, plans = group.columns, len(self.space.groups[number].variants)
            for stages, columns in self._pieces(own.stages, plans):
                sections = [figures.columns(columns) for figures in group.sections]
                runs = tuple(passes(one, self.profile, hide_a, hide_g) for one in sections)
                sends = group.sends.columns(columns)
                tails: dict[object, Array] = {}
                for schedule, chunks in self._schedules(int(stages)):
                    made = even_cut(group.repeats, group.layers, int(stages), chunks)
                    points = plans * len(columns) * len(self.overlaps)
                    self.counts["space"] += points
                    if made is None:
                        self._miss("layers do not divide", points)
                        continue
                    counts = own.micro_batches[columns]
                    step = compose(sections, sends, made, schedule, counts, self.profile, hide_a, hide_g, runs, tails)
                    is_open = np.ones(len(columns), dtype=bool)
                    if schedule == "interleaved":
                        is_open = counts % int(stages) == 0
                        self._miss("micro-batches are no multiple of the stages", float((~is_open).sum()) * points / len(columns))
                    yield Block(number, made, schedule, columns, step, runs, is_open)

    def _pieces(self, stages: NDArray[np.int64], plans: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Columns of equal pipeline depth, in pieces whose arrays stay in the processor's cache."""
        wide = max(1, CELLS // (plans * len(self.overlaps)))
        for depth in np.unique(stages):
            columns = np.flatnonzero(stages == depth)
            for first in range(0, len(columns), wide):
                yield int(depth), columns[first : first + wide]

    def _schedules(self, stages: int) -> list[tuple[str, int]]:
        """(schedule, chunks) of a pipeline depth; one for no pipeline."""
        if stages == 1:
            return [("1f1b", 1)]
        found = []
        for schedule in self.space.schedules:
            if schedule == "interleaved":
                found += [(schedule, v) for v in self.space.interleave if v > 1]
            else:
                found.append((schedule, 1))
        return found or [("1f1b", 1)]

    def _miss(self, why: str, points: float) -> None:
        if points:
            self.infeasible[why] = self.infeasible.get(why, 0.0) + points

    def _figures(self, block: Block) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """(seconds, joules with static, bytes, feasible), [plans, columns, overlaps]."""
        step = block.step
        seconds = step.seconds
        joules = step.joules + self.static_w * seconds
        memory = step.memory
        cap = min(self.capacity, self.limits.get("memory", math.inf))
        fits = (memory <= cap) & (step.host <= self.groups[block.group].host_bytes) & block.open[None, :, None]
        fits = fits & self.home_fits[block.group][:, None, None]
        if "power" in self.limits:
            fits = fits & (self.static_w + step.joules / (seconds * 1.25) <= self.limits["power"])
        return seconds, joules, memory, fits

    def objective(self, seconds: float, joules: float, memory: float) -> float:
        """The figure that is minimised."""
        return float(_objective(self.minimize, np.asarray(seconds), np.asarray(joules), np.asarray(memory))[0])

    def best_of_all(self, top: int) -> list[Point]:
        """The best even cuts, and where the mapper opens the cut or each layer's policy the best of those as well."""
        per_layer = self.space.mapper.recompute == "per layer"
        if self.space.mapper.cut != "free" and not per_layer:
            return self.best(top)
        if self.minimize != "latency":
            raise InputError("an open cut is searched for latency", path="cut" if self.space.mapper.cut == "free" else "recompute")
        try:
            found = self.best(top)
        except InfeasibleError as problem:
            found, short = [], problem
        found = self._opened(found, top, per_layer)
        if not found:
            raise short
        return found

    def _opened(self, found: list[Point], top: int, per_layer: bool) -> list[Point]:
        """Cut every column that could be better than the best known, in the order of its bound."""
        cap = min(self.capacity, self.limits.get("memory", math.inf))
        schedules = [s for s in self.space.schedules if s in free_cut.SCHEDULES] or ["1f1b"]
        listed = list(free_cut.candidates(self.space.groups, self.groups, schedules, self.overlaps, self.profile, per_layer))
        self.counts["space"] += len(listed)
        for number, candidate in enumerate(sorted(listed, key=lambda one: one.bound)):
            if len(found) >= top and candidate.bound > found[top - 1].seconds * (1 + 1e-12):
                break
            self.counts["cut"] = self.counts.get("cut", 0.0) + 1
            overlap = self.overlaps[candidate.overlap]
            solved = free_cut.solve(self.groups[candidate.group], candidate, overlap, self.profile, cap)
            if solved is None:
                continue
            self.cut_bound = min(self.cut_bound, solved.bound)
            joules = solved.joules + self.static_w * solved.seconds
            if joules / solved.seconds > self.limits.get("power", math.inf):
                continue
            found.append(self._cut_point(candidate, solved, joules, number))
            found = sorted(found, key=self._rank)[: max(top, 1)]
        return found

    def _cut_point(self, candidate: free_cut.Candidate, solved: free_cut.FreeCut, joules: float, number: int) -> Point:
        mixes = tuple(tuple(tuple(int(n) for n in kind) for kind in stage) for stage in solved.answer.mixes)
        return Point(
            candidate.group,
            candidate.plans[0],
            candidate.column,
            self.overlaps[candidate.overlap],
            candidate.schedule,
            len(mixes),
            1,
            candidate.bound,
            solved.seconds,
            joules,
            solved.memory,
            (len(self.groups), number),
            tuple(int(n) for n in solved.answer.layers),
            candidate.plans,
            mixes,
        )

    # -- the best ----------------------------------------------------------------------------------------------------------

    def best(self, top: int) -> list[Point]:
        """The `top` best points, exact. Raises InfeasibleError where nothing fits."""
        keep = KEPT + top
        while True:
            points, cutoff = self._candidates(keep)
            if not points:
                raise self._infeasible()
            exact: list[Point] = []
            for point in points:
                if len(exact) >= top and point.bound > self._value(exact[top - 1]) * (1 + 1e-12):
                    break
                done = self._simulated(point)
                if done is not None:
                    exact.append(done)
                    exact.sort(key=self._rank)
            proven = len(exact) >= min(top, 1) and bool(exact) and self._value(exact[min(top, len(exact)) - 1]) <= cutoff
            if proven or math.isinf(cutoff):
                if not exact:
                    raise self._infeasible()
                return exact[:top]
            keep *= 16

    def _value(self, point: Point) -> float:
        return self.objective(point.seconds, point.joules, point.memory)

    def _rank(self, point: Point) -> tuple[object, ...]:
        value, tie = _objective(self.minimize, np.asarray(point.seconds), np.asarray(point.joules), np.asarray(point.memory))
        return (float(f"{float(value):.11e}"), float(f"{float(tie):.11e}"), point.order)

    def _candidates(self, keep: int) -> tuple[list[Point], float]:
        """The points of least bound, in order, and the least bound that was not kept."""
        self.counts.update(space=0.0, priced=0.0)
        self.infeasible.clear()
        points: list[Point] = []
        cutoff = worst = math.inf
        for number, block in enumerate(self.blocks()):
            seconds, joules, memory, fits = self._figures(block)
            self.counts["priced"] += float(block.open.sum()) * seconds.size / len(block.columns)
            value, _ = _objective(self.minimize, seconds, joules, memory + np.zeros_like(seconds))
            value = np.where(fits, value, np.inf).reshape(-1)
            short = float((~fits & block.open[None, :, None]).sum())
            self._miss("memory", short * seconds.size / fits.size)
            self._remember_nearest(block, memory)
            good = np.flatnonzero(value < worst)
            if len(good) > keep:
                part = good[np.argpartition(value[good], keep)]
                cutoff = min(cutoff, float(value[part[keep]]))
                good = part[:keep]
            for flat in good:
                if math.isfinite(value[flat]):
                    points.append(self._point(block, number, int(flat), float(value[flat]), seconds, joules, memory))
            if len(points) > 4 * keep:
                points.sort(key=lambda point: (point.bound, point.order))
                cutoff = min(cutoff, points[keep].bound)
                points = points[:keep]
                worst = min(worst, points[-1].bound * (1 + 1e-12))
        points.sort(key=lambda point: (point.bound, point.order))
        if worst < math.inf:
            cutoff = min(cutoff, worst)
        return points, cutoff

    def _point(self, block: Block, number: int, flat: int, bound: float, seconds: Array, joules: Array, memory: Array) -> Point:
        index = np.unravel_index(flat, seconds.shape)
        plan, column, overlap = (int(i) for i in index)
        held = np.broadcast_to(memory, seconds.shape)
        return Point(
            block.group,
            plan,
            int(block.columns[column]),
            self.overlaps[overlap],
            block.schedule,
            block.cut.stages,
            block.cut.chunks,
            bound,
            float(seconds[index]),
            float(joules[index]),
            float(held[index]),
            (block.group, plan, int(block.columns[column]), number, overlap),
        )

    def _simulated(self, point: Point) -> Point | None:
        """The point with its exact step time; None where a limit refuses it."""
        self.counts["simulated"] += 1
        seconds = self._exact(point)
        joules = point.joules + self.static_w * (seconds - point.seconds)
        if "power" in self.limits and joules / seconds > self.limits["power"]:
            return None
        return Point(**{**point.__dict__, "seconds": seconds, "joules": joules})

    def _exact(self, point: Point) -> float:
        group = self.groups[point.group]
        made = cut_of(group, point.stages, point.chunks)
        assert made is not None
        own, step = step_of(group, made, point.schedule, self.profile, point.overlap, point.variant, point.column)
        hop = float(group.sends.seconds[point.variant, point.column])
        count = int(group.columns.micro_batches[point.column])
        return exact_pipeline_seconds(own, hop, made, point.schedule, count, self.profile, point.overlap) + float(step.after.reshape(-1)[0])

    # -- the front -----------------------------------------------------------------------------------------------------------

    def pareto(self, figures: Sequence[str]) -> list[Point]:
        """Points no other point beats in every one of `figures` (latency, energy, memory), by ascending first figure."""
        names = ("latency", "energy", "memory")
        for name in figures:
            if name not in names and not isinstance(name, Blend):
                raise InputError(f"no figure called '{name}' for a front", path="--pareto", known=(*names, *BLENDS), given=name)
        kept: list[Point] = []
        for number, block in enumerate(self.blocks()):
            seconds, joules, memory, fits = self._figures(block)
            memory = np.broadcast_to(memory, seconds.shape)
            table = {"latency": seconds, "energy": np.broadcast_to(joules, seconds.shape), "memory": memory}
            table |= {name: name.value(seconds, joules) for name in figures if isinstance(name, Blend)}
            values = np.stack([table[name].reshape(-1) for name in figures])
            flat = np.flatnonzero(np.broadcast_to(fits, seconds.shape).reshape(-1))
            flat = flat[_undominated(values[:, flat], np.array([[self._figure(p, name) for p in kept] for name in figures]))]
            for one in flat:
                point = self._simulated(self._point(block, number, int(one), 0.0, seconds, joules, memory))
                if point is not None:
                    kept.append(point)
            if kept:
                exact = np.array([[self._figure(p, name) for p in kept] for name in figures])
                kept = [kept[i] for i in _undominated(exact, np.zeros((len(figures), 0)))]
        return sorted(kept, key=lambda point: (*(self._figure(point, name) for name in figures), point.order))

    @staticmethod
    def _figure(point: Point, name: str) -> float:
        if isinstance(name, Blend):
            return float(name.value(point.seconds, point.joules))
        return {"latency": point.seconds, "energy": point.joules, "memory": point.memory}[name]

    # -- nothing fits --------------------------------------------------------------------------------------------------------

    def _remember_nearest(self, block: Block, memory: Array) -> None:
        least = float(memory.min())
        if self.nearest is None or least < self.nearest[0]:
            self.nearest = (least, block, tuple(int(i) for i in np.unravel_index(int(np.argmin(memory)), memory.shape)))

    def _held(self, block: Block, index: tuple[int, ...]) -> dict[str, float]:
        """Bytes by what holds them on the fullest device of one point."""
        group, column = self.groups[block.group], block.columns[index[1] : index[1] + 1]
        own = [section.columns(column).plans(np.array([index[0]])) for section in group.sections]
        counts = group.columns.micro_batches[column]
        held = [device_memory(own, block.cut, block.schedule, counts, first) for first, _ in block.cut.kinds]
        sizes = [{what: float(size.item()) for what, size in parts.items() if what != "host"} for parts in held]
        return max(sizes, key=lambda parts: sum(parts.values()))

    def _infeasible(self) -> InfeasibleError:
        name = self.architecture.accelerator.name
        if self.nearest is None:
            why = ", ".join(f"{count:g} by {reason}" for reason, count in self.infeasible.items()) or "the space is empty"
            return InfeasibleError(f"no point of the space can run: {why}", resource="mapping", need=1.0, have=0.0, unit="mapping")
        need, have = self.nearest[0], min(self.capacity, self.limits.get("memory", math.inf))
        if need <= have:
            watts = self.limits.get("power", math.inf)
            return InfeasibleError(
                f"power: no step of the space stays below {watts:.4g} W (static power alone is {self.static_w:.4g} W)",
                resource="power",
                need=self.static_w,
                have=watts,
                unit="watt",
            )
        unit = byte_unit(need)[0]
        parts = ", ".join(f"{what} {size / unit:.4g}" for what, size in self._held(*self.nearest[1:]).items() if size)
        short = bytes_text(need - have)
        message = f"memory: one {name} needs {bytes_text(need)} at least, it has {bytes_text(have)} ({parts}); short by {short}"
        return InfeasibleError(message, resource=f"{name}.memory", need=need, have=have, unit="byte")


def _overlaps(space: StepSpace, profile: ProfileSpec) -> list[tuple[int, int]]:
    """(windows used, gradients and weights beside compute) that the mapper allows under the profile."""
    windows = any(window.beside != "none" for window in profile.overlap.windows.values())
    sides = profile.overlap.weights or profile.overlap.hides_gradients
    if space.mapper.overlap == "profile":
        return [(int(windows), int(sides))]
    return [(a, g) for a in ((1, 0) if windows else (0,)) for g in ((1, 0) if sides else (0,))]


def _objective(minimize: str, seconds: Array, joules: Array, memory: Array) -> tuple[Array, Array]:
    """(what is minimised, what breaks ties). All grow with seconds and joules, so that bounds of those bound them."""
    if isinstance(minimize, Blend):
        return np.asarray(minimize.value(seconds, joules)), joules
    if minimize == "latency":
        return seconds, joules
    if minimize == "edp":
        return seconds * joules, joules
    if minimize == "memory":
        return memory, seconds
    return joules + np.zeros_like(seconds), seconds


def _undominated(values: Array, others: Array) -> NDArray[np.int64]:
    """Indices of columns that no other column, and none of `others`, beats or equals in every figure (the first of equals stays)."""
    order = np.lexsort(values[::-1])
    kept: list[int] = []
    front = others
    for i in order:
        point = values[:, i : i + 1]
        if front.size and bool(np.any(np.all(front <= point, axis=0))):
            continue
        kept.append(int(i))
        front = np.hstack([front.reshape(len(values), -1), point])
    return np.array(sorted(kept), dtype=np.int64)


__all__ = ["FoundSteps", "Point", "search_steps"]
