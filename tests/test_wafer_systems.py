"""Wafer clusters and the hardwired machine as files: capacity, bandwidth and power facts, and what is refused with a reason."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_architecture, read_study
from rackmodel.papers import findings
from rackmodel.studies.findings import Finding
from tests.sweeps import run_study

SMALL = ("gpt3_matrices", "streaming")


def _peak(name: str) -> float:
    machine = read_architecture(name)
    level, count = machine.inside[-1]
    assert level.compute is not None
    return count * level.compute.matrix(16).rate_flop_per_s


@pytest.mark.parametrize(
    ("name", "used", "most", "sram", "bandwidth", "peak"),
    [("cs2", 16, 192, 40e9, 20e15, 7.5e15), ("andromeda", 16, 16, 40e9, 20e15, 7.5e15), ("cs3", 1, 2048, 44e9, 21e15, 15.625e15)],
)
def test_a_wafer_has_the_memory_and_the_peak_of_its_sources(
    name: str, used: int, most: int, sram: float, bandwidth: float, peak: float
) -> None:
    machine = read_architecture(name)
    assert (machine.used, machine.available) == (used, most)
    memory = machine.accelerator.memory
    assert memory is not None
    assert (memory.capacity_bytes, memory.bandwidth_bytes_per_s) == (sram, bandwidth)
    assert _peak(name) == pytest.approx(peak, rel=1e-3)


def test_andromeda_s_sixteen_wafers_make_its_published_120_petaflops() -> None:
    assert read_architecture("andromeda").available * _peak("andromeda") == pytest.approx(120e15, rel=1e-3)


def test_swarmx_gives_every_wafer_twelve_ports_of_100_gigabits_each_way() -> None:
    network = read_architecture("cs2").tree.network
    assert network is not None
    assert network.bandwidth_bytes_per_s * 8 == 12 * 100e9
    assert (network.topology, network.fanout, network.multicast, network.reduce) == ("tree", 4, True, True)


def test_memoryx_holds_120_trillion_parameters_of_20_bytes() -> None:
    memory = read_architecture("cs2").level("memoryx").memory
    assert memory is not None
    assert memory.capacity_bytes == 120e12 * 20


def test_a_cs3_idles_at_its_measured_19_7_kilowatts() -> None:
    assert read_architecture("cs3").accelerator.static_power_w == 19.7e3


def test_the_hardwired_machine_draws_its_printed_power() -> None:
    """6.9 kW, of which 16 chips draw 308.39 W each (Tables 1 and 2 of seed 002)."""
    machine = read_architecture("hnlpu")
    assert machine.tree.static_power_w + 16 * machine.accelerator.static_power_w == pytest.approx(6.9e3, rel=1e-3)
    modules = 76.92 + 33.09 + 0.0 + 85.73 + 49.65 + 63
    assert machine.accelerator.static_power_w == pytest.approx(modules, abs=0.01)


def test_every_hardwired_chip_reaches_its_row_and_its_column_directly() -> None:
    network = read_architecture("hnlpu").tree.network
    assert network is not None
    assert (network.topology, network.shape, network.links) == ("row_column", (4, 4), 3 + 3)


def test_more_wafers_than_swarmx_joins_are_refused_by_number() -> None:
    with pytest.raises(InputError, match="193 asked for, the tree has 192"):
        read_architecture("cs2", sets=["accelerators=193"])


def test_a_batch_too_large_for_the_sram_is_infeasible_and_says_what_is_short() -> None:
    with pytest.raises(InfeasibleError, match=r"one wafer needs .* GB at least, it has 40 GB") as caught:
        api.search("cs2", *SMALL, sets=["accelerators=1", "b=64", "micro_batch=64"])
    assert caught.value.resource == "wafer.memory"
    assert caught.value.need > 40e9


def test_with_the_sram_limit_off_the_same_batch_is_priced() -> None:
    result = api.search("cs2", *SMALL, sets=["accelerators=1", "b=64", "micro_batch=64", "wafer.memory.enforce=false"]).result
    assert result.latency_s > 0
    assert result.memory_bytes_per_accelerator > 40e9


# -- wafers beside GPUs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> dict[str, Finding]:
    return {finding.name: finding for finding in findings("wafer_vs_gpu")(run_study(read_study("wafer_vs_gpu")))}


def test_a_wafer_turns_compute_bound_below_ten_operations_a_byte_and_a_gpu_above_a_hundred(found: dict[str, Finding]) -> None:
    figures = found["G01"].figures
    assert figures["CS-3, dense, FLOP/B"] == pytest.approx(15.625e15 / 21e15, rel=1e-3)
    assert figures["H100, dense, FLOP/B"] == pytest.approx(295, rel=0.01)
    assert found["G01"].verdict == "agrees"


def test_63_times_an_h100_is_a_ratio_of_sparse_peaks(found: dict[str, Finding]) -> None:
    assert found["G02"].figures["marketed sparse peaks"] == pytest.approx(63, abs=0.5)
    assert found["G02"].figures["dense peaks"] == pytest.approx(15.8, abs=0.1)
    assert found["G02"].said == "not decidable: agrees if marketed sparse peaks; disagrees if dense peaks"


def test_the_same_job_is_searched_on_three_machines_and_says_what_limits_each(found: dict[str, Finding]) -> None:
    figures = found["G05"].figures
    for label in ("16 CS-2", "64 DGX A100", "8 DGX H100"):
        assert figures[f"{label}, s"] > 0
        assert f"{label}: " in found["G05"].why
    assert "stream swarmx" in found["G05"].why.split("16 CS-2: ")[1].split(";")[0]
    assert figures["16 CS-2, kW"] > 16 * 18.8


def test_the_sram_and_not_the_peak_decides_for_a_cs2(found: dict[str, Finding]) -> None:
    figures = found["G06"].figures
    assert figures["16 CS-2 without limit, s"] == pytest.approx(figures["64 DGX A100, s"], rel=0.3)
    assert figures["16 CS-2 with 40 GB, s"] > 3 * figures["16 CS-2 without limit, s"]


def test_a_model_larger_than_memoryx_is_infeasible_and_says_by_how_much() -> None:
    """GPT-3's layers: 174 G weights x 18 bytes (fp16, fp32 gradient, 12 of state) = 3.13 TB."""
    with pytest.raises(InfeasibleError, match=r"memoryx needs 3131 GB, it has 1500 GB") as caught:
        api.search("cs2", *SMALL, sets=["wafer.memory.enforce=false", "memoryx.memory.capacity=1.5 TB"])
    assert caught.value.resource == "memoryx.memory"
