"""All of a row and all of a column are joined: as many traversals as coordinates differ."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.topologies.grid import GridTopology


class RowColumn(GridTopology):
    """2 traversals unless row or column is shared."""

    name = "row_column"

    def along(self, apart: Ints, extent: int) -> Ints:
        """One hop to any place of the line."""
        return (apart > 0).astype(np.int64)
