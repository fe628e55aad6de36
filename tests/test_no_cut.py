"""Open cuts of which none keeps the limits: the message names what is in the way, and what it says would do does, and no less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.said import instead
from rackmodel.model.result import Result
from rackmodel.watch import Watch
from tests.test_pools import A100, FOUR, H100, found, machine

FEW = ["micro_batch=1", "overlap=profile", "layouts={}", "homes={weights: {axes: [dp], state: shard}}"]
SETS = instead(FOUR, ["axes.tp.degree=4", *FEW])  # nine layers on four stages: they do not divide
KINDS = {"one kind": [(H100, 4)], "two kinds": [(H100, 2), (A100, 2)]}


def raised(where: str, *more: str, **asked: object) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        found(where, instead(SETS, more), **asked)
    return caught.value


@pytest.mark.parametrize("kinds", KINDS)
def test_a_limit_of_memory_that_no_cut_keeps_says_the_least_that_one_does(kinds: str, tmp_path: Path) -> None:
    where = machine(tmp_path, *KINDS[kinds])
    problem = raised(where, limits={"memory": 1e9})
    assert problem.resource.endswith("100.memory")
    assert problem.have == 1e9
    limit = re.fullmatch(r"--limit memory='(\d+) MB'", problem.change)
    assert limit is not None
    enough = 1e6 * int(limit[1])
    assert found(where, SETS, limits={"memory": enough}).memory_bytes_per_accelerator <= enough
    assert raised(where, limits={"memory": enough - 2e6}).need == problem.need


@pytest.mark.parametrize("kinds", KINDS)
def test_a_limit_of_latency_that_no_cut_keeps_says_the_fastest(kinds: str, tmp_path: Path) -> None:
    where = machine(tmp_path, *KINDS[kinds])
    best = found(where, SETS).latency_s
    problem = raised(where, limits={"latency": best * 0.99})
    assert problem.resource == "latency"
    assert problem.need == pytest.approx(best, rel=1e-9)
    assert found(where, SETS, limits={"latency": best}).latency_s == pytest.approx(best, rel=1e-9)
    # with another limit that nothing keeps, that one is told
    assert raised(where, limits={"latency": 1e-3, "memory": 1e9}).resource.endswith(".memory")


def test_no_cut_is_looked_at_whose_bound_is_above_the_limit(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 4))
    sets = instead(FOUR, FEW)
    free = found(where, sets)
    kept = found(where, sets, limits={"latency": free.latency_s})
    assert kept.latency_s == pytest.approx(free.latency_s, rel=1e-9)
    assert kept.certificate.pruned["cut"] <= free.certificate.pruned["cut"]


def test_a_time_limit_ends_a_search_under_a_limit_of_latency(tmp_path: Path) -> None:
    for kinds in KINDS.values():
        problem = raised(machine(tmp_path, *kinds), limits={"latency": 0.04}, watch=Watch(1e-3))
        assert "that there is none is not proven" in problem.message


def test_the_kind_that_is_short_is_named_and_has_less_than_is_needed(tmp_path: Path) -> None:
    """(The stage that held most was named, whatever room its kind has: 'needs 1.9 GB, has 83.5, short by -81.6'.)"""
    where = machine(tmp_path, *KINDS["two kinds"])
    problem = raised(where, "a100.memory.capacity=2.2 GB")
    assert problem.resource == "a100.memory"
    assert problem.need > problem.have
    change = re.fullmatch(r"a100.memory.capacity='(\d+) MB'", problem.change)
    assert change is not None
    fits = found(where, [*SETS, f"a100.memory.capacity={change[1]} MB"])
    assert fits.latency_s > 0
    assert raised(where, f"a100.memory.capacity={int(change[1]) - 2} MB").need == problem.need


def test_one_kind_without_room_is_told_its_capacity(tmp_path: Path) -> None:
    """(What would do was 'stage 3 memory.capacity', which nothing reads.)"""
    where = machine(tmp_path, *KINDS["one kind"])
    problem = raised(where, "h100.memory.capacity=2.2 GB")
    assert problem.resource == "h100.memory"
    change = re.fullmatch(r"h100.memory.capacity='(\d+) MB'", problem.change)
    assert change is not None
    answer: Result = found(where, [*SETS, f"h100.memory.capacity={change[1]} MB"])
    assert answer.memory_share is not None
    assert answer.memory_share <= 1


def test_more_accelerators_are_not_said_to_have_been_tried() -> None:
    sets = ["accelerators=8", "b=8", "micro_batch=1", "recompute=full", "layouts={}", "axes.tp.degree=4", "overlap=profile"]
    with pytest.raises(InfeasibleError) as caught:
        api.search("dgx_h100", "llama3_70b", "megatron_cut", sets=sets)
    assert "more accelerators than 8 were not tried" in caught.value.change
