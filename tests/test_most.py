"""Seconds at most: no step takes longer by the clock, and the least power of a space is that of all its steps."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.arrays import Array
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.most import most_seconds, passes_at_most
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, WEIGHT, WHOLE, waves
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.schedules import SCHEDULES, TABLE
from tests import samples
from tests.step_points import SPACES, draw, job_under, space_called

STRUCTURES, TOGETHER = samples.cases(4, 150), 4
ALL = 10**6


def longest_way(schedule: str, stages: int, micro_batches: int, chunks: int, took: dict[int, Array]) -> Array:
    """The longest way through an order whose passes of a kind take equally long."""
    order = waves(schedule, stages, micro_batches, chunks)
    end = np.zeros((len(order.device) + 1, len(took[FORWARD])))
    for place, kind in enumerate(order.kind.tolist()):
        end[place] = np.maximum(end[order.before[place]], end[order.feeds[place]]) + took.get(kind, 0.0)
    return np.asarray(end.max(axis=0))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_passes_that_are_alike_take_no_longer_than_so_many_of_each_kind(schedule: str) -> None:
    row, random = TABLE[schedule], np.random.default_rng(7)
    f, b, w = random.exponential(1.0, (3, 24))
    f[0] = b[1] = w[2] = 0.0  # and nothing of a kind
    w = w if row.splits else np.zeros_like(w)
    for stages in (1, 2, 3, 4, 7, 8):
        for micro_batches in (1, 2, 3, 4, 6, 8, 12, 14, 16, 21, 24):
            for chunks in (2,) if row.folded else (2, 3, 5) if row.chunked else (1,):
                if not row.takes(stages, micro_batches):
                    continue
                most = passes_at_most(schedule, stages, chunks, np.array([micro_batches])) * (f + b + w)
                longest = longest_way(schedule, stages, micro_batches, chunks, {FORWARD: f, BACKWARD: b, WEIGHT: w, WHOLE: b + w})
                assert (longest <= most * (1 + 1e-12)).all(), (stages, micro_batches, chunks)


@pytest.mark.parametrize("number", samples.some([number for number, name in enumerate(SPACES) if name != "stages"], 2))
def test_no_random_point_takes_longer_than_it_may(number: int) -> None:
    for seed in range(STRUCTURES):
        point = draw(list(SPACES)[number], seed, profiles=(number, number + 1))
        columns = point.alike(TOGETHER, np.random.default_rng(seed))
        windows, beside = (np.array([float(on)]) for on in point.structure.overlap)
        layers = Layers.of(point.price.sections, StepChoices(profile=point.job.profile, windows=windows, beside=beside))
        plans, counts = np.full(len(columns), point.plan), point.price.columns.micro_batches[columns]
        sends = point.price.sends.cells(plans, columns)
        most = most_seconds(layers.cells(plans, columns), sends, point.cut, point.structure.schedule, counts)[:, 0]
        assert (point.exact_of(columns).seconds() <= most).all(), f"seed {seed}"


@pytest.mark.parametrize("name", ["few", "few streaming", "graph", "stages"])
@pytest.mark.parametrize("profile", samples.some(range(2), 2))
def test_the_least_power_of_a_verdict_is_the_least_of_all_steps(name: str, profile: int) -> None:
    job, (_, space) = job_under(name, profile), space_called(name)
    every = search_space(job, space, Question(goal=Objective("latency"), top=ALL)).points
    least = min(point.power_w for point in every)
    for limit in (least * 1e-3, least * 0.999):
        with pytest.raises(InfeasibleError, match="power") as verdict:
            search_space(job, space, Question(goal=Objective("latency"), limits=Limits({"power": limit})))
        assert verdict.value.need == pytest.approx(least, rel=1e-12)


def test_under_a_limit_of_power_what_is_never_long_enough_is_ruled_out() -> None:
    limits = Limits({"power": 30.0}, static_w=10.0)
    # 100 J of tasks beside 10 W keep 30 W from 5 s on: a step of 4 s at most does not, one of 6 s may
    seconds, joules = np.array([2.0, 2.0]), np.array([120.0, 120.0])
    assert limits.long_enough(seconds, joules, np.array([4.0, 6.0])).tolist() == [False, True]
    assert Limits({"latency": 3.0}).long_enough(seconds, joules, np.array([4.0, 6.0])).all()
