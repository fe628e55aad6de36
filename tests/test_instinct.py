"""Nodes of AMD Instinct: peaks and links of their documents, collectives and products beside what AMD published of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.network.collectives import collective, send
from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.units import Quantity, ends_of
from rackmodel.validation.words import words

# TFLOP/s by bits, HBM GB and TB/s, GB/s of one link and direction, compute units, watts (data sheets)
SHEET = {
    "mi300x_nodes": ({16: 1307.4, 8: 2614.9}, 192, 5.3, 64, 304, 750),
    "mi325x_nodes": ({16: 1307.4, 8: 2614.9}, 256, 6, 64, 304, 1000),
    "mi355x_nodes": ({16: 2516.6, 8: 5033.2, 4: 10066.3}, 288, 8, 76.8, 256, 1400),
}
# bytes, us of an all-reduce among 8 MI300X in a graph (rocm.blogs.amd.com, RCCL Bandwidth and xGMI Performance on MI300X)
LONG = [(2**26, 427.9), (2**28, 1534.4), (2**30, 5961.9), (2**32, 23658), (2**34, 94182)]
# TFLOP/s of the best products, and the clock that they keep (rocm.blogs.amd.com, Measuring Max-Achievable FLOPs, part 2)
BEST = {"mi300x_nodes": [(16, 708, 1207), (8, 1273, 1230)], "mi325x_nodes": [(16, 843, 1447), (8, 1519, 1464)]}


@cache
def machine(name: str) -> Architecture:
    return read_architecture(name)


@pytest.mark.parametrize("name", SHEET)
def test_peaks_memory_and_links_are_those_of_the_documents(name: str) -> None:
    peaks, capacity, bandwidth, link, units, watts = SHEET[name]
    found, memory = machine(name), machine(name).accelerator.memory
    gpu = gpu_of(found)
    assert memory is not None
    assert gpu is not None
    assert found.used == 8
    for bits, peak in peaks.items():
        assert found.peak_flop_per_s(bits) / 8e12 == pytest.approx(peak, rel=1e-4)
    assert ((memory.capacity_bytes or 0) / 1e9, (memory.bandwidth_bytes_per_s or 0) / 1e12) == pytest.approx((capacity, bandwidth))
    assert (gpu.blocks, gpu.units, float(gpu.facts.power_limit_w or 0)) == (units, 4 * units, watts)
    network = found.tiers[0].network
    assert (network.topology, found.tiers[0].links, found.tiers[0].children) == ("point_to_point", 1, 8)
    assert network.bandwidth_bytes_per_s == pytest.approx(link * 1e9)


def test_long_all_reduces_of_eight_take_what_was_published() -> None:
    """One number, the share of a link that they reach, was derived from the longest; those of two GPUs ask for it alone."""
    whole = np.arange(8)[None, :]
    for size, us in LONG:
        for name in ("ring", "direct"):
            assert collective(machine("mi300x_nodes"), whole, "all_reduce", name).total(size) * 1e6 == pytest.approx(us, rel=0.13)
    pair = collective(machine("mi300x_nodes"), np.array([[0, 5]]), "all_reduce").total(2**32)
    assert 2**32 / pair / 1e9 == pytest.approx(47.671, rel=0.05)  # stas00/ml-engineering@744d01e18b79, network


def test_one_link_and_all_seven_reach_what_was_published() -> None:
    """45 to 48 GB/s of each, 315 to 319 of all seven at once (TransferBench)."""
    network = machine("mi300x_nodes").tiers[0].network
    low, high = ends_of(network.sustained)
    one = 1.0 / float(send(machine("mi300x_nodes"), np.array([0]), np.array([5])).seconds_per_byte[0])
    assert low * 64 == pytest.approx(45, abs=0.2)
    assert high * 64 == pytest.approx(48)
    assert 45e9 <= one <= 48e9
    use = collective(machine("mi300x_nodes"), np.arange(8)[None, :], "all_to_all")
    assert 7 / 8 / use.seconds_per_byte[0] == pytest.approx(317e9, rel=0.01)


@pytest.mark.parametrize(("name", "bits", "rate", "clock"), [(name, *row) for name, rows in BEST.items() for row in rows])
def test_the_best_products_lie_within_the_ranges(name: str, bits: int, rate: float, clock: float) -> None:
    gpu, peak = gpu_of(machine(name)), machine(name).peak_flop_per_s(bits) / 8e12
    assert gpu is not None
    efficiency, sustained = gpu.facts.efficiency, gpu.facts.sustained
    assert isinstance(efficiency, Quantity)
    assert isinstance(sustained, Quantity)
    assert sustained.low <= clock / 2100 <= sustained.high
    assert rate / (peak * clock / 2100) <= efficiency.high * 1.001
    assert efficiency.low * sustained.low * peak < rate < efficiency.high * sustained.high * peak


@pytest.mark.parametrize("row", ["AMD Instinct MI300X 192GB HBM3", "AMD MI300X-NPS1-SPX-192GB-750W", "AMD Instinct MI325X 256GB HBM3e"])
def test_rows_of_mlperf_name_these_nodes(row: str) -> None:
    assert words().machine(row, "mlperf_llm").machine == f"{row.removeprefix('AMD ').removeprefix('Instinct ')[:6].lower()}_nodes"
