"""What the search does for many points at once is, to the last digit, what it does for each: bounds, prices and the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rackmodel.cost.step.clock import seconds_together, step_seconds
from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.device_times import Layers, StepChoices
from rackmodel.cost.step.exact import trace
from rackmodel.cost.step.jobs import LayerPass
from rackmodel.cost.step.ledger import step_ledger
from rackmodel.cost.step.pass_plan import pass_name, pass_plan
from rackmodel.cost.step.pipeline_orders import waves
from rackmodel.mapper.families import Families, FamilyBound
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.pipelines import Pipelines
from rackmodel.mapper.points import exact_step
from rackmodel.mapper.search import Question, search_space
from tests.step_points import draw, job_under, priced, space_called

POINTS = 12


@pytest.mark.parametrize("name", ["gpt", "offload", "port"])
@pytest.mark.parametrize("profile", range(2))
def test_no_plan_is_below_the_bound_of_its_family(name: str, profile: int) -> None:
    space = space_called(name)[1]
    for number, group in enumerate(space.groups):
        job, price = priced(name, number, profile)
        families, every = Families(group.variants, price), np.flatnonzero(price.columns.stages == 2)
        made = even_cut(price.repeats, price.layers, 2, 1)
        if made is None or not len(every):
            continue
        choices = StepChoices(profile=job.profile, windows=np.array([1.0, 0.0]), beside=np.array([1.0, 0.0]))

        def bound(sections, sends, of, *, made=made, every=every, choices=choices, price=price):  # type: ignore[no-untyped-def]
            steps = Pipelines(
                layers=Layers.of([one.columns(every) for one in sections], choices),
                sends=sends.columns(every),
                cut=made,
                schedule="1f1b",
                micro_batches=price.columns.micro_batches[every],
                apart=False,
            )
            return steps, FamilyBound.composed(of, steps, 100.0)

        _, least = bound(families.sections, families.sends, families.of)
        steps, own = bound(price.sections, price.sends, np.arange(len(group.variants)))
        assert len(families) < len(group.variants)
        for figure in ("seconds", "joules", "memory"):
            assert (getattr(least, figure)[families.of] <= getattr(own, figure)).all(), figure
        assert (least.seconds[families.of][..., None] <= steps.seconds()).all()


@pytest.mark.parametrize("name", ["few", "few streaming", "graph"])
def test_points_priced_and_timed_together_are_those_alone(name: str) -> None:
    job, (_, space) = job_under(name, 1), space_called(name)
    found = search_space(job, space, Question(goal=Objective("latency"), top=10**6))
    for point in found.points[:: max(1, len(found.points) // POINTS)]:
        alone = exact_step(job, point, found.groups[point.group], found.prices[point.group])
        assert float(alone.seconds()[0]) == point.seconds
        assert step_ledger(alone).rows == step_ledger(found.clocked.step(point)).rows


def test_pipelines_of_many_plans_run_together_as_each_alone() -> None:
    jobs = [draw(name, seed).exact.jobs for name in ("gpt", "slow") for seed in range(30)]
    for one, seconds in zip(jobs, seconds_together(jobs), strict=True):
        assert (step_seconds(one) == seconds).all()


def test_steps_that_the_clock_sees_alike_take_what_one_of_them_takes() -> None:
    drawn = [draw(name, seed).exact for name in ("few", "gpt") for seed in range(20)]
    jobs = [step.jobs for step in drawn]
    known: dict[object, np.ndarray] = {}
    for half in (jobs[::2], jobs):
        for one, seconds in zip(half, seconds_together(half, known), strict=True):
            assert (step_seconds(one) == seconds).all()
    assert len(known) == len({one.key for one in jobs})
    for one in jobs:
        for slower in (replace(one, send_s=one.send_s + 1.0), replace(one, sections=tuple(map(_slower, one.sections)))):
            assert slower.key != one.key


def _slower(section: dict[str, LayerPass]) -> dict[str, LayerPass]:
    """Every job of a section a second longer."""
    return {name: replace(one, body=tuple(replace(job, seconds=job.seconds + 1.0) for job in one.body)) for name, one in section.items()}


def test_paths_found_together_are_those_of_each_step_alone() -> None:
    drawn = [draw(name, seed).exact for name in ("gpt", "slow", "few") for seed in range(20)]
    steps = [step for step in drawn if not step.staged and step.jobs.n == 1]
    alone = [step.path() for step in steps]
    trace(steps)
    assert len(steps) > 40
    assert len({(step.jobs.schedule, step.jobs.stages, step.jobs.micro_batches) for step in steps}) < len(steps)
    for step, path in zip(steps, alone, strict=True):
        assert step.path() == path


ORDERS = [("1f1b", 4, 6, 1), ("interleaved", 3, 6, 2), ("zb_h1", 4, 1, 1)]


@pytest.mark.parametrize(("schedule", "stages", "micro_batches", "chunks"), ORDERS)
@pytest.mark.parametrize("backward", [True, False])
def test_a_plan_says_of_every_pass_what_it_runs_and_what_its_device_runs_next(
    schedule: str, stages: int, micro_batches: int, chunks: int, backward: bool
) -> None:
    total, idle = waves(schedule, stages, micro_batches, chunks), frozenset({(1, "forward"), (2, "last")})
    plan = pass_plan(schedule, stages, micro_batches, chunks, backward, idle)
    following: list[tuple[int, str] | None] = [None] * stages
    run = [number for number in range(total.kind.size) if backward or total.kind[number] == 0]
    for number in reversed(run):
        device = int(total.device[number])
        mine = int(total.virtual[number]), pass_name(int(total.kind[number]), int(total.micro_batch[number]), micro_batches)
        assert plan.alike[plan.which[number]] == (mine, following[device])
        if mine not in idle:
            following[device] = mine
    assert plan.starts == tuple(following)
    assert [number for wave in plan.waves for number in wave.passes.tolist()] == run
    for wave in plan.waves:
        assert (wave.feeds == total.feeds[wave.passes]).all()
        assert (wave.device == total.device[wave.passes]).all()
        taken = [place for place, number in enumerate(wave.passes.tolist()) if number in set(total.feeds[run].tolist())]
        own = wave.passes[taken]
        assert [place for place, link in enumerate(wave.link.tolist()) if link < 2 * stages] == taken
        assert wave.link[taken].tolist() == (total.kind[own] * stages + total.device[own]).tolist()
        assert np.arange(total.kind.size)[wave.span].tolist() == wave.passes.tolist()
        assert wave.whole == (wave.device.tolist() == list(range(stages)))
    assert len({(wave.turn, tuple(wave.alike.tolist())) for wave in plan.waves}) == len({wave.turn for wave in plan.waves})
    last: dict[int, int] = {}
    for wave in plan.waves:
        for number, link in zip(wave.passes.tolist(), wave.link.tolist(), strict=True):
            assert plan.ahead[number] == (last.get(link, total.kind.size) if link < 2 * stages else total.kind.size)
            last[link] = number
