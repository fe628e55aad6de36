"""What a stream costs between a memory above the accelerators and those that need it: one copy an edge where the network multicasts.

    T(V) = start-ups on the way + V · shards on the busiest edge / its bandwidth        E(V) = Σ_tiers bytes · traversals · J/byte

Sources: SwarmX's 1:4 tree (seed 001, 6.4); into a mesh as `cost/mesh_links` has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.cost.network.collectives import LinkUse, digest, use_of
from rackmodel.cost.network.link_groups import Fabric, Indices, fabric_of, on_slowest, reading
from rackmodel.cost.network.mesh_links import grid_of, numbered, trees
from rackmodel.cost.network.topology import attached_tier, ring_hop_count, tree_depth, tree_edge_loads
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Network


def stream(architecture: Architecture, source_level: str, destinations: Indices | Sequence[Indices], kind: str = "broadcast") -> LinkUse:
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
    fabric = fabric_of(architecture)
    key = (kind, source_level, *digest(shard), *digest(target))
    return fabric.remember(key, lambda: _price_stream(fabric, source_level, shard, target, kind))


def _price_stream(fabric: Fabric, source_level: str, shard: Indices, target: Indices, kind: str) -> LinkUse:
    top, position, sources = attached_tier(fabric.architecture, source_level)
    wire, slope, start = (np.zeros(len(fabric.tiers)) for _ in range(3))
    feeding = sources
    for index in range(top, -1, -1) if target.size else ():
        tier = fabric.tiers[index]
        network = tier.network
        combined = network.multicast if kind == "broadcast" else network.reduce
        up = feeding * (network.links or 1) if index == top else feeding
        unit, child = shard, target // tier.below
        if combined:
            keys = numbered(shard * (child.max() + 1) + child)[0]
            unit, child = keys // (child.max() + 1), keys % (child.max() + 1)
        else:
            unit = np.arange(target.size)  # a copy for each destination
        hops, busiest, depth = _fan(fabric, index, unit, child, position if index == top else -1, up, combined=combined)
        wire[index], slope[index], start[index] = hops, busiest, depth * network.latency_s
        feeding = network.links or tier.below
    if reading(fabric, wire) != "path_sum":
        slope, start = (side[:, 0] for side in on_slowest(slope[:, None], float(start.sum())))
    return use_of(fabric, (wire, slope, start))


def _fan(
    fabric: Fabric, index: int, unit: Indices, child: Indices, position: int, up: int, *, combined: bool
) -> tuple[float, float, float]:
    """Units from (or to) the head of tier `index` to its children: traversals, seconds a byte on the busiest edge, start-ups.

    A unit is a shard, which an edge carries once, or a copy. up: links at the head; position: the head's place among the children, −1
    where it feeds the network from above (one traversal each) · combined: whether units are shards. Into a mesh from above they enter at
    row 0 (cost/mesh_links), whose links are the head's.
    """
    tier = fabric.tiers[index]
    network, instance = tier.network, child // tier.children
    down = network.links or tier.below
    if network.topology == "tree":
        assert network.fanout is not None
        in_use = min(tier.children, -(-fabric.architecture.used // tier.below))
        depth = tree_depth(in_use, network.fanout)
        loads = tree_edge_loads(unit, instance * network.fanout**depth + child % tier.children, network.fanout, depth)
        links = [down, *[network.links or 1] * (depth - 1), up][: depth + 1]
        busiest = max(_seconds_per_byte(network, int(load.max()), link) for load, link in zip(loads, links, strict=True))
        return float(sum(load.sum() for load in loads)), busiest, float(depth)
    places, grid = child % tier.children + fabric.offsets[index], grid_of(network)
    if combined and position < 0 and grid is not None:
        tree = trees(grid, unit, instance, places)
        return tree.links, _seconds_per_byte(network, tree.busiest, down), tree.farthest
    hops = ring_hop_count(network, tier.children, position, places) if position >= 0 else np.ones_like(child)
    heads = np.unique(np.stack([unit, instance]), axis=1)[1]
    busiest = max(
        _seconds_per_byte(network, int(np.bincount(heads).max()), up), _seconds_per_byte(network, int(np.bincount(child).max()), down)
    )
    return float(hops.sum()), busiest, float(hops.max())


def _seconds_per_byte(network: Network, flows: float, links: int) -> float:
    """Seconds a byte of each of `flows` equal flows over `links` links: max(1, o · flows / links) / bandwidth, no max if striped."""
    crowd = flows * network.oversubscription / links
    return (crowd if network.striped else max(1.0, crowd)) / (network.bandwidth_bytes_per_s * network.sustained)
