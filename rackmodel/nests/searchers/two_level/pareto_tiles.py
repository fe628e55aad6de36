"""Tiles of any size for one rank, and for a class of ranks: Pareto lists of (outer tile, inner tile, tiles, leaves).

A chain D → a → g (leaf groups of g) costs room a, n = ceil(D / a) tiles and L = floor(D/a) ceil(a/g) +
ceil((D mod a) / g) leaf groups. For every n only tiles from ceil(D/n) up to the next multiple of g can be Pareto-least.
A rank may be cut twice before it is priced, D → b → a → g: where the extents b and D mod b end in remainders that g fits
better, this has fewer leaf groups than a alone has (18 → 9 → 5 → 2: 10, 18 → 5 → 2: 11), with room a at the inner node.
Ranks of one class multiply. Derivation: docs/nest_theory.md, section 6.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints

LONGEST = 30_000_000  # pairs of tiles of one rank that may be looked at
MANY = 10_000  # chains of a class


class RankChains(NamedTuple):
    """Chains of one rank (or of several): tiles at the first node and further in, how many of each, leaf groups."""

    outer: Array
    inner: Array
    outer_count: Array
    inner_count: Array
    leaves: Array


def rank_tiles(size: int, group: int, least: int) -> RankChains:
    """Pareto (tile, count, leaves) of one rank, cut once, for leaf groups of `group`; tiles >= least."""
    found = []
    n = 1
    while n <= size:
        low = max(-(-size // n), least)
        n_now = -(-size // low)
        high = min(size, -(-low // group) * group, size if n_now == 1 else (size - 1) // (n_now - 1))
        best = None
        for t in range(low, high + 1):
            full, rest = divmod(size, t)
            leaves = full * -(-t // group) + -(-rest // group)
            if best is None or leaves < best:
                best = leaves
                found.append((t, n_now, leaves))
        if low == least or low == 1:
            break
        n = -(-size // (low - 1))
    array = np.array(sorted(set(found)), dtype=float)
    tile, count, leaves = array.T
    return RankChains(tile, tile, count, count, leaves)


def rank_pairs(size: int, group: int, least: int) -> RankChains | None:
    """Chains of one rank cut twice that have fewer leaf groups than their inner tile alone; None where there are too many to try.

    An inner tile of whole groups has the fewest leaf groups with one cut. So a longer chain must have fewer tiles than the
    next such tile below its inner one: few inner tiles are left.
    """
    inner = np.arange(max(least, group + 1), size)
    inner = inner[-(-size // inner) < -(-size // (inner - inner % group))]
    if len(inner) * size > LONGEST:
        return None
    found = [_outer_tiles(size, int(tile), group) for tile in inner]
    return joined(found)


def joined(parts: list[RankChains]) -> RankChains:
    """All chains of one rank."""
    columns = zip(*parts, strict=True) if parts else [()] * len(RankChains._fields)
    return RankChains(*(np.concatenate([np.zeros(0), *column]) for column in columns))


def _outer_tiles(size: int, inner: int, group: int) -> RankChains:
    """Chains of one inner tile that pay, by the outer one."""

    def leaves_of(extent: Ints) -> Ints:
        return extent // inner * -(-inner // group) + -(-(extent % inner) // group)

    outer = np.arange(inner + 1, size)
    full, rest = np.divmod(size, outer)
    count = full * -(-outer // inner) + -(-rest // inner)
    leaves = full * leaves_of(outer) + leaves_of(rest)
    pays = (leaves < leaves_of(np.array(size))) & (count < -(-size // (inner - inner % group)))
    outer, count, leaves = outer[pays], count[pays], leaves[pays]
    columns = (outer, np.full(len(outer), inner), -(-size // outer), count, leaves)
    return RankChains(*(column.astype(float) for column in columns))


@dataclass
class ClassTiles:
    """Tiles of a class: products over its ranks; `picks`, `inner_picks` [n, ranks] single tiles, outer and inner."""

    chains: RankChains
    picks: Array
    inner_picks: Array

    def __len__(self) -> int:
        return len(self.picks)

    def at(self, node: int) -> tuple[Array, Array]:
        """(tile, count) at a node of the order, where nothing else is said of it."""
        c = self.chains
        return (c.outer, c.outer_count) if node == 0 else (c.inner, c.inner_count)

    def fewest_leaves(self, leaves: float) -> "ClassTiles":
        """The same with so many leaf groups: no chain of any length is better than all of these."""
        return ClassTiles(self.chains._replace(leaves=np.full(len(self), leaves)), self.picks, self.inner_picks)


def combine(parts: list[RankChains], most: float, room: bool, limit: float = inf) -> ClassTiles | None:
    """Joint Pareto list of the ranks of a class; None where it would have more than `limit` chains.

    room: whether the first node holds the outer tiles; else they count by their number alone. most: the largest tile held.
    """
    whole = ClassTiles(RankChains(*(np.ones(1) for _ in range(5))), np.zeros((1, 0)), np.zeros((1, 0)))
    for part in parts:
        n, m = len(whole), len(part.inner)
        if n * m > limit:
            return None
        chains = RankChains(*(np.multiply.outer(a, b).ravel() for a, b in zip(whole.chains, part, strict=True)))
        picks, inner = (
            np.concatenate([np.repeat(old, m, axis=0), np.tile(new, n)[:, None]], axis=1)
            for old, new in ((whole.picks, part.outer), (whole.inner_picks, part.inner))
        )
        keep = np.flatnonzero((chains.outer if room else chains.inner) <= most)
        if len(parts) > 1 or limit < inf:
            keep = keep[_front(RankChains(*(c[keep] for c in chains)), room)]
        whole = ClassTiles(RankChains(*(c[keep] for c in chains)), picks[keep], inner[keep])
    return whole


def _front(chains: RankChains, room: bool) -> Ints:
    """Numbers of the Pareto-least chains."""
    first = chains.outer if room else chains.outer_count
    if np.array_equal(chains.outer, chains.inner) or (not room and (chains.outer_count == 1).all()):
        return pareto_front(chains.inner, chains.inner_count, chains.leaves)
    columns = np.array([first, chains.inner, chains.inner_count, chains.leaves])
    order = np.lexsort(columns[::-1])
    kept: list[int] = []
    for i in order:
        if not (columns[:, kept] <= columns[:, [i]]).all(axis=0).any():
            kept.append(int(i))
    return np.array(kept, dtype=int)


def pareto_front(tile: Array, count: Array, leaves: Array) -> Ints:
    """Numbers of the Pareto-least triples, by (tile, count, leaves)."""
    order = np.lexsort((leaves, count, tile))
    keep: list[int] = []
    counts: list[float] = []  # a staircase: counts ascend, leaves descend
    best: list[float] = []
    for i in order:
        at = int(np.searchsorted(np.array(counts), count[i], side="right"))
        if at and best[at - 1] <= leaves[i]:
            continue
        keep.append(int(i))
        end = at
        while end < len(best) and best[end] >= leaves[i]:
            end += 1
        counts[at:end], best[at:end] = [float(count[i])], [float(leaves[i])]
    return np.array(keep, dtype=int)
