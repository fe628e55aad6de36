"""Seconds at most: no step takes longer by the clock, and the least power of a space is that of all its steps."""

from __future__ import annotations

import numpy as np
import pytest

import rackmodel as rm
from rackmodel.arrays import Array
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.most import most_seconds, passes_at_most
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, WEIGHT, WHOLE, waves
from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import Job, price_group
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.profile import Overlap, ProfileSpec
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


def test_a_path_may_begin_with_gathers_of_one_stage_and_end_with_the_optimizer_of_another() -> None:
    """Two stages of two layers: the first one's weights are sharded by the optimizer and gathered under the first pass, the second one's
    are updated whole by each of four ranks. (Until 30 November 2026 the larger of the two stages' sums was added: the step was 34 % above
    its most.)"""
    layers = {
        "first": {"repeat": 2, "einsums": {"one": "U[b,s,f] = X[b,s,d] * W1[d,f]", "two": "Y[b,s,d] = U[b,s,f] * W2[f,d]"}},
        "second": {"repeat": 2, "einsums": {"three": "V[b,s,f] = Y[b,s,d] * W3[d,f]", "four": "Z[b,s,d] = V[b,s,f] * W4[f,d]"}},
    }
    phases, precision = ["forward", "backward", "optimizer"], {"gradient": "16 bit", "state": "96 bit"}
    sizes = {"b": 8, "s": 16, "d": 512, "f": 512}
    workload = rm.read({"workload": "w", "phases": phases, "sizes": sizes, "precision": precision, "sections": layers})
    sharded = {"axes": ["dp"], "state": "shard"}
    axes = {"pp": {"degree": 2, "stages": "layers"}, "dp": {"degree": 4}}
    mapper = rm.read({"mapper": "m", "axes": axes, "split": {"dp": ["b"]}, "homes": {"W1": sharded, "W2": sharded}, "micro_batch": 1})
    slow = {"accelerators": 8, "rack.network.bandwidth": "40 GB/s", "system.network.bandwidth": "8 GB/s"}
    profile = ProfileSpec(profile="gathers beside", overlap=Overlap(weights=True, gradients=False))
    job = Job(setting=Setting(architecture=rm.read("rack_paper_h100", set=slow)), workload=workload, profile=profile)
    (group,) = build_mapspace(mapper, workload, 8).groups
    price = price_group(job, group.columns, [one.plan for one in group.variants], [one.offload for one in group.variants])
    made, counts = even_cut((2, 2), (True, True), 2, 1), price.columns.micro_batches
    assert made is not None
    most = most_seconds(Layers.of(price.sections, StepChoices.of(profile, [(0, 1)])), price.sends, made, "1f1b", counts)
    parts = tuple((section, group.variants[0].plan) for section in range(2))
    structure = Structure(parts=parts, cut=made, schedule="1f1b", micro_batches=int(counts[0]), overlap=(0, 1))
    assert (ExactStep(job, structure, price.columns).seconds() <= most[0, :, 0]).all()


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
