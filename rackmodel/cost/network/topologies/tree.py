"""A tree of nodes with `fanout` children: 2 × levels up to the lowest common node, and the edges a broadcast takes."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.topologies.base import FanTraffic, Parts, Spread, Topology, differs
from rackmodel.model.architecture import Network


class Tree(Topology):
    """The level's children are the leaves, in order."""

    name = "tree"

    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """Up to the common node and down again."""
        levels = np.zeros_like(a)
        while np.any(a != b):
            levels = levels + (a != b)
            a, b = a // _fanout(network), b // _fanout(network)
        return 2 * levels

    def parts(self, network: Network, children: int) -> Parts:
        """One pair a height."""
        places, fanout = np.arange(children, dtype=np.int64), _fanout(network)
        nodes = (places // fanout**height for height in range(tree_depth(children, fanout)))
        return [(node, 2 * differs(int(node.max()) + 1)) for node in nodes]

    def runs(self, network: Network, children: int) -> set[int]:
        """Leaves below a node of each height."""
        return {_fanout(network) ** height for height in range(tree_depth(children, _fanout(network)) + 1)}

    def fan(self, network: Network, spread: Spread) -> FanTraffic:
        """Every unit once over each edge on its way, through a tree as deep as the children in use need."""
        fanout, depth = _fanout(network), tree_depth(spread.in_use, _fanout(network))
        leaf = spread.instance * fanout**depth + spread.child % spread.children
        loads = tree_edge_loads(spread.unit, leaf, fanout, depth)
        links = [spread.down, *[network.links or 1] * (depth - 1), spread.up][: depth + 1]
        edges = tuple((float(load.max()), link) for load, link in zip(loads, links, strict=True))
        return FanTraffic(float(sum(load.sum() for load in loads)), edges, float(depth))


def _fanout(network: Network) -> int:
    assert network.fanout is not None
    return network.fanout


def tree_depth(leaves: int, fanout: int) -> int:
    """Nodes between the root's uplink and a leaf: ⌈log_fanout leaves⌉, 0 for one leaf."""
    depth = 0
    while fanout**depth < leaves:
        depth += 1
    return depth


def tree_edge_loads(shard: Ints, leaf: Ints, fanout: int, depth: int) -> list[Ints]:
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
