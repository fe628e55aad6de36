"""Groups that look alike, so that a few are measured and stand for all.

In a mesh whose strides and degrees divide each other and every level, groups are translates of one another without a carry:

    members under a child of size S   M = Π own axes' degree inside S      groups that share the child   n = Π other axes' degree inside S

so one group is measured and its flows are multiplied by n, its bytes by the number of groups (`likeness`).

Where levels do not divide (racks of 72 under meshes of powers of two), three steps leave few groups to look at:

    merge    axes s · d and s' = s · d of one side are one axis s · d d': a group is a set, and groups come in any order
    split    of another axis s · d the largest part g that carries over no level: its translates are copies, as above
    wind     blocks along the outermost other axis, σ apart, repeat with period P = S / gcd(S, σ), S = the child size of the tier that
             holds the whole mesh: P + d mod P blocks meet every child that d blocks do, each of the first P for ⌊d/P⌋

All DERIVED, and exact against enumeration of every group.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd, isqrt

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array, Ints
from rackmodel.cost.network.all_to_alls import EXCHANGES
from rackmodel.cost.network.fabric import Fabric, digest
from rackmodel.cost.network.placed import Groups
from rackmodel.cost.network.topologies import topology_of
from rackmodel.model.placement import Mesh, members

Flags = NDArray[np.bool_]


def regular(fabric: Fabric, rows: Ints) -> tuple[int, ...] | None:
    """Children used at each tier, the same for every instance of every group: row.reshape(extents, outermost first) has a tier a
    dimension. None where groups differ, or where a row does not ascend."""
    p, extents, before = rows.shape[1], [], rows.shape[1]
    if rows.size == 0 or not (rows[:, 1:] > rows[:, :-1]).all():
        return None
    for tier in fabric.tiers:
        child = rows // (tier.below * tier.children)
        parts = int(np.count_nonzero(child[0, 1:] != child[0, :-1])) + 1
        if p % parts or before % parts:
            return None
        blocks = child.reshape(len(rows), parts, -1)
        if (blocks[:, :, 0] != blocks[:, :, -1]).any() or (blocks[:, 1:, 0] == blocks[:, :-1, 0]).any():
            return None
        extents.append(before // parts)
        before = parts
    return tuple(extents) if before == 1 else None


def _sizes(fabric: Fabric, spread: bool) -> list[int]:
    """Accelerators under everything a group's address must not carry over: children, instances and (spread) their rows and subtrees."""
    found = {size for tier in fabric.tiers for size in (tier.below, tier.below * tier.children)}
    for tier in fabric.tiers if spread else ():
        found |= {tier.below * run for run in topology_of(tier.network).runs(tier.network, tier.children)}
    return sorted(found)


@dataclass(frozen=True)
class Likeness:
    """D meshes as one group each. exact: [D] whether its groups look alike · extents, copies: [tiers, D] · count, p: [D] groups and
    members · alike: whether extents say all (switches), or the own strides matter as well."""

    exact: Flags
    extents: Ints
    copies: Ints
    count: Ints
    p: Ints
    alike: bool


def _meets_others(fabric: Fabric, index: int, kind: str) -> bool:
    """Whether what a group sends over tier `index` takes links of children that no member of it is in."""
    relayed = kind in EXCHANGES or topology_of(fabric.tiers[index].network).flows_relay
    return fabric.grid(index) is not None or (relayed and fabric.ways(index) is not None)


