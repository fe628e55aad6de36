"""Wafers or GPUs (seed 000): rooflines and system totals from the shipped machines, and one training job on three of them.

    ridge = peak / memory bandwidth, operations a byte from which a workload is bound by compute

The paper compares marketed sparse peaks; ours are dense, and both are given. The job's time and energy are each machine's best
mapping under ideal overlap: the white paper's CS-2 (seed 001) with its 40 GB, and GPUs with Megatron's space.
"""

from __future__ import annotations

from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.studies.findings import Finding, Verdict
from rackmodel.studies.run import Points

BOXES = 8  # DGX H100 of the paper's equal-FLOPS comparison
SPARSE_FLOP_PER_S = {"cs3": 125e15, "dgx_h100": 1.979e15}  # marketed: SOURCED (yobitel.com), RECALLED (H100 data sheet)
CS3_W, DGX_H100_W = 23e3, 10.2e3  # SOURCED: rated (seed 002, Table 2; docs.nvidia.com, DGX H100 user guide)
CLAIMED_PEAK, CLAIMED_POWER, CLAIMED_MEMORY = 63.0, 2.61, 2.69  # seed 000: section 2 and Figure 1
JOB = {"cs2": "16 CS-2", "dgx_a100": "64 DGX A100", "dgx_h100": "8 DGX H100"}


def findings(points: Points) -> list[Finding]:
    """Roofline, peak, power and memory, then the job."""
    wafer, gpu = read_architecture("cs3"), read_architecture("dgx_h100")
    return [_roofline(wafer, gpu), _peaks(wafer, gpu), _power(), _memory(wafer, gpu), _job(points), _limit(points)]


def _verdict(agrees: bool) -> Verdict:
    return "agrees" if agrees else "disagrees"


def peak_flop_per_s(machine: Architecture) -> float:
    """Dense 16-bit operations per second of one accelerator."""
    return machine.peak_flop_per_s(16) / machine.used


def ridge(machine: Architecture, peak: float) -> float:
    """Operations a byte of the accelerator's memory from which it is bound by compute."""
    memory = machine.accelerator.memory
    assert memory is not None
    assert memory.bandwidth_bytes_per_s is not None
    return peak / memory.bandwidth_bytes_per_s


def _roofline(wafer: Architecture, gpu: Architecture) -> Finding:
    figures = {
        "CS-3, dense, FLOP/B": ridge(wafer, peak_flop_per_s(wafer)),
        "CS-3, sparse peak, FLOP/B": ridge(wafer, SPARSE_FLOP_PER_S["cs3"]),
        "H100, dense, FLOP/B": ridge(gpu, peak_flop_per_s(gpu)),
    }
    agrees = max(figures["CS-3, dense, FLOP/B"], figures["CS-3, sparse peak, FLOP/B"]) < 10 and figures["H100, dense, FLOP/B"] > 100
    why = "against the SRAM of a wafer and the HBM of a GPU; weights that stream in have a ridge of their own, 50,000 tokens a wafer"
    claim = "workloads of 10 to 100 FLOP/B are bound by compute on CS-3 and by memory on H100"
    return Finding("G01", "Figure 3", claim, "must", _verdict(agrees), figures, why)


def _peaks(wafer: Architecture, gpu: Architecture) -> Finding:
    figures = {
        "marketed sparse peaks": SPARSE_FLOP_PER_S["cs3"] / SPARSE_FLOP_PER_S["dgx_h100"],
        "dense peaks": peak_flop_per_s(wafer) / peak_flop_per_s(gpu),
        "boxes of 8 at equal dense peak": peak_flop_per_s(wafer) / peak_flop_per_s(gpu) / 8,
    }
    agrees = abs(figures["dense peaks"] / CLAIMED_PEAK - 1) < 0.1
    why = "63 is 125 over 1.979 PFLOP/s, sparse on both sides (8 to 1 against 2 to 1); at dense peaks a CS-3 equals two boxes, not eight"
    return Finding("G02", "Section 2", "a CS-3 has 63 times the peak of an H100", "should", _verdict(agrees), figures, why)


def _power() -> Finding:
    figures = {
        "rated power, 8 DGX H100 over CS-3": BOXES * DGX_H100_W / CS3_W,
        "kW a box that 2.61 implies": CLAIMED_POWER * CS3_W / BOXES / 1e3,
    }
    agrees = abs(figures["rated power, 8 DGX H100 over CS-3"] / CLAIMED_POWER - 1) < 0.1
    why = "2.61 times takes 7.5 kW a box, between its rated 10.2 kW and its GPUs' 5.6; the wafer's figure leaves MemoryX out"
    return Finding("G03", "Figure 1", "8 DGX H100 draw 2.61 times the power of a CS-3", "should", _verdict(agrees), figures, why)


def _memory(wafer: Architecture, gpu: Architecture) -> Finding:
    store, sram, hbm = wafer.level("memoryx").memory, wafer.accelerator.memory, gpu.accelerator.memory
    assert store is not None
    assert sram is not None
    assert hbm is not None
    sizes = [memory.capacity_bytes or 0.0 for memory in (store, sram, hbm)]
    ours = (sizes[0] + sizes[1]) / (BOXES * 8 * sizes[2])
    figures = {
        "CS-3 with MemoryX over 64 H100, ours": ours,
        "paper": CLAIMED_MEMORY,
        "at 36 TB": (36e12 + sizes[1]) / (BOXES * 8 * sizes[2]),
    }
    why = "SRAM and DRAM; MemoryX of 12 TB here; hosts' DRAM is left out on both sides; the paper does not say which MemoryX it means"
    return Finding(
        "G04", "Figure 1", "64 H100 have 2.69 times less memory", "should", _verdict(abs(ours / CLAIMED_MEMORY - 1) < 0.15), figures, why
    )


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
    fastest = min(JOB, key=lambda name: points.one(run="job", architecture=name).latency_s)
    why = f"what limits: {'; '.join(words)}. Peak rates and ideal overlap; static power of idle switches, hosts and MemoryX as in the files"
    return Finding("G05", "ours", "16 CS-2 train GPT-3 faster than 64 DGX A100", "should", _verdict(fastest == "cs2"), figures, why)


def _limit(points: Points) -> Finding:
    on, off = points.one(run="job", architecture="cs2"), points.one(run="unlimited")
    a100 = points.one(run="job", architecture="dgx_a100")
    figures = {
        "16 CS-2 with 40 GB, s": on.latency_s,
        "16 CS-2 without limit, s": off.latency_s,
        "64 DGX A100, s": a100.latency_s,
        "dense peak, 64 DGX A100 over 16 CS-2": 512
        * peak_flop_per_s(read_architecture("dgx_a100"))
        / (16 * peak_flop_per_s(read_architecture("cs2"))),
    }
    step = on.mapping.step
    assert step is not None
    times = 1536 // 16 // step.micro_batch
    why = f"without it the peak decides; with it {times} micro-batches of {step.micro_batch} sequences each stream all weights"
    agrees = off.latency_s < a100.latency_s * 1.3 and on.latency_s > 2 * off.latency_s
    return Finding("G06", "ours", "40 GB of SRAM, not the peak, decides for CS-2", "should", _verdict(agrees), figures, why)
