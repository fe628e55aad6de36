"""Limits of power: which steps a bound rules out, by hand, and how few are run for an answer or a verdict."""

import numpy as np
import pytest

import rackmodel as rm
from rackmodel import api
from rackmodel.mapper.limits import ROOM, Limits
from rackmodel.mapper.points import Clocked

ASKED = ("dgx_h100", "llama3_8b", "megatron")
SETS = ("accelerators=32", "b=64")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each call of the clock ran, as far as a search goes."""
    counts, took = list[int](), Clocked.took

    def counted(self: Clocked, points: list[object]) -> object:
        counts.append(len(points))
        return took(self, points)  # type: ignore[arg-type]

    monkeypatch.setattr(Clocked, "took", counted)
    return counts


def test_a_step_that_keeps_a_limit_of_power_takes_as_long_as_its_joules_need() -> None:
    limits = Limits({"power": 30.0}, static_w=10.0)
    # 100 J of tasks beside 10 W: 30 W from 5 s on, 150 J then; 60 J from 3 s on, and this one is longer anyway
    seconds, joules = limits.least(np.array([2.0, 4.0]), np.array([120.0, 100.0]))
    assert seconds == pytest.approx([5.0, 4.0], rel=3 * ROOM)
    assert joules == pytest.approx([150.0, 100.0], rel=3 * ROOM)
    assert (joules / seconds <= 30.0 * (1 + 2 * ROOM)).all()
    assert limits.open(seconds, joules).all()


def test_static_power_above_the_limit_leaves_no_step() -> None:
    limits = Limits({"power": 30.0}, static_w=40.0)
    assert not limits.open(*limits.least(np.array([2.0]), np.array([120.0]))).any()
    loose = Limits({"latency": 3.0}, static_w=40.0)
    assert loose.open(*loose.least(np.array([2.0]), np.array([120.0]))).all()


def test_together_with_a_limit_of_seconds_one_of_power_rules_out_what_needs_longer() -> None:
    limits = Limits({"power": 30.0, "latency": 4.5}, static_w=10.0)
    assert limits.open(*limits.least(np.array([2.0, 4.0]), np.array([120.0, 100.0]))).tolist() == [False, True]


@pytest.mark.parametrize(("limit", "most"), [(19e3, 10), (17e3, 400)])  # of 8548; 28 and 3081 where bounds of seconds alone are asked
def test_few_steps_are_run_under_a_limit_of_power_that_binds(run: list[int], limit: float, most: int) -> None:
    free = api.search(*ASKED, sets=SETS).result
    run.clear()
    found = api.search(*ASKED, sets=SETS, limits={"power": limit}).result
    assert free.energy_j / free.latency_s > limit > found.energy_j / found.latency_s
    assert found.certificate.proven
    assert sum(run) <= most


@pytest.mark.parametrize("goal", ["energy", "edp"])
def test_other_goals_run_no_more_than_the_steps_that_may_keep_it(run: list[int], goal: str) -> None:
    found = api.search(*ASKED, sets=SETS, minimize=goal, limits={"power": "19 kW"}).result
    assert found.energy_j / found.latency_s <= 19e3
    assert sum(run) <= 10


def test_a_verdict_runs_no_step_twice(run: list[int]) -> None:
    sets = ("accelerators=8", "b=16")
    with pytest.raises(rm.InfeasibleError, match="power") as least:
        api.search(*ASKED, sets=sets, limits={"power": "1 kW"})
    every = sum(run)
    need = least.value.need
    run.clear()
    # a limit that static power is below, which every step's bound may keep: what was run for the answer is not run again
    with pytest.raises(rm.InfeasibleError, match="power") as close:
        api.search(*ASKED, sets=sets, limits={"power": need * 0.999})
    assert close.value.need == need
    assert sum(run) == every
    run.clear()
    kept = api.search(*ASKED, sets=sets, limits={"power": need * (1 + 1e-12)}).result
    assert kept.energy_j / kept.latency_s == pytest.approx(need, rel=1e-11)
    assert sum(run) <= every


@pytest.mark.parametrize("limit", ["1 kW", "14 kW"])  # below static power, and between that and the least of all, 14.53 kW
def test_a_verdict_runs_few_steps(run: list[int], limit: str) -> None:
    with pytest.raises(rm.InfeasibleError, match=r"power: a step needs 14\.53 kW at least"):
        api.search(*ASKED, sets=SETS, limits={"power": limit})
    assert sum(run) <= 300  # of 8,548, all of which were run until 30 November 2026
