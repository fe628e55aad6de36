"""What the search does for many points at once is, to the last digit, what it does for each: bounds, prices and the clock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from rackmodel.cost.step.bounds.cut_rows import CutRows, least_of
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.memory import memory_of
from rackmodel.cost.step.clock.clock import Clock, StepJobs, seconds_together, step_seconds
from rackmodel.cost.step.clock.critical_path import critical_path, critical_paths, paths_together
from rackmodel.cost.step.clock.pass_plan import pass_name, pass_plan
from rackmodel.cost.step.clock.pipeline_orders import waves
from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.ledger import step_ledger
from rackmodel.cost.step.tasks.jobs import LaneJob, picked
from rackmodel.mapper.families import Families, FamilyBound
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.pipelines import Pipelines
from rackmodel.mapper.points import exact_step
from rackmodel.mapper.search import Question, search_space
from tests import samples
from tests.step_points import draw, job_under, priced, space_called

POINTS = samples.cases(6, 12)


@pytest.mark.parametrize(("profile", "name"), samples.some(product(range(2), ["gpt", "slow", "experts", "offload", "port"]), 2))
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
            counts = price.columns.micro_batches[every]
            steps = partial(
                Pipelines,
                layers=Layers.of([one.columns(every) for one in sections], choices),
                sends=sends.columns(every),
                micro_batches=counts,
                apart=False,
            )
            memory, _ = memory_of([one.holding((slice(None), every)) for one in price.sections], made, "1f1b", counts)
            parts = [(made, "1f1b", least_of(made, counts))]
            [least] = FamilyBound.each(of, steps(rows=CutRows.of(parts, beside=3)), [(0, memory)], 100.0)
            return steps(rows=CutRows.of(parts)), memory, least

        _, memory, least = bound(families.sections, families.sends, families.of)
        steps, _, own = bound(price.sections, price.sends, np.arange(len(group.variants)))
        assert len(families) < len(group.variants)
        for figure in ("seconds", "joules", "memory"):
            assert (getattr(least, figure)[families.of] <= getattr(own, figure)).all(), figure
        assert (least.seconds[families.of][..., None] <= steps.seconds()).all()
        assert (steps.quick() <= steps.seconds()).all()  # of a plan's own figures, too
        assert (own.memory == memory).all()
        for family, held in enumerate(least.memory):
            assert (held == memory[families.of == family].min(axis=0)).all()


@pytest.mark.parametrize("name", ["few", "few streaming", "graph"])
def test_points_priced_and_timed_together_are_those_alone(name: str) -> None:
    job, (_, space) = job_under(name, 1), space_called(name)
    found = search_space(job, space, Question(goal=Objective("latency"), top=10**6))
    for point in found.points[:: max(1, len(found.points) // POINTS)]:
        alone = exact_step(job, point, found.groups[point.group], found.prices[point.group])
        assert float(alone.seconds()[0]) == point.seconds
        assert step_ledger(alone).rows == step_ledger(found.clocked.step(point)).rows


def test_pipelines_of_many_plans_run_together_as_each_alone() -> None:
    jobs = [draw(name, seed).exact.jobs for name in ("gpt", "slow") for seed in range(samples.cases(12, 30))]
    for one, seconds in zip(jobs, seconds_together([Clock(one) for one in jobs]), strict=True):
        assert (step_seconds(one) == seconds).all()


def test_paths_of_many_pipelines_are_each_ones_alone() -> None:
    jobs = [draw(name, seed).exact.jobs for name in ("gpt", "slow") for seed in range(samples.cases(10, 20))]
    jobs = [one for one in jobs if one.n == 1]
    assert len({(one.schedule, one.stages, one.micro_batches) for one in jobs}) > 3
    clocks = [Clock(one) for one in jobs]
    alone = [critical_path(one) for one in jobs]
    assert paths_together(clocks) == alone
    assert [float(seconds[0]) for seconds in seconds_together(clocks)] == [seconds for seconds, *_ in alone]  # a clock may run again
    assert paths_together(clocks) == alone


@pytest.mark.parametrize("share", samples.some([0.5, 0.0, 1.0], 3))
@samples.audited
def test_paths_read_from_the_run_that_gave_the_seconds_are_those_of_a_run_of_their_own(share: float) -> None:
    jobs = [draw(name, seed).exact.jobs for name in ("gpt", "slow") for seed in range(40)]
    clocks = [Clock(one) for one in jobs]
    room = int(share * sum(clock.passes for clock in clocks if not clock.alone))
    for one, seconds in zip(jobs, seconds_together(clocks, room), strict=True):
        assert (step_seconds(one) == seconds).all()
    kept = [clock for clock in clocks if clock.kept is not None]
    assert sum(clock.passes for clock in kept) <= room
    assert len(kept) == len([clock for clock in clocks if not clock.alone]) or share < 1
    twice = [*clocks, *clocks[:5]]
    assert paths_together(twice) == [critical_path(clock.jobs) for clock in twice]
    assert all(clock.kept is None for clock in clocks)


@samples.audited
def test_pipelines_of_many_mappings_keep_no_runs_and_those_of_one_beside_them_do() -> None:
    jobs = [draw(name, seed).exact.jobs for name in ("gpt", "slow") for seed in range(40)]
    wide = [_twofold(one) for one in jobs[:6]]
    clocks = [Clock(one) for one in (*jobs, *wide)]
    found = seconds_together(clocks, 10**9)
    assert all((seconds == step_seconds(one)).all() and len(seconds) == one.n for one, seconds in zip((*jobs, *wide), found, strict=True))
    assert [clock.kept is not None for clock in clocks] == [clock.jobs.n == 1 and not clock.alone for clock in clocks]
    assert paths_together(clocks[: len(jobs)]) == [critical_path(one) for one in jobs]


@pytest.mark.parametrize("most", [10**9, 2_000])
def test_steps_of_many_mappings_some_of_them_alike_have_the_seconds_and_paths_of_each_alone(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackmodel.cost.step.clock.timelines.MOST", most)
    rng, asked = np.random.default_rng(7), list[tuple[StepJobs, int]]()
    for seed in range(samples.cases(12, 24)):
        jobs = draw("gpt" if seed % 2 else "slow", seed).exact.jobs
        one = _mappings(jobs, np.zeros(int(rng.integers(1, 7)), dtype=np.int64))
        slower = rng.choice([1.0, 1.0, 1.7, 3.0], size=one.n)  # some like others, the first among them or not
        asked.append((replace(one, send_s=one.send_s * slower, tied_s=one.tied_s * slower), int(rng.integers(0, one.n + 1))))
    for (jobs, wanted), found in zip(asked, critical_paths(asked), strict=True):
        each = [_mappings(jobs, np.array([column])) for column in range(jobs.n)]
        assert [seconds for seconds, *_ in found] == [float(step_seconds(one)[0]) for one in each]
        assert found[:wanted] == [critical_path(one) for one in each[:wanted]]
        assert all(not path and not other for _, path, other in found[wanted:])


def _twofold(jobs: StepJobs) -> StepJobs:
    """The same mapping twice."""
    return _mappings(jobs, np.zeros(2, dtype=np.int64))


def _mappings(jobs: StepJobs, which: NDArray[np.int64]) -> StepJobs:
    """Some of the mappings of a step, which may come again."""
    known = dict[int, tuple[LaneJob, ...]]()
    return replace(
        jobs,
        sections=tuple({name: one.pick(which, known) for name, one in section.items()} for section in jobs.sections),
        send_s=jobs.send_s[which],
        hops_s=None if jobs.hops_s is None else jobs.hops_s[..., which],
        update_s=tuple(picked(seconds, which) for seconds in jobs.update_s),
        tied_s=jobs.tied_s[which],
    )


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
    assert plan.passes.tolist() == run
    assert (plan.feeds == total.feeds[run]).all()
    assert (plan.device == total.device[run]).all()
    assert (np.diff(plan.wave) >= 0).all()
    last = np.full(stages, -1)
    done = {total.kind.size: -1}
    for number, wave in zip(run, plan.wave.tolist(), strict=True):  # after what it takes, and alone on its device
        assert wave > max(done.get(int(total.feeds[number]), -1), last[total.device[number]])
        done[number] = last[total.device[number]] = wave
    taken = [place for place, number in enumerate(run) if number in set(total.feeds[run].tolist())]
    assert plan.sending.tolist() == taken
    assert plan.way.tolist() == total.kind[run][taken].tolist()
    assert plan.sender.tolist() == total.device[run][taken].tolist()
