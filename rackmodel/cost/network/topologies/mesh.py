"""A mesh: Σ |Δk| traversals; of two dimensions every link is counted for all that goes on it (cost/network/mesh_links), of three for
whatever children relay (cost/network/relays)."""

from __future__ import annotations

from rackmodel.arrays import Ints
from rackmodel.cost.network.mesh_links import Grid, trees
from rackmodel.cost.network.relays import Ways
from rackmodel.cost.network.topologies.base import FanTraffic, Spread
from rackmodel.cost.network.topologies.grid import GridTopology, shape_of
from rackmodel.model.architecture import Network


class MeshTopology(GridTopology):
    """Neighbours along every dimension are joined; the ends are not."""

    name = "mesh"

    def along(self, apart: Ints, extent: int) -> Ints:
        """Step by step."""
        return apart

    def grid(self, network: Network) -> Grid | None:
        """Two dimensions."""
        shape = shape_of(network)
        return Grid(*shape) if len(shape) == 2 else None

    def ways(self, network: Network, children: int) -> Ways | None:
        """Lines along each of three dimensions."""
        shape = shape_of(network)
        return Ways(shape, wraps=False) if len(shape) == 3 else None

    def fan(self, network: Network, spread: Spread) -> FanTraffic:
        """From above, units enter a grid at row 0, and its links are the head's."""
        grid = self.grid(network)
        if not spread.combined or spread.position >= 0 or grid is None:
            return super().fan(network, spread)
        tree = trees(grid, spread.unit, spread.instance, spread.place)
        return FanTraffic(tree.links, ((tree.busiest, spread.down),), tree.farthest)
