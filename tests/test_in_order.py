"""Objectives in order: of the mappings that are best in the first, the best in the next."""

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError


@pytest.mark.parametrize("goals", ["latency,memory", "latency,energy,memory", "energy,latency", "memory,latency", "edp,memory"])
def test_the_next_objective_chooses_among_the_best_of_the_first(goals):
    names = goals.split(",")
    case = ("rack_paper", "ffn", "data_tensor")
    every = api.search(*case, sets=["accelerators=8"], minimize=names[0], top=1000).top

    def figures(result):
        memory = result.memory_bytes_per_accelerator
        values = {"latency": result.latency_s, "energy": result.energy_j, "memory": memory, "edp": result.latency_s * result.energy_j}
        return [values[name] for name in names]

    for place in range(len(names)):
        least = min(figures(one)[place] for one in every)
        every = [one for one in every if figures(one)[place] <= least * (1 + 1e-9)]
    found = api.search(*case, sets=["accelerators=8"], minimize=goals).result
    assert figures(found) == pytest.approx(figures(every[0]), rel=2e-9)
    assert found.certificate.proven
    assert f"{names[0]} first" in found.certificate.note


def test_a_limit_of_the_first_objective_is_kept_to_the_last_bit_by_the_next():
    case, sets = ("rack_paper", "ffn", "data_tensor"), ["accelerators=8"]
    least = api.search(*case, sets=sets).result.latency_s
    found = api.search(*case, sets=sets, minimize="latency,energy", limits={"latency": least}).result
    assert found.latency_s == least


def test_a_nest_of_least_latency_has_the_least_energy_of_those():
    sets = ["accelerators=1", "m=64", "k=96", "n=80"]
    alone, both = (
        api.search("edge3", "gemm", "loopnest_perfect", sets=sets, minimize=goal).result for goal in ("latency", "latency,energy")
    )
    assert both.latency_s == pytest.approx(alone.latency_s, rel=1e-9)
    assert both.energy_j <= alone.energy_j * (1 + 1e-9)
    assert both.certificate.proven


def test_money_is_minimised_limited_and_comes_first():
    """Its least is the least of a list of all steps; a limit of it, and a figure below it, hold."""
    case, sets = ("rack_paper", "ffn", "data_tensor"), ["accelerators=8", "gpu.cost.price='30000 usd'"]
    given = api.read_inputs(case[0], case[1], mapper=case[2], sets=sets)
    goal = api.objective_of("money", given.architecture)
    every = api.search(*case, sets=sets, top=1000).top

    def dollars(result):
        return goal.value(result.latency_s, result.energy_j, 0.0)

    cheapest = api.search(*case, sets=sets, minimize="money").result
    assert dollars(cheapest) == pytest.approx(min(map(dollars, every)), rel=1e-9)
    most = sorted(map(dollars, every))[len(every) // 2]
    kept = [one for one in every if dollars(one) <= most]
    found = api.search(*case, sets=sets, minimize="memory", limits={"money": most}).result
    assert dollars(found) <= most * (1 + 1e-9)
    assert found.memory_bytes_per_accelerator == min(one.memory_bytes_per_accelerator for one in kept)
    both = api.search(*case, sets=sets, minimize="money,memory").result
    assert dollars(both) == pytest.approx(dollars(cheapest), rel=2e-9)
    assert "money first" in both.certificate.note
    with pytest.raises(InfeasibleError, match=r"money: a step needs .* usd at least, the limit is .* usd"):
        api.search(*case, sets=sets, limits={"money": dollars(cheapest) / 2})


@pytest.mark.parametrize("mapper", ["data_tensor", "auto"])
def test_a_front_is_of_all_mappings_not_of_the_best_in_the_first_objective(mapper):
    """It is that of the first objective alone, and each of its points is certified for that one."""
    case, asked = ("rack_paper", "ffn", mapper), {"sets": ["accelerators=8"], "front": ["latency", "memory"]}
    alone, both = (api.search(*case, minimize=goals, **asked) for goals in ("latency", "latency,energy"))
    assert len(alone.front) > 1
    assert [(one.latency_s, one.memory_bytes_per_accelerator) for one in both.front] == [
        (one.latency_s, one.memory_bytes_per_accelerator) for one in alone.front
    ]
    assert (both.front_status, alone.front_status) == ("proven", "proven")
    assert {one.certificate.minimize for one in both.front} == {"latency"}
    assert both.result.certificate.minimize == "energy"


@pytest.mark.parametrize(
    ("goals", "fact"),
    [("latency,speed", "unknown objective 'speed'"), ("energy,energy", "there twice")],
)
def test_what_has_no_order_is_refused(goals, fact):
    with pytest.raises(InputError, match=fact):
        api.search("edge3", "gemm", "loopnest_perfect", minimize=goals)


def test_the_best_mappings_differ_in_more_than_words() -> None:
    """On one accelerator of data parallelism ZeRO shards nothing, on one of tensor parallelism all layouts are one."""
    sets = ["accelerators=2", "layers=2", "b=2", "d=64", "h=2", "e=32", "f=64", "s=32", "v=64"]
    best = api.search("rack_paper_h100", "gpt", "megatron", sets=sets, profile="serial", top=12).top
    assert len(best) == 12
    told = [(one.mapping.axes["tp"].degree, one.mapping.step.pipeline.degree, one.latency_s, one.energy_j) for one in best]
    assert len(set(told)) == 12
    assert [one.latency_s for one in best] == sorted(one.latency_s for one in best)


FREE_READS = """
architecture: free_reads
tree:
  name: chip
  accelerator: true
  memory: {bandwidth: 1 TB/s}
  children:
  - name: buffer
    memory: {capacity: 1 KiB, bandwidth: 1 TB/s}
    fan: {x: 2, y: 2}
    children:
    - {name: pe, count: 4, memory: {capacity: 64 B}, compute: {rate: 1 GMAC/s, energy: 1 pJ/MAC}}
"""


@pytest.mark.parametrize("goals", ["energy", "energy,latency"])
def test_of_nests_of_equal_energy_the_fastest_is_taken_with_any_tile(goals):
    """7 x 5 products of 1 pJ each; nothing else costs energy. Of 2 x 2 units 4 x 1 parts take 2 x 5 cycles, 2 x 2 take 4 x 3, 1 x 4
    take 7 x 2."""
    found = api.search(FREE_READS, "gemm", "loopnest", sets=["m=7", "n=1", "k=5"], minimize=goals).result
    assert (found.energy_j, found.latency_s) == pytest.approx((35e-12, 10e-9), rel=1e-9)
    assert found.certificate.proven
