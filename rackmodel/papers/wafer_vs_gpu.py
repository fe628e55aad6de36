"""Wafers or GPUs (seed 000): rooflines and system totals from the shipped machines, and one training job on three of them.

    ridge = peak / memory bandwidth, operations a byte from which a workload is bound by compute

The paper compares marketed sparse peaks; ours are dense, and both are given. The job's time and energy are each machine's best
mapping under ideal overlap: the white paper's CS-2 (seed 001) with its 40 GB, and GPUs with Megatron's space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackmodel.carbon.tables import CarbonTables
from rackmodel.model.architecture import Architecture
from rackmodel.papers.claims import last_digit, within_digits
from rackmodel.papers.reads import of_points, of_tables
from rackmodel.papers.wafer_carbon import readings
from rackmodel.studies.findings import Finding, Need, by_reading, judged
from rackmodel.studies.run import Points

BOXES = 8  # DGX H100 of the paper's equal-FLOPS comparison
SPARSE_FLOP_PER_S = {"cs3": 125e15, "dgx_h100": 1.979e15}  # marketed: SOURCED (yobitel.com), RECALLED (H100 data sheet)
CLAIMED_PEAK, CLAIMED_POWER, CLAIMED_MEMORY = "63", "2.61", "2.69"  # seed 000, as printed: section 2 and Figure 1
INTENSITIES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
"""FLOP/B at which rooflines are drawn."""
JOB = {"cs2": "16 CS-2", "dgx_a100": "64 DGX A100", "dgx_h100": "8 DGX H100"}


def _printed(words: str, value: float, printed: str) -> Need:
    """A figure that rounds, or is cut, to the digits as printed."""
    number, step = float(printed), last_digit(printed)
    return Need(words, value, number - step / 2, number + step) if within_digits(printed, value) else Need(words, value, number, number)


def peak_flop_per_s(machine: Architecture) -> float:
    """Dense 16-bit operations per second of one accelerator."""
    return machine.peak_flop_per_s(16) / machine.used


def ridge(machine: Architecture, peak: float) -> float:
    """Operations a byte of the accelerator's memory from which it is bound by compute."""
    memory = machine.accelerator.memory
    assert memory is not None
    assert memory.bandwidth_bytes_per_s is not None
    return peak / memory.bandwidth_bytes_per_s


def _plain(read: Mapping[str, float | str]) -> dict[str, float]:
    return {words: value for words, value in read.items() if isinstance(value, float)}


def _machine(points: Points, name: str) -> Architecture:
    """A machine of the study, as its points have it."""
    machine = points.one(run="machine" if name == "cs3" else "job", architecture=name).machine
    assert machine is not None
    return machine


def _roofline(points: Points) -> Finding:
    wafer, gpu = _machine(points, "cs3"), _machine(points, "dgx_h100")
    figures = {
        "CS-3, dense, FLOP/B": ridge(wafer, peak_flop_per_s(wafer)),
        "CS-3, sparse peak, FLOP/B": ridge(wafer, SPARSE_FLOP_PER_S["cs3"]),
        "H100, dense, FLOP/B": ridge(gpu, peak_flop_per_s(gpu)),
    }
    needs = [
        Need("CS-3, larger of both, FLOP/B", max(figures["CS-3, dense, FLOP/B"], figures["CS-3, sparse peak, FLOP/B"]), most=10),
        Need("H100, dense, FLOP/B", figures["H100, dense, FLOP/B"], least=100),
    ]
    why = "against the SRAM of a wafer and the HBM of a GPU; weights that stream in have a ridge of their own, 50,000 tokens a wafer"
    claim = "workloads of 10 to 100 FLOP/B are bound by compute on CS-3 and by memory on H100"
    drawn = {
        f"PFLOP/s of {name} at {intensity:g} FLOP/B": min(1.0, intensity / ridge(machine, peak)) * peak / 1e15
        for name, machine in (("CS-3", wafer), ("H100", gpu))
        for peak in [peak_flop_per_s(machine)]
        for intensity in INTENSITIES
    }
    return replace(judged("G01", "Figure 3", claim, needs, figures, weight="must", why=why), drawn=drawn)


