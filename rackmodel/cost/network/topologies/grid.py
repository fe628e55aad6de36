"""Rows, columns (and layers): hops are a sum over the coordinates of `shape`, which numbers the children row by row."""

from __future__ import annotations

from abc import abstractmethod
from math import prod

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.topologies.base import Parts, Topology, line
from rackmodel.model.architecture import Network


class GridTopology(Topology):
    """Base of what has a `shape`."""

    @abstractmethod
    def along(self, apart: Ints, extent: int) -> Ints:
        """Traversals between places that are `apart` along one dimension of this extent."""

    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """Σ over dimensions."""
        total = np.zeros_like(a)
        for extent in reversed(shape_of(network)):
            total = total + self.along(np.abs(a % extent - b % extent), extent)
            a, b = a // extent, b // extent
        return total

    def parts(self, network: Network, children: int) -> Parts:
        """One pair a dimension."""
        found, rest = [], np.arange(children, dtype=np.int64)
        for extent in reversed(shape_of(network)):
            found.append((rest % extent, self.along(line(extent), extent)))
            rest = rest // extent
        return found

    def runs(self, network: Network, children: int) -> set[int]:
        """Rows, layers and the whole."""
        shape = shape_of(network)
        return {prod(shape[number:]) for number in range(len(shape))}


def shape_of(network: Network) -> tuple[int, ...]:
    """Children along each dimension, which the schema demands."""
    assert network.shape is not None
    return network.shape
