"""What shipped accelerators draw where their units are busy, against what documents say that they draw at most."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.inputs import library_names, read_architecture
from rackmodel.model.architecture import Architecture

STATED_W = {
    "cs2": 23e3,  # data sheet of the CS-2
    "andromeda": 23e3,
    "cs3": 24.1e3,  # measured at its PDUs (seed 000, section 4), the most in training
    "tpu_v3": 262.0,  # measured maxima (Jouppi 2023, Table 4)
    "tpu_v4": 192.0,
    "tpu_v4i": 175.0,  # TDP (Jouppi 2021, Table 1)
}
"""Of machines whose files state no limit, watts."""
SLOWED = {"dgx_b300"}
"""Machines of which one unit alone is over the limit: their kernels are slower then (`kernels.power_limit`)."""


def _stated_w(machine: Architecture) -> float | None:
    """What an accelerator may draw: as above, else the limit of its kernels, else its power at work."""
    compute, accelerator = machine.computing[0].compute, machine.accelerator
    assert compute is not None
    if machine.name in STATED_W:
        return STATED_W[machine.name]
    if compute.kernels is not None:
        return compute.kernels.power_limit_w
    own = accelerator.cost
    return None if own is None or own.power_w is None else float(own.power_w)


def _operations_w(machine: Architecture) -> dict[str, float]:
    """Watts of its operations at their full rate, by width in bits."""
    level, units = machine.computing
    assert level.compute is not None
    rates = {str(bits): level.compute.matrix(bits) for bits in (4, 8, 16)}
    if level.compute.vector is not None:
        rates["vector"] = level.compute.vector
    return {name: units * rate.rate_flop_per_s * rate.energy_j_per_flop for name, rate in rates.items()}


def _memories_w(machine: Architecture) -> dict[str, float]:
    """Watts of each memory at its full rate: of both its ports, or of the dearer way through one."""
    found = {}
    for ports in machine.ports:
        both = [(ports.rates[action] or 0.0) * ports.joules[action] for action in ("read", "write")]
        found[ports.level] = sum(both) if ports.split else max(both)
    return found


@pytest.mark.parametrize("name", library_names()["architecture"])
def test_no_unit_at_its_full_rate_draws_more_than_its_machine_may(name: str) -> None:
    for machine in read_architecture(name).pools:
        stated = _stated_w(machine)
        if stated is None:
            continue
        alone = {**_operations_w(machine), **_memories_w(machine)}
        most = float(machine.accelerator.static_power_w) + max(alone.values())
        assert (most > stated) == (machine.name in SLOWED), (alone, stated)


def test_a_machine_that_states_a_price_draws_more_at_work_than_idle() -> None:
    """Electricity and a building are of its power at work; a hardwired chip's static power is that (its paper's 308 W)."""
    for name in library_names()["architecture"]:
        for machine in read_architecture(name).pools:
            cost = machine.accelerator.cost
            if cost is not None and cost.price_usd and not name.startswith("hnlpu"):
                stated = _stated_w(machine)
                assert stated is not None, name
                assert stated > 1.2 * machine.accelerator.static_power_w


@pytest.mark.parametrize(("name", "cores", "stated"), [("cs2", "wse2_cores", 23e3), ("cs3", "wse3_cores", 24.1e3)])
def test_a_wafer_whose_every_unit_works_draws_what_is_stated_of_it(name: str, cores: str, stated: float) -> None:
    """Nothing slows a wafer here, so that operations and SRAM at once, and the fabric, must fit beside idle power. 18.8 + 2.2 + 1.9 = 22.9
    kW of 23 (CS-2), 19.7 + 3.2 + 1.2 = 24.1 (CS-3); at 0.117 and 0.1 pJ a bit of SRAM they would draw 39.7 kW each."""
    wafer, machine = read_architecture(name), read_architecture(cores)
    idle = float(wafer.accelerator.static_power_w)
    for one, count in ((wafer, 1), (machine, machine.level("core").count)):
        busy = count * (max(_operations_w(one).values()) + sum(_memories_w(one).values()))
        assert 0.99 * stated < idle + busy <= stated
    network, count = machine.level("wafer").network, machine.level("core").count
    assert network is not None
    links = 8 * network.bandwidth_bytes_per_s * count  # four neighbours, both ways
    assert idle + links * network.energy_j_per_byte <= 1.02 * stated  # links of 32 bit at 1.1 GHz are 240 Pb/s, 220 are published


def test_a_product_fed_from_the_cores_own_sram_stays_below_a_cs2_s_data_sheet() -> None:
    """As a loop nest every multiply-add reads its operands from SRAM; at 0.117 pJ a bit it would draw 36 kW."""
    laid_out = "inside.rules={'*': {spatial: {wafer: {x: [k], y: [m]}}}}"
    found = api.search("wse2_mesh", "gemm", "wafer_nest_free", sets=["m=262144", "k=12288", "n=49152", laid_out]).result
    assert 18.8e3 < found.energy_j / found.latency_s < 23e3


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_product_on_rubin_stays_within_its_1800_watts(bits: int) -> None:
    """At a B200's joules an operation it would draw 3.6 kW in 8 bit, and 2.9 in 4."""
    sets = ["accelerators=1", "m=65536", "k=8192", "n=8192", f"precision={{activation: {bits} bit, weight: {bits} bit}}"]
    found = api.search("vera_rubin_nvl72", "gemm", "data", sets=sets, profile="ideal").result
    inside = sum(row.joules for row in found.ledger if row.level in {"gpu", "l2", "sm", "tensor_core"})
    assert 1000 < inside / found.latency_s < 1800


def test_a_step_at_peak_rates_that_draws_too_much_says_so() -> None:
    """A B300 in 4 bit: 127 W idle, 1,012 of 6.75 POP/s at 0.15 pJ, and its memory; measured kernels keep to the 1,100 W."""
    sets = ["accelerators=1", "m=65536", "k=8192", "n=8192", "precision={activation: 4 bit, weight: 4 bit}"]
    (said,) = api.search("dgx_b300", "gemm", "data", sets=sets, profile="ideal").result.warnings
    assert said == "gpu draws 1,189 W in the mean of the step, of 1,100 W that it may: at peak rates nothing slows it"
    assert api.search("dgx_b300", "gemm", "data", sets=sets, profile="megatron_core").result.warnings == ()


def test_accelerators_of_several_kinds_are_not_asked_for_their_mean_power() -> None:
    found = api.search("dgx_h100_a100", "llama3_8b", "megatron_cut", sets=["layers=4", "b=256"], profile="ideal").result
    assert found.warnings == ()


def test_a_wafer_of_ones_own_power_is_held_to_it() -> None:
    sets = ["accelerators=1", "m=65536", "k=8192", "n=8192"]
    assert api.search("cs3", "gemm", "data", sets=sets, profile="ideal").result.warnings == ()
    (said,) = api.search("cs3", "gemm", "data", sets=[*sets, "wafer.cost.power=20 kW"], profile="ideal").result.warnings
    assert said.startswith("wafer draws 22,903 W in the mean of the step, of 20,000 W")
