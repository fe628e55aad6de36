"""Steps of several loop nests where the least of each nest is not the least of all: what is asked for is no sum over nests, or a limit,
a host, other lanes or other stages decide how much a second is worth.

    nests of least J + w T for one w after another: each leaves a line that no step is below (nest_hull), and steps to choose from

J is a step's joules but for static power, a sum over its nests, T its seconds. Searched are the joules alone, the seconds alone, and, where
what is asked for is least above these lines, the slope along which it changes least, or that of the chord between the points that two of
them touch: until a step lies there, and is proven, or nothing new is found. EDP over several nests is the first case: its least product is
at a corner of the hull of all points.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite, sqrt

from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.infeasible import unknown
from rackmodel.mapper.launches_saved import best_fused
from rackmodel.mapper.limits import SLACK, Limits
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.nest_aims import aim_of
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.nests.nest_hull import CLOSE, Figure, Hull, SupportLine, tangent_of
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Found, Question

ROUNDS = 12  # slopes beside joules alone and seconds alone
WORTH = 0.1  # of what is open, that a slope is to close for another to be tried, where nests are not proven
NOTE = "loop nests tried for least energy, latency and weighted sums of the two, which bound it"
Search = Callable[[Job, Question], Found]


@dataclass(frozen=True)
class Offer:
    """A step that was found, by nests of some aim. value: what is asked for."""

    job: Job
    found: Found
    value: float


def best_of_nests(
    job: Job, question: Question, space: Mapspace, search: Search, *, others: Sequence[Job] = (), exactly: Limits | None = None
) -> tuple[Job, Found]:
    """What `search` finds for a job, or for the same job with nests of another aim where that is better. others: jobs of the same space
    whose nests are tried as well · exactly: the limits that the bound is under, where those asked for leave room for rounding. Raises
    InfeasibleError, InputError."""
    if not isinstance(job.setting.inside, NestInside):
        return job, search(job, question)
    return _Trades(job, question, space, search, exactly or question.limits).best(others)


def then_least_of_nests(
    job: Job, question: Question, space: Mapspace, search: Search, before: Objective, exactly: Limits
) -> tuple[Job, Found]:
    """The least of a further objective. job: whose nests have the least of those before, the last of which is `before`."""
    inside = job.setting.inside
    if not isinstance(inside, NestInside):
        return job, search(job, question)
    static_w = static_watts(job.setting.architecture)
    if _ties_are_settled(inside, question, before, static_w):
        return job, search(job, question)
    aim, second_j = aim_of(question.goal, static_w, job.setting.architecture.used)
    again = replace(job, setting=replace(job.setting, inside=inside.aimed(aim, second_j=second_j)), layers=None)
    return best_of_nests(again, question, space, search, others=[job], exactly=exactly)


def _ties_are_settled(inside: NestInside, question: Question, before: Objective, static_w: float) -> bool:
    """Whether of the steps that have the least of an objective none is better than with these nests: each has its own least of it, and of
    those mappings, as its search says, the least joules or seconds."""
    if not all(nest.certificate.get("ties") for nest in inside.solved.values()):
        return False
    if inside.fused or inside.second_j is not None or {*question.limits.most} - {before.name, "memory"}:
        return False
    if before.name == "latency":
        return inside.aim.name == "latency" and not inside.hidden
    return before.name in ("energy", "carbon") and inside.aim.name == "energy" and not (inside.hidden and static_w)


class _Trades:
    def __init__(self, job: Job, question: Question, space: Mapspace, search: Search, exactly: Limits) -> None:
        self.job, self.question, self.space, self.search, self.exactly = job, question, space, search, exactly
        assert isinstance(job.setting.inside, NestInside)
        self.inside = job.setting.inside
        self.used, self.static_w = job.setting.architecture.used, static_watts(job.setting.architecture)
        self.limited = [name for name in question.limits.most if name != "memory"]
        memory = question.limits.of({name: most for name, most in question.limits.most.items() if name == "memory"})
        self.loose = replace(question, top=1, limits=memory, front=(), least=inf, below=inf, known=None)
        self.offers: list[Offer] = []
        self.refused: list[InfeasibleError] = []
        self.hull = Hull([])
        self.unproven = False  # whether nests of any slope have a gap
        self.started = time.perf_counter()
        self.unlimited = inf  # what is asked for, of the first nests under no limits

    def best(self, others: Sequence[Job]) -> tuple[Job, Found]:
        """The best step that nests of any aim make."""
        first = self._offer(self.job)
        bound = self._own(first)
        for other in others:
            self._offer(other, again=False)
        if self.space.even and not self._settled(bound) and self._others_may_be_better(first):
            bound = max(bound, self._traded(bound))
        return self._answer(bound)

    @property
    def value(self) -> float:
        """Of the best step so far."""
        return min((offer.value for offer in self.offers), default=inf)

    def _settled(self, bound: float) -> bool:
        return self.value <= bound * (1 + CLOSE) or self.inside.watch.over()

    def _others_may_be_better(self, first: Offer | None) -> bool:
        """Whether nests of other aims may make a better step than those of the very figure, or the same under the limits."""
        goal = self.question.goal
        if goal.name == "edp" and self._is_one_nest and not self.limited:
            return False  # its own search has tried them
        if not goal.additive or first is None or first.value > self.unlimited * (1 + SLACK):
            return True
        return self.inside.hidden and all(goal.weights(self.static_w))

    # -- steps
    def _offer(self, job: Job, *, again: bool = True) -> Offer | None:
        """The best step that nests of a job make, under all that is asked; None where none keeps the limits. again: whether regions are
        searched once more for launches."""
        try:
            job, found = best_fused(job, self.question, self.search) if again else (job, self.search(job, self.question))
        except InfeasibleError as problem:
            if not self.limited:
                raise
            self.refused.append(problem)
            return None
        point = found.points[0]
        self.offers.append(Offer(job, found, point.value(self.question.goal)))
        return self.offers[-1]

    def _own(self, first: Offer | None) -> float:
        """What no step is below, as the search for the very figure has it."""
        goal = self.question.goal
        if not goal.additive:
            return self._products()
        joule, second = goal.weights(self.static_w)
        if joule and second and self.inside.hidden:
            return joule * self._charged(self.job)
        if first is None or self.limited:
            job, found = best_fused(self.job, replace(self.question, top=1, limits=self.loose.limits, front=()), self.search)
        else:
            job, found = first.job, first.found
        inside, point = job.setting.inside, found.points[0]
        assert isinstance(inside, NestInside)
        self.unlimited = point.value(goal)
        if goal.name == "memory":
            return self.unlimited * (1 - found.certificate.gap)
        return max(self.unlimited * (1 - max(found.certificate.gap, inside.widest_gap)), self._lessened(job, self.loose))

    def _lessened(self, job: Job, question: Question) -> float:
        """What a step takes at least whose nests each take what they do at least; where nothing is left open, or more than nests is, 0."""
        inside = job.setting.inside
        assert isinstance(inside, NestInside)
        if not CLOSE < inside.nests_gap < 1 or inside.settled is not None or inside.shorter or self.space.problems or inside.watch.over():
            return 0.0
        found = self.search(replace(job, setting=replace(job.setting, inside=inside.lessened()), layers=None), question)
        point, unlike = found.points[0], inside.unlike if inside.aim.name != "latency" else 0.0
        return point.value(question.goal) * (1 - found.certificate.gap) * (1 - unlike)

    def _charged(self, job: Job) -> float:
        """J + w T at least, of the very sum that nests have least: w times the mean seconds that devices are busy, which T is no less than.
        (Windows may hide all that they can.)"""
        inside = job.setting.inside
        assert isinstance(inside, NestInside)
        if self.space.problems:  # (free layouts are priced with static power)
            return 0.0
        charging = replace(job.setting, inside=inside.charging(job.setting.architecture))
        goal = _sum(1.0, 0.0, self.static_w)
        found = self.search(replace(job, setting=charging, layers=None), replace(self.loose, goal=goal))
        return self._figures(found)[0] * (1 - max(found.certificate.gap, inside.nests_gap))

    def _products(self) -> float:
        """A product of a step at least: (Σ sqrt(E T)_i)² of each nest's own least E T, by Cauchy and Schwarz (ΣE)(ΣT) is no less; where
        stages run side by side time is at least each T_i, and (ΣE)(max T) at least Σ (E T)_i."""
        inside = self.inside.basis
        if inside.fused or inside.aim.name != "edp":  # a member takes less than its nest alone
            return 0.0
        each: dict[str, list[float]] = {}
        for (name, *_), nest in inside.solved.items():
            each.setdefault(name, []).append(float(nest.certificate["bound"]) if nest.certificate else 0.0)
        least = [min(bounds) for bounds in each.values()]
        staged = any(axis.stages is not None for axis in self.space.mapper.axes.values())
        if self._is_one_nest:
            gap = max(self.offers[0].found.certificate.gap, inside.widest_gap)
            return self.offers[0].value * (1 - gap) if not self.limited else 0.0
        bound = sum(least) if staged else sum(map(sqrt, least)) ** 2
        open_ = [offer.found.certificate.bound for offer in self.offers if offer.found.certificate.gap]  # time was up
        return float(min([bound, *open_]))

    @property
    def _is_one_nest(self) -> bool:
        """Whether the first step is a nest, once or more often, and nothing beside it: it draws the same watts."""
        inside = self.inside.basis
        if not self.offers or len({name for name, *_ in inside.solved}) > 1 or inside.hidden or inside.ragged:
            return False
        joules, seconds = self._figures(self.offers[0].found)
        costs = (nest.cost for nest in inside.solved.values())
        return any(isclose(joules * one.latency_s, seconds * self.used * one.energy_j, rel_tol=CLOSE) for one in costs)

    # -- lines
    def _traded(self, bound: float) -> float:
        """Search along the hull; the bound."""
        goal, limits = self.question.goal, self._limits()
        figure = self._figure(goal)
        rises = "power" not in self.exactly.most
        least_slope = self.static_w if self.space.problems else 0.0  # free layouts are priced with static power
        with suppress(InfeasibleError):
            if self._goes_on:
                self._look(*self._slope(figure, least_slope))
            self._look(1.0, least_slope)
            self._look(0.0, 1.0)
            for name in self.limited:
                joule, second = self.exactly.goal(name).weights(self.static_w)
                if joule and second:
                    self._look(1.0, max(second / joule, least_slope))
            if goal.additive and all(goal.weights(self.static_w)):
                joule, second = goal.weights(self.static_w)
                self._look(1.0, second / joule)
            before = inf
            for _ in range(ROUNDS):
                least, corners = self.hull.lowest(figure, limits, rises=rises)
                left = self.value - max(bound, least)
                if self._settled(max(bound, least)) or (self.unproven and not self.limited and left > before * (1 - WORTH)):
                    break
                lines = (self.hull.tangent(figure, corners), *map(self.hull.chord, corners))
                line = next((line for line in lines if line is not None), None)
                if line is None:
                    break
                self._look(1.0, max(line[1] / line[0], least_slope))
                before = left
        sure = not isfinite(self.question.least) and len(self.hull.lines) > 1
        return self.hull.lowest(figure, limits, rises=rises)[0] if sure else 0.0

    @property
    def _goes_on(self) -> bool:
        """Whether nests' own searches for a product are gone on with: they are open, so that what bounds the step are lines near it, of
        which what these have cut says most."""
        inside = self.inside.basis
        return inside.aim.name == "edp" and not self.limited and not inside.fused and inside.nests_gap > CLOSE

    def _slope(self, figure: Figure, least: float) -> tuple[float, float]:
        """(1, b) of J + b T, along which a figure changes least at the best step. least: b at least."""
        joules, seconds = self._figures(min(self.offers, key=lambda offer: offer.value).found)
        a, b = tangent_of(figure, joules, seconds)
        return 1.0, max(b / a, least)

    def _look(self, energy: float, latency: float) -> None:
        """Search for the least energy · J + latency · T, and keep what it says."""
        goal = _sum(energy, latency, self.static_w)
        aim, second_j = ("energy", latency / self.used) if energy else ("latency", None)
        inside = self.inside.aimed(replace(self.inside.aim, name=aim), second_j=second_j, goes_on=self._goes_on)
        job = replace(self.job, setting=replace(self.job.setting, inside=inside), layers=None)
        other, found = best_fused(job, replace(self.loose, goal=goal), self.search)
        joules, seconds = self._figures(found)
        used = other.setting.inside
        assert isinstance(used, NestInside)
        self.unproven |= used.nests_gap > CLOSE
        if energy and latency and inside.hidden:
            least = self._charged(job)
        else:
            least = (energy * joules + latency * seconds) * (1 - max(found.certificate.gap, used.widest_gap))
            least = max(least, self._lessened(other, replace(self.loose, goal=goal)))
        for line in (SupportLine(1.0, 0.0, 0.0, (joules, seconds)), SupportLine(0.0, 1.0, 0.0, (joules, seconds))):
            self.hull.add(line)
        self.hull.add(SupportLine(energy, latency, least, (joules, seconds)))
        point = found.points[0]
        value = point.value(self.question.goal)
        if self.limited or value < self.value * (1 - SLACK):
            for one in (other, *([job] if other is not job else [])):
                self._offer(one, again=False)

    def _limits(self) -> list[tuple[Figure, float]]:
        """The limits in joules and seconds."""
        found: list[tuple[Figure, float]] = []
        for name, most in self.exactly.most.items():
            if name == "power":
                found.append((self._above(most), 0.0))
            elif name == "carbon":
                found.append((self._figure(Objective("energy")), self.exactly.energy))
            elif name != "memory":
                found.append((self._figure(self.exactly.goal(name)), most))
        return found

    def _above(self, watts: float) -> Figure:
        """Joules above so many watts."""
        return lambda joules, seconds: joules + (self.static_w - watts) * seconds

    def _figure(self, goal: Objective) -> Figure:
        return lambda joules, seconds: float(goal.value(seconds, joules + self.static_w * seconds, 0.0))

    def _figures(self, found: Found) -> tuple[float, float]:
        """(joules without static power, seconds) of the best point."""
        point = found.points[0]
        return max(float(point.joules) - self.static_w * float(point.seconds), 0.0), float(point.seconds)

    # -- the answer
    def _answer(self, bound: float) -> tuple[Job, Found]:
        """The best offer, under what is known."""
        if not self.offers:
            raise self._none()
        best = min(self.offers, key=lambda offer: offer.value)
        inside, sheet = best.job.setting.inside, best.found.certificate
        assert isinstance(inside, NestInside)
        gap = max(0.0, 1 - bound / best.value) if best.value > 0 else 0.0
        inside.settled = gap if gap > CLOSE else 0.0
        said = "; ".join(note for note in (sheet.note, NOTE if len(self.hull.lines) > 1 else "") if note)
        sheet = replace(sheet, gap=inside.settled, bound=min(bound, best.value) if inside.settled else best.value, note=said)
        sheet = replace(sheet, seconds=time.perf_counter() - self.started)
        alone = {figure.name for figure in self.question.front} <= {self.question.goal.name, "memory"}
        return best.job, replace(best.found, certificate=sheet, complete=best.found.complete and alone and not inside.settled)

    def _none(self) -> InfeasibleError:
        """Why nothing keeps the limits: what comes nearest, where no nests could."""
        nearest = min(self.refused, key=lambda problem: problem.need / problem.have if problem.have > 0 else inf)
        figure, rises = self._figure(Objective("latency")), "power" not in self.exactly.most
        if len(self.hull.lines) > 1 and self.hull.lowest(figure, self._limits(), rises=rises)[0] == inf:
            return nearest
        return unknown("no loop nests that were tried keep the limits")


def _sum(energy: float, latency: float, static_w: float) -> Objective:
    """energy · J + latency · T, of joules with static power and seconds; energy is 1 or 0."""
    if not energy:
        return Objective("latency")
    return Objective("total_carbon", energy, latency - energy * static_w) if latency != energy * static_w else Objective("energy")
