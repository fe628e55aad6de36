"""The table of topologies: what each does is one file here, what each must be given is in `model/topologies`.

switch, point_to_point   1                               torus        Σ min(|Δk|, n_k − |Δk|)
ring                     min(|i − j|, n − |i − j|)       row_column   coordinates that differ (2 unless row or column is shared)
mesh                     Σ |Δk|                          tree         2 × levels up to the lowest common node
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.topologies.base import FanTraffic, Parts, Spread, Topology
from rackmodel.cost.network.topologies.mesh import MeshTopology
from rackmodel.cost.network.topologies.point_to_point import PointToPoint
from rackmodel.cost.network.topologies.ring import Ring
from rackmodel.cost.network.topologies.row_column import RowColumn
from rackmodel.cost.network.topologies.switch import Switch
from rackmodel.cost.network.topologies.torus import Torus
from rackmodel.cost.network.topologies.tree import Tree
from rackmodel.model.architecture import Network

__all__ = ["TABLE", "FanTraffic", "Spread", "Topology", "hop_count", "hop_parts", "ring_hop_count", "topology_of"]

TABLE: dict[str, Topology] = {
    topology.name: topology for topology in (Switch(), Ring(), MeshTopology(), Torus(), RowColumn(), Tree(), PointToPoint())
}


def topology_of(network: Network) -> Topology:
    """What a network's topology does."""
    return TABLE[network.topology]


def hop_count(network: Network, children: int, a: Any, b: Any) -> Ints:
    """Traversals between child positions a and b (arrays that broadcast); 0 where they are equal. children: n of a ring."""
    here, there = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    return np.asarray(np.where(here == there, 0, topology_of(network).hops(network, children, here, there)))


def ring_hop_count(network: Network, children: int, a: Any, b: Any) -> Ints:
    """`hop_count` between neighbours of an algorithm's ring, or the two ends of a send (1 on a `ring`, as the rack paper counts)."""
    here, there = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    return np.asarray(np.where(here == there, 0, topology_of(network).neighbour_hops(network, children, here, there)))


def hop_parts(network: Network, children: int) -> Parts:
    """`hop_count` as a sum over coordinates: see Topology.parts."""
    return topology_of(network).parts(network, children)
