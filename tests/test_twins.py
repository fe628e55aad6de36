"""Mappings that are one: what is left out of a list before it is timed has the same figures as what stands for it."""

from __future__ import annotations

import pytest
from _pytest.monkeypatch import MonkeyPatch

from rackmodel import api
from rackmodel.mapper.points import Point
from rackmodel.mapper.search import _Search
from rackmodel.mapper.twins import Twins

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
            one = first.setdefault(new.mapping(point), point)
            assert (point.seconds, point.joules, point.memory) == pytest.approx((one.seconds, one.joules, one.memory), rel=1e-12)
        assert [one.order for one in distinct(twins, kept)] == [one.order for one in distinct(twins, points)]
        checked.append(len(points) - len(kept))
        return distinct(twins, points)

    monkeypatch.setattr(_Search, "_exact", lambda search, points: search.clocked.exact(points))  # each runs, whatever Twins says of it
    monkeypatch.setattr(Twins, "without", lambda twins, points: list(points))
    monkeypatch.setattr(Twins, "distinct", told)
    api.search("rack_paper_h100", workload, mapper, sets=sizes, profile="serial", top=12)
    assert checked[-1] > 5
