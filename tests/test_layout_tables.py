"""Tables of a layout problem say what the engine says of every layout."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.mapper.layouts.solve import tables_of
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.profile import ProfileSpec
from rackmodel.setting import settings_of
from tests import samples
from tests.layout_tables import check
from tests.machines import machine, mapper, workload


@pytest.mark.parametrize("block", range(4))
def test_tables_say_what_a_step_takes_and_holds(block: int) -> None:
    first = block * 200
    assert sum(check(seed) for seed in range(first, first + samples.cases(8, 200))) > 0


def test_what_adds_up_gradients_apart_is_weighed_in_the_choice_of_a_layout() -> None:
    """Y = X W of four rows, k = n = 1024, at 2 bytes an element and 4 of a gradient. Each of four accelerators alone takes 8.43776 us; with
    n split over them, 14.415872 us. The kernel that adds the gradient up reads it (2 MiB) and the sum (4 MiB) and writes the sum, and the
    product writes 2 MiB less: 8 MiB more at 1 TB/s, or a quarter of that where n is split, which is then the faster. Until tables knew of
    that kernel, nothing was split, with a gap of 62 %."""
    load = workload({"one": "Y[m,n] = X[m,k] * W[k,n]"}, {"m": 4, "n": 1024, "k": 1024})
    maps = mapper(axes={"a": {"degree": "all"}}, split={"a": "free"}, uneven="error")
    place = machine(racks=1, gpus=4, inside="1 GB/s", latency="0 s")
    more = 8 * 2**20 / 1e12
    for accumulation, choice, seconds in (("fused", (None,), 8.43776e-6), ("separate", ("n", "k"), 14.415872e-6 + more / 4)):
        profile = ProfileSpec.model_validate({"profile": "mine", "accumulation": accumulation})
        found = api.search_mapper(place, load, maps, minimize="latency", profile=profile).result
        assert found.certificate.proven
        assert found.mapping.ops["one"]["a"] in choice
        assert found.latency_s == pytest.approx(seconds, rel=1e-12)
    assert seconds < 8.43776e-6 + more


def test_what_kernels_of_an_operation_hand_to_each_other_needs_room_in_tables_too() -> None:
    """A softmax over 8 x 16 elements of 2 bytes, its rows split over four accelerators: 32 elements come and go, 2 bytes each, and kernels
    that hold 6 bytes for each between them need 192 bytes more. Until tables knew of these, layouts were called fitting that did not."""
    load = workload({"one": "Y[m,n] = softmax(X[m,n]) over n"}, {"m": 8, "n": 16}, phases=["forward"], precision={"activation": "16 bit"})
    place = machine(racks=1, gpus=4)
    (problem,) = build_mapspace(mapper(axes={"a": {"degree": "all"}}, split={"a": "free"}), load, 4).problems
    for held, room in ((0, 128.0), (6, 320.0)):
        composites = {"softmax": {"forward": {"kernels": 2, "held": held}}}
        profile = ProfileSpec.model_validate({"profile": "mine", "composites": composites})
        tables, _ = tables_of(settings_of(place, load, profile)[0], problem, profile)
        rows = tables.strategies["one"].index(("m", None))
        assert tables.working["one"][rows] == room


def test_weights_that_are_gathered_again_for_recomputation_cost_that_in_tables_too() -> None:
    """W is 8 x 8 x 2 B = 128 B on a ring of 2 at 1 GB/s: a gather or a reduction takes 64 ns. Under ZeRO-3 it is gathered by the forward
    and the backward pass, and its gradient is reduced; where recomputation drops what it gathered, it is gathered once more."""
    load = workload({"op": "Y[b,f] = X[b,d] * W[d,f]"}, {"b": 8, "d": 8, "f": 8}, precision={"weight": "16 bit", "gradient": "16 bit"})
    home = {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}
    maps = mapper(axes={"dp": {"degree": "all"}}, split={"dp": "free"}, homes={"weights": home}, recompute="full")
    place = machine(racks=1, gpus=2, inside="1 GB/s", latency="0 s")
    (problem,) = build_mapspace(maps, load, 2).problems
    for again, moves in ((False, 3), (True, 4)):
        profile = ProfileSpec.model_validate({"profile": "mine", "overlap": {"regather": again}})
        tables, _ = tables_of(settings_of(place, load, profile)[0], problem, profile)
        rows = tables.strategies["op"].index(("b", None))
        weight = next(factor for factor in tables.factors if factor.name == "tensor W")
        assert weight.latency[rows] * 1e9 == pytest.approx(64 * moves, rel=1e-12)
