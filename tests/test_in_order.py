"""Objectives in order: of the mappings that are best in the first, the best in the next."""

import pytest

from rackmodel import api
from rackmodel.errors import InputError


@pytest.mark.parametrize("goals", ["latency,memory", "latency,energy,memory", "energy,latency", "memory,latency", "latency,edp"])
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


def test_a_nest_of_least_latency_has_the_least_energy_of_those():
    sets = ["accelerators=1", "m=64", "k=96", "n=80"]
    alone, both = (
        api.search("edge3", "gemm", "loopnest_perfect", sets=sets, minimize=goal).result for goal in ("latency", "latency,energy")
    )
    assert both.latency_s == pytest.approx(alone.latency_s, rel=1e-9)
    assert both.energy_j <= alone.energy_j * (1 + 1e-9)
    assert both.certificate.proven


@pytest.mark.parametrize(
    ("goals", "fact"),
    [("edp,energy", "nothing comes after edp"), ("latency,speed", "unknown objective 'speed'"), ("energy,energy", "there twice")],
)
def test_what_has_no_order_is_refused(goals, fact):
    with pytest.raises(InputError, match=fact):
        api.search("edge3", "gemm", "loopnest_perfect", minimize=goals)