def _peaks(tables: CarbonTables) -> Finding:
    read = _plain(readings(tables)["wsi-07"])
    figures = {**read, "boxes of 8 at equal dense peak": read["dense peaks"] / 8}
    needs = {words: [_printed("CS-3 over H100", value, CLAIMED_PEAK)] for words, value in read.items()}
    why = "63 is 125 over 1.979 PFLOP/s, sparse on both sides (8 to 1 against 2 to 1); at dense peaks a CS-3 equals two boxes, not eight"
    return by_reading("G02", "section 2.2", "a CS-3 has 63 times the peak of an H100", needs, figures, why=why)


def _power(tables: CarbonTables) -> Finding:
    read = _plain(readings(tables)["wsi-09"])
    needs = {words: [_printed("8 DGX over CS-3", value, CLAIMED_POWER)] for words, value in read.items()}
    why = "neither power is printed; the wafer's figure leaves MemoryX out"
    return by_reading("G03", "Figure 1", "8 DGX H100 draw 2.61 times the power of a CS-3", needs, dict(read), why=why)


def _memory(points: Points) -> Finding:
    wafer, gpu = _machine(points, "cs3"), _machine(points, "dgx_h100")
    store, sram, hbm = wafer.level("memoryx").memory, wafer.accelerator.memory, gpu.accelerator.memory
    assert store is not None
    assert sram is not None
    assert hbm is not None
    sizes = [memory.capacity_bytes or 0.0 for memory in (store, sram, hbm)]
    ours = (sizes[0] + sizes[1]) / (BOXES * 8 * sizes[2])
    figures = {
        "CS-3 with MemoryX over 64 H100, ours": ours,
        "paper": float(CLAIMED_MEMORY),
        "at 36 TB": (36e12 + sizes[1]) / (BOXES * 8 * sizes[2]),
    }
    why = "SRAM and DRAM; MemoryX of 12 TB here; hosts' DRAM is left out on both sides; the paper does not say which MemoryX it means"
    needs = [_printed("CS-3 with MemoryX over 64 H100", ours, CLAIMED_MEMORY)]
    return judged("G04", "Figure 1", "64 H100 have 2.69 times less memory", needs, figures, why=why)


def _job(points: Points) -> Finding:
    figures: dict[str, float] = {}
    words = []
    for architecture, label in JOB.items():
        result = points.one(run="job", architecture=architecture)
        limit = result.limits[0]
        words.append(f"{label}: {limit.what}")
        figures |= {
            f"{label}, s": result.latency_s,
            f"{label}, MJ": result.energy_j / 1e6,
            f"{label}, kW": result.energy_j / result.latency_s / 1e3,
            f"{label}, share of what limits, %": 100 * limit.share,
        }
    needs = [Need("CS-2 over DGX A100, time", figures["16 CS-2, s"] / figures["64 DGX A100, s"], most=1)]
    why = f"what limits: {'; '.join(words)}. Peak rates and ideal overlap; static power of idle switches, hosts and MemoryX as in the files"
    return judged("G05", "ours", "16 CS-2 train GPT-3 faster than 64 DGX A100", needs, figures, weight="ours", why=why)


def _limit(points: Points) -> Finding:
    on, off = points.one(run="job", architecture="cs2"), points.one(run="unlimited")
    a100 = points.one(run="job", architecture="dgx_a100")
    figures = {
        "16 CS-2 with 40 GB, s": on.latency_s,
        "16 CS-2 without limit, s": off.latency_s,
        "64 DGX A100, s": a100.latency_s,
        "dense peak, 64 DGX A100 over 16 CS-2": 512
        * peak_flop_per_s(_machine(points, "dgx_a100"))
        / (16 * peak_flop_per_s(_machine(points, "cs2"))),
    }
    step = on.mapping.step
    assert step is not None
    times = 1536 // 16 // step.micro_batch
    why = f"without it the peak decides; with it {times} micro-batches of {step.micro_batch} sequences each stream all weights"
    needs = [
        Need("without limit, over DGX A100, time", off.latency_s / a100.latency_s, most=1.3),
        Need("with 40 GB, over without, time", on.latency_s / off.latency_s, least=2),
    ]
    return judged("G06", "ours", "40 GB of SRAM, not the peak, decides for CS-2", needs, figures, weight="ours", why=why)


CHECKS = (*of_points(_roofline), *of_tables(_peaks, _power), *of_points(_memory, _job, _limit))
"""Roofline, peak, power and memory, then the job."""
