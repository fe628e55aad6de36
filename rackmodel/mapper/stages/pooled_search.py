"""The best pipeline over accelerators of several kinds: which kind comes first, which layers each stage holds, and under which policy.

Every mesh whose stages fill each kind's accelerators is a column, in every order of the kinds. Its cut is open: what a layer costs on each
kind is a policy that only the stages there may use (stage_cut), so a faster kind takes more layers, one with more memory more of what is
kept. Columns are opened in the order of a bound:

    T >= Σ_layers min_c (λ_c t_c) / Σ_i w_i        w_i = max(0, λ_c(i) − Σ_j>i w_j) / m, from the last stage on, c(i) its kind

for any λ >= 0: a step takes at least P_i + m t_i for every stage i, P_i what lies before it; weighed by w_i a stage's time counts
Σ_j>i w_j + m w_i >= λ_c(i) times (DERIVED, weak duality; one kind gives the bound of free_cut). λ_c is 1 / the time of the whole model on
kind c, to some powers; the greatest of the bounds counts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.bound import step_joules
from rackmodel.cost.step.bounds.device_times import StepChoices, device_times
from rackmodel.cost.step.cut import layers_of
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.ledger import second_watts
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.blocks import overlaps_of
from rackmodel.mapper.infeasible import no_point, out_of_time, over_cuts, over_latency
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.points import Point, structure_of
from rackmodel.mapper.pooled import dealt, fitting, orders
from rackmodel.mapper.search import Question
from rackmodel.mapper.stages.best_cuts import KeptCuts
from rackmodel.mapper.stages.columns import Candidate, OpenColumns
from rackmodel.mapper.stages.free_cut import BOUNDED, CutSearch, families
from rackmodel.mapper.stages.needs import NoCutFits
from rackmodel.mapper.stages.stage_cut import TIGHT, TimedCut
from rackmodel.model.certificate import Certificate, bound_and_gap
from rackmodel.model.room import room_of

LIMITS = ("memory", "latency")
POWERS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)  # of λ that are tried


@dataclass(frozen=True)
class PooledFound:
    """points: best first, exact · steps: of each · groups: that they are of."""

    points: list[Point]
    steps: list[ExactStep]
    groups: tuple[Group, ...]
    certificate: Certificate


def search_pools(job: Job, space: Mapspace, question: Question) -> PooledFound:
    """The best points of a space on a machine with accelerators of several kinds. Raises InfeasibleError, InputError."""
    started = time.perf_counter()
    search = _PooledSearch(job, space, question)
    search.run()
    certificate = search.certificate(time.perf_counter() - started)
    points = search.kept.points
    return PooledFound(points, [search.step(point) for point in points], search.groups, certificate)


class _PooledSearch:
    def __init__(self, job: Job, space: Mapspace, question: Question) -> None:
        self.job, self.question = job, question
        self._check()
        self.space = fitting(job.setting.architecture, space)
        self.kept = KeptCuts(question.top, _rank, self._point)
        self.groups = self.space.groups
        self.static_w = second_watts(self.job.setting, self.job.pools)
        self.machines = [setting.architecture for setting in self.job.pools]
        self.rooms = [min(room_of(one, self.job.profile).bytes, self.question.limits.memory) for one in self.machines]
        self.prices = [
            tuple(price_group(self.job.of_pool(k), group.columns, [v.plan for v in group.variants]) for k in range(len(self.machines)))
            for group in self.groups
        ]
        self.over: dict[Candidate, float] = {}  # what their stages hold whatever the cut, over the room that they have
        self.listed = list(self._candidates())

    def _check(self) -> None:
        """Raise InputError for what is not searched over several kinds."""
        question = self.question
        if question.goal.name != "latency":
            raise InputError("over accelerators of several kinds a pipeline is searched for latency", path="--minimize")
        if question.front:
            raise InputError("over accelerators of several kinds there is no front yet: latency alone is searched", path="--pareto")
        other = [name for name in question.limits.most if name not in LIMITS]
        if other:
            fact = f"over accelerators of several kinds limits are of {' and '.join(LIMITS)}, not of {other[0]}"
            raise InputError(fact, path="--limit")

    def run(self) -> None:
        """Search. Raises InfeasibleError where nothing fits."""
        self.columns = OpenColumns(self.job, self.groups, self.prices, self.rooms)
        self.cuts = CutSearch(self.columns, self.kept.take, self.question.watch, self.question.limits.latency)
        self.cuts.run([one for one in self.listed if self.over[one] <= 1.0], self.kept.worst)
        if not self.kept.points:
            raise self._nothing()

    def _nothing(self) -> InfeasibleError:
        """Nothing keeps the limits: what is in the way."""
        question = self.question
        if question.watch.stopped:
            return out_of_time(question.watch)
        if "latency" in question.limits.most:
            loose = replace(question, limits=question.limits.without("latency"), top=1)
            return over_latency(question.limits, question.watch, lambda: search_pools(self.job, self.space, loose).points[0].seconds)
        nearest = self.cuts.nearest_of([one for one in self.listed if self.over[one] > 1.0], lambda one: self.over[one])
        return no_point(self.space.skipped) if nearest is None else self._short(*nearest)

    def _short(self, candidate: Candidate, problem: NoCutFits) -> InfeasibleError:
        """No cut fits: what the nearest needs on each kind."""
        held = list(zip(problem.needs, candidate.stages, strict=True))
        kinds = [(machine, max(need for need, pool in held if pool == k)) for k, machine in enumerate(self.machines)]
        return over_cuts(problem, kinds, self.job.profile, self.question.limits.memory, on=candidate.stages[problem.stage])

    # -- candidates ----------------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Candidate]:
        """Every column in every order of the kinds, with its bound."""
        mapper = self.space.mapper
        overlaps = overlaps_of(mapper, self.job.profile)
        choices = StepChoices.of(self.job.profile, overlaps)
        schedules = [one for one in self.space.schedules if one in BOUNDED]
        used = [machine.used for machine in self.machines]
        for number, group in enumerate(self.groups):
            columns, prices = group.columns, self.prices[number]
            layers = layers_of(prices[0].repeats, prices[0].layers)
            each = [n // columns.per_stage for n in used]  # [columns] stages of each kind
            for family in families(group, mapper.recompute == "per layer"):
                times, stays = self._times(prices, family, choices), _stays(prices, family)
                have = np.sum([count * room for count, room in zip(each, self.rooms, strict=True)], axis=0)
                for order in orders(self.job.setting.architecture):
                    bound = _bound(prices[0], times, order, each, columns.micro_batches) * (1.0 - TIGHT)
                    for column, (o, overlap), schedule in itertools.product(range(len(columns)), enumerate(overlaps), schedules):
                        if columns.stages[column] <= layers:
                            stages = tuple(kind for kind in order for _ in range(int(each[kind][column])))
                            one = Candidate(number, family, column, overlap, schedule, float(bound[column, o]), stages)
                            self.over[one] = float(stays[column] / have[column])
                            yield one

    def _times(self, prices: Sequence[GroupPrice], family: Sequence[int], choices: StepChoices) -> Array:
        """[kinds, sections, columns, overlaps] seconds of a micro-batch in a layer of each section, under its quickest policy."""
        plans = np.array(family)
        each = [[device_times(section.plans(plans), choices) for section in price.sections] for price in prices]
        return np.array([[(own.forward + own.backward).min(axis=0) for own in sections] for sections in each])

    # -- what was timed ------------------------------------------------------------------------------------------------------

    def _point(self, candidate: Candidate, cut: TimedCut, number: int) -> Point | None:
        """As `KeptCuts.point`."""
        kinds, policies = len(self.machines), len(candidate.plans)
        mixes = cut.mixes.reshape(*cut.mixes.shape[:2], kinds, policies).sum(axis=2)
        point = candidate.point(mixes, cut.seconds, (len(self.groups), number))
        step = self.step(point)
        held = step.held
        made = step.structure.cut
        joules = float(step_joules(step.figures, step.sends, made.stages, made.hops, step.columns.micro_batches).item())
        fits = all(held[stage] <= self.rooms[kind] * (1 + 1e-9) for stage, kind in enumerate(candidate.stages))
        joules += float(step.drawn_longer_j[0])
        point = replace(point, joules=joules + self.static_w * cut.seconds, memory=float(held.max()))
        return point if fits and not self.question.limits.broken(point) else None

    def step(self, point: Point) -> ExactStep:
        """The step of one point."""
        price = self.prices[point.group][0]
        structure = dealt(structure_of(point, self.groups[point.group], price), point.pools)
        layers = self.columns.layers_of(point.group, point.column)
        return ExactStep(self.job, structure, price.columns.pick(np.array([point.column])), layers)

    def certificate(self, seconds: float) -> Certificate:
        """How good the best point is."""
        best = self.kept.points[0].seconds
        bound, gap = bound_and_gap(best, self.cuts.bound)
        watch = self.question.watch
        full = sum(over > 1.0 for over in self.over.values())
        names = ", ".join(machine.accelerator.name for machine in self.machines)
        notes = [f"every order of {names}, layers of each stage open"]
        if watch.stopped:
            notes.append(f"stopped by the time limit of {watch.seconds:g} s")
        return Certificate(
            solver="cuts",
            minimize="latency",
            space=float(len(self.listed)),
            evaluated=self.cuts.opened,
            objective=best,
            bound=bound,
            gap=gap,
            pruned={"cut": float(self.cuts.opened), "timed": float(len(self.kept.seen))},
            infeasible=dict(self.space.skipped) | ({"memory": float(full)} if full else {}),
            seconds=seconds,
            profile=self.job.profile.name,
            note="; ".join(notes),
        )


def _stays(prices: Sequence[GroupPrice], family: Sequence[int]) -> Array:
    """[columns] bytes of weights, gradients and optimizer that one accelerator of every stage together hold at least."""
    plans = np.array(family)
    kept = ("weights", "gradients", "optimizer")
    each = [[sum(one.plans(plans).held[what] for what in kept) for one in price.sections] for price in prices]
    least = np.array([[np.asarray(size).min(axis=0) for size in sections] for sections in each]).min(axis=0)  # [sections, columns]
    return np.asarray(np.array(prices[0].repeats, dtype=float) @ least)


def _bound(price: GroupPrice, times: Array, order: Sequence[int], each: Sequence[Ints], micro_batches: Ints) -> Array:
    """[columns, overlaps] the greatest of the bound over some λ. times: [kinds, sections, columns, overlaps] · each: [columns] stages, by
    kind."""
    repeats = np.array(price.repeats, dtype=float)[:, None, None]
    whole = (times * repeats).sum(axis=1)  # [kinds, columns, overlaps] of the whole model on one kind
    even = np.divide(1.0, whole, out=np.zeros_like(whole), where=whole > 0)
    found = np.zeros(whole.shape[1:])
    for power in POWERS:
        found = np.maximum(found, _weighted(price, times, even**power, order, each, micro_batches))
    return found


def _weighted(price: GroupPrice, times: Array, weight: Array, order: Sequence[int], each: Sequence[Ints], micro_batches: Ints) -> Array:
    """The same for one λ. weight: [kinds, columns, overlaps]."""
    work, passed = np.zeros(weight.shape[1:]), False
    for x, layer in enumerate(price.layers):
        passed = passed or layer
        kinds = list(order) if layer else [order[-1] if passed else order[0]]
        work = work + price.repeats[x] * (weight[kinds] * times[kinds, x]).min(axis=0)
    m, behind = micro_batches[:, None].astype(float), np.zeros_like(work)  # behind: Σ w of the stages after one
    for kind in reversed(order):
        for left in range(int(each[kind].max())):
            here = np.maximum(weight[kind] - behind, 0.0) / m
            behind = behind + np.where((left < each[kind])[:, None], here, 0.0)
    return np.divide(work, behind, out=np.zeros_like(work), where=behind > 0)


def _rank(point: Point) -> tuple[object, ...]:
    return float(f"{point.seconds:.11e}"), float(f"{point.joules:.11e}"), point.order
