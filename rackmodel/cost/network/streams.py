"""What a stream costs between a memory above the accelerators and those that need it: one copy an edge where the network multicasts.

    T(V) = start-ups on the way + V · shards on the busiest edge / its bandwidth        E(V) = Σ_tiers bytes · traversals · J/byte

Sources: SwarmX's 1:4 tree (seed 001, 6.4); into a mesh as `network/mesh_links` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.collectives import LinkUse, use_of
from rackmodel.cost.network.fabric import Fabric, digest, fabric_of, on_slowest, reading
from rackmodel.cost.network.mesh_links import numbered
from rackmodel.cost.network.topologies import Spread, topology_of
from rackmodel.cost.network.topology import attached_tier
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Network


def stream(architecture: Architecture, source_level: str, destinations: Ints | Sequence[Ints], kind: str = "broadcast") -> LinkUse:
    """V bytes of each shard from the memory at `source_level` to every accelerator that needs it, or reduced back into it.

    destinations: [p] one shard, [shards, p], or an array for each shard. The source is an ancestor of the accelerators (it feeds its
    network from above) or beside an ancestor (MemoryX beside the wafers, under SwarmX). A tier that multicasts (kind
    'broadcast') or reduces (kind 'reduce') carries a shard once over each edge; one that does not carries a copy for each
    destination, all through the source's links. Time: bytes on the busiest edge / bandwidth, plus depth · latency ONE WAY on a
    tree (a broadcast and the reduce after it make the published 2 · depth · t_hop), traversals · latency elsewhere; the start-up of
    inner tiers adds. A tree has the depth its children in use need.
    """
    if kind not in ("broadcast", "reduce"):
        raise InputError(f"no stream called '{kind}'", known=("broadcast", "reduce"), given=kind)
    if isinstance(destinations, np.ndarray):
        table = destinations.astype(np.int64).reshape(-1, destinations.shape[-1])
        shard, target = np.repeat(np.arange(len(table)), table.shape[1]), table.reshape(-1)
    else:
        rows = [np.asarray(row, dtype=np.int64).reshape(-1) for row in destinations]
        shard = np.repeat(np.arange(len(rows)), [row.size for row in rows])
        target = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    fabric, source = fabric_of(architecture), Attached(*attached_tier(architecture, source_level), architecture.used)
    key = (kind, source, *digest(shard), *digest(target))
    return fabric.remember(key, lambda: _price_stream(fabric, source, shard, target, kind))


@dataclass(frozen=True)
class Attached:
    """Where a memory joins the networks. tier, position: as `attached_tier` · count: instances there · used: accelerators in use."""

    tier: int
    position: int
    count: int
    used: int


def _price_stream(fabric: Fabric, source: Attached, shard: Ints, target: Ints, kind: str) -> LinkUse:
    wire, slope, start = (np.zeros(len(fabric.tiers)) for _ in range(3))
    feeding = source.count
    for index in range(source.tier, -1, -1) if target.size else ():
        tier = fabric.tiers[index]
        network = tier.network
        combined = network.multicast if kind == "broadcast" else network.reduce
        up, down = _links(fabric, source, index, feeding)
        unit, child = shard, target // tier.below
        if combined:
            keys = numbered(shard * (child.max() + 1) + child)[0]
            unit, child = keys // (child.max() + 1), keys % (child.max() + 1)
        else:
            unit = np.arange(target.size)  # a copy for each destination
        hops, busiest, depth = _fan(fabric, source, index, unit, child, (up, down), combined=combined)
        wire[index], slope[index], start[index] = hops, busiest, depth * network.latency_s
        feeding = down
    if reading(fabric, wire) != "path_sum":
        slope, start = (side[0, :, 0] for side in on_slowest(slope[None, :, None], np.array([[start.sum()]])))
    return use_of(fabric, (wire, slope, start))


def _links(fabric: Fabric, source: Attached, index: int, feeding: int) -> tuple[int, int]:
    """Links at the head of tier `index` and at each of its children. feeding: those of the tier above into the head, or sources."""
    tier = fabric.tiers[index]
    if index < source.tier:
        return feeding, tier.links
    if topology_of(tier.network).pairs:  # every source has links of its own to every child
        return feeding * tier.links * tier.children, feeding * tier.links
    return feeding * (tier.network.links or 1), tier.links


def _fan(
    fabric: Fabric, source: Attached, index: int, unit: Ints, child: Ints, links: tuple[int, int], *, combined: bool
) -> tuple[float, float, float]:
    """Units from (or to) the head of tier `index` to its children: traversals, seconds a byte on the busiest edge, start-ups.

    A unit is a shard, which an edge carries once, or a copy. links: at the head, which feeds networks below the source's from above, and
    at a child · combined: whether units are shards.
    """
    tier, position = fabric.tiers[index], source.position if index == source.tier else -1
    network, in_use = tier.network, min(tier.children, -(-source.used // tier.below))
    spread = Spread(unit, child, tier.children, fabric.offsets[index], combined, position, *links, in_use)
    fan = topology_of(network).fan(network, spread)
    return fan.traversals, max(_seconds_per_byte(network, most, links) for most, links in fan.edges), fan.depth


def _seconds_per_byte(network: Network, flows: float, links: int) -> float:
    """Seconds a byte of each of `flows` equal flows over `links` links: max(1, o · flows / links) / bandwidth, no max if striped."""
    crowd = flows * network.oversubscription / links
    return (crowd if network.striped else max(1.0, crowd)) / (network.bandwidth_bytes_per_s * network.sustained)
