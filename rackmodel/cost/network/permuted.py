"""What flows over switches where every member of a group sends to one other and gets from one (a ring; halves that are exchanged).

Members of a group under one child of a tier make a cell, which is found once for all that flows among the groups. What crosses a tier is
then counted cell by cell, and what all members of a cell send is what the cell holds. Of one group that is alike under every child, who
sends what says how many cross each tier. `link_groups` counts the same flow by flow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.network.fabric import Array, Fabric, Indices
from rackmodel.cost.network.mesh_links import numbered
from rackmodel.cost.network.topology import common_tier

Flags = NDArray[np.bool_]
Moved = tuple[Array, Array, Array, Array, Indices]
"""[tiers] hops, flows, own and start-up, [groups, tiers] transfers of one flow of each member, as `link_groups.PhaseTraffic` has them."""

Crossings = tuple[tuple[int, int], ...]
"""Of each tier the flows over it, and the most of them that leave or enter one child."""


@dataclass(frozen=True)
class Cells:
    """Groups as they lie under children of one size. of: [groups, p] the cell of each member · child, held: [cells] where it lies, and its
    members."""

    of: Indices
    child: Indices
    held: Indices

    @classmethod
    def under(cls, rows: Indices, size: int) -> Cells:
        """Of groups [groups, p], under children of `size` accelerators."""
        if size == 1:
            return cls(np.arange(rows.size).reshape(rows.shape), rows.reshape(-1), np.ones(rows.size, dtype=np.int64))
        child = rows // size
        reach = int(child.max()) + 1
        cells, which = numbered((np.arange(len(rows))[:, None] * reach + child).reshape(-1))
        return cls(which.reshape(rows.shape), cells % reach, np.bincount(which))

    def busiest(self, sent: Sequence[Indices]) -> int:
        """Most flows of one child. sent: [cells] of each cell."""
        return int(max((each if len(self.of) == 1 else np.bincount(self.child, each)).max() for each in sent))

    def fewest(self, sent: Sequence[Indices]) -> int:
        """Fewest members of a cell with flows."""
        return 1 if len(self.held) == self.of.size else int(min(self.held[each > 0].min() for each in sent))


@dataclass(frozen=True)
class _Permutation:
    """[p] place in its group of whom each member of a group sends to. swapped: whether each gets from whom it sends to."""

    to: Indices
    swapped: bool

    def after(self, values: Indices) -> Indices:
        """[groups, p] what each member's goal has."""
        return np.take(values, self.to, axis=1)

    def sent(self, cells: Cells, here: Flags) -> list[Indices]:
        """[cells] flows that leave each, and where that is not the same those that enter it. here: [groups, p] whose flow counts."""
        if here.all():
            return [cells.held]
        ends = (cells.of,) if self.swapped else (cells.of, self.after(cells.of))
        return [np.bincount(end[here], minlength=len(cells.held)) for end in ends]


def permuted(fabric: Fabric, rows: Indices, weight: Indices, to: Indices, of: Hashable) -> Moved:
    """to: [p] whom each member of the groups [groups, p] sends to · of: what tells these groups apart from others. Every network is a
    switch."""

    def cells(size: int) -> Cells:
        return fabric.measure_once(("cells", of, size), lambda: Cells.under(rows, size))

    tiers, order = fabric.tiers, _Permutation(to, bool((to[to] == np.arange(len(to))).all()))
    joined = _joined(fabric, rows, order, cells)
    hops, flows, starts, own = *(np.zeros(len(tiers)) for _ in range(3)), np.ones(len(tiers))
    counts = np.zeros((len(rows), len(tiers)), dtype=np.int64)
    for index, tier in enumerate(tiers):
        here = joined == index
        if not here.any():
            continue
        network, mine, (first, last) = tier.network, cells(tier.below), fabric.ports[index]
        sent = order.sent(mine, here)
        passed = sent if last == index else order.sent(mine, (joined >= index) & (joined <= last))
        counts[:, index] = here.sum(axis=1)
        hops[index], starts[index] = counts[:, index] @ weight, network.latency_s
        flows[index] = max(mine.busiest(sent) * network.oversubscription, mine.busiest(passed) if last > index else 0)
        wide = max(1.0, tier.links / tier.below)
        if network.striped:
            own[index] = max(int(each.max()) for each in passed) / (mine.fewest(sent) * wide)
        elif len(rows) > 1:  # groups may share members
            own[index] = max(1.0, cells(1).busiest(order.sent(cells(1), (joined >= first) & (joined <= last))) / wide)
    return hops, flows, own, starts, counts


def crossed(fabric: Fabric, extents: Sequence[int], weight: int, crossings: Crossings) -> Moved:
    """The same of one group that stands for `weight`. extents: children at each tier, the same under every one of theirs · crossings: what
    leaves or enters a child beyond a tier is no more than over it."""
    tiers = fabric.tiers
    hops, flows, starts, own = *(np.zeros(len(tiers)) for _ in range(3)), np.ones(len(tiers))
    for index, (tier, (count, most)) in enumerate(zip(tiers, crossings, strict=True)):
        if not count:
            continue
        network = tier.network
        hops[index], starts[index] = count * weight, network.latency_s
        flows[index] = most * network.oversubscription
        if network.striped:
            own[index] = most / (prod(extents[:index]) * max(1.0, tier.links / tier.below))
    return hops, flows, own, starts, np.array([[count for count, _ in crossings]])


def _joined(fabric: Fabric, rows: Indices, order: _Permutation, cells: Callable[[int], Cells]) -> NDArray[np.int8]:
    """[groups, p] the tier that joins each member and whom it sends to; -1 where they are one."""
    apart, last = rows != order.after(rows), int(rows.max())
    joined: NDArray[np.int8] = apart.astype(np.int8) - np.int8(1)
    for tier in fabric.tiers:
        size = tier.below * tier.children
        if size > last:  # all in the first
            return joined
        within = cells(size).of
        apart = apart & (within != order.after(within))
        joined += apart
    if apart.any():
        common_tier(fabric.tiers, rows, order.after(rows))  # says which
    return joined
