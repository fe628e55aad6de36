"""A switch: any two children are one traversal apart."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.topologies.base import Parts, Topology, differs
from rackmodel.model.architecture import Network


class Switch(Topology):
    """Every child's links meet in one place, which may copy and add."""

    name = "switch"
    uniform = True
    adds = True

    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """1."""
        return np.ones_like(a)

    def parts(self, network: Network, children: int) -> Parts:
        """The position itself."""
        return [(np.arange(children, dtype=np.int64), differs(children))]
