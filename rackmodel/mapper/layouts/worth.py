"""What bounds of steps say before free layouts are found: which columns may hold a step better than any that a file's named layouts have,
and which layouts the bounds themselves are of.

    solve (degree, micro-batch)  only if  bound of some column that takes its layouts from there  <  best step of the named layouts

The bounds are of any layout (`least_steps`), so what is left out cannot win in a column of its own. The layouts that attain a bound know
what a layer alone does not: the memory of a step, and what its weights keep the lanes beside the device busy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.layer_tables import Attained
from rackmodel.mapper.layouts.least_ops import LeastOperations
from rackmodel.mapper.layouts.least_steps import LeastSteps, Seen
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.mapping import MapperSpec

Points = list[tuple[int, int]]  # degree of the free axis, samples of a micro-batch


@dataclass(frozen=True)
class Worth:
    """What a search knows before its free layouts are found. space_of: the space of a mapper whose layouts are all named · seen: bounds of
    columns, kept for the space with the layouts found."""

    job: Job
    question: Question
    space_of: Callable[[MapperSpec], Mapspace]
    seen: Seen = field(default_factory=dict)

    def solving(self, points: Points, named: MapperSpec, open_: MapperSpec, axis: str) -> Points:
        """Those of the points that are worth solving; all where nothing is known of their columns. named: the mapper with its named layouts
        alone · open_: with one that leaves every layer whole, which no degree refuses."""
        asked = self.question
        if not named.layouts or asked.top > 1 or asked.front or asked.limits.most or asked.watch.limited:
            return points
        try:
            space, every = self.space_of(named), self.space_of(open_)
            if not LeastSteps(self.job, every, axis, asked.watch).applies:
                return points
            found = search_space(self.job, space, Question(goal=asked.goal, watch=asked.watch))
        except (InfeasibleError, InputError):
            return points
        best = found.certificate.objective
        columns = LeastOperations(self.job, every, axis, asked.watch, self.seen).columns(asked.goal)
        wanted = {_nearest(points, degree, batch) for degree, batch, bound in columns if bound < best}
        return [point for point in points if point in wanted]

    def attaining(self, open_: MapperSpec, axis: str) -> list[Attained]:
        """Layouts of a layer that bounds of the columns with the least ones are of. open_: as above."""
        try:
            every = self.space_of(open_)
        except (InfeasibleError, InputError):
            return []
        return LeastOperations(self.job, every, axis, self.question.watch, self.seen).attaining(self.question.goal)


def _nearest(points: Points, degree: int, batch: int) -> tuple[int, int]:
    """The point whose layouts a column takes: of the largest degree and micro-batch that are no larger than its own."""
    return max(points, key=lambda point: (point[0] <= degree, min(point[0], degree), point[1] <= batch, min(point[1], batch)))
