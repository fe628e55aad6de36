"""What the cost model asks of a topology; a new one answers what differs from these defaults.

Positions are those of the children of one instance of a level, in the order declared; `children` is how many there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.mesh_links import Grid
from rackmodel.cost.network.relays import Ways
from rackmodel.model.architecture import Network

Parts = list[tuple[Ints, Ints]]


@dataclass(frozen=True)
class Spread:
    """Units from (or to) the head of a network to its children. unit, child: [n] each unit once for each child that needs it; children are
    numbered through all instances, `children` in each, the first at position `offset`.

    combined: whether an edge carries a unit once (a shard) or every unit is a copy · position: the head's place among the children, −1
    where it feeds the network from above · up, down: links at the head and at a child · in_use: children in use.
    """

    unit: Ints
    child: Ints
    children: int
    offset: int
    combined: bool
    position: int
    up: int
    down: int
    in_use: int

    @property
    def instance(self) -> Ints:
        """[n] the instance of the level."""
        return self.child // self.children

    @property
    def place(self) -> Ints:
        """[n] the child's position."""
        return self.child % self.children + self.offset


@dataclass(frozen=True)
class FanTraffic:
    """traversals: of all units · edges: (units on the busiest edge, links that share them) of each kind of edge · depth: start-ups."""

    traversals: float
    edges: tuple[tuple[float, int], ...]
    depth: float


class Topology(ABC):
    """One way to join the children of a level. name: its word in the files.

    uniform: any two children are one hop apart, so that only who shares a child matters, not where it is · pairs: every two of them have
    links of their own · adds: one place sees what all children send, so that a network that multicasts and reduces adds in one pass ·
    flows_relay: whether an algorithm's flows and sends take
    `ways` too, as an all-to-all does.
    """

    name: str
    uniform = False
    pairs = False
    adds = False
    flows_relay = True

    @property
    def meets(self) -> bool:
        """Whether a child's links lead to any other."""
        return self.uniform and not self.pairs

    @abstractmethod
    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """Traversals between positions a and b, alike in shape; what it says where they are equal is not read."""

    def neighbour_hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """Traversals between neighbours of an algorithm's ring, or the two ends of a send; as `hops`, a != b."""
        return self.hops(network, children, a, b)

    @abstractmethod
    def parts(self, network: Network, children: int) -> Parts:
        """`hops` as a sum over coordinates: (coordinate [children], distance [extent, extent]) pairs, so that

            hops(a, b) = Σ distance[coordinate[a], coordinate[b]]

        which makes sums over all pairs of many children cheap.
        """

    def runs(self, network: Network, children: int) -> set[int]:
        """Numbers of children that make a row or a subtree: a step between groups that carries over one changes their hops."""
        return set()

    def grid(self, network: Network) -> Grid | None:
        """The grid whose links are counted one by one (cost/network/mesh_links); None where a child's own links decide."""
        return None

    def ways(self, network: Network, children: int) -> Ways | None:
        """The lines along which children relay what others exchange (cost/network/relays); None where a child's own links decide."""
        return None

    def fan(self, network: Network, spread: Spread) -> FanTraffic:
        """What a stream costs: from above one traversal a unit, else those from the head's place; the head's links and a child's."""
        hops = np.ones_like(spread.child)
        if spread.position >= 0:
            here, there = np.full_like(spread.child, spread.position), spread.place
            hops = np.where(here == there, 0, self.neighbour_hops(network, spread.children, here, there))
        heads = np.unique(np.stack([spread.unit, spread.instance]), axis=1)[1]
        edges = (float(np.bincount(heads).max()), spread.up), (float(np.bincount(spread.child).max()), spread.down)
        return FanTraffic(float(hops.sum()), edges, float(hops.max()))


def differs(extent: int) -> Ints:
    """[extent, extent] one hop between any two."""
    return 1 - np.eye(extent, dtype=np.int64)


def line(extent: int) -> Ints:
    """[extent, extent] hops along a line."""
    return np.asarray(np.abs(np.arange(extent)[:, None] - np.arange(extent)))


def shorter_way(apart: Ints, extent: int) -> Ints:
    """Hops round a ring of `extent` between places this far apart."""
    return np.minimum(apart, extent - apart)
