"""Direct all-to-alls measured on the tree, for any number of copies of their groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.network.fabric import Costs, Fabric, on_slowest, reading, runs_of
from rackmodel.cost.network.mesh_links import exchange_busiest, numbered
from rackmodel.cost.network.relays import exchange_sharing, met_pairs, to_one_sharing
from rackmodel.cost.network.topologies import hop_parts, topology_of
from rackmodel.cost.network.topology import common_tier
from rackmodel.model.architecture import Tier

EXCHANGES = ("all_to_all", "to_one")


@dataclass(frozen=True)
class ExchangeFigures:
    """A direct all-to-all. leaving: for each tier, [3, n] of distinct children the bytes to others of the network, to these and beyond by
    the same links (`Fabric.ports`), and its members that send; of pairs with links of their own those to the other child · hops: [tiers] ·
    partners: most others of one member at the tier · starts: [tiers] of one partner · steps: [tiers] starts one after another, where the
    slowest link decides. What relays has its busiest link in the child's place, and a mesh of two dimensions one start. Bytes are in
    units of V / p."""

    p: int
    hops: Array
    leaving: tuple[Ints, ...]
    partners: Array
    starts: Array
    steps: Array

    def price(self, fabric: Fabric, copies: Array, count: Array) -> Costs:
        """[tiers, n] costs of count [n] such groups, copies [tiers, n] of them in each child."""
        slope, by_path = np.zeros(copies.shape), reading(fabric, self.hops) == "path_sum"
        for index in np.flatnonzero(self.hops):
            tier, network = fabric.tiers[index], fabric.tiers[index].network
            links = float(tier.links)
            inside, out, senders = self.leaving[index][:, :, None] * copies[index]
            usable = np.minimum(links, senders * (max(1.0, links / tier.below) if network.striped else 1.0))
            inside = inside * network.oversubscription
            busy = inside if by_path else np.maximum(inside, out)
            crowd = np.divide(busy, usable, out=np.zeros_like(usable), where=usable > 0).max(axis=0)
            slope[index] = crowd / (network.bandwidth_bytes_per_s * network.sustained) / self.p
        wire = self.hops[:, None] * count / self.p
        if by_path:
            return wire, slope, np.repeat((self.partners * self.starts)[:, None], copies.shape[1], axis=1)
        seconds, start = on_slowest(slope[None], np.array([[(self.steps * self.starts).max()]]))
        return wire, seconds[0], start[0]


def exchange_figures(fabric: Fabric, rows: Ints, weight: Ints, *, to_one: bool = False) -> ExchangeFigures:
    """Of groups [groups, p]. to_one: of what goes to the first of each alone (or comes from it): less on links that relay; on others its
    own, which carry as much as in the whole, have the say, and the figures are those of the whole."""
    p, tiers = rows.shape[1], fabric.tiers
    common_tier(tiers, rows.min(axis=1), rows.max(axis=1))
    hops, partners, starts = (np.zeros(len(tiers)) for _ in range(3))
    steps = np.full(len(tiers), p - 1.0)
    leaving = [np.zeros((3, 1), dtype=np.int64)] * len(tiers)
    row = np.repeat(np.arange(rows.shape[0]), p)
    for index, tier in enumerate(tiers):
        child = rows.reshape(-1) // tier.below
        reach = int(child.max()) // tier.children + 1
        runs, count = runs_of(row * (reach * tier.children) + child)
        inside, total = runs_of(runs // tier.children, count)  # (row, instance)
        inverse = np.searchsorted(inside, runs // tier.children)
        others = total[inverse] - count
        if not others.any():
            continue
        where = runs % (reach * tier.children)
        hops[index], farthest = _pair_hops(fabric, index, inverse, where, count, others, weight[runs // (reach * tier.children)])
        out = _beside(rows, tiers[fabric.ports[index][1]], *np.divmod(runs, reach * tier.children), tier.below) - count
        sums = (np.bincount(where, weights=weight).astype(np.int64) for weight in (count * others, count * out, count * (out > 0)))
        leaving[index] = np.unique(np.stack(list(sums)), axis=1)
        partners[index], starts[index] = others.max(), tier.network.latency_s * farthest
        if topology_of(tier.network).pairs:  # all children at once, those of one child one after another
            leaving[index] = _between_pairs(inverse, where, count, tier.children)
            partners[index] = steps[index] = count.max()
            continue
        grid, ways, links = fabric.grid(index), fabric.ways(index), tier.links
        if grid is None and ways is None:
            continue
        met = inverse, where // tier.children, where % tier.children + fabric.offsets[index], count
        if grid is not None:
            most, partners[index], steps[index] = exchange_busiest(grid, *met), 1, 1
        elif ways is not None:
            most = (to_one_sharing if to_one else exchange_sharing)(ways, links, *met)
        leaving[index] = np.array([[round(most)], [round(most)], [links]])
    return ExchangeFigures(p, hops, tuple(leaving), partners, starts, steps)


def _between_pairs(inside: Ints, child: Ints, count: Ints, children: int) -> Ints:
    """`ExchangeFigures.leaving` of children whose pairs have links of their own: [3, n] of distinct pairs. inside: [runs] number of the
    (group, instance) that a run of `count` members of one child belongs to, ascending."""
    found = []
    for a, b in met_pairs(inside):
        apart = child[a] != child[b]
        found.append(np.stack([child[a] * children + child[b] % children, count[a] * count[b], count[a]])[:, apart])
    pair, sent, senders = np.concatenate(found, axis=1)
    at = numbered(pair)[1]
    sums = [np.bincount(at, figure).astype(np.int64) for figure in (sent, sent, senders)]
    return np.unique(np.stack(sums), axis=1)


def _beside(rows: Ints, outer: Tier, row: Ints, child: Ints, below: int) -> Ints:
    """Members of a group in the instance of tier `outer` that holds a child. rows: [groups, p] · row: the group · child: of `below`
    accelerators, numbered through all instances."""
    size = outer.below * outer.children
    reach = int(rows.max()) // size + 1
    runs, count = runs_of((np.arange(len(rows))[:, None] * reach + rows // size).reshape(-1))
    return np.asarray(count[np.searchsorted(runs, row * reach + child * below // size)])


def _pair_hops(fabric: Fabric, index: int, inside: Ints, child: Ints, count: Ints, others: Ints, weight: Ints) -> tuple[float, float]:
    """Traversals of one unit between every ordered pair of members that tier `index` joins, and the most of one pair.

    inside: [runs] number of the (group, instance) a run of `count` members of one child belongs to, ascending · others: members of
    the group elsewhere in the instance · weight: [runs] of the group. The most is the sum of each coordinate's (an upper bound for groups
    that are no box).
    """
    tier = fabric.tiers[index]
    if topology_of(tier.network).uniform:
        return float((count * others * weight).sum()), 1.0
    total = farthest = 0.0
    place = child % tier.children + fabric.offsets[index]
    for coordinate, distance in hop_parts(tier.network, tier.children + fabric.offsets[index]):
        extent = distance.shape[0]
        chunk, together = max(1, 2_000_000 // extent), np.zeros(distance.shape)
        for first in range(0, int(inside[-1]) + 1, chunk):
            mine = slice(*np.searchsorted(inside, (first, first + chunk)))
            cell = (inside[mine] - first) * extent + coordinate[place[mine]]
            cells = (int(inside[mine][-1]) - first + 1) * extent
            held, all_held = (np.bincount(cell, each, cells).reshape(-1, extent) for each in (count[mine], (count * weight)[mine]))
            together += all_held.T @ held
        total += float((together * distance).sum())
        farthest += float(distance[together > 0].max())
    return total, farthest
