"""Pieces of one rank cut for an array of register files: groups, parts, and cycles of the fullest instance, ragged edges as they run.

A piece of extent e is dealt out in groups of `parts` times `unit`: each group is served at once, takes one part a working instance, and
lasts as long as its first part, min(what is left, unit). Of all ways to cut a rank none has fewer cycles than whole groups and one rest:
what a group lasts is concave in its extent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints


class Pieces(NamedTuple):
    """Of a rank: tiles that the buffer counts, groups, parts of all instances, cycles of the fullest."""

    tiles: Ints
    groups: Ints
    parts: Ints
    cycles: Ints


def dealt(extent: Ints, parts: int | Ints, unit: int | Ints) -> Pieces:
    """Pieces of extents that are dealt out as they are."""
    group = parts * unit
    rest = extent % group
    cycles = np.asarray(extent // group * unit + np.minimum(rest, unit), dtype=np.int64)
    return Pieces(np.ones_like(extent), -(-extent // group), -(-extent // unit), cycles)


def cut_once(size: int, tile: Ints, parts: int, unit: Ints) -> Pieces:
    """Pieces of size → tile → groups."""
    full, rest = np.divmod(size, tile)
    _, *one = dealt(tile, parts, unit)
    _, *last = dealt(rest, parts, unit)
    return Pieces(-(-size // tile), *(full * n + m for n, m in zip(one, last, strict=True)))


def cut_twice(size: int, outer: Ints, inner: int, parts: int, unit: int) -> Pieces:
    """Pieces of size → outer → inner → groups."""
    full, rest = np.divmod(size, outer)

    def of(extent: Ints) -> list[Ints]:
        n, left = np.divmod(extent, inner)
        _, *one = dealt(np.array(inner), parts, unit)
        _, *last = dealt(left, parts, unit)
        return [n * a + b for a, b in zip(one, last, strict=True)]

    return Pieces(-(-size // outer), *(full * n + m for n, m in zip(of(outer), of(rest), strict=True)))


def cut_thrice(size: int, tiles: tuple[Ints, Ints, Ints], parts: int, unit: Ints) -> Pieces:
    """Pieces of size → first → second → third → groups, without the count of any tile: of falling tiles, [chains] each."""
    first, second, third = tiles

    def handed(extent: Ints) -> list[Ints]:
        return list(dealt(extent, parts, unit)[1:])

    def inside(extent: Ints, tile: Ints, of: Callable[[Ints], list[Ints]]) -> list[Ints]:
        return [extent // tile * n + m for n, m in zip(of(tile), of(extent % tile), strict=True)]

    def within(extent: Ints) -> list[Ints]:
        return inside(extent, third, handed)

    def between(extent: Ints) -> list[Ints]:
        return inside(extent, second, within)

    return Pieces(np.ones_like(first), *inside(np.full_like(first, size), first, between))


def least_cycles(size: int, parts: Ints, unit: Ints) -> Ints:
    """Cycles of a rank at least, however it is cut."""
    groups, rest = np.divmod(size, parts * unit)
    return np.asarray(groups * unit + np.minimum(rest, unit))


def least_handed(size: int, inner: Ints, unit: Ints) -> Array:
    """Cycles at least where no piece larger than `inner`, one group, is handed on: one of e lasts at least e unit / inner, where inner is
    no smaller than unit."""
    return np.asarray(size * np.minimum(unit, inner) / inner)
