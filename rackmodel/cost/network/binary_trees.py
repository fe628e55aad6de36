"""Two binary trees over the nodes of a group, each other's mirror, each of half a message: the flows of the algorithm `tree` (algorithms).

Sources: Sanders 2009 (two trees), NCCL src/graph/trees.cc (numbering).
"""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.fabric import Fabric
from rackmodel.cost.network.link_groups import Phase
from rackmodel.cost.network.placed import Placed
from rackmodel.cost.network.topology import common_tier

Extents = tuple[int, ...] | None
"""Children at each tier that a group has; None where it is not alike under every child."""


def tree(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    """The chain in a node and both trees between nodes, pipelined: one phase. Groups that are no whole nodes: a node a member."""
    chain, p = extents[0] if extents else 1, rows.shape[1]
    heads, nodes = rows[:, ::chain], p // chain
    inside = np.flatnonzero(np.arange(p) % chain < chain - 1)
    down, late = [(inside, inside + 1)] * 2, 0.0
    for mirror in (False, True):
        child, parent, root = _binary_tree(nodes, mirror)
        if kind != "all_reduce" and root:  # the first member is source (or goal): it joins the other tree's root, not a parent
            child, parent = np.where(child == 0, root, child), np.where(child == 0, 0, parent)
        down.append((parent * chain, child * chain))
        late = max(late, _depth_s(fabric, heads, child, parent))
    late += (chain - 1) * fabric.tiers[0].network.latency_s
    source, target = (np.concatenate(side) for side in zip(*down, strict=True))
    if kind == "reduce":
        source, target = target, source
    whole = kind == "all_reduce"
    return [Placed(source, target, 0.5, 1, ("trees", kind), start_s=(1 + whole) * late, both=whole, once=False)]


def _binary_tree(nodes: int, mirror: bool) -> tuple[Ints, Ints, int]:
    """(children, their parents, root): every node but 0 has the parent with its lowest set bit moved up, or cleared where there is none
    such (NCCL's ncclGetBtree); the mirror counts from the end, or from one further on where nodes are odd."""
    child = np.arange(1, nodes, dtype=np.int64)
    bit = child & -child
    parent = (child ^ bit) | (bit << 1)
    parent = np.where(parent >= nodes, child ^ bit, parent)
    if not mirror or nodes == 1:
        return child, parent, 0
    if nodes % 2:
        return (child + 1) % nodes, (parent + 1) % nodes, 1
    return nodes - 1 - child, nodes - 1 - parent, nodes - 1


def _depth_s(fabric: Fabric, heads: Ints, child: Ints, parent: Ints) -> float:
    """Start-up seconds along the longest path from a node to the root, of the worst group."""
    if not child.size:
        return 0.0
    latency = np.array([tier.network.latency_s for tier in fabric.tiers])
    edge, up = np.zeros(heads.shape), np.arange(heads.shape[1])
    up[child], edge[:, child] = parent, latency[common_tier(fabric.tiers, heads[:, child], heads[:, parent])]
    leaf = np.ones(heads.shape[1], dtype=bool)
    leaf[parent] = False
    here = np.flatnonzero(leaf)  # no other node is farther from the root
    total = np.zeros((len(heads), len(here)))
    while np.any(up[here] != here):
        total += edge[:, here]
        here = up[here]
    return float(total.max())
