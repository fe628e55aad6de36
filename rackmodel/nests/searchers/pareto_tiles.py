"""Tiles of any size for one rank, and for a class of ranks: Pareto lists of (tile, tiles, leaves).

A chain D → a → g (leaf groups of g) costs room a, n = ceil(D / a) tiles and L = floor(D/a) ceil(a/g) +
ceil((D mod a) / g) leaf groups. For every n only tiles from ceil(D/n) up to the next multiple of g can be Pareto-least.
Ranks of one class multiply. Derivation: docs/loop_nests.md, section 6.
"""

from dataclasses import dataclass

import numpy as np

from rackmodel.nests.arrays import Floats, Ints


def rank_tiles(size: int, group: int, least: int) -> tuple[Floats, Floats, Floats]:
    """Pareto (tile, count, leaves) of one rank for leaf groups of `group`; tiles >= least."""
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
    return array[:, 0], array[:, 1], array[:, 2]


@dataclass
class ClassTiles:
    """Tiles of a class: product of tiles, of counts, of leaves; `picks` [n, ranks] single tiles."""

    tile: Floats
    count: Floats
    leaves: Floats
    picks: Floats


def combine(parts: list[tuple[Floats, Floats, Floats]], most: float) -> ClassTiles:
    """Joint Pareto list of the ranks of a class, tiles up to `most`."""
    tile: Floats = np.ones(1)
    count: Floats = np.ones(1)
    leaves: Floats = np.ones(1)
    picks: Floats = np.zeros((1, 0))
    for t, n, leaf in parts:
        picks = np.concatenate([np.repeat(picks, len(t), axis=0), np.tile(t, len(tile))[:, None]], axis=1)
        tile, count, leaves = (np.multiply.outer(a, b).ravel() for a, b in ((tile, t), (count, n), (leaves, leaf)))
        keep = tile <= most
        tile, count, leaves, picks = tile[keep], count[keep], leaves[keep], picks[keep]
        if len(parts) > 1:
            front = pareto_front(tile, count, leaves)
            tile, count, leaves, picks = tile[front], count[front], leaves[front], picks[front]
    return ClassTiles(tile, count, leaves, picks)


def pareto_front(tile: Floats, count: Floats, leaves: Floats) -> Ints:
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
