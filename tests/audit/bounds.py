"""Lower bounds of seconds held against the clock: points of a space, each bounded as its search does and then timed exactly."""

from __future__ import annotations

import random
from typing import NoReturn
from unittest.mock import patch

from rackmodel import api
from rackmodel.cost.step.group import Job
from rackmodel.errors import InputError
from rackmodel.mapper import in_order
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.points import Point
from rackmodel.mapper.search import Question, _Search
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Workload

ROUNDING = 1e-12
Inputs = tuple[Architecture, Workload, MapperSpec]


class _LookedAt(Exception):
    """A search that is not run."""


def above_the_clock(inputs: Inputs, profile: str, count: int, seed: int) -> tuple[int, list[str]]:
    """(points compared, those whose bound is above what they take), of so many random points. Raises InputError for what is refused."""
    search = search_of(inputs, profile)
    listed = [(block, flat) for block in search.blocks.walk() if block is not None for flat in range(block.seconds.size)]
    random.Random(seed).shuffle(listed)
    points = [search.blocks.point(block, flat, 0.0) for block, flat in listed[:count]]
    exact = search.clocked.exact(points)
    faults = [_said(bound, one) for bound, one in zip(points, exact, strict=True) if bound.seconds > one.seconds * (1 + ROUNDING)]
    return len(points), faults


def _said(bound: Point, exact: Point) -> str:
    return f"point {bound.order}: bound {bound.seconds!r} s, takes {exact.seconds!r} s"


def search_of(inputs: Inputs, profile: str) -> _Search:
    """What a search of the space looks at first."""
    found: list[_Search] = []

    def looked_at(job: Job, space: Mapspace, question: Question) -> NoReturn:
        found.append(_Search(job, space, question))
        raise _LookedAt

    try:
        with patch.object(in_order, "search_space", looked_at):
            api.search_mapper(*inputs, profile=profile)
    except _LookedAt:
        return found[0]
    raise InputError("the space is searched in another way")
