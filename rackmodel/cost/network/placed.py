"""What flows over switches where every group sends alike: from some places in it to others (a ring; halves; both trees; a send).

Members of a group under one child of a tier make a cell. What leaves and enters the cells over a tier is counted for many phases of many
groups at once, flow by flow in one array. Of one group that is alike under every child, who sends what says how many cross each tier.
`link_groups` counts the same phase by phase, on any networks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array, Ints
from rackmodel.cost.network.fabric import Fabric
from rackmodel.cost.network.mesh_links import numbered
from rackmodel.cost.network.topology import common_tier
from rackmodel.once import once

Moved = tuple[Array, Array, Array, Array, Ints]
"""[tiers] hops, flows, own and start-up, [groups, tiers] transfers of a phase, as `link_groups.PhaseTraffic` has them."""

Crossings = tuple[tuple[int, int], ...]
"""Of each tier the flows over it, and the most of them that leave or enter one child."""

AT_ONCE = 1 << 15  # flows that are counted together: arrays of so many stay in a processor's cache


@dataclass(frozen=True)
class Groups:
    """rows: [groups, p] members · weight: [groups] how many each stands for · extents: children at each tier of each, where all are
    regular · of: what tells them apart from others · apart: whether no accelerator is in two."""

    rows: Ints
    weight: Ints
    extents: tuple[int, ...] | None
    of: Hashable
    apart: bool = True


@dataclass(frozen=True)
class Placed:
    """In every group the member at each place `here` sends load · V to the one at `there` ([edges] both), in `steps` steps.

    moves: what tells the edges apart from those of other phases of the same groups · path: whether path_sum may apply · start_s: start-ups
    of all steps, instead of steps times the slowest hop's · both: whether each edge carries as much back · once: whether no place sends
    or gets twice · alone: every edge is a group of its own (a send) · crossings: of a group that is alike under every child what crosses
    each tier (`crossed`), None = it is not known.
    """

    here: Ints
    there: Ints
    load: float
    steps: int
    moves: Hashable
    path: bool = False
    start_s: float | None = None
    both: bool = False
    once: bool = True
    alone: bool = False
    crossings: Crossings | None = None


Asked = tuple[Groups, Placed]


def crossed(fabric: Fabric, extents: Sequence[int], weight: int, crossings: Crossings) -> Moved:
    """What moves in one group that stands for `weight`. extents: children at each tier, the same under every one of theirs · crossings:
    what leaves or enters a child beyond a tier is no more than over it."""
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


def moved_together(fabric: Fabric, asked: Sequence[Asked]) -> Iterator[Moved]:
    """What moves in each phase of its groups, in their order. Every network is a switch."""
    for batch in _batches(asked):
        yield from _Batch(fabric, batch).moved()


def _batches(asked: Sequence[Asked]) -> Iterator[list[Asked]]:
    """Neighbours that all carry flows both ways, or none does, a few flows at once."""
    for _, alike in groupby(asked, lambda one: one[1].both):
        batch, flows = list[Asked](), 0
        for groups, phase in alike:
            mine = len(groups.rows) * len(phase.here)
            if batch and flows + mine > AT_ONCE:
                yield batch
                batch, flows = [], 0
            batch.append((groups, phase))
            flows += mine
        yield batch


@dataclass(frozen=True)
class _Cells:
    """Members as they lie under children of one size. of: [members] the cell of each · begin: [distinct groups + 1] where the cells of each
    begin · child: [cells] where it lies, of `reach` children · held: [cells] members · shared: whether cells of one of the distinct groups
    lie under the same child."""

    of: Ints
    begin: Ints
    child: Ints
    held: Ints
    reach: int
    shared: bool


class _Members:
    """Members of distinct groups, one after another. all: [members] accelerators · begin: [distinct groups] where those of each begin ·
    owner: [members] number of the group · owners: [distinct groups + 1] of the first group of each."""

    def __init__(self, distinct: Sequence[Ints]) -> None:
        self.numbers = {id(rows): number for number, rows in enumerate(distinct)}
        count, size = np.array([rows.shape for rows in distinct]).T
        self.all = np.concatenate([rows.reshape(-1) for rows in distinct])
        self.begin = np.cumsum(count * size) - count * size
        self.owner, self.owners = np.repeat(np.arange(count.sum()), np.repeat(size, count)), np.cumsum([0, *count])
        self._within: dict[int, Ints] = {}
        self._cells: dict[int, _Cells] = {}

    def within(self, size: int) -> Ints:
        """[members] the child of `size` accelerators that each is in."""
        return once(self._within, size, lambda: self.all // size)

    def cells(self, size: int) -> _Cells:
        """Under children of `size` accelerators."""
        if size not in self._cells:
            child = self.within(size)
            reach = int(child.max()) + 1
            keys, of = numbered(self.owner * reach + child)
            begin, child = np.searchsorted(keys, self.owners * reach), keys % reach
            places = np.repeat(np.arange(len(begin) - 1) * reach, np.diff(begin)) + child
            self._cells[size] = _Cells(of, begin, child, np.bincount(of), reach, bool(np.bincount(places).max() > 1))
        return self._cells[size]


@dataclass(frozen=True)
class _Sent:
    """Flows over some tiers. first: [lanes] where a lane's cells begin among those of all lanes, one lane after another · held: [cells of
    all lanes] members · ends: how many leave each, and where that is not the same how many enter it · child: the same, or None where no
    two cells of a lane lie under one child: number of the child, of `reach` a lane."""

    first: Ints
    held: Ints
    ends: list[Ints]
    child: Ints | None = None
    reach: int = 1

    @property
    def of_cell(self) -> Ints:
        """[lanes] most that leave a cell, or enter it."""
        return np.asarray(np.max([np.maximum.reduceat(each, self.first) for each in self.ends], axis=0))

    @property
    def of_child(self) -> Array | Ints:
        """[lanes] most that leave a child, or enter it."""
        if self.child is None:
            return self.of_cell
        under = [np.bincount(self.child, each, len(self.first) * self.reach).reshape(-1, self.reach) for each in self.ends]
        return np.asarray(np.max(under, axis=(0, 2)))

    @property
    def fewest(self) -> Ints:
        """[lanes] fewest members of a cell that some leave or enter; of a lane without flows whatever."""
        crossed = np.where(np.max(self.ends, axis=0) > 0, self.held, self.held.max())
        return np.asarray(np.minimum.reduceat(crossed, self.first))


class _Batch:
    """Phases of groups (lanes) that are counted together. which: [lanes] of the distinct groups · count: [lanes] groups · source, target:
    [flows] numbers among the members, of flows by the tier that joins the two · group: [flows] number among the groups of all lanes, one
    lane after another · begin: [tiers + 1] where the flows over each tier begin."""

    def __init__(self, fabric: Fabric, asked: Sequence[Asked]) -> None:
        members = _Members(list({id(groups): groups.rows for groups, _ in asked}.values()))
        self.fabric, self.members, self.asked, self.both = fabric, members, asked, asked[0][1].both
        self.which = np.array([members.numbers[id(groups.rows)] for groups, _ in asked])
        self.count = np.array([len(groups.rows) for groups, _ in asked])
        ends = [_ends(groups.rows, phase, begin) for (groups, phase), begin in zip(asked, members.begin[self.which], strict=True)]
        source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
        group = np.repeat(np.arange(self.count.sum()), np.repeat([len(phase.here) for _, phase in asked], self.count))
        joined = self._joined(source, target)
        order = np.argsort(joined, kind="stable")
        self.source, self.target, self.group = source[order], target[order], group[order]
        self.begin = np.cumsum(np.bincount(joined + 1, minlength=len(fabric.tiers) + 1))
        self.once = all(phase.once and groups.apart for groups, phase in asked)  # whether no accelerator sends or gets twice
        self.sent: dict[tuple[int, int, int], _Sent] = {}

    def moved(self) -> list[Moved]:
        """What moves in each phase."""
        tiers, lanes = self.fabric.tiers, len(self.asked)
        first = np.cumsum(self.count) - self.count  # [lanes] of the groups of all lanes
        weight = np.concatenate([groups.weight for groups, _ in self.asked])
        alone = np.array([phase.alone for _, phase in self.asked])
        hops, flows, starts, own = *(np.zeros((lanes, len(tiers))) for _ in range(3)), np.ones((lanes, len(tiers)))
        counts = np.zeros((len(weight), len(tiers)), dtype=np.int64)
        for index, tier in enumerate(tiers):
            here = self.group[self.begin[index] : self.begin[index + 1]]
            if not len(here):
                continue
            network, outer, wide = tier.network, self.fabric.ports[index][1], max(1.0, tier.links / tier.below)
            counts[:, index] = np.bincount(here, minlength=len(weight)) * (1 + self.both)
            hops[:, index] = np.add.reduceat(counts[:, index] * weight, first)
            used = hops[:, index] > 0
            over, beyond = self._sent(tier.below, index, index), self._sent(tier.below, index, outer)
            flows[used, index] = np.maximum(over.of_child * network.oversubscription, beyond.of_child if outer > index else 0.0)[used]
            starts[used, index] = network.latency_s
            if network.striped:
                mine = np.where(alone, 1, beyond.of_cell) / (np.where(alone, 1, over.fewest) * wide)
            else:
                mine = np.maximum(1.0, self._sent(1, index, outer).of_child / wide)
            own[used, index] = mine[used]
        parts = np.split(counts, first[1:])
        return [(hops[lane], flows[lane], own[lane], starts[lane], parts[lane]) for lane in range(lanes)]

    def _joined(self, source: Ints, target: Ints) -> NDArray[np.int8]:
        """[flows] the tier that joins both ends, -1 where they are one."""
        members = self.members.all
        apart = members[source] != members[target]
        joined: NDArray[np.int8] = apart.astype(np.int8) - np.int8(1)
        last = int(members.max())
        for tier in self.fabric.tiers:
            size = tier.below * tier.children
            if size > last:  # all in the first
                return joined
            within = self.members.within(size)
            apart &= within[source] != within[target]
            joined += apart
        if apart.any():
            common_tier(self.fabric.tiers, members[source], members[target])  # says which
        return joined

    def _sent(self, size: int, low: int, high: int) -> _Sent:
        """What leaves and enters children of `size` accelerators over the tiers low … high; of a lane without flows whatever."""
        key = size, low, high
        if key not in self.sent:
            one = np.ones(len(self.asked), dtype=np.int64)
            once = size == 1 and self.once  # any accelerator stands for all
            self.sent[key] = _Sent(np.cumsum(one) - 1, one, [one]) if once else self._counted(self.members.cells(size), low, high)
        return self.sent[key]

    def _counted(self, cells: _Cells, low: int, high: int) -> _Sent:
        begin, lanes = cells.begin[self.which], len(self.asked)
        number = cells.begin[self.which + 1] - begin
        first = np.cumsum(number) - number
        cell = np.arange(number.sum()) + np.repeat(begin - first, number)
        here = slice(self.begin[low], self.begin[high + 1])
        ahead = np.repeat(first - begin, self.count)[self.group[here]]
        out, back = (np.bincount(cells.of[end[here]] + ahead, minlength=len(cell)) for end in (self.source, self.target))
        child = np.repeat(np.arange(lanes) * cells.reach, number) + cells.child[cell] if cells.shared else None
        return _Sent(first, cells.held[cell], [out + back] if self.both else [out, back], child, cells.reach)


def _ends(rows: Ints, phase: Placed, begin: int) -> list[Ints]:
    """[groups · edges] numbers of the members at both ends, of groups whose members begin at `begin`."""
    first = begin + rows.shape[1] * np.arange(len(rows))[:, None]
    return [(first + places).reshape(-1) for places in (phase.here, phase.there)]
