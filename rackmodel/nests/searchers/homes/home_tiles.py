"""Tiles of a class of ranks below a fan, for one order of the cores' nodes: Pareto lists of what they cost.

A rank of size D in s parts: groups of s t, a part of t a core (all s parts used), then a tile u_j at every node j. Costs
count, of a tensor that lacks the rank, the tiles of all cores (`all`) and those with the fan counted once (`once`); of
one that has it, its tile; and `cover`, what the fullest core works through. All grow with the price of a mapping.
Where a rank is cut: at node j where tensor j has it and tensor j - 1 lacks it (loops above move outwards or inwards at no
cost, lemmas L2 and L3 of docs/nest_theory.md), to 1 unless a later tensor lacks it. With ragged tiles the part t may be larger
than the tile of node 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.mapspace.list_axes import divisors

TILES = 48  # tiles of a rank beyond which a thinned list is tried
PAIRS = 32  # tiles of a rank beyond which only some pairs of part and tile are tried
RUNS = 12  # runs of a list that a bound tells apart
Pieces = list[tuple[Ints, Ints]]  # (extent, how many) of each choice
JOINED = 2000  # choices of a class kept while its ranks multiply


@dataclass
class TileLists:
    """n choices of a class. tile, all, once: [n, nodes] (products over its ranks) · cover: [n] · picks: [n, ranks, nodes]
    tiles of every node · exact: no choice of least cost is missing."""

    tile: Array
    all: Array
    once: Array
    cover: Array
    picks: Array
    exact: bool = True

    def at(self, rows: Ints) -> "TileLists":
        """The choices `rows` (along the first axis)."""
        return self.each(lambda values: values[rows])

    def each(self, change: Callable[[Array], Array]) -> "TileLists":
        """Every figure changed alike."""
        return TileLists(change(self.tile), change(self.all), change(self.once), change(self.cover), change(self.picks), self.exact)

    @cached_property
    def corners(self) -> "TileLists":
        """The list in at most RUNS runs, in each the least of every figure: a bound of what the run can do."""
        runs = [slice(a, b) for a, b in pairwise(np.linspace(0, len(self.cover), min(RUNS, len(self.cover)) + 1).astype(int))]
        if not runs:
            return self
        return self.each(lambda values: np.stack([values[run].min(axis=0) for run in runs]))


def rank_tile_lists(size: int, parts: int, has: tuple[bool, ...], perfect: bool, *, idle: bool = False) -> TileLists:
    """Choices of one rank. parts: at work · has: whether the tensor of each node has it · idle: whether more parts are laid out, so that it
    is one group."""
    rows, exact = _rows(size, parts, has, perfect, idle)
    part = rows[:, 0]
    groups, rest = size // (part * parts), size % (part * parts)
    every: Pieces = [(part, size // part), (size % part, np.minimum(1, size % part))]
    first: Pieces = [(part, groups), (np.minimum(part, rest), np.minimum(1, rest))]
    cover = np.sum([extent * times for extent, times in first], axis=0)
    counts = []
    for j in range(len(has)):
        every, first = (_cut(pieces, rows[:, j]) for pieces in (every, first))
        counts.append([np.sum([n for _, n in pieces], axis=0) for pieces in (every, first)])
    every_count, once_count = (np.array([c[k] for c in counts], dtype=float).T for k in (0, 1))
    found = TileLists(rows.astype(float), every_count, once_count, cover.astype(float), rows[:, None, :].astype(float), exact)
    if not any(has[1:]) and not has[0]:
        return found
    return _least(found, has)


def _cut(pieces: Pieces, tile: Ints) -> Pieces:
    """Pieces cut to `tile`."""
    found: Pieces = []
    for extent, times in pieces:
        found += [(np.minimum(extent, tile), times * (extent // tile)), (extent % tile, times * np.minimum(1, extent % tile))]
    return found


def _rows(size: int, parts: int, has: tuple[bool, ...], perfect: bool, idle: bool) -> tuple[Ints, bool]:
    """([n, nodes] tiles of one rank at every node, whether that is all that matters)."""
    most = -(-size // parts)
    listed, whole = _listed(size, parts, most, perfect)
    priced = [not all(has[j:]) for j in range(len(has))]
    rows: list[tuple[int, ...]] = [(most,)]
    if not has[0]:
        exact = perfect or sum(not h for h in has) == 1
    elif idle:
        exact = True
    else:
        rows = [(t,) for t in listed] if priced[0] else [(1,)]
        exact = whole or not priced[0]
    for j in range(1, len(has)):
        loose = j == 1 and has[0] and parts > 1 and not perfect
        if not has[j] or (has[j - 1] and not loose):
            rows = [(*row, row[-1]) for row in rows]
        elif not priced[j]:
            rows = [(*row, 1) for row in rows]
        elif loose and len(listed) > PAIRS:
            rows, exact = [(t, b) for b in listed for t in {b, most - most % b, most}], False
        else:
            under = [[b for b in listed if b <= row[-1] and not (perfect and row[-1] % b)] for row in rows]
            rows, exact = [(*row, b) for row, tiles in zip(rows, under, strict=True) for b in tiles], exact and whole
    array = np.array(rows, dtype=np.int64)
    return array[(parts - 1) * array[:, 0] < size], exact


def _listed(size: int, parts: int, most: int, perfect: bool) -> tuple[list[int], bool]:
    """(tiles tried, ascending; whether they are all)."""
    if perfect:
        return divisors(most), True
    if most <= TILES:
        return list(range(1, most + 1)), True
    tiles = {-(-size // n) for n in range(1, int(size**0.5) + 2)} | set(range(1, int(size**0.5) + 2))
    ordered = sorted({t for t in tiles if t <= most} | {most})
    if parts == 1 and len(ordered) <= TILES:
        return ordered, True
    marks = np.unique(np.searchsorted(ordered, np.geomspace(1, most, TILES)))
    return [ordered[i] for i in marks], False


def _least(found: TileLists, has: tuple[bool, ...]) -> TileLists:
    """The Pareto-least choices, in order."""
    on = np.array(has)
    cost = np.concatenate([found.tile[:, on], found.all[:, ~on], found.once[:, ~on], found.cover[:, None]], axis=1)
    order = np.lexsort(cost.T)
    _, first = np.unique(cost[order], axis=0, return_index=True)
    order = order[np.sort(first)]
    cost = cost[order]
    keep = np.ones(len(order), dtype=bool)
    for i in range(len(order)):
        if keep[i]:
            keep &= ~(cost[i] <= cost).all(axis=1)
            keep[i] = True
    return found.at(np.sort(order[keep]))


def joined(parts: list[TileLists], has: tuple[bool, ...]) -> TileLists:
    """Choices of a class: its ranks multiply."""
    total = parts[0]
    for more in parts[1:]:
        left, right = np.repeat(np.arange(len(total.cover)), len(more.cover)), np.tile(np.arange(len(more.cover)), len(total.cover))
        a, b = total.at(left), more.at(right)
        picks = np.concatenate([a.picks, b.picks], axis=1)
        total = TileLists(a.tile * b.tile, a.all * b.all, a.once * b.once, a.cover * b.cover, picks, a.exact and b.exact)
        if len(total.cover) > JOINED:
            total = total.at(np.unique(np.linspace(0, len(total.cover) - 1, JOINED).astype(int)))
            total.exact = False
        total = _least(total, has)
    return total


def stacked(lists: list[TileLists]) -> TileLists:
    """Lists of one class with a leading axis, the shorter ones padded by their last choice, empty ones by zeros."""
    most = max(len(c.cover) for c in lists)

    def stack(rows: list[Array]) -> Array:
        found = np.zeros((len(rows), most, *rows[0].shape[1:]))
        for to, row in zip(found, rows, strict=True):
            to[: len(row)], to[len(row) :] = row, row[-1:] if len(row) else 0.0
        return found

    tile, every, once = (stack([getattr(c, f) for c in lists]) for f in ("tile", "all", "once"))
    return TileLists(tile, every, once, stack([c.cover for c in lists]), stack([c.picks for c in lists]))
