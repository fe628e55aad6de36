"""A torus: Σ min(|Δk|, n_k − |Δk|) traversals."""

from __future__ import annotations

from rackmodel.arrays import Ints
from rackmodel.cost.network.relays import Ways
from rackmodel.cost.network.topologies.base import shorter_way
from rackmodel.cost.network.topologies.grid import GridTopology, shape_of
from rackmodel.model.architecture import Network


class Torus(GridTopology):
    """A mesh whose ends are joined."""

    name = "torus"

    def along(self, apart: Ints, extent: int) -> Ints:
        """The short way round."""
        return shorter_way(apart, extent)

    def ways(self, network: Network, children: int) -> Ways:
        """Rings along every dimension."""
        return Ways(shape_of(network), wraps=True)
