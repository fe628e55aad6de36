"""What a home above the accelerators does for the weights that stream from it: reads, writes, adds and updates.

    adds       of p gradients that meet on their way up: p − 1 where paths join in a network that adds, and one at the home, which
               sums over the micro-batches: one add per element and accelerator in all (seed 001, 6.4)
    update     one step of the optimizer on everything that lives there, by the home's own compute and memory (seed 001, 6.3)

All rows are of the whole machine: a home is one, whoever streams from it.
"""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import Row, slowest
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.model.architecture import Architecture


def home_traffic(architecture: Architecture, level: str, tensor: str, action: str, size: Array) -> Row:
    """Each distinct shard is read or written once. size: [n] bytes of all shards."""
    memory = architecture.level(level).memory
    action = "read" if action == "broadcast" else "write"
    if memory is None:
        return Row(tensor, level, "memory", action, size, "byte", np.zeros_like(size), np.zeros_like(size))
    energy = memory.read_j_per_byte if action == "read" else memory.write_j_per_byte
    bandwidth = memory.port_bytes_per_s(action)
    seconds = size / bandwidth if bandwidth else np.zeros_like(size)
    return Row(tensor, level, "memory", action, size, "byte", size * energy, seconds)


def adds_by_tier(architecture: Architecture, groups: Ints) -> Array:
    """[tiers + 1] adds of one element of every shard, at each network above the accelerators and, last, at the home.

    groups: [shards, p] accelerators whose parts of a shard's sum meet. A network that does not add passes every part on, to the next
    that does or to the home.
    """
    shard = np.arange(len(groups))[:, None]
    parts, found = float(groups.size), np.zeros(len(architecture.tiers) + 1)
    for index, tier in enumerate(architecture.tiers):
        if tier.network.reduce:
            instance = groups // (tier.below * tier.children)
            left = float(len(np.unique(shard * (int(instance.max(initial=0)) + 1) + instance)))
            found[index], parts = parts - left, left
    found[-1] = parts
    return found


def add_rows(architecture: Architecture, level: str, tensor: str, adds: Array) -> list[Row]:
    """Rows of adds ([tiers + 1, n] operations). They keep up with the links (seed 001, 6.4: at line rate) and take no time of their own."""
    still, rows = np.zeros_like(adds[0]), []
    for tier, count in zip(architecture.tiers, adds, strict=False):
        if count.any():
            rows.append(Row(tensor, tier.level, "compute", "add", count, "flop", count * tier.network.add_j_per_flop, still))
    compute = architecture.level(level).compute
    if compute is not None and compute.vector is not None and adds[-1].any():
        energy, rate = compute.vector.energy_j_per_flop, compute.vector.rate_flop_per_s
        rows.append(Row(tensor, level, "compute", "add", adds[-1], "flop", adds[-1] * energy, adds[-1] / rate))
    return rows


def update_rows(architecture: Architecture, level: str, local_op: LocalOp, n: int) -> tuple[list[Row], Array]:
    """Rows and duration [n] of the optimizer at a home: the slower of its compute and its memory, where they are stated."""
    home, degrees = architecture.level(level), np.ones((n, 1), dtype=np.int64)
    groups: list[list[Row]] = [[], []]
    if home.compute is not None and home.compute.vector is not None:
        flops = local_op.per_element * local_op.exact(degrees)
        rate = home.compute.vector
        groups[0].append(
            Row(local_op.written, level, "compute", "vector", flops, "flop", flops * rate.energy_j_per_flop, flops / rate.rate_flop_per_s)
        )
    if home.memory is not None:
        for flows, action in ((local_op.reads, "broadcast"), (local_op.writes, "reduce")):
            groups[1] += [home_traffic(architecture, level, flow.name, action, np.full(n, flow.volume.total)) for flow in flows]
    return slowest(groups, n)
