"""EDP over several loop nests: (Σ E)(Σ T) is not least where each nest's own E T is.

Where nothing overlaps, energy and time of a step are sums over its nests, so its points (E, T) are sums of the nests' points, over every
mesh. E T is quasi-concave: on the convex hull of all those points it is least at a corner, and a corner is least in some a E + b T, which
every nest makes least on its own. So searches for weighted sums find the optimum, and prove it: each leaves a E + b T >= h, a line that no
point is below, and where these lines meet E T is bounded. The lowest of these places is looked at next, along the chord between the points
that its two lines touch. What does overlap is searched the same way; its bound is that of each nest's own least product (results).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.launches_saved import best_fused
from rackmodel.mapper.limits import NO_LIMITS
from rackmodel.mapper.loop_nests import NestInside
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Found, Question
from rackmodel.nests.objective import NestObjective

ROUNDS = 12  # searches for weighted sums
CLOSE = 1e-9  # relative difference below which two figures are equal
Search = Callable[[Job, Question], Found]


@dataclass(frozen=True)
class SupportLine:
    """energy · E + latency · T >= least, of every point; the point of least sum that was found."""

    energy: float
    latency: float
    least: float
    point: tuple[float, float]

    def meets(self, other: SupportLine) -> tuple[float, float]:
        """(E, T) where both are equal."""
        across = self.energy * other.latency - other.energy * self.latency
        joules = (self.least * other.latency - other.least * self.latency) / across
        return joules, (self.energy * other.least - other.energy * self.least) / across


@dataclass
class Hull:
    """Lines by slope, energy alone first, latency alone last."""

    lines: list[SupportLine]

    def lowest(self) -> tuple[float, int]:
        """(least E T that the lines allow, number of the first of the two lines that meet there).

        Along each line between two meetings E T is least at an end."""
        places = [a.meets(b) for a, b in zip(self.lines, self.lines[1:], strict=False)]
        return min((max(joules, 0.0) * max(seconds, 0.0), i) for i, (joules, seconds) in enumerate(places))

    def chord(self, i: int) -> tuple[float, float] | None:
        """(a, b) of the line through the points of lines i and i + 1; None where they are one point or it is one of those lines."""
        one, two = self.lines[i], self.lines[i + 1]
        a, b = one.point[1] - two.point[1], two.point[0] - one.point[0]
        fine = 1 - CLOSE
        between = one.latency * a < one.energy * b * fine and b * two.energy < a * two.latency * fine
        return (a, b) if a > 0 and b > 0 and between else None


class _Products:
    """Searches of one job for several aims. best: of least E T · hull: what they prove of every point."""

    def __init__(self, job: Job, question: Question, search: Search) -> None:
        self.job, self.question, self.search = job, question, search
        self.best = best_fused(job, question, search)
        self.hull = Hull([])
        self.nests = job.setting.inside

    def look(self, energy: float, latency: float) -> None:
        """Search for the least energy · E + latency · T, and keep what is better; the line goes into the hull."""
        assert isinstance(self.nests, NestInside)
        used = self.job.setting.architecture.used  # a nest's joules are of one accelerator
        names = {(1.0, 0.0): "energy", (0.0, 1.0): "latency"}
        aim = NestObjective(names.get((energy, latency), "weights"), energy * used, latency)
        inside = self.nests.aimed(aim)
        other = replace(self.job, setting=replace(self.job.setting, inside=inside))
        goal = Objective(names.get((energy, latency), "total_carbon"), energy, latency)
        other, found = best_fused(other, replace(self.question, goal=goal), self.search)
        joules, seconds = _figures(found)
        gap = max(found.certificate.gap, other.setting.inside.widest_gap)  # type: ignore[attr-defined]
        line = SupportLine(energy, latency, (energy * joules + latency * seconds) * (1 - gap), (joules, seconds))
        self.hull.lines = sorted([*self.hull.lines, line], key=lambda at: at.latency / (at.energy + at.latency))
        if joules * seconds < self.product * (1 - 1e-12):
            self.best = other, found

    @property
    def product(self) -> float:
        """Least E T that was found."""
        joules, seconds = _figures(self.best[1])
        return joules * seconds

    def run(self) -> float:
        """Leave the best in `best`; the bound."""
        assert isinstance(self.nests, NestInside)
        self.look(1.0, 0.0)
        self.look(0.0, 1.0)
        for _ in range(ROUNDS):
            least, i = self.hull.lowest()
            chord = self.hull.chord(i)
            if chord is None or least >= self.product * (1 - CLOSE) or self.nests.watch.over():
                break
            self.look(*chord)
        return self.hull.lowest()[0]


def best_product(job: Job, question: Question, space: Mapspace, search: Search) -> tuple[Job, Found]:
    """What `search` finds for a job, or for the same job with nests of another aim where its product is smaller."""
    inside = job.setting.inside
    if question.goal.name != "edp" or not isinstance(inside, NestInside):
        return best_fused(job, question, search)
    products = _Products(job, question, search)
    if len(inside.solved) < 2 or inside.watch.over():
        return products.best
    with suppress(InfeasibleError):
        bound = products.run()
        if _additive(job, question, space) and not inside.ragged:
            inside.least_product = bound
        elif inside.fused:  # no nest's own product bounds what is fused
            inside.least_product = products.hull.lines[0].least * products.hull.lines[-1].least
    job, found = products.best
    sheet = replace(found.certificate, minimize="edp", objective=products.product, bound=products.product, gap=0.0)
    return job, replace(found, certificate=sheet)


def _additive(job: Job, question: Question, space: Mapspace) -> bool:
    """Whether every point's energy and time are sums over its nests: nothing overlaps, no pipeline, no limit."""
    overlap = job.profile.overlap
    apart = not (overlap.weights or overlap.hides_gradients or overlap.sends or overlap.windows)
    whole = question.limits == NO_LIMITS and not space.problems and not isfinite(question.least)
    return apart and whole and all(axis.stages is None for axis in space.mapper.axes.values())


def _figures(found: Found) -> tuple[float, float]:
    """(joules, seconds) of the best point."""
    return float(found.points[0].joules), float(found.points[0].seconds)
