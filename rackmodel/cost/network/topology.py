"""How many traversals a transfer makes in a network, by topology, and the shape of a broadcast tree.

Positions are those of the children of one instance, in the order declared; a mesh, torus or row-column network numbers its
`shape` row by row (row-major).

    switch, point_to_point   1                               torus        Σ min(|Δk|, n_k − |Δk|)
    ring                     min(|i − j|, n − |i − j|)       row_column   coordinates that differ (2 unless row or column is shared)
    mesh                     Σ |Δk|                          tree         2 × levels up to the lowest common node
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level, Network, Tier

Indices = NDArray[np.int64]


def hop_count(network: Network, children: int, a: Any, b: Any) -> Indices:
    """Traversals between child positions a and b (arrays that broadcast); 0 where they are equal. children: n of a ring."""
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    match network.topology:
        case "switch" | "point_to_point":
            hops = np.ones_like(a)
        case "ring":
            apart = np.abs(a - b)
            hops = np.minimum(apart, children - apart)
        case "tree":
            hops = 2 * _levels_to_common(a, b, _fanout(network))
        case _:
            hops = _grid_hops(network, a, b)
    return np.asarray(np.where(a == b, 0, hops))


def ring_hop_count(network: Network, children: int, a: Any, b: Any) -> Indices:
    """Traversals between neighbours of an algorithm's ring, or the two ends of a send.

    As hop_count, but 1 on a `ring` network wherever the two children sit: the rack paper counts one link for each edge of
    the logical ring and for each pair of a send (its formulas have no distance inside a network). A physical ring with
    distances is a torus of shape [n, 1].
    """
    if network.topology == "ring":
        return np.asarray(np.not_equal(a, b), dtype=np.int64)
    return hop_count(network, children, a, b)


def _grid_hops(network: Network, a: Indices, b: Indices) -> Indices:
    assert network.shape is not None
    total = np.zeros_like(a)
    for extent in reversed(network.shape):
        apart = np.abs(a % extent - b % extent)
        if network.topology == "torus":
            apart = np.minimum(apart, extent - apart)
        elif network.topology == "row_column":
            apart = (apart > 0).astype(np.int64)
        total = total + apart
        a, b = a // extent, b // extent
    return total


def _levels_to_common(a: Indices, b: Indices, fanout: int) -> Indices:
    levels = np.zeros_like(a)
    while np.any(a != b):
        levels = levels + (a != b)
        a, b = a // fanout, b // fanout
    return levels


def hop_parts(network: Network, children: int) -> list[tuple[Indices, Indices]]:
    """hop_count as a sum over coordinates: (coordinate [children], distance [extent, extent]) pairs, so that

        hop_count(a, b) = Σ distance[coordinate[a], coordinate[b]]

    A grid has one pair a dimension and a tree one a height, which makes sums over all pairs of many children cheap.
    """
    places = np.arange(children, dtype=np.int64)
    if network.topology in ("mesh", "torus", "row_column"):
        assert network.shape is not None
        parts, rest = [], places
        for extent in reversed(network.shape):
            parts.append((rest % extent, extent))
            rest = rest // extent
    elif network.topology == "tree":
        fanout = _fanout(network)
        heights = range(tree_depth(children, fanout))
        return [(node, 2 * _differs(int(node.max()) + 1)) for node in (places // fanout**height for height in heights)]
    elif network.topology == "ring":
        parts = [(places, children)]
    else:
        return [(places, _differs(children))]
    found = []
    for coordinate, extent in parts:
        apart = np.abs(np.arange(extent)[:, None] - np.arange(extent))
        if network.topology in ("ring", "torus"):
            apart = np.minimum(apart, extent - apart)
        found.append((coordinate, _differs(extent) if network.topology == "row_column" else apart))
    return found


def _differs(extent: int) -> Indices:
    return 1 - np.eye(extent, dtype=np.int64)


def _fanout(network: Network) -> int:
    assert network.fanout is not None
    return network.fanout


def tree_depth(leaves: int, fanout: int) -> int:
    """Nodes between the root's uplink and a leaf: ⌈log_fanout leaves⌉, 0 for one leaf."""
    depth = 0
    while fanout**depth < leaves:
        depth += 1
    return depth


