"""The search's bound of a step never exceeds the clock's seconds: on random points and whole spaces, under random profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.tasks.pricer import Setting
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.mapping import HomeSpec
from tests import samples
from tests.audit.bounds import above_the_clock
from tests.audit.drawing import draw as audit_draw
from tests.step_points import SPACES, draw, job_under, space_called

STRUCTURES, TOGETHER = samples.cases(4, 150), 4  # random points of each space, and columns that take each one's place
ALL = 10**6


@pytest.mark.parametrize("number", samples.some([number for number, name in enumerate(SPACES) if name != "stages"], 2))
def test_the_bound_of_a_random_point_is_no_longer_than_the_clock_and_its_arrays_are_those_of_the_point_alone(number: int) -> None:
    for seed in range(STRUCTURES):
        point = draw(list(SPACES)[number], seed, profiles=(number, number + 1))
        columns = point.alike(TOGETHER, np.random.default_rng(seed))
        exact, whole = point.exact_of(columns), point.composed()
        alone, seconds = vars(exact.bound()), exact.seconds()
        shape = (len(point.price.sends.seconds), len(point.price.columns), 1)
        composed = {key: np.broadcast_to(value, shape)[point.plan, columns, 0] for key, value in vars(whole).items()}
        alone = {key: np.broadcast_to(value, (1, len(columns), 1))[0, :, 0] for key, value in alone.items()}
        assert (alone["seconds"] <= seconds * (1 + 1e-12)).all(), f"seed {seed}"
        assert (composed["seconds"] <= seconds * (1 + 1e-12)).all(), f"seed {seed}"
        for key in ("joules", "memory", "host"):
            assert composed[key] == pytest.approx(alone[key], rel=1e-12), f"seed {seed}"


@pytest.mark.parametrize("name", ["few", "few streaming", "graph", "stages"])
@pytest.mark.parametrize("profile", samples.some(range(2), 2))
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


def test_the_host_takes_no_time_for_a_backward_pass_that_is_not_there(tmp_path: Path) -> None:
    """A forward pass whose host takes 0.2 us for it and 0.6 us for each of two kernels: until 27 November 2026 the bound had 0.2 us of a
    backward one, too, and a limit of all that a step takes was said to be too little."""
    host = {"layer": "0.2 us", "launch": "0.6 us", "backward": "3 us"}
    said = {"profile": "slow", "overlap": {"weights": False}, "host": host, "source": "a test"}
    profile = tmp_path / "slow.yaml"
    profile.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    sets = ["accelerators=1", "m=16", "f=8", "d=8", "phases=[forward]"]
    asked = {"sets": sets, "profile": str(profile), "minimize": "energy", "limits": {"latency": 1.4e-6}}
    step = api.search("tiny", "ffn", "data", **asked).step
    assert step.bound().seconds.item() <= step.seconds().item() == pytest.approx(1.4e-6, rel=1e-12)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb_h1", "zb_h2"])
def test_of_equal_stages_the_bound_is_the_clock_but_for_a_thousandth(schedule: str, recompute: str) -> None:
    sequence = "layouts={sequence: {split: {tp: [h, [g, q], f, v, s]}}}"
    sets = ["accelerators=512", "axes.pp.degree=16", f"schedule=[{schedule}]", f"recompute=[{recompute}]", sequence]
    step = api.search("dgx_a100", "gpt3_175b", "megatron", sets=sets, profile="megatron_core").step
    assert step.structure.cut.stages == 16
    bound, exact = step.bound().seconds.item(), step.seconds().item()
    assert bound <= exact <= bound * 1.001


SIDES = {"gradients": True, "channels": "separate"}
LAGS = [  # (drawn space, seed, changes of its mapper, what the profile overlaps, its host)
    ("offload", 1000013, {"schedule": "zb_h2"}, SIDES | {"weights": True, "sends": True}, {}),
    (
        *("moe", 1000001, {"recompute": ["none", "alternate", "experts"]}, SIDES | {"weights": False, "sends": True, "contention": 0.1}),
        {"layer": "100 us", "launch": "1 us", "backward": "30 us"},
    ),
    ("moe", 1000011, {"recompute": ["none", "experts"]}, SIDES | {"weights": False, "contention": 0.3}, {}),
]


@pytest.mark.parametrize(("kind", "seed", "changes", "overlap", "host"), LAGS)
def test_what_reductions_outlast_a_last_pass_is_never_more_than_the_clock_has(
    kind: str,
    seed: int,
    changes: dict[str, object],
    overlap: dict[str, object],
    host: dict[str, str],
    tmp_path: Path,
) -> None:
    """Until 27 November 2026 the bound was up to 0.3 % above the clock: passes of weight gradients were taken to end with the reduction
    of a norm's gradient, which is made in the pass before; a pass that makes more again was taken to launch no more, and to gather no
    more."""
    case = audit_draw(kind, seed)
    machine, workload, mapper = case.read()
    mapper = mapper.model_copy(update=changes)
    profile = tmp_path / "lags.yaml"
    said = {"profile": "lags", "pointwise": "fused", "accumulation": "separate", "overlap": overlap, "host": host}
    profile.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    compared, faults = above_the_clock((machine, workload, mapper), str(profile), 60, seed)
    assert compared > 0
    assert faults == []


def test_joules_of_a_search_have_what_is_gathered_when_it_is_needed(tmp_path: Path) -> None:
    """Plans of several policies and homes are put together from a few: a gather that holds the device was left out, so that a search
    claimed less energy than its own ledger has (until 27 November 2026)."""
    profile = tmp_path / "needed.yaml"
    profile.write_text("profile: needed\noverlap: {ahead: 1000}\n", encoding="utf-8")
    case = audit_draw("offload", 1000078)
    machine, workload, mapper = case.read()
    zero = {"axes": ["dp"], "state": "shard", "grad": "shard"}
    homes = {"weights": [HomeSpec.model_validate(one) for one in ({}, zero, zero | {"param": "shard"})]}
    alone = {"offload": [], "host": None, "layouts": {}, "schedule": "1f1b", "interleave": 1}
    mapper = mapper.model_copy(update={"homes": homes, "recompute": ["selective", "pointwise"], **alone})
    found = api.search_mapper(machine, workload, mapper, minimize="energy", profile=str(profile)).result
    assert found.certificate.objective == pytest.approx(found.energy_j, rel=1e-12)


@pytest.mark.parametrize("profile", ["ideal", "serial", "megatron_core"])
def test_steps_without_backward_passes_are_bounded_by_forward_passes_alone(profile: str) -> None:
    """(Ways back through the stages, and hand-overs back, were in the bounds: the best was pruned, joules were too many.)"""
    sets = ["accelerators=16", "b=16", "s=128", "d=512", "f=512", "g=2", "q=2", "e=64", "v=512", "layers=8", "phases=[forward]"]
    sets += ["layouts={}", "homes={}", "recompute=none", "axes.pp.degree=[4,8]", "micro_batch=[1,2]", "interleave=2"]
    given = read_inputs("dgx_h100", "llama", mapper="megatron", sets=[*sets, "schedule=[1f1b,interleaved,zb_h1,zb_v]"])
    assert given.mapper is not None
    job = Job(setting=Setting(architecture=given.architecture), workload=given.workload, profile=read_profile(profile))
    space = build_mapspace(given.mapper, given.workload, given.architecture.used)
    every = search_space(job, space, Question(goal=Objective("latency"), top=10**6)).points
    assert all(point.bound <= point.seconds * (1 + 1e-12) for point in every)
    found = search_space(job, space, Question(goal=Objective("latency"))).points[0]
    assert found.seconds == pytest.approx(min(point.seconds for point in every), rel=1e-11)
    answer = api.search_mapper(given.architecture, given.workload, given.mapper, profile=profile, minimize="energy").result
    assert answer.energy_j == pytest.approx(answer.certificate.objective, rel=1e-12)
