"""Carbon as an objective: the mapping found is the one that a list of all of them gives, in grids, layouts and training steps."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.carbon.assess import carbon_weights, footprint
from rackmodel.carbon.bill import bill_of
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.mapper.objective import Objective
from rackmodel.model.certificate import Certificate
from rackmodel.model.result import Result


def _value(name: str, result: Result) -> float:
    machine = result.machine
    weights = carbon_weights(machine, bill_of(machine, carbon_tables()), grid_table(), static_watts(machine))
    return float(Objective(name, *weights).value(result.latency_s, result.energy_j, result.memory_bytes_per_accelerator))


@pytest.mark.parametrize("name", ["total_carbon", "tcdp"])
def test_the_least_carbon_of_every_mesh_is_found(name: str) -> None:
    found = api.search("dgx_h100", "attention", "data_tensor", sets=["accelerators=16"], minimize=name, top=99)
    values = [_value(name, result) for result in found.top]
    assert len(values) >= 5
    assert values == sorted(values)
    assert found.result.certificate.objective == pytest.approx(values[0], rel=1e-12)


def test_what_a_second_costs_nothing_is_grams_or_dollars_all_the_same() -> None:
    """A machine that was built for nothing: a E of a E + b T, not E."""
    assert Objective("total_carbon", 2.0, 0.0).value(3.0, 5.0, 0.0) == Objective("money", 2.0, 0.0).value(3.0, 5.0, 0.0) == 10.0
    assert Objective("tcdp", 2.0, 0.0).value(3.0, 5.0, 0.0) == 30.0
    assert Objective("money", 2.0, 0.0).weights(4.0) == (2.0, 8.0)


@pytest.mark.parametrize("name", ["total_carbon", "tcdp"])
def test_solvers_agree_on_carbon(name: str) -> None:
    sets = ["accelerators=8", "axes.dp.degree=2", "axes.tp.degree=4", "b=4", "s=64", "d=64", "e=8"]
    values = [
        api.search("dgx_h100", "attention", "auto", sets=[*sets, f"solver={solver}"], minimize=name).result.certificate.objective
        for solver in ("eliminate", "cpsat")
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_total_carbon_is_the_footprint_of_a_step() -> None:
    result = api.search("dgx_h100", "ffn", "data", sets=["accelerators=8"], minimize="total_carbon").result
    machine = result.machine
    whole = footprint(result, machine, bill_of(machine, carbon_tables()), grid_table())
    assert result.certificate.objective == pytest.approx(whole.total_g.mid, rel=1e-9)


def test_a_training_step_of_least_carbon_weighs_energy_against_time() -> None:
    sets = ["accelerators=32", "b=32", "layers=8"]
    found = {
        name: api.search("dgx_h100", "llama3_8b", "megatron", sets=sets, minimize=name).result
        for name in ("latency", "energy", "total_carbon")
    }
    least = _value("total_carbon", found["total_carbon"])
    assert all(least <= _value("total_carbon", result) * (1 + 1e-12) for result in found.values())
    front = api.search("dgx_h100", "llama3_8b", "megatron", sets=sets, front=["latency", "total_carbon"]).front
    assert _value("total_carbon", front[-1]) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(("name", "same"), [("cdp", "latency"), ("cep", "energy"), ("c2ep", "energy"), ("ce2p", "energy"), ("edap", "edp")])
def test_metrics_that_a_machine_cannot_change_order_mappings_as_their_other_factor(name: str, same: str) -> None:
    one, other = (api.search("dgx_h100", "ffn", "data_tensor", sets=["accelerators=16"], minimize=goal).result for goal in (name, same))
    assert one.mapping == other.mapping
    assert one.certificate.minimize == name
    assert same in one.certificate.note
    machine = one.machine
    whole = footprint(one, machine, bill_of(machine, carbon_tables()), grid_table())
    assert one.certificate.objective == pytest.approx(whole.figure(name).mid, rel=1e-9)  # (it was that of `same`)
    assert one.certificate.bound == pytest.approx(one.certificate.objective, rel=1e-9)
    bare = api.search("rack_paper", "ffn", "data", sets=["accelerators=8"], minimize=name).result
    assert f"{name} orders mappings of one machine as {same} does, whose figures these are" in bare.certificate.note
    assert bare.certificate.minimize == same


def test_least_carbon_is_grams_of_use() -> None:
    found = api.search("dgx_h100", "ffn", "data_tensor", sets=["accelerators=16"], minimize="carbon", top=3)
    for one in found.top:
        assert one.certificate.objective == pytest.approx(float(one.carbon_g), rel=1e-12)
    assert found.result.certificate.bound == pytest.approx(float(found.result.carbon_g), rel=1e-12)


def test_a_gap_of_joules_is_a_wider_gap_of_their_square() -> None:
    """By hand: within 10 % of 5 J is a bound of 4.5 J; of 2 J^2 40.5 to 50, 19 %."""
    sheet = Certificate("enumerate", "energy", 1.0, 1, objective=5.0, bound=4.5, gap=0.1)
    found = sheet.under(lambda joules: 2 * joules**2)
    assert (found.objective, found.bound, found.gap) == (50.0, 40.5, pytest.approx(0.19, rel=1e-9))
    assert sheet.under(lambda joules: 3 * joules).gap == pytest.approx(0.1, rel=1e-12)


def test_carbon_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match="site"):
        api.search("dgx_h100", "ffn", "data", sets=["accelerators=8", "site=null"], minimize="tcdp")


def test_compare_says_which_ranking_flips_and_by_which_factor() -> None:
    """A mapping of less energy and one of less time: which emits less in all depends on how long the machine lives."""
    from rackmodel.carbon.assess import footprint
    from rackmodel.carbon.flips import flips
    from rackmodel.carbon.ranges import factor, fixed
    from rackmodel.units import Quantity

    life = factor("lifetime", Quantity.make(7.0, 5.0, 8.0, "test", "7"))
    found = flips({"fast": fixed(10.0) + fixed(100.0) / life, "frugal": fixed(8.0) + fixed(112.0) / life})
    assert [(flip.first, flip.second) for flip in found] == [("frugal", "fast")]
    assert found[0].alone == {"lifetime": pytest.approx(6 / 7, rel=1e-6)}  # 10 + 100/L = 8 + 112/L
    results = {m: api.search("dgx_h100", "ffn", m, sets=["accelerators=8"]).result for m in ("data", "tensor")}
    machine = results["data"].machine
    bill, grid = bill_of(machine, carbon_tables()), grid_table()
    assert flips({m: footprint(result, machine, bill, grid).figure("carbon") for m, result in results.items()}) == ()


def test_compare_says_on_what_unlike_bases_carbon_rests() -> None:
    from rackmodel.cli.emitted import unlike_bases

    machines = ("cs3", ["accelerators=1"]), ("dgx_h100", ["accelerators=8"])
    found = [api.search(name, "ffn", "data", sets=sets).result for name, sets in machines]
    (line,) = unlike_bases(found)
    assert "grids (cs3 united_states, dgx_h100 world; --set site.grid=world makes them one)" in line
    assert "boundaries of what is embodied (cs3 module, dgx_h100 network; --boundary module)" in line
    assert "PUE" not in line
    alike = [api.search(name, "ffn", "data", sets=[*sets, "site.grid=world"]).result for name, sets in machines]
    assert "grids" not in unlike_bases(alike)[0]
    assert unlike_bases(found[1:] * 2) == []