def tree_edge_loads(shard: Indices, leaf: Indices, fanout: int, depth: int) -> list[Indices]:
    """Shards each edge of a tree carries when shard[i] goes to (or comes from) leaf[i], combined where paths meet.

    One array for each height 0 (edges to the leaves) … depth (the root's uplink): loads of the edges in use. The sum over
    all is the number of edge traversals: N + nodes for one shard to N leaves (1, 5, 11, 21, 85, 256 for N = 1, 4, 8, 16, 64,
    192 at fanout 4; DERIVED from the SwarmX 1:4 tree).
    """
    loads = []
    for height in range(depth + 1):
        node = leaf // fanout**height
        pairs = np.unique(shard * (node.max() + 1) + node) % (node.max() + 1)
        loads.append(np.unique(pairs, return_counts=True)[1].astype(np.int64))
    return loads


def tree_edges(leaves: Sequence[int] | Indices, fanout: int, depth: int | None = None) -> int:
    """Edges of the smallest subtree from the source above the root to `leaves` (positions). depth: of the whole tree."""
    leaf = np.asarray(leaves, dtype=np.int64)
    deep = tree_depth(int(leaf.max()) + 1, fanout) if depth is None else depth
    return int(sum(load.sum() for load in tree_edge_loads(np.zeros_like(leaf), leaf, fanout, deep)))


def common_tier(tiers: Sequence[Tier], a: Any, b: Any) -> Indices:
    """Index of the tier whose network joins accelerators a and b (their lowest common ancestor's); −1 where a equals b.

    Raises InputError where none does.
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    common = np.full(a.shape, len(tiers), dtype=np.int64)
    for index in range(len(tiers) - 1, -1, -1):
        span = tiers[index].below * tiers[index].children
        common[a // span == b // span] = index
    common[a == b] = -1
    if np.any(common == len(tiers)):
        far = np.argwhere(common == len(tiers))[0]
        raise InputError(f"no network joins accelerators {a[tuple(far)]} and {b[tuple(far)]}")
    return common


def first_position(parent: Level, child: str) -> int:
    """Position of the first instance of `child` among the children of one `parent`."""
    position = 0
    for level in parent.children:
        if level.name == child:
            return position
        position += level.count
    raise InputError(f"no level '{child}' under '{parent.name}'", known=[level.name for level in parent.children], given=child)


def tier_offsets(architecture: Architecture) -> tuple[int, ...]:
    """For each tier, the position of the first accelerator-holding child (not 0 where other children are declared before)."""
    path = architecture.path
    pairs = zip(reversed(path[:-1]), reversed(path[1:]), strict=True)
    return tuple(first_position(parent, child.name) for parent, child in pairs if parent.network is not None)


def attached_tier(architecture: Architecture, level: str) -> tuple[int, int, int]:
    """Where a memory at `level` joins the accelerators' networks: (tier index, position or −1, instances there).

    An accelerator's ancestor feeds its own network from above (position −1); a sibling of an ancestor sits among the
    children of their common parent. Raises InputError for a level that is neither.
    """
    levels, path = [tier.level for tier in architecture.tiers], [lv.name for lv in architecture.path]
    for depth, parent in enumerate(architecture.above):
        if parent.name == level:
            inner = [lv.name for lv in architecture.above[depth:] if lv.network is not None]
            return (levels.index(inner[0]) if inner else -1), -1, 1
        for child in parent.children:
            if child.name == level and level not in path:
                return levels.index(parent.name), first_position(parent, level), child.count
    known = [lv.name for parent in architecture.above for lv in (parent, *parent.children) if not lv.accelerator]
    fact = f"'{level}' is not above the accelerators nor beside their ancestors: it cannot stream to them"
    raise InputError(fact, known=dict.fromkeys(known), given=level)
