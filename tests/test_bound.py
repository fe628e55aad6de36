"""The search's bound of a step never exceeds the clock's seconds: on random points and whole spaces, under random profiles."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from tests.step_points import SPACES, draw, job_under, space_called

POINTS = 50
ALL = 10**6


@pytest.mark.parametrize("name", [name for name in SPACES if name != "stages"])
def test_the_bound_of_a_random_point_is_no_longer_than_the_clock_and_its_arrays_are_those_of_the_point_alone(name: str) -> None:
    for seed in range(POINTS):
        point = draw(name, seed)
        exact, whole = point.exact, point.composed()
        alone, seconds = exact.bound(), float(exact.seconds()[0])
        shape = (len(point.price.sends.seconds), len(point.price.columns), 1)
        composed = {key: float(np.broadcast_to(value, shape)[point.plan, point.column, 0]) for key, value in vars(whole).items()}
        assert alone.seconds.item() <= seconds * (1 + 1e-12), f"seed {seed}"
        assert composed["seconds"] <= seconds * (1 + 1e-12), f"seed {seed}"
        for key in ("joules", "memory", "host"):
            assert composed[key] == pytest.approx(getattr(alone, key).item(), rel=1e-12), f"seed {seed}"


@pytest.mark.parametrize("name", ["few", "few streaming", "graph", "stages"])
@pytest.mark.parametrize("profile", range(3))
def test_the_best_of_a_space_is_the_best_of_all_its_points_timed_and_none_is_below_its_bound(name: str, profile: int) -> None:
    job, (_, space) = job_under(name, profile), space_called(name)
    latency, edp = Objective("latency"), Objective("edp")
    every = search_space(job, space, Question(goal=latency, top=ALL)).points
    assert all(point.bound <= point.seconds * (1 + 1e-12) for point in every)
    found = search_space(job, space, Question(goal=latency, top=3)).points
    assert [point.seconds for point in found] == pytest.approx([point.seconds for point in every[: len(found)]], rel=1e-11)
    least = min(point.seconds * point.joules for point in every)
    best = search_space(job, space, Question(goal=edp)).points[0]
    assert best.seconds * best.joules == pytest.approx(least, rel=1e-11)
