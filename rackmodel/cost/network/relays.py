"""What every link of a ring, a torus or a mesh of three dimensions carries when children relay what is not theirs.

    route        one dimension after another, the last first; round a ring the shorter way, half each way where both are as long
    direction    most messages over one link one way                   child    most that leave (or enter) a child along one dimension

On a ring or torus a child has `links` links along a dimension, half to either neighbour; a lone link serves both. So the messages that
share `links` links are 2 · direction, or child where links = 1. On a mesh each neighbour has `links` of its own,
as in mesh_links.
Source: DERIVED, exact against a walk of every message over every link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from rackmodel.arrays import Array, Ints

CHUNK = 1 << 20  # pairs at once


@dataclass(frozen=True)
class Ways:
    """Lines of children along each dimension of `shape`, numbered row by row; wraps: whether a line's ends are joined."""

    shape: tuple[int, ...]
    wraps: bool

    def sharing(self, loads: list[tuple[Array, Array]], links: int) -> float:
        """Most messages that share a child's `links` links (see above). loads: for each dimension, [lines, extent] over the link ahead of
        a child, forward and back."""
        direction = max(float(way.max()) for pair in loads for way in pair)
        if not self.wraps:
            return direction
        leaving = max(float((ahead + np.roll(back, 1, axis=1)).max()) for ahead, back in loads)
        entering = max(float((np.roll(ahead, 1, axis=1) + back).max()) for ahead, back in loads)
        return 2 * direction if links > 1 else max(leaving, entering)


def transfers_sharing(ways: Ways, links: int, instance: Ints, source: Ints, target: Ints, weight: Array) -> float:
    """Most messages on a child's links when weight[i] of them go from place source[i] to target[i] of instance[i], all at once."""
    loads = _Loads(ways, int(instance.max()) + 1)
    loads.add(instance, source, target, weight)
    return ways.sharing(loads.read(), links)


def exchange_sharing(ways: Ways, links: int, owner: Ints, instance: Ints, place: Ints, count: Ints) -> float:
    """Most messages on a child's links when every member of a group in an instance sends one to every other.

    owner: [n] group and instance, as one number, ascending, of `count` members at `place`.
    """
    loads = _Loads(ways, int(instance.max()) + 1)
    for a, b in met_pairs(owner):
        loads.add(instance[a], place[a], place[b], (count[a] * count[b]).astype(float))
    return ways.sharing(loads.read(), links)


def to_one_sharing(ways: Ways, links: int, owner: Ints, instance: Ints, place: Ints, count: Ints) -> float:
    """The same when every member sends one to the group's first alone."""
    first, of_run = np.flatnonzero(np.diff(owner, prepend=-1)), np.cumsum(np.diff(owner, prepend=-1) != 0) - 1
    return transfers_sharing(ways, links, instance, place, place[first[of_run]], count.astype(float))


def met_pairs(owner: Ints) -> Iterator[tuple[Ints, Ints]]:
    """All ordered pairs of entries with the same owner, some at a time. owner: [n], ascending."""
    first, of_run = np.flatnonzero(np.diff(owner, prepend=-1)), np.cumsum(np.diff(owner, prepend=-1) != 0) - 1
    wide = np.diff(first, append=len(owner))[of_run]  # entries of its owner, for each
    ends = np.cumsum(wide)
    for start in range(0, int(ends[-1]), CHUNK):
        at = np.arange(start, min(start + CHUNK, int(ends[-1])))
        a = np.searchsorted(ends, at, side="right")
        yield a, first[of_run[a]] + at - (ends - wide)[a]


class _Loads:
    """Messages over every link, as differences along each line: one comes on where a route starts, and off where it ends."""

    def __init__(self, ways: Ways, instances: int) -> None:
        self.ways = ways
        children = prod(ways.shape)
        self.lines = [instances * children // extent for extent in ways.shape]
        self.change = [np.zeros((2, many * (extent + 1))) for many, extent in zip(self.lines, ways.shape, strict=True)]

    def add(self, instance: Ints, source: Ints, target: Ints, weight: Array) -> None:
        """weight[i] messages from place source[i] to target[i] of instance[i]."""
        here, inner = source, 1
        for number in reversed(range(len(self.ways.shape))):
            extent = self.ways.shape[number]
            a, b = here // inner % extent, target // inner % extent
            line = (instance * (prod(self.ways.shape) // (inner * extent)) + here // (inner * extent)) * inner + here % inner
            begin = line * (extent + 1)
            ahead = (b - a) % extent
            if self.ways.wraps:
                forward = np.where(2 * ahead < extent, 1.0, np.where(2 * ahead == extent, 0.5, 0.0)) * weight
            else:
                forward = np.where(b > a, weight, 0.0)
            self._span(number, 0, begin, a, ahead, forward)
            self._span(number, 1, begin, b, (a - b) % extent, weight - forward)
            here = here + (b - a) * inner
            inner *= extent

    def _span(self, number: int, way: int, begin: Ints, start: Ints, length: Ints, weight: Array) -> None:
        """Weight on `length` links from place `start`, round the end of the line where it is that far."""
        extent, change = self.ways.shape[number], self.change[number][way]
        end = start + length
        over = np.maximum(end - extent, 0)
        for spot, sign in ((start, 1.0), (np.minimum(end, extent), -1.0), (np.zeros_like(start), 1.0), (over, -1.0)):
            change += np.bincount(begin + spot, sign * weight, len(change))

    def read(self) -> list[tuple[Array, Array]]:
        """For each dimension, [lines, extent] messages over the link ahead of each child, forward and back."""
        found = []
        for many, extent, change in zip(self.lines, self.ways.shape, self.change, strict=True):
            ahead, back = np.cumsum(change.reshape(2, many, extent + 1), axis=2)[:, :, :extent]
            found.append((ahead, back))
        return found