def likeness(fabric: Fabric, degrees: Ints, strides: Ints, own: Flags, kind: str) -> Likeness:
    """degrees, strides: [D, axes] of meshes with offset 0; own: [axes] whether an axis is in the group; kind: of collective, or send."""
    alike = fabric.uniform
    wide = degrees > 1
    span = np.where(wide, strides * degrees, 1)
    order = np.argsort(np.where(wide, strides, np.iinfo(np.int64).max), axis=1, kind="stable")
    steps, ends, real = (np.take_along_axis(table, order, axis=1) for table in (strides, span, wide))
    exact = np.all(~real[:, 1:] | (steps[:, 1:] % ends[:, :-1] == 0), axis=1)
    exact &= not any(_meets_others(fabric, index, kind) for index in range(len(fabric.tiers)))
    if not alike:
        exact &= not any(fabric.offsets)
    safe = np.where(wide, strides, 1)
    for size in _sizes(fabric, not alike):
        fits = (size % span == 0) | (safe % size == 0) | ((size % safe == 0) & (span % size == 0))
        exact &= np.all(~wide | fits, axis=1)
    reach = fabric.tiers[-1].below * fabric.tiers[-1].children if fabric.tiers else 1
    exact &= 1 + np.where(wide, strides * (degrees - 1), 0).sum(axis=1) <= reach
    below = [tier.below for tier in fabric.tiers] + [reach]
    inside = np.array([np.where(wide, np.clip(size // safe, 1, degrees), 1) for size in below])  # [tiers + 1, D, axes]
    held, beside = inside[:, :, own].prod(axis=2), inside[:, :, ~own].prod(axis=2)
    p = degrees[:, own].prod(axis=1)
    return Likeness(exact, held[1:] // np.maximum(held[:-1], 1), beside[:-1], degrees[:, ~own].prod(axis=1), p, alike)


def canonical(fabric: Fabric, extents: Sequence[int]) -> Ints:
    """[1, p] a group with these children at each tier, the first of each."""
    row = np.zeros(1, dtype=np.int64)
    for tier, extent in zip(fabric.tiers, extents, strict=True):
        row = (np.arange(extent, dtype=np.int64)[:, None] * tier.below + row).reshape(-1)
    return row[None, :]


# -- meshes that do not divide ---------------------------------------------------------------------------------------------


def merged(degrees: Ints, strides: Ints, own: Flags) -> tuple[Ints, Ints, Flags]:
    """([D, axes] degrees, strides, whether in the group) of axes by ascending stride, neighbours merged; what is left over is 1, 1, false.

    degrees, strides: [D, axes] · own: [axes]. Rows that come out equal have the same groups.
    """
    count, axes = degrees.shape
    order = np.argsort(np.where(degrees > 1, strides, np.iinfo(np.int64).max), axis=1, kind="stable")
    degree, stride = (np.take_along_axis(table, order, axis=1) for table in (degrees, strides))
    mine = np.take_along_axis(np.broadcast_to(own, degrees.shape), order, axis=1)
    out = np.ones((count, axes), dtype=np.int64), np.ones((count, axes), dtype=np.int64), np.zeros((count, axes), dtype=bool)
    last = np.full(count, -1)
    for axis in range(axes):
        rows = np.flatnonzero(degree[:, axis] > 1)
        found, at = (degree[rows, axis], stride[rows, axis], mine[rows, axis]), last[rows]
        joins = (at >= 0) & (out[2][rows, at] == found[2]) & (out[0][rows, at] * out[1][rows, at] == found[1])
        out[0][rows[joins], at[joins]] *= found[0][joins]
        new = rows[~joins]
        last[new] += 1
        for table, value in zip(out, found, strict=True):
            table[new, last[new]] = value[~joins]
    return out


@dataclass(frozen=True)
class Sample:
    """Groups that stand for all of a mesh. rows: [groups, p] · weight: [groups] how many along the mesh each is · copies: [tiers] groups
    that share a child with each, itself included · count: translates of each · extents: children at each tier, where all are regular ·
    apart: whether no accelerator is in two."""

    rows: Ints
    weight: Ints
    copies: Array
    count: int
    extents: tuple[int, ...] | None
    apart: bool = True

    @cached_property
    def of(self) -> Hashable:
        """What tells its groups apart from others."""
        return *digest(self.rows), *digest(self.weight)

    def groups(self, fabric: Fabric) -> Groups:
        """Its groups."""
        return Groups(self.rows, self.weight, self.extents, self.of, self.apart)

    @classmethod
    def everyone(cls, fabric: Fabric, rows: Ints) -> Sample:
        """Every group for itself."""
        apart = len(np.unique(rows)) == rows.size
        return cls(rows, np.ones(len(rows), dtype=np.int64), np.ones(len(fabric.tiers)), 1, regular(fabric, rows), apart)


def sample(fabric: Fabric, degrees: Sequence[int], strides: Sequence[int], own: Sequence[bool]) -> Sample:
    """The groups of a merged mesh (offset 0) that need looking at; all of them where places matter or the axes are not nested."""
    axes = [list(axis) for axis in zip(degrees, strides, own, strict=True) if axis[0] > 1]
    end = 1 + sum(stride * (degree - 1) for degree, stride, _ in axes)
    holding = [tier for tier in fabric.tiers if tier.below * tier.children >= end]
    nested = all(after[1] % (before[0] * before[1]) == 0 for before, after in pairwise(axes))
    copies, count, weight = np.ones(len(fabric.tiers)), 1, 1
    period = blocks = 0
    if holding and nested and fabric.uniform:
        period = holding[0].below
        sizes = [tier.below for tier in fabric.tiers if tier.below <= period]
        for axis in axes:
            part = 1 if axis[2] else _copies(axis[0], axis[1], sizes)
            copies *= [min(part, max(1, tier.below // axis[1])) for tier in fabric.tiers]
            count, axis[0], axis[1] = count * part, axis[0] // part, axis[1] * part
        if axes and not axes[-1][2]:
            period //= gcd(period, axes[-1][1])
            blocks, weight = axes[-1][0], axes[-1][0] // period
            axes[-1][0] = blocks if not weight else period + blocks % period
    names = tuple(map(str, range(len(axes))))  # outermost first: blocks come one after another
    turned = axes[::-1]
    mesh = Mesh(names, tuple(axis[0] for axis in turned), tuple(axis[1] for axis in turned))
    rows = members(mesh, [name for name, axis in zip(names, turned, strict=True) if axis[2]])
    weights = np.ones(len(rows), dtype=np.int64)
    if weight > 1:
        weights[: len(rows) // turned[0][0] * period] = weight
    return Sample(rows, weights, copies, count, regular(fabric, rows))


def _copies(degree: int, stride: int, sizes: Sequence[int]) -> int:
    """The largest part of an axis, at its inner end, whose steps carry over no size."""
    divisors = {part for low in range(1, isqrt(degree) + 1) if degree % low == 0 for part in (low, degree // low)}
    for part in sorted(divisors, reverse=True):
        span = part * stride
        if all(size % span == 0 or stride % size == 0 or (size % stride == 0 and span % size == 0) for size in sizes):
            return part
    return 1
