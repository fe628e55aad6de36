"""A mesh: Σ |Δk| traversals; of two dimensions every link is counted (cost/network/mesh_links)."""

from __future__ import annotations

from rackmodel.cost.network.mesh_links import Grid, trees
from rackmodel.cost.network.topologies.base import Fan, Indices, Spread
from rackmodel.cost.network.topologies.grid import GridTopology
from rackmodel.model.architecture import Network


class Mesh(GridTopology):
    """Neighbours along every dimension are joined; the ends are not."""

    name = "mesh"

    def along(self, apart: Indices, extent: int) -> Indices:
        """Step by step."""
        return apart

    def grid(self, network: Network) -> Grid | None:
        """Two dimensions; a mesh of three is priced by its hops, without its links."""
        assert network.shape is not None
        return Grid(*network.shape) if len(network.shape) == 2 else None

    def fan(self, network: Network, spread: Spread) -> Fan:
        """From above, units enter a grid at row 0, and its links are the head's."""
        grid = self.grid(network)
        if not spread.combined or spread.position >= 0 or grid is None:
            return super().fan(network, spread)
        tree = trees(grid, spread.unit, spread.instance, spread.place)
        return Fan(tree.links, ((tree.busiest, spread.down),), tree.farthest)
