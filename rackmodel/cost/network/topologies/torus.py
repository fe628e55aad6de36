"""A torus: Σ min(|Δk|, n_k − |Δk|) traversals."""

from __future__ import annotations

from rackmodel.cost.network.topologies.base import Indices, shorter_way
from rackmodel.cost.network.topologies.grid import GridTopology


class Torus(GridTopology):
    """A mesh whose ends are joined."""

    name = "torus"

    def along(self, apart: Indices, extent: int) -> Indices:
        """The short way round."""
        return shorter_way(apart, extent)
