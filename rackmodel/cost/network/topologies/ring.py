"""A ring: min(|i − j|, n − |i − j|) traversals, the short way round."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.relays import Ways
from rackmodel.cost.network.topologies.base import Parts, Topology, line, shorter_way
from rackmodel.model.architecture import Network


class Ring(Topology):
    """Children in a circle, in the order declared."""

    name = "ring"
    flows_relay = False  # one link for each pair, as neighbour_hops has it

    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """The short way round."""
        return shorter_way(np.abs(a - b), children)

    def neighbour_hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """1 wherever the two children sit: the rack paper counts one link for each edge of the logical ring and for each pair of a send
        (its formulas have no distance inside a network). A physical ring with distances is a torus of shape [n, 1]."""
        return np.ones_like(a)

    def ways(self, network: Network, children: int) -> Ways:
        """One line, joined at its ends."""
        return Ways((children,), wraps=True)

    def parts(self, network: Network, children: int) -> Parts:
        """The position itself."""
        return [(np.arange(children, dtype=np.int64), shorter_way(line(children), children))]
