"""Free layouts of a model settled before the search that answers: bounds closed as far as they go, better layouts beside those found.

shortlist → its best step → columns whose bounds are below that, by branch and bound → their layouts, and a descent from the best
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.layouts.descent import Descent
from rackmodel.mapper.layouts.least_ops import LeastOperations
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.mapping import MapperSpec

AMONG = 40  # best points, among which descents begin
CLOSE = 2e-3  # relative: bounds so near the best step are near enough


def settled(
    job: Job,
    mappers: tuple[MapperSpec, MapperSpec],
    space_of: Callable[[MapperSpec], Mapspace],
    question: Question,
    axis: str,
    least: LeastOperations,
) -> tuple[MapperSpec, Question]:
    """The mapper with better layouts beside its shortlist, and the question with the bound of all that are free. mappers: with the
    shortlist, and with layouts that leave each layer whole · space_of: the space of a mapper · axis: the free one · least: bounds of the
    columns that any layout has."""
    mapper, open_ = mappers
    goal = question.goal
    question = replace(question, least=least.bound(goal))
    asked = Question(goal=goal, top=AMONG, limits=question.limits, watch=question.watch)
    try:
        found = search_space(job, space_of(mapper), asked)
    except InfeasibleError:
        found = None
    best = math.inf if found is None else found.certificate.objective
    bound, leaves = least.closed(goal, best * (1.0 - CLOSE))
    better = Descent(job, space_of, axis, asked, next(iter(open_.layouts.values()))).improved(mapper, found, leaves, bound)
    return better or mapper, replace(question, least=max(question.least, bound))
