"""How long products over experts take beside products alone: measured, over what a part's fit to products alone says of as many rows each.

    python tests/fits/over_experts.py infersim_kernels.csv.gz moe_perf.csv.gz      (alibaba/InferSim f2293dab6d23; NVIDIA aiconfigurator)

Prints the quantiles behind `over_experts` of the parts. Of the first file products of prompts by one library (DeepGEMM), to whose products
alone H20's and H800's fits are; of the second calls of fused kernels of one rank, balanced, less what they activate (6 B an element of
what experts make) and gather (four times a token's row for each of its experts) at 0.8 of the memory.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator

import numpy as np

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.products import Device, compute_seconds, together
from rackmodel.inputs import read_architecture

MACHINES = {
    **{name: f"dgx_{name}" for name in ("h20", "h800")},
    **{f"{name}_sxm": f"dgx_{name}" for name in ("a100", "h100", "h200", "b200", "b300")},
    **{name: f"{name}_nvl72" for name in ("gb200", "gb300")},
}
KINDS = {"bfloat16": ("bf16", 16), "fp8": ("fp8", 8), "nvfp4": ("fp4", 4)}
MOST_ALIKE = 512  # tokens an expert from which products are as those of training


def alone(machine: str, kind: str, bits: int, sizes: tuple[float, float, float, float]) -> float:
    """Seconds by the fit to products alone, without starts. sizes: experts, rows of each, columns, sum."""
    gpu = gpu_of(read_architecture(machine))
    assert gpu is not None
    facts, (b, m, n, k) = gpu.facts.products[kind], sizes
    device = Device(peak=gpu.compute.matrix(bits).rate_flop_per_s * gpu.units, blocks=gpu.blocks, element=bits / 8)
    moved = b * (bits / 8 * (m + n) * k + 2.0 * m * n)
    return float(together(compute_seconds(facts, device, b, m, n, k), facts.latency_s + moved / (facts.memory * gpu.bandwidth)))


def read(path: str) -> list[dict[str, str]]:
    """Rows of a file."""
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def of_one_library(path: str) -> Iterator[float]:
    """Measured over alone, of products of prompts."""
    for row in read(path):
        if row["kind"] == "grouped_gemm/prefill":
            said = {name: int(value) for name, value in (one.split("=") for one in row["shape"].split(";"))}
            hidden, inside = said["hidden_size"], said["intermediate_size"]
            n, k = (2 * inside, hidden) if row["metric"].startswith("up") else (hidden, inside)
            if said["tokens_per_expert"] >= MOST_ALIKE:
                sizes = said["num_local_experts"], said["tokens_per_expert"], n, k
                yield 1e-6 * float(row["latency_us"]) / alone(MACHINES[row["gpu"]], "fp8", 8, sizes)


def of_servers(path: str) -> Iterator[tuple[str, float]]:
    """(GPU, kernel and width, measured over alone) of calls of fused kernels."""
    for row in read(path):
        kind, machine = KINDS.get(row["moe_dtype"]), MACHINES.get(row["system"])
        tokens, hidden, inside, chosen, experts, tp = (
            int(row[name]) for name in ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
        )
        rows, inside = tokens * chosen / experts, inside // tp
        if kind is None or machine is None or row["distribution"] != "balanced" or row["moe_ep_size"] != "1":
            continue
        if rows >= MOST_ALIKE and inside >= MOST_ALIKE:
            gpu = gpu_of(read_architecture(machine))
            assert gpu is not None
            made = sum(alone(machine, *kind, (experts, rows, n, k)) for n, k in ((2 * inside, hidden), (hidden, inside)))
            carried = (6.0 * experts * rows * inside + 8.0 * tokens * chosen * hidden) / (0.8 * gpu.bandwidth)
            yield f"{row['system']} {row['kernel_source']} {row['moe_dtype']}", 1e-6 * float(row["latency_us"]) / (made + carried)


def main(one: str, servers: str) -> None:
    """Print quantiles: 5, 25, 50, 75, 95 %."""
    found: dict[str, list[float]] = {"DeepGEMM on H20 and H800": list(of_one_library(one))}
    for name, ratio in of_servers(servers):
        found.setdefault(name, []).append(ratio)
    for name, ratios in found.items():
        print(f"{len(ratios):4} {name}: {', '.join(f'{part:.2f}' for part in np.percentile(ratios, [5, 25, 50, 75, 95]))}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
