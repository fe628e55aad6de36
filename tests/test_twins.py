"""Mappings that are one: what is left out of a list before it is timed has the same figures as what stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.monkeypatch import MonkeyPatch

from rackmodel import api
from rackmodel.cost.step.group import Job, plan_of, price_group
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.points import Point
from rackmodel.mapper.search import _Search
from rackmodel.mapper.twins import Twins
from rackmodel.setting import setting_of
from tests.audit.asked import small
from tests.audit.bounds import search_of
from tests.audit.drawing import draw
from tests.audit.wild import wild

GPT = ("accelerators=2", "layers=2", "b=2", "d=32", "h=2", "e=16", "f=32", "s=16", "v=32")
BLOCK = ("accelerators=4", "b=4", "d=32", "g=2", "q=2", "e=8", "f=32", "s=16")


@pytest.mark.parametrize(("workload", "mapper", "sizes"), [("gpt", "megatron", GPT), ("llama3_8b_block", "parallel", BLOCK)])
def test_points_that_are_left_out_are_another_ones_mapping(
    workload: str, mapper: str, sizes: tuple[str, ...], monkeypatch: MonkeyPatch
) -> None:
    distinct, without = Twins.distinct, Twins.without
    checked: list[int] = []

    def told(twins: Twins, points: list[Point]) -> list[Point]:
        new, first = Twins(twins.groups, twins.prices), dict[object, Point]()
        kept = without(new, points)
        for point in points:
            one = first.setdefault(new.mapping(point)[:-1], point)  # (without figures)
            assert (point.seconds, point.joules, point.memory) == pytest.approx((one.seconds, one.joules, one.memory), rel=1e-12)
        assert [one.order for one in distinct(twins, kept)] == [one.order for one in distinct(twins, points)]
        checked.append(len(points) - len(kept))
        return distinct(twins, points)

    monkeypatch.setattr(_Search, "_exact", lambda search, points: search.clocked.exact(points))  # each runs, whatever Twins says of it
    monkeypatch.setattr(Twins, "without", lambda twins, points: list(points))
    monkeypatch.setattr(Twins, "distinct", told)
    api.search("rack_paper_h100", workload, mapper, sets=sizes, profile="serial", top=24)
    assert checked[-1] > 5


@pytest.mark.parametrize(("kind", "seed"), [("streaming", 1000015), ("offload", 1000016)])
def test_shards_of_one_rank_are_one_mapping_only_where_they_take_as_long(kind: str, seed: int, monkeypatch: MonkeyPatch) -> None:
    """A gradient that is reduced as it is made holds its stage back, and a parameter's turn on the lane that brings what a host keeps is
    behind that: on one rank, too. (Of two that were taken for one, the search timed the first, and a limit on power refused both.)"""
    case, first = draw(kind, seed), dict[object, Point]()
    machine, workload, mapper = case.read()

    def told(search: _Search, points: list[Point]) -> list[Point]:
        exact = search.clocked.exact(points)
        for bound, point in zip(points, exact, strict=True):
            one = first.setdefault(search.twins.mapping(bound), point)
            assert (point.seconds, point.joules, point.memory) == pytest.approx((one.seconds, one.joules, one.memory), rel=1e-9)
        return exact

    monkeypatch.setattr(_Search, "_exact", told)
    api.search_mapper(machine, workload, mapper, minimize="memory", profile=case.profile, front=["latency", "energy", "memory"])
    assert len(first) > 8


def test_copies_that_are_saved_elsewhere_are_another_mapping_on_one_rank_too(tmp_path: Path) -> None:
    """Of tokens on their way to experts the copy with fewer tokens is saved: the same bytes where nothing splits them, and exchanged again.
    (Of two that were taken for one the search timed the first: 0.0053 s for a step of 0.0056, and the second best was lost.)"""
    case = small(wild("moe", 17, tmp_path))
    search = search_of(case.read(), case.profile)
    points = [search.blocks.point(block, flat, 0.0) for block in search.blocks.walk() for flat in range(block.seconds.size)]
    first: dict[object, Point] = {}
    for bound, point in zip(points, search.clocked.exact(points), strict=True):
        one = first.setdefault(search.twins.mapping(bound), point)
        assert (point.seconds, point.joules, point.memory) == pytest.approx((one.seconds, one.joules, one.memory), rel=1e-9)
    assert 10 < len(first) < len(points)


@pytest.mark.parametrize(
    ("workload", "mapper", "profile", "sizes"),
    [("gpt", "megatron_wide", "megatron_core", GPT), ("gpt", "megatron_wide", "serial", GPT), ("gpt", "parallel", "megatron_core", GPT)],
)
def test_plans_whose_step_is_an_earlier_ones_run_its_very_program(workload: str, mapper: str, profile: str, sizes: tuple[str, ...]) -> None:
    """The programs of both are derived whole, where the search puts together what homes and policies say: the same tasks and bytes."""
    given = read_inputs("rack_paper_h100", workload, mapper=mapper, sets=sizes)
    assert given.mapper is not None
    chosen = read_profile(profile)
    job = Job(setting=setting_of(given.architecture, chosen), workload=given.workload, profile=chosen)
    twins = 0
    for group in build_mapspace(given.mapper, given.workload, 2).groups:
        plans = [variant.plan for variant in group.variants]
        price = price_group(job, group.columns, plans)
        layers = LayerPricer(Pricer(job.setting, job.workload, plans[0], group.columns, chosen.buckets), job.workload, chosen, {})
        programs = [[layers.program(s, plan_of(s, plan, chosen)) for s in job.workload.sections] for plan in plans]
        for plan, first in enumerate(price.first.tolist()):
            if plan != first:
                assert all(one == other for one, other in zip(programs[plan], programs[first], strict=True))
                assert (price.sends.seconds[plan] == price.sends.seconds[first]).all()
                assert all((one.joules[plan] == one.joules[first]).all() for one in price.sections)
                twins += 1
    assert bool(twins) == (profile == "megatron_core"), "attention in one kernel keeps nothing that could be made again"
